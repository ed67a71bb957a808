"""Counts that take many sweeps: several points in one, all of them priced, and answers of any length."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.answering import counts
from bucketflow.pipeline.answering import prepared as prepared_module
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.preprocessing.preprocess import Network, reduce_model
from bucketflow.pipeline.queries import counting
from bucketflow.pipeline.queries.counting import prefix_sum, primes, root_of_unity
from bucketflow.pipeline.trees.costs import Rates, gpu_rates, residue_rates
from bucketflow.tasks.steps.semiring import SUM_PRODUCT
from tests.models import bayes_models, brute_count, cost_models, markov_models, named_model


def chain(length: int, states: int, highest: int, top: int, *, forbids: bool = False) -> Model:
    """A chain with random pairwise costs, whose sums reach ``top``; or where each pair forbids something itself."""
    rng = np.random.default_rng(length)
    tables = [rng.integers(0, highest + 1, (states, states)) for _ in range(length - 1)]
    for table in tables if forbids else ():
        table[0, 0] = top
    return named_model("cost", [states] * length, [Function((i, i + 1), t) for i, t in enumerate(tables)], top)


def grid(side: int, states: int, highest: int, top: int) -> Model:
    """A square grid with random pairwise costs."""
    rng = np.random.default_rng(side)
    right = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    down = [(i, i + side) for i in range(side * side - side)]
    functions = [Function(scope, rng.integers(0, highest + 1, (states, states))) for scope in right + down]
    return named_model("cost", [states] * side * side, functions, top)


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects how many sweeps counts take."""
    done: list[int] = []

    def counted(*args: Any) -> Any:
        done.append(1)
        return total(*args)

    total = counts.swept_total
    monkeypatch.setattr(counts, "swept_total", counted)
    return done


def test_points_are_swept_together(sweeps: list[int]) -> None:
    model = chain(5, 3, 700, 900)
    plan = planned(model)
    assert bucketflow.solve(model, "count").value == brute_count(model, {}) == 38
    assert plan.evaluations.together == 2048
    assert plan.evaluations.points > 2048
    assert len(sweeps) <= plan.sweeps <= 2 * len(sweeps)


@pytest.mark.parametrize(("way", "memory"), [("slice", 9_000), ("spill", None)])
def test_slices_and_boxes_take_one_point_at_a_time(sweeps: list[int], way: Any, memory: int | None) -> None:
    model = grid(4, 3, 1, 12)
    whole = bucketflow.solve(model, "count").value
    sweeps.clear()
    plan = planned(model, fit=way, memory=memory)
    assert (plan.slices > 1, plan.spill is not None) == (way == "slice", way == "spill")
    assert bucketflow.solve(model, "count", fit=way, memory=memory).value == whole
    assert plan.evaluations.together == 1
    assert plan.evaluations.points < len(sweeps) <= plan.sweeps <= 2 * len(sweeps)


def test_points_fit_the_budget() -> None:
    model = chain(6, 3, 20, 50)
    whole = planned(model)
    tight = planned(model, memory=whole.peak_bytes - 1)
    assert tight.peak_bytes < whole.peak_bytes
    assert tight.evaluations.together < whole.evaluations.together
    answer = bucketflow.solve(model, "count", memory=whole.peak_bytes - 1)
    assert answer.value == bucketflow.solve(model, "count").value


def planned(model: Model, **options: Any) -> Any:
    return bucketflow.plan(model, "count", **options)


def test_sweeps_are_priced_and_shown() -> None:
    """At many points; at one, modulo several primes; and where the first sweep proves the count."""
    many = chain(6, 3, 20, 50)
    few, none = chain(40, 3, 20, 10**6, forbids=True), chain(6, 3, 20, 10**6, forbids=True)
    assert [planned(model).sweeps for model in (many, few, none)] == [3, 5, 1]
    assert planned(many).seconds > 2 * planned(none).seconds
    assert planned(few).seconds == pytest.approx(4 * planned(few).sweep_seconds)
    assert dict(planned(many).rows())["sweeps"] == (
        "up to 3, after the first at 84 points, 84 at a time, modulo 2 primes"
    )
    assert dict(planned(few).rows())["sweeps"] == "up to 5, about 4 expected, after the first modulo 4 primes"
    assert "sweeps" not in dict(planned(none).rows())


@st.composite
def with_close_tops(draw: st.DrawFn) -> tuple[Model, dict[str, int]]:
    """Costs, some of them forbidden, and a top about which assignments are, or the greatest costs together."""
    model = draw(cost_models())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dims = model.dims
    functions = []
    for function in model.functions:
        values = np.where(rng.random(function.values.shape) < draw(st.sampled_from([0, 0.1, 0.4])), 10**6, 0)
        values = np.where(function.values < 12, function.values, 11) + values
        default = min(function.default, 11) if draw(st.booleans()) else 10**6
        rows = function.rows
        functions.append(Function(function.scope, values, rows=rows, default=0 if rows is None else default))
    free = named_model("cost", [*dims], functions, 1 << 40)
    totals = [free.cost(list(states)) for states in itertools.product(*map(range, dims))]
    possible = sorted({total for total in totals if total is not None and total < 10**5}) or [0]
    highest = sum(
        int(np.append(values[values < 12], least).max())
        for values, least in (
            (np.append(f.values, f.default), low) for f, low in zip(functions, free.lowest, strict=True)
        )
    )
    about = draw(st.sampled_from([*possible[-4:], possible[0], highest]))
    model = named_model("cost", [*dims], functions, about + draw(st.integers(-1, 2)))
    names = [name for name in model.names if draw(st.integers(0, 4)) == 0]
    return model, {name: draw(st.integers(0, dims[model.index[name]] - 1)) for name in names}


@settings(max_examples=250, deadline=None)
@given(with_close_tops())
def test_functions_that_exclude_nothing_are_left_out(case: tuple[Model, dict[str, int]]) -> None:
    model, evidence = case
    assert bucketflow.solve(model, "count", evidence=evidence).value == brute_count(model, evidence)


@settings(max_examples=80, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_weights_that_exclude_nothing_are_left_out(model: Model, data: st.DataObject) -> None:
    names = [name for name in model.names if data.draw(st.integers(0, 4)) == 0]
    evidence = {name: data.draw(st.integers(0, model.dims[model.index[name]] - 1)) for name in names}
    assert bucketflow.solve(model, "count", evidence=evidence).value == brute_count(model, evidence)
    network = reduce_model(model, "count", {model.index[name]: state for name, state in evidence.items()})
    if network.feasible:
        assert all((values_left(network, f) == 0).any() for leaf in network.leaves for f in leaf.functions)


def values_left(network: Network, f: int) -> Any:
    """Values of a function of probabilities on the states that are left."""
    function = network.model.functions[f]
    return function.dense(network.model.dims)[np.ix_(*(network.domains[v] for v in function.scope))]


def test_only_functions_that_forbid_are_swept_where_no_total_reaches_top() -> None:
    """And all of them where one does, by one unit: a wide grid of costs between two variables that must differ."""
    side, rng = 12, np.random.default_rng(0)
    differ = Function((0, side * side - 1), np.array([[10**6, 0, 0], [0, 10**6, 0], [0, 0, 10**6]]))
    soft = grid(side, 3, 20, 10**6)
    tables = [Function(f.scope, rng.permutation(np.arange(9)).reshape(3, 3)) for f in soft.functions]
    reached = 8 * len(tables)
    model = named_model("cost", [*soft.dims], [*tables, differ], reached + 1)
    assert [leaf.scope for leaf in reduce_model(model, "count", {}).leaves] == [(0, 1)]
    assert bucketflow.solve(model, "count").value == 6 * 3 ** (side * side - 2)
    assert len(reduce_model(model, "optimum", {}).leaves) == len(tables) + 1
    model = named_model("cost", [*soft.dims], [*tables, differ], reached)
    assert len(reduce_model(model, "count", {}).leaves) == len(tables) + 1


def test_sweeps_by_rows_take_what_many_small_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the rows: a sweep for each point and prime, which are refused where they take longer than allowed."""
    model = chain(30, 4, 20, 300)
    plan = planned(model, representation="rows")
    assert plan.sweeps > 1000
    assert plan.seconds > counts.least_seconds_by_rows(plan) > plan.sweeps * len(model.functions) * 2e-5
    monkeypatch.setattr(prepared_module, "HOPELESS_SECONDS", 1.0)
    with pytest.raises(
        bucketflow.BudgetError, match=r"takes 1,\d+ sweeps over sparse tables, .* at least .* s in all, allowed 1$"
    ):
        planned(model, representation="rows")


def test_costs_of_leaf_tables_are_told_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made, found = chain(6, 3, 20, 50), counting.cost_leaf, list[Any]()

    def seen(network: Any, leaf: Any, axes: Any) -> Any:
        found.append((leaf, tuple(axes)))
        return made(network, leaf, axes)

    monkeypatch.setattr(counting, "cost_leaf", seen)
    assert bucketflow.solve(model, "count", representation="rows").value == brute_count(model, {})
    assert found
    assert len(found) <= 2 * len(model.functions)  # once for the estimate


def test_counts_of_fine_costs() -> None:
    """A polynomial of 9,000 coefficients, which were too many."""
    model = chain(4, 3, 3000, 5000)
    assert 0 < bucketflow.solve(model, "count").value == brute_count(model, {}) < 3**4


def test_what_nobody_waits_for_is_refused() -> None:
    tables = [np.array([[0, 1], [2, 1000]])] * 946
    scopes = list(itertools.combinations(range(44), 2))
    model = named_model("cost", [2] * 44, [Function(*f) for f in zip(scopes, tables, strict=True)], 10**5)
    with pytest.raises(bucketflow.BudgetError, match=r"the count needs up to .* sweeps of .* s in all"):
        planned(model, memory="99999TB", order_time=0)


def test_progress_counts_all_sweeps() -> None:
    seen: list[tuple[int, int]] = []
    bucketflow.solve(chain(6, 3, 20, 50), "count", progress=lambda done, of: seen.append((done, of)))
    assert seen[len(seen) // 2][0] < seen[-1][0]
    assert 0.5 < seen[-1][0] / seen[-1][1] <= 1


def test_counts_of_any_length(tmp_path: Path) -> None:
    """Python writes and reads no integer of more than 4,300 digits as text."""
    table = np.array([[0, 0], [0, 1]])
    model = named_model("cost", [2] * 15_000, [Function((0, 1), table)], 1)
    result = bucketflow.solve(model, "count", workdir=tmp_path / "run")
    assert result.value == 3 * 2**14_998
    text = json.loads(result.to_json())["value"]
    assert len(text) == 4516
    assert text.endswith("032")
    assert "(4516 digits)" in repr(result)
    assert bucketflow.solve(model, "count", workdir=tmp_path / "run").value == result.value


def within_a_few(top: int) -> Model:
    """A few dozen assignments; some costs reach the top, but not with the negative ones of other functions."""
    rng = np.random.default_rng(3)
    scopes, sizes = ("ab", "bc", "ca"), {"a": 4, "b": 3, "c": 3}
    tables = [rng.integers(-10, 9, [sizes[v] for v in scope]) for scope in scopes]
    tables[0][0, 0] = top
    return Model.build("cost", sizes, [(tuple(scope), t) for scope, t in zip(scopes, tables, strict=True)], top=top)


def test_many_sweeps_of_few_cells_are_priced_and_are_fewer(sweeps: list[int]) -> None:
    """What a sweep takes besides its cells is most of it: at a million points it is seconds, not a part of one."""
    model = within_a_few(10**6)
    plan = planned(model)
    assert plan.cells == 36
    assert plan.evaluations.points > 10**6
    assert plan.sweeps < 2_000
    for seconds in (plan.seconds, plan.predicted_seconds):
        assert 1.0 < seconds < 10.0
    small = planned(within_a_few(10**4))
    assert plan.predicted_seconds > 50 * small.predicted_seconds
    found = bucketflow.solve(within_a_few(10**4), "count", method="dense")
    assert found.value == brute_count(within_a_few(10**4), {})
    assert small.evaluations.sweeps / 2 < len(sweeps) <= small.sweeps


@pytest.mark.parametrize(("length", "most"), [(60, 6), (120, 12), (20, 2)])
def test_the_expected_number_of_sweeps_is_priced(sweeps: list[int], length: int, most: int) -> None:
    """Where pairs exclude half of the states' combinations there are far fewer than all assignments."""
    rng = np.random.default_rng(length)
    tables = [np.where(rng.random((4, 4)) < 0.6, 9, 0) for _ in range(length - 1)]
    for table in tables:
        np.fill_diagonal(table, 0)
    functions = [Function((i, i + 1), table) for i, table in enumerate(tables)]
    model = named_model("cost", [4] * length, functions, 9)
    plan = planned(model)
    bucketflow.solve(model, "count", method="dense")
    assert abs(len(sweeps) - 1 - plan.evaluations.likely.sweeps) <= 1
    assert most // 2 <= plan.evaluations.likely.sweeps
    assert len(sweeps) <= plan.sweeps
    longest = replace(plan, evaluations=replace(plan.evaluations, expected=None))
    assert plan.predicted_seconds < longest.predicted_seconds or length == 20
    assert plan.seconds <= longest.seconds


def test_residues_are_priced_as_such() -> None:
    """A product modulo a prime takes some five times as long as one of floats, which the first sweep has."""
    plan = planned(chain(40, 3, 20, 10**6, forbids=True))
    assert plan.evaluations.points == 1
    first = replace(plan, evaluations=None)
    assert plan.predicted_seconds - first.predicted_seconds > 1.5 * plan.evaluations.sweeps * first.sweep_seconds
    assert residue_rates(Rates()).cells_per_second < Rates().cells_per_second / 2
    assert residue_rates(Rates()).matmul_cells_per_second < Rates().matmul_cells_per_second / 5
    kernels = gpu_rates(SUM_PRODUCT)
    assert kernels.cells_per_second / 3 < residue_rates(kernels).cells_per_second < kernels.cells_per_second


@pytest.mark.parametrize("points", [1, 2, 7, 60, 1001])
def test_prefixes_are_those_of_the_polynomial(points: int) -> None:
    rng = random.Random(points)
    prime = next(primes(points))
    root = root_of_unity(prime, points)
    coefficients = [rng.randrange(prime) for _ in range(points)]
    values = [sum(c * pow(root, j * k, prime) for k, c in enumerate(coefficients)) % prime for j in range(points)]
    for limit in (0, 1, points // 2, points):
        assert prefix_sum(values, limit, root, prime) == sum(coefficients[:limit]) % prime
