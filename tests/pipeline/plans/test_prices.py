"""One price: a step costs the same seconds whoever asks, and slices, boxes and trees are compared by them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import log2

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketflow.pipeline.budget.boxes import StageMaker
from bucketflow.pipeline.budget.fit import fitted
from bucketflow.pipeline.orders.forests import Rearranger, group_units, split_steps
from bucketflow.pipeline.plans.plan import with_rates
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees.costs import (
    Rates,
    gpu_rates,
    least_seconds,
    lowered_seconds,
    lowered_work,
    sized_work,
    step_seconds,
    steps_cost,
    tree_cost,
)
from bucketflow.pipeline.trees.cutsets import _Incidence
from bucketflow.pipeline.trees.tree import Sizer, Tree
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT, Semiring, min_plus
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps import scaled

RATES = Rates()


def only_step(dims, leaves):
    """A tree whose only step combines all leaves, laid out and lowered."""
    problem = Problem(dims, leaves, MIN_PLUS, 8)
    (plan,) = Planner(problem, PlanOptions(children=(tuple(range(len(leaves))),)), RATES).plans()
    return plan


@given(
    dims=st.lists(st.sampled_from((1, 2, 3, 8, 16, 40)), min_size=3, max_size=5).map(tuple),
    scopes=st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=7),
)
@example(dims=(40, 40, 40), scopes=[{0, 1}, {1, 2}, {0, 2}])
@example(dims=(40, 40, 40), scopes=[{0, 1}, {1, 2}])
@example(dims=(8, 40, 16), scopes=[{0, 1}, {1, 2}, {1}])
def test_every_road_predicts_the_same_seconds(dims, scopes):
    for outside in range(3):
        leaves = (*(tuple(sorted(scope)) for scope in scopes), (outside,))
        kids = (tuple(range(len(scopes))), (len(scopes), len(leaves)))
        problem = Problem(dims, leaves, MIN_PLUS, 8)
        (plan,) = Planner(problem, PlanOptions(children=kids), RATES).plans()
        masks, sizer = plan.tree.scope_masks, Sizer(dims)
        sized = [sized_work(sizer, [masks[c] for c in inputs], masks[len(leaves) + j]) for j, inputs in enumerate(kids)]
        assert [lowered_work(step.lowered) for step in plan.steps] == sized
        seconds = sum(lowered_seconds(step, RATES, 8) for step in plan.steps)
        boxing = StageMaker(Planner(problem, PlanOptions(), RATES), plan.tree, plan.layouts, 1e9)
        assert boxing.seconds(plan.steps) == pytest.approx(seconds)
        assert plan.seconds == with_rates(plan, RATES).seconds == pytest.approx(seconds)
        assert tree_cost(plan.tree, RATES).seconds == pytest.approx(seconds)
        assert replace(plan.cost, seconds=0) == replace(tree_cost(plan.tree), seconds=0)
        for rates in (RATES, gpu_rates(MIN_PLUS)):
            assert all(step_seconds(work, rates, 8) >= least_seconds(work.cells, rates) for work in sized)
        known = [sizer.cells(masks[c]) for c in kids[0]]
        assert sized_work(sizer, [masks[c] for c in kids[0]], masks[len(leaves)], known) == sized[0]
        loops = Rates(step_seconds=0.0)
        slices = _Incidence(plan.tree, RATES, 8, 0.0)
        expected = [log2(step_seconds(work, loops, 8)) for work in sized]
        assert slices.log_seconds.tolist() == pytest.approx(expected)


@given(sides=st.tuples(*[st.sampled_from((2, 7, 8, 15, 16, 33, 64))] * 3))
def test_the_search_prices_products_as_lowering_does(sides):
    scopes = ((0, 1), (1, 2), (0, 2))
    tree = Tree(sides, scopes, ((0, 1), (2, 3)))
    forest = split_steps(tree, group_units(3, scopes), Sizer(sides))
    assert Rearranger(forest, sides, RATES, 8, 0).seconds == pytest.approx(tree_cost(tree, RATES).seconds)


def test_more_tables_to_read_take_longer():
    sizer = Sizer((64, 16, 64))
    seconds = [step_seconds(sized_work(sizer, [7] * k, 5), Rates(bytes_per_second=1e30), 4) for k in range(1, 9)]
    assert seconds == sorted(seconds)
    assert (seconds[7] - RATES.step_seconds) / (seconds[1] - RATES.step_seconds) == pytest.approx(2.2)
    assert sized_work(sizer, [7, 7, 1, 2], 5).reads == 2  # small tables are merged before the loops


def test_tables_that_no_join_holds_are_each_read():
    """Three hundred tables of 15 binary variables out of 27 took 35 s where two tables and .13 s were predicted."""
    rng = np.random.default_rng(0)
    scopes = [tuple(sorted(rng.choice(27, 15, replace=False).tolist())) for _ in range(300)]
    sizer, masks = Sizer((2,) * 27), [sum(1 << v for v in scope) for scope in scopes]
    many = sized_work(sizer, masks, (1 << 25) - 1)
    loops = make_step(300, tuple(range(300)), tuple(scopes), tuple(range(25)), (2,) * 27, SUM_PRODUCT).lowered.loops
    assert loops is not None
    assert len(loops.operands) / 2 < many.further < 10 * len(loops.operands)
    assert 10 < step_seconds(many, RATES, 8) < 100
    few = sized_work(sizer, [*masks[:1] * 300, (1 << 27) - 1], (1 << 25) - 1)
    assert few.further == 0  # one join, beside the table that is read in order


def test_joins_of_many_inputs_are_told_from_some():
    """As many as all inputs would make one after the other, within a factor of two."""
    rng = np.random.default_rng(1)
    for size in (13, 14):
        masks = [sum(1 << int(v) for v in rng.choice(22, size, replace=False)) for _ in range(200)]
        unions: list[int] = []
        for mask in masks:
            fitting = (i for i, union in enumerate(unions) if (union | mask).bit_count() <= 16)
            if (i := next(fitting, None)) is None:
                unions.append(mask)
            else:
                unions[i] |= mask
        further = sized_work(Sizer((2,) * 22), [*masks, (1 << 22) - 1], 3).further
        cells = sum(2.0 ** union.bit_count() for union in unions)
        share = 1 + 0.6 * max(0.0, log2(cells) - 18)
        assert len(unions) / 2 < further / share + 1 < 2 * len(unions)


def seven_by_seven(semiring):
    """The sizes of a grid of 7x7 variables of 8 states."""
    pairs = [(v, v + 1) for v in range(49) if (v + 1) % 7] + [(v, v + 7) for v in range(42)]
    return Problem((8,) * 49, tuple(pairs), semiring, semiring.itemsize)


@pytest.mark.parametrize("decode", [False, True])
def test_an_optimum_at_a_third_of_its_memory_runs_in_slices(decode):
    problem = seven_by_seven(min_plus("int16"))
    whole = next(Planner(problem, PlanOptions(decode=decode), RATES).plans())
    options = PlanOptions(memory_bytes=whole.peak_bytes // 3, decode=decode)
    prices = fitted(Planner(problem, options, RATES), "auto", 1 << 62, lambda: 5e8)
    assert prices.chosen is prices.slices


def test_marginals_at_a_third_of_their_memory_run_in_slices():
    """Priced apart, boxes on disk looked cheaper than eight slices, which take half of their time."""
    problem = replace(seven_by_seven(SUM_PRODUCT), targets=tuple((v,) for v in range(49)))
    options = PlanOptions(memory_bytes=Planner(problem, PlanOptions(), RATES).whole().peak_bytes // 3)
    prices = fitted(Planner(problem, options, RATES), "auto", 1 << 62, lambda: 5e8)
    assert prices.chosen is prices.slices
    assert prices.chosen.slices == 8


def test_cost_of_both_ways_is_that_of_the_lowered_steps():
    plan = only_step((8, 9, 10), ((0, 1), (1, 2), (2,)))
    problem = Problem(plan.dims, plan.tree.leaves, SUM_PRODUCT, 8, targets=((0,), (2,)))
    both = Planner(problem, PlanOptions(), RATES).whole()
    assert plan.cost == steps_cost(plan.steps, plan.tree, RATES, 8)
    assert both.seconds == pytest.approx(sum(lowered_seconds(step, RATES, 8) for step in both.steps))


def test_steps_on_logarithms_read_as_few_tables_as_their_price_says(monkeypatch):
    """Ranges beyond float64 put a step of many small inputs on logarithms; it does not read each for every cell."""
    n, rng = 16, np.random.default_rng(0)
    pairs = tuple(combinations(range(n), 2))
    step = make_step(len(pairs), tuple(range(len(pairs))), pairs, (0, 1, 2, 3), (2,) * n, SUM_PRODUCT)
    logs = rng.uniform(-200.0, 0.0, (len(pairs), 4))
    logs[:, 0] = 0.0
    logs[5, 3] = -np.inf
    asked = []

    def contract(tables, *args, **options):
        asked.append(len(tables))
        return kernel(tables, *args, **options)

    kernel = scaled.contract
    monkeypatch.setattr(scaled, "contract", contract)
    found = scaled.SumProduct((2,) * n).step(step, [scaled.measured(np.exp(table)) for table in logs], threads=1)
    states = np.indices((2,) * n).reshape(n, -1)
    total = sum(table[2 * states[i] + states[j]] for table, (i, j) in zip(logs, pairs, strict=True))
    expected = np.logaddexp.reduce(total.reshape(16, -1), axis=1)
    natural = scaled.as_logs(found)
    assert natural.values + natural.log_scale == pytest.approx(expected, rel=1e-9)
    assert asked[-1] <= 6
    assert sum(asked) <= len(pairs) + 6


@pytest.mark.parametrize(
    ("semiring", "sizes", "milliseconds"),
    [
        (min_plus("int32"), (1, 57024, 1584, 1584), 10.5),
        (min_plus("float64"), (4, 64, 524288, 64), 2.10),
        (min_plus("float64"), (1, 1024, 32768, 2048), 15.6),
        (SUM_PRODUCT, (216, 540, 810, 72), 1.24),
        (SUM_PRODUCT, (4, 256, 4194304, 32), 15.4),
    ],
)
def test_products_on_a_gpu_are_priced_as_they_were_measured(
    semiring: Semiring, sizes: tuple[int, ...], milliseconds: float
) -> None:
    """Batch, rows, columns and depth on an H100."""
    sizer = Sizer(sizes)
    work = sized_work(sizer, [0b1011, 0b1101], 0b0111)
    predicted = 1e3 * step_seconds(work, gpu_rates(semiring), semiring.itemsize)
    assert 0.5 < milliseconds / predicted < 2


def test_on_a_gpu_reductions_and_many_large_inputs_cost_more() -> None:
    """18 functions summed out at once: 6.06 ms on an H100, 1 by cells and bytes alone."""
    sizer = Sizer((2,) * 28)
    rates, everything = gpu_rates(SUM_PRODUCT), (1 << 28) - 1
    reduced = sized_work(sizer, [everything, *[0b11 << i for i in range(17)]], 0)
    assert 0.5 < 6.06 / 1.58 / (1e3 * step_seconds(reduced, rates, 8)) < 2
    halves = [((1 << 24) - 1) << (i % 4) for i in range(40)]
    few, many = (step_seconds(sized_work(sizer, halves[:n], everything >> 8), rates, 8) for n in (8, 40))
    assert many > 3 * few
