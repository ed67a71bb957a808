"""Entries that are part of no assignment fall before anything is planned, and no assignment falls with them."""

from __future__ import annotations

import gc
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.preprocessing import consistency, preprocess
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.tasks.steps.caches import REMEMBERED
from tests.models import assignments, brute_count, brute_log10_sum, brute_optimum, cost_models, markov_models
from tests.policies import InForce


def random_relations(rng: np.random.Generator, scopes: list[tuple[int, ...]], dims: list[int], rows: bool) -> Model:
    """A model of potentials 0 and 1, dense or by rows in turn."""
    functions = []
    for k, scope in enumerate(scopes):
        table = (rng.random([dims[v] for v in scope]) < 0.4).astype(float)
        if rows and k % 2:
            places = np.argwhere(table)
            functions.append(Function(scope, np.ones(len(places)), places, 0.0))
        else:
            functions.append(Function(scope, table))
    return Model("markov", tuple(f"x{v}" for v in range(len(dims))), tuple(dims), (None,) * len(dims), tuple(functions))


def possible(model: Model) -> list[tuple[int, ...]]:
    return [
        a for a in product(*map(range, model.dims)) if all(f.at([a[v] for v in f.scope]) > 0 for f in model.functions)
    ]


# A join tree: every function shares two or three variables with one before it.
TREE = [(0, 1, 2), (1, 2, 3), (2, 1, 4, 5), (4, 5, 6), (1, 5, 4)]
CYCLE = [(0, 1, 2), (2, 1, 3), (3, 1, 4), (0, 4, 1)]


@pytest.mark.parametrize("scopes", [TREE, CYCLE])
@pytest.mark.parametrize("limits", [{}, {"semijoin_table_cells": 1}, {"most_sharing_functions": 1}])
def test_no_assignment_falls(scopes: list[tuple[int, ...]], limits: dict[str, int], in_force: InForce) -> None:
    in_force(PreprocessingPolicy, **limits)
    pruned = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = random_relations(rng, scopes, rng.integers(2, 4, 7).tolist(), rows=True)
        network, expected = reduce_model(model, "partition", {}), possible(model)
        if not network.feasible:
            assert expected == []
            continue
        pruned += network.pruned.entries
        assert possible(network.model) == expected
        assert network.model is not model or not network.pruned.entries
    assert pruned


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("table_cells", [PreprocessingPolicy.semijoin_table_cells, 1])
def test_every_entry_of_an_acyclic_model_that_is_left_is_part_of_an_assignment(
    rows: bool, table_cells: int, in_force: InForce
) -> None:
    in_force(PreprocessingPolicy, semijoin_table_cells=table_cells)
    pruned = 0
    for seed in range(20):
        model = random_relations(np.random.default_rng(seed), TREE, [3] * 7, rows=rows)
        network, expected = reduce_model(model, "partition", {}), possible(model)
        assert network.feasible is bool(expected)
        if not network.feasible:
            continue
        pruned += network.pruned.entries
        inside = [set(states.tolist()) for states in network.domains]
        for f in network.model.functions:
            entries = np.argwhere(f.values) if f.rows is None else f.rows[f.values > 0]
            left = {a for a in map(tuple, entries.tolist()) if all(map(_within, a, f.scope, [inside] * 9))}
            assert left == {tuple(a[v] for v in f.scope) for a in expected}
    assert pruned


def _within(state: int, variable: int, inside: list[set[int]]) -> bool:
    return state in inside[variable]


def test_functions_that_share_more_states_than_integers_number() -> None:
    """In the first three of five variables of 2^16 states they agree, and in every single state."""
    first, second = [7, 8, 9, 10], [1, 2, 3, 4]
    rows = [[[*first, k], [*second, 0], [*second, 1]] for k in (0, 1)]
    names = [f"x{v}" for v in range(5)]
    functions = [(names, found, [1.0, 2.0, 3.0], 0.0) for found in rows]
    model = Model.build("markov", dict.fromkeys(names, 1 << 16), functions)
    assert reduce_model(model, "partition", {}).pruned.entries == 2
    assert bucketflow.solve(model, "count").value == 2
    assert bucketflow.solve(model, "partition").log10 == pytest.approx(math.log10(13))


@settings(max_examples=60, deadline=None)
@given(cost_models(), st.sampled_from(["optimum", "count"]))
def test_costs_are_as_before(model: Model, query: str) -> None:
    found = bucketflow.solve(model, query)
    expected = brute_optimum(model, {}) if query == "optimum" else brute_count(model, {})
    assert found.value == expected
    kept = reduce_model(model, "optimum", {}).model
    assert all(kept.cost(a) == model.cost(a) for a in assignments(model, {}))


@settings(max_examples=40, deadline=None)
@given(markov_models())
def test_sums_are_as_before(model: Model) -> None:
    found, expected = bucketflow.solve(model, "partition"), brute_log10_sum(model, {})
    assert (found.status == "infeasible") is (expected is None)
    if expected is not None:
        assert found.log10 == pytest.approx(expected, abs=1e-9)
    assert bucketflow.solve(model, "count").value == brute_count(model, {})


def disagreeing() -> Model:
    """Two functions that no pair of states of a and b satisfies, though every state has support in both."""
    same, differ = np.eye(2), 1.0 - np.eye(2)
    tables = [(["a", "b", "c"], np.stack([same, same], axis=2)), (["d", "b", "a"], np.stack([differ, differ], axis=0))]
    return Model.build("markov", dict.fromkeys("abcd", 2), tables)


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_what_is_unsatisfiable_ends_there(query: str) -> None:
    network = reduce_model(disagreeing(), query, {})  # type: ignore[arg-type]
    assert not network.feasible
    found = bucketflow.solve(disagreeing(), query)
    assert found.value == 0 if query == "count" else found.status == "infeasible"


def test_wide_clauses_propagate_units() -> None:
    """(not x0), and of each variable that it or one of those before holds: every variable has one state left."""
    n = 80
    names = [f"x{v}" for v in range(n)]
    functions: list[tuple[list[str], list[list[int]], list[int], int]] = [(names[:1], [[1]], [10], 0)]
    functions += [(names[: k + 1], [[0] * k + [1]], [10], 0) for k in range(1, n)]
    model = Model.build("cost", dict.fromkeys(names, 2), functions, top=10)
    network = reduce_model(model, "count", {})
    assert network.feasible
    assert network.pruned.states == n
    assert bucketflow.solve(model, "count").value == 1
    last: list[tuple[list[str], list[list[int]], list[int], int]] = [(names, [[0] * n], [10], 0)]
    refuted = Model.build("cost", dict.fromkeys(names, 2), functions + last, top=10)
    assert bucketflow.solve(refuted).status == "infeasible"


def test_states_of_large_domains_are_excluded_by_count() -> None:
    rows = [[a, b] for a in range(3) for b in range(4) if a != 1] + [[1, 0], [1, 3]]
    model = Model.build("cost", {"a": 3, "b": 4}, [(["a", "b"], rows, [5] * len(rows), 1)], top=5)
    network = reduce_model(model, "count", {})
    assert [d.tolist() for d in network.domains] == [[1], [1, 2]]
    assert bucketflow.solve(model, "count").value == 2


def test_marginals_are_as_before() -> None:
    rng = np.random.default_rng(5)
    model = random_relations(rng, CYCLE, [3] * 5, rows=True)
    network = reduce_model(model, "partition", {})
    assert network.pruned.entries
    expected = possible(model)
    found = bucketflow.marginals(model, joint=[("x1", "x2")])
    for v in range(5):
        share = [sum(a[v] == s for a in expected) / len(expected) for s in range(3)]
        np.testing.assert_allclose(found[f"x{v}"], share, atol=1e-12)


def test_plans_show_what_fell(tmp_path: Path) -> None:
    model = random_relations(np.random.default_rng(5), CYCLE, [3] * 5, rows=True)
    pruned = reduce_model(model, "partition", {}).pruned
    bucketflow.save(model, tmp_path / "m.uai")
    shown = CliRunner().invoke(main, ["plan", str(tmp_path / "m.uai"), "--query", "partition", "--json"])
    assert json.loads(shown.stdout)["impossible"] == {"states": pruned.states, "entries": pruned.entries}
    shown = CliRunner().invoke(main, ["plan", str(tmp_path / "m.uai"), "--query", "partition"])
    assert f"{pruned.states:,} states and {pruned.entries:,} entries" in shown.stdout


def test_work_is_bounded(in_force: InForce) -> None:
    in_force(PreprocessingPolicy, semijoin_passes=0)
    in_force(PreprocessingPolicy, semijoin_entries=0)
    network = reduce_model(disagreeing(), "count", {})
    assert network.feasible
    assert network.pruned.entries == 0
    assert bucketflow.solve(disagreeing(), "count").value == 0


def test_what_falls_is_found_once_for_the_same_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(preprocess, "fixpoint", lambda *given: calls.append(given) or consistency.fixpoint(*given))
    dense = random_relations(np.random.default_rng(6), CYCLE, [3] * 5, rows=False)
    first, again = (reduce_model(dense, "partition", {}) for _ in range(2))
    assert len(calls) == 1
    assert first.pruned.entries
    assert (again.pruned, again.leaves, again.variables) == (first.pruned, first.leaves, first.variables)
    state = int(first.domains[0][0])
    other = bucketflow.marginals(dense, evidence={"x0": state})["x0"]
    assert len(calls) == 2
    assert other.tolist() == [s == state for s in range(3)]
    assert reduce_model(dense, "count", {}).pruned == first.pruned
    assert len(calls) == 2
    for states in product(range(3), repeat=2):
        reduce_model(dense, "partition", dict(enumerate(states)))
    assert len(preprocess._remembered[dense]) == REMEMBERED


def test_values_are_read_again_where_it_is_known_what_falls() -> None:
    model = random_relations(np.random.default_rng(5), CYCLE, [3] * 5, rows=False)
    for network in (reduce_model(model, "partition", {}) for _ in range(2)):
        assert network.pruned.entries
        kept = [f for f in model.functions if f not in network.model.functions]
        assert kept
        assert {f.values.max() for f in network.model.functions} == {model.functions[0].values.max()}
        for function in model.functions:  # as whoever holds the array that a model was given may do
            values = function.values.base
            assert values is not None
            values[values > 0] = 0.5


@pytest.mark.parametrize("model", [disagreeing(), bucketflow.Model.build("cost", {"a": 2}, [("a", [0, 1])])])
def test_what_is_remembered_goes_with_its_model(model: Model) -> None:
    copy = replace(model)
    for _ in range(2):
        reduce_model(copy, "optimum", {})
    assert copy in preprocess._remembered
    gone, copy = ref(copy), model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("evidence", [{}, {0: 1}])
def test_only_functions_of_costs_that_may_exclude_a_state_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, evidence: dict[int, int]
) -> None:
    """Functions that allow every state are read only after a state of their variables is excluded."""
    differ = np.where(np.eye(3, dtype=bool), 9, 0)
    functions = [Function((v, v + 1), differ.copy()) for v in range(3)]
    model = Model("cost", tuple("abcd"), (3, 3, 3, 3), (None,) * 4, tuple(functions), top=9)
    looked: list[int] = []
    support = consistency._dense_support
    monkeypatch.setattr(consistency, "_dense_support", lambda *given: (looked.append(1), support(*given))[1])
    network = reduce_model(model, "optimum", evidence)
    assert [len(states) for states in network.domains] == ([1, 2, 3, 3] if evidence else [3, 3, 3, 3])
    assert bool(looked) == bool(evidence)
