"""Counts and sums by search: what they answer is what sweeps answer, and they are chosen where they are little work."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings

import bucketflow
from bucketflow import Model, Result
from bucketflow.pipeline.answering.engines.strategy_policy import TurnLengths
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.queries.formula import QueryPolicy, UnfitError, formula_of, has_mixed_tables
from tests.models import brute_count, brute_log10_sum, cost_models, markov_models
from tests.strategies import NEVER_QUICK, solve_by


def searched(model: Model, query: str, reason: str) -> Result | None:
    """The answer of a search, or None where it is refused for a reason."""
    try:
        return bucketflow.solve(model, query, method="search")
    except BudgetError as error:
        if reason not in str(error):
            raise
    return None


@settings(max_examples=60, deadline=None)
@given(cost_models())
def test_counts_of_costs(model: Model) -> None:
    found = searched(model, "count", "sums of finite costs may reach top")
    assert found is None or found.value == brute_count(model, {})


def test_sums_of_huge_costs_over_one_scope_are_not_counted() -> None:
    """Two costs of 0.6 * 2**61 are allowed, and their sum is at least ``top`` and at least 2**61."""
    huge = (6 << 61) // 10
    table = np.array([[0, huge], [1, huge]], np.int64)
    model = Model.build("cost", {"x": 2, "y": 2}, [(["x", "y"], table)] * 2, top=(1 << 61) - 1)
    for method in ("auto", "dense", "diagram"):
        assert bucketflow.solve(model, "count", method=method).value == 2  # type: ignore[arg-type]
    assert searched(model, "count", "sums of finite costs may reach top") is None


@settings(max_examples=60, deadline=None)
@given(markov_models())
def test_sums_and_counts_of_potentials(model: Model) -> None:
    assert bucketflow.solve(model, "count", method="search").value == brute_count(model, {})
    found, expected = searched(model, "partition", "too many clauses"), brute_log10_sum(model, {})
    assert found is None or (found.status == "infeasible") is (expected is None)
    if found is not None and expected is not None:
        assert found.log10 == pytest.approx(expected, abs=1e-9)


def deterministic(seed: int, n: int = 9, size: int = 3) -> Model:
    """Functions of two variables before that are certain or weigh differently where they are possible at all."""
    rng = np.random.default_rng(seed)
    names = [f"x{v}" for v in range(n)]
    functions = [(names[:1], rng.random(size) + 0.1), (names[1:2], rng.random(size) + 0.1)]
    for v in range(2, n):
        table = rng.random((size, size, size)) * (rng.random((size, size, size)) < 0.45)
        parents = rng.choice(v, 2, replace=False)
        functions.append(([names[parents[0]], names[parents[1]], names[v]], table))
    return Model.build("markov", dict.fromkeys(names, size), functions)


@pytest.mark.parametrize("seed", range(6))
def test_weights_within_mostly_zero_functions(seed: int) -> None:
    model = deterministic(seed)
    swept, found = (bucketflow.solve(model, "partition", method=method) for method in ("dense", "search"))  # type: ignore[arg-type]
    assert found.log10 == pytest.approx(swept.log10, abs=1e-11)
    work = json.loads(found.to_json())["search"]
    assert work["method"] == "search"
    assert 0 < work["error"] < 1e-12
    assert "search (" in repr(found)
    evidence = {"x0": 1, "x8": 0}
    swept, found = (bucketflow.solve(model, "count", evidence=evidence, method=m) for m in ("dense", "search"))  # type: ignore[arg-type]
    assert found.value == swept.value
    assert found.search is None or found.search.error == 0


def test_clauses_are_those_of_the_model_as_it_was_given() -> None:
    """A parity of three variables that a clause of two of them cuts: no entry that fell is excluded twice."""
    parity = (np.indices((2, 2, 2)).sum(axis=0) % 2).astype(float)
    clause = np.array([[1.0, 1.0], [1.0, 0.0]])
    model = Model.build(
        "markov",
        dict.fromkeys("abcd", 2),
        [(["a", "b", "c"], parity), (["a", "b"], clause), (["c", "d"], np.ones((2, 2)))],
    )
    network = reduce_model(model, "count", {})
    assert network.pruned.entries
    made = formula_of(network, model)
    assert sorted(map(len, made.clauses)) == [2, 3, 3, 3, 3]
    assert bucketflow.solve(model, "count", method="search").value == brute_count(model, {})


def test_wide_clauses_by_rows() -> None:
    n = 60
    names = [f"x{v}" for v in range(n)]
    rows = [(names, [[1] * n, [0] * n], [9, 9], 0), (names[:50], [[1] * 50], [9], 0)]
    model = Model.build("cost", dict.fromkeys(names, 2), rows, top=9)
    found = bucketflow.solve(model, "count")
    assert found.value == 2**n - 1 - 2 ** (n - 50)
    assert found.search is not None


def test_what_is_no_formula() -> None:
    model = Model.build("markov", {"a": 3, "b": 3}, [(["a", "b"], np.arange(9.0).reshape(3, 3))])
    assert not formula_of(reduce_model(model, "partition", {}), model).suits
    network = reduce_model(model, "count", {})
    limited = [QueryPolicy.using(**{name: 0}) for name in ("formula_cubes", "formula_literals", "formula_variables")]
    for policy in (*limited, PreprocessingPolicy.using(wide_cells=0)):
        with policy, pytest.raises(UnfitError):
            formula_of(network, model)
    tiny = Model.build("markov", {"a": 2, "b": 2}, [(["a"], [1.0, 1e-200]), (["a", "b"], [[0.0, 1.0], [1.0, 1.0]])])
    with pytest.raises(BudgetError):
        bucketflow.solve(tiny, "partition", method="search")


def test_searches_are_tried_before_anything_is_swept() -> None:
    model = deterministic(3)
    expected = bucketflow.solve(model, "partition", method="dense").log10
    assert bucketflow.solve(model, "partition").search is None
    found = solve_by(replace(NEVER_QUICK, share=inf), model, "partition", threads=1)
    assert found.search is not None
    assert found.log10 == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("query", ["count", "partition"])
def test_searches_go_on_in_turns_that_double(query: str) -> None:
    """A first turn of next to nothing does not suffice; later ones go on from there."""
    lengths = {**NEVER_QUICK.lengths, "search": TurnLengths(1e-6), "diagrams": TurnLengths(1.0, most_turns=0)}
    found = solve_by(replace(NEVER_QUICK, share=inf, lengths=lengths), deterministic(3), query)
    assert found.search is not None
    turns = [turn for turn in found.tried if turn.engine == "search"]
    assert len(turns) > 1
    assert [turn.ended for turn in turns[:-1]] == ["its work was done"] * (len(turns) - 1)


@settings(max_examples=60)
@given(markov_models())
def test_tables_of_many_weights_are_told_before_a_formula_is_made(model: Model) -> None:
    """What suits is the same; the clauses of tables that do not took longer than sweeping them."""
    network = reduce_model(model, "partition", {})
    assume(network.feasible and network.leaves)
    try:
        suits = formula_of(network, model).suits
    except UnfitError:
        return
    assert has_mixed_tables(network, model) is not suits
