"""Isolated variables: those that share no function with another variable are eliminated without a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow as bf
from bucketflow import Model
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.gates.circuit_leaves import CircuitLeaves
from bucketflow.pipeline.orders import forests, tree_search
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.trees.tree import bucket_tree
from tests.models import brute_count, brute_log10_sum, brute_optimum, cost_models, markov_models
from tests.policies import InForce


def isolated(count: int, kind: str = "markov") -> Model:
    """Return a model of variables that no function joins, and one pair that a function joins."""
    functions = [((f"x{i}",), [1 + i % 3, 2, 3]) for i in range(count)]
    return Model.build(
        kind,
        {**{f"x{i}": ["a", "b", "c"] for i in range(count)}, "y": 2, "z": 2},
        [*functions, (("y", "z"), [[1, 2], [3, 4]])],
        **({"top": 10**6} if kind == "cost" else {}),
    )


@pytest.fixture(autouse=True)
def few(in_force: InForce) -> None:
    """Let one isolated variable be enough."""
    in_force(PreprocessingPolicy, isolated_variables=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(cost_models(), markov_models()), st.booleans())
def test_answers_are_those_of_brute_force(model: Model, observed: bool) -> None:
    evidence = {model.names[0]: 0} if observed else {}
    found = bf.solve(model, "optimum", evidence=evidence)
    best = brute_optimum(model, evidence)
    assert (found.status == "infeasible") == (best is None)
    if best is not None:
        assert found.assignment is not None
        assert (found.value if model.kind == "cost" else found.log10) == pytest.approx(best)
        states = [found.assignment[name] for name in model.names]
        assert (model.cost(states) if model.kind == "cost" else model.log10_value(states)) == pytest.approx(best)
    if model.kind == "cost":
        assert bf.solve(model, "count", evidence=evidence).value == brute_count(model, evidence)
        return
    total = brute_log10_sum(model, evidence)
    summed = bf.solve(model, "partition", evidence=evidence)
    assert (summed.status == "infeasible") == (total is None)
    if total is not None:
        assert summed.log10 == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_only_variables_that_functions_join_are_planned(query: str) -> None:
    network, _ = question_of(isolated(50), query).reduced
    assert [network.model.names[v] for v in network.variables] == ["y", "z"]
    assert network.scopes == ((0, 1),)
    assert not network.free


def test_products_of_tiny_values_do_not_underflow() -> None:
    values = np.array([1e-200, 2e-200])
    model = Model.build("markov", {"x": 2}, [(("x",), values), (("x",), values)])
    assert bf.solve(model, "partition").log10 == pytest.approx(np.log10(5.0) - 400)


def test_answers_of_many_assignments_keep_isolated_variables() -> None:
    model = isolated(3, "cost")
    costs = sorted(
        model.cost((a, b, c, y, z))
        for a in range(3)
        for b in range(3)
        for c in range(3)
        for y in (0, 1)
        for z in (0, 1)
    )
    assert [one.value for one in bf.best(model, 20)] == costs[:20]
    drawn = bf.sample(isolated(2), 2000, seed=1).states
    share = np.bincount(np.asarray(drawn)[:, 0], minlength=3) / 2000
    assert share == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.05)


# Networks whose functions form trees.


def test_no_search_follows_where_no_tree_sweeps_fewer_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("searched in vain")

    monkeypatch.setattr(tree_search, "OrderPool", never)
    monkeypatch.setattr(tree_search, "Rearranger", never)
    slow = Rates(1e3, 1e3, 1e3)
    chain = tuple((i, i + 1) for i in range(199))
    TreeSearch((5,) * 200, chain, rates=slow).cheapest()
    with pytest.raises(AssertionError, match="in vain"):
        TreeSearch((5,) * 200, (*chain, (0, 199)), rates=slow).cheapest()


def test_no_forest_is_built_if_that_takes_longer_than_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("searched in vain")

    for name in ("OrderPool", "Rearranger", "forest_tree"):
        monkeypatch.setattr(tree_search, name, never)
    monkeypatch.setattr(forests, "forest_tree", never)
    ladder = [(i, j) for i in range(4000) for j in (i + 1 + i % 2, i + 2) if j < 4000]
    tree = TreeSearch((2,) * 4000, ladder).cheapest()
    assert max(map(len, tree.joined)) == 3
    with pytest.raises(AssertionError, match="in vain"):
        TreeSearch((40,) * 4000, ladder).cheapest()


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (((0, 1), (1, 2), (1, 3)), True),
        (((0, 1, 2), (2, 3), (0, 3)), False),
        (((0, 1), (1, 2), (0, 2)), False),
        (((0, 1, 2), (0, 3), (1, 4)), True),
    ],
)
def test_acyclic_hypergraphs(scopes: tuple[tuple[int, ...], ...], expected: bool) -> None:
    n = 1 + max(max(scope) for scope in scopes)
    assert bucket_tree((2,) * n, scopes, tuple(reversed(range(n)))).is_acyclic is expected


# Circuits.


def test_leaves_of_a_circuit_are_counted_once() -> None:
    class Unread(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all parameters are read for each function")

    model = isolated(4)
    leaves = CircuitLeaves(reduce_model(model, "partition", {}), Unread())
    for f in range(len(model.functions)):
        leaves.table(f)
    assert leaves.count == 4 * 3 + 2 * 2 + 4 * 3 + 4
