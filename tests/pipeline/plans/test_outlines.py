"""What is known of a plan before its steps are lowered: what it needs at least, in slices and in boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import inf, prod
from random import Random

import pytest

from bucketflow.pipeline.budget.boxes import StageTables
from bucketflow.pipeline.orders import tree_search
from bucketflow.pipeline.orders.effort import LEAST, SHARE, PlanningBudget
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.plans.lower_bounds import Outline, first_plan, live_cells
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem, sliced_dims
from bucketflow.pipeline.plans.recompute import BothWaysBytes, with_parts_again
from bucketflow.pipeline.plans.two_way_steps import StepBuilder
from bucketflow.pipeline.trees.costs import Rates, steps_cost
from bucketflow.pipeline.trees.memory import Sizing, sweep_peak
from bucketflow.pipeline.trees.tree import Tree, bucket_tree
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT
from bucketflow.tasks.steps.step import Step
from bucketflow.tasks.sweeps.sweep import freed_tables

RATES = Rates()


def grid(rows: int, columns: int, states: int) -> Problem:
    across = [(v, v + 1) for v in range(rows * columns) if v % rows < rows - 1]
    along = [(v, v + rows) for v in range(rows * (columns - 1))]
    return Problem((states,) * (rows * columns), (*across, *along), SUM_PRODUCT, 8)


def random_tree(seed: int) -> Tree:
    draw = Random(seed)
    n = draw.randint(4, 14)
    dims = tuple(draw.randint(1, 4) for _ in range(n))
    scopes = [tuple(draw.sample(range(n), draw.randint(1, 3))) for _ in range(2 * n)]
    return bucket_tree(dims, scopes, draw.sample(range(n), n))


def needed(tree: Tree, head: int, steps: Sequence[Step], inputs: Sequence[int], boxed: Sequence[int]) -> int:
    """Bytes of the tables of a box, followed step by step."""
    sizes = sliced_dims(tree.dims, boxed)
    size = [8 * prod(sizes[v] for v in scope) for scope in tree.scopes]
    live = peak = 0
    made = {step.node for step in steps}
    for step, gone in zip(steps, freed_tables(steps, ()), strict=True):
        live += size[step.node]
        peak = max(peak, live)
        live -= sum(size[i] for i in gone if i in made)
    leaves = {i for step in steps for i in step.inputs if i < tree.n_leaves}
    read = sum(size[i] for i in inputs)
    moving = max(read + 2 * max((size[i] for i in inputs), default=0), size[head] if head >= 0 else 0)
    return peak + sum(size[i] for i in leaves) + read + moving


@pytest.mark.parametrize("seed", range(40))
def test_boxes_fix_as_few_variables_as_their_tables_allow(seed: int) -> None:
    tree, draw = random_tree(seed), Random(seed)
    layouts = [tuple(scope) for scope in tree.scopes]
    problem = Problem(tree.dims, tree.leaves, MIN_PLUS, 8)
    steps = [StepBuilder(tree, layouts, problem).forward(node) for node in tree.schedule]
    # the second half of the steps, which reads some tables of the first
    part = steps[draw.randint(0, len(steps) - 1) :]
    inside = {step.node for step in part}
    inputs = [i for step in part for i in step.inputs if i >= tree.n_leaves and i not in inside]
    head = draw.choice([-1, part[-1].node])
    candidates = [v for v in draw.sample(range(len(tree.dims)), len(tree.dims)) if tree.dims[v] > 1]
    bytes_by_count = [needed(tree, head, part, inputs, candidates[:n]) for n in range(len(candidates) + 1)]
    for available in (0, *bytes_by_count):
        fits = (n for n, least in enumerate(bytes_by_count) if least <= available)
        found = StageTables(tree, 8).fewest_boxed(head, part, inputs, candidates, available)
        assert found == next(fits, len(candidates))


def test_boxes_of_tables_beyond_floats_are_bounded() -> None:
    tree = bucket_tree((9,) * 400, [tuple(range(400))], range(400))
    step = Step(tree.n_leaves, (0,), (), (), None)  # type: ignore[arg-type]
    tables = StageTables(tree, 8)
    assert tables.fewest_boxed(-1, [step], (), range(400), 10**6) == 395
    assert tables.fewest_boxed(-1, [step], (), range(10), 10**6) == 10


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("sliced", [frozenset[int](), frozenset({20, 21}), frozenset({3, 30, 31, 32})])
def test_what_does_not_fit_is_no_plan_and_what_fits_is_the_same(sliced: frozenset[int], decode: bool) -> None:
    problem = grid(6, 9, 4)
    tree = bucket_tree(problem.dims, problem.scopes, range(54))
    plan = Planner(problem, PlanOptions(decode=decode), RATES).of(tree, sliced)
    for memory in (plan.peak_bytes * k // 16 for k in range(1, 20)):
        options = PlanOptions(memory_bytes=memory, decode=decode)
        whole = Planner(problem, options, RATES).of(tree, sliced)
        assert Planner(problem, options, RATES).within(tree, sliced) == (whole if whole.fits(memory) else None)


@pytest.mark.parametrize("sliced", [frozenset[int](), frozenset({20, 21})])
def test_both_ways_what_does_not_fit_is_no_plan_and_what_fits_is_the_same(sliced: frozenset[int]) -> None:
    problem = replace(grid(6, 9, 4), targets=tuple((v,) for v in range(54) if v not in sliced))
    tree = bucket_tree(problem.dims, problem.scopes, range(54))
    plan = Planner(problem, PlanOptions(decode=False), RATES).of(tree, sliced)
    found = []
    for memory in (plan.peak_bytes * k // 32 for k in range(1, 34)):
        planner = Planner(problem, PlanOptions(memory_bytes=memory, decode=False), RATES)
        whole = planner.of(tree, sliced)
        assert planner.within(tree, sliced) == (whole if whole.fits(memory) else None)
        found.append((whole.fits(memory), bool(whole.cuts)))
    assert {(False, False), (True, True), (True, False)} == {*found}


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_need_no_less_than_is_told_before_they_are_lowered(seed: int) -> None:
    tree, draw = random_tree(seed), Random(seed)
    held = sorted({v for scope in tree.leaves for v in scope})
    targets = tuple((v,) for v in draw.sample(held, draw.randint(1, len(held))))
    problem = Problem(tree.dims, tree.leaves, SUM_PRODUCT, 8, targets=targets)
    plan = Planner(problem, PlanOptions(decode=False), RATES).of(tree)
    order, sizing = [step.node for step in plan.up], Sizing(tree.dims, 8)
    needs = BothWaysBytes(tree, order, targets, 8)
    made = sweep_peak(plan.steps, sizing, plan.outputs)
    assert needs.least() <= made
    assert plan.freed == freed_tables(plan.steps, plan.outputs)
    assert made == sweep_peak(plan.steps, sizing, (), freed=plan.freed) == plan.peak_bytes - plan.leaf_bytes
    assert plan.cost == steps_cost(plan.steps, tree, RATES, 8)
    inner = [node for node in order if tree.parent[node] >= 0]
    for _ in range(8):
        cuts = frozenset(draw.sample(inner, draw.randint(0, len(inner))))
        again = with_parts_again(plan, problem, needs.readings, cuts)
        assert needs.least(cuts) <= sweep_peak(again.steps, sizing, again.outputs)


def test_what_both_ways_need_is_told_closely() -> None:
    problem = replace(grid(8, 40, 3), targets=tuple((v,) for v in range(320)))
    tree = bucket_tree(problem.dims, problem.scopes, range(320))
    plan = Planner(problem, PlanOptions(decode=False), RATES).of(tree)
    order, sizing = [step.node for step in plan.up], Sizing(tree.dims, 8)
    needs = BothWaysBytes(tree, order, problem.targets or (), 8)
    every = list(needs.fitting(1 << 62))
    assert len(every) > 5
    for cuts in every:
        again = with_parts_again(plan, problem, needs.readings, cuts)
        peak = sweep_peak(again.steps, sizing, again.outputs)
        assert needs.least(cuts) <= peak <= 1.5 * needs.least(cuts)


def test_both_ways_are_cut_beside_a_table_of_most_bytes() -> None:
    """One message has more bytes than all others; the others are still cut into smaller parts."""
    dims = (*[4] * 20, 512, *[4] * 20)
    tree = bucket_tree(dims, [(v, v + 1) for v in range(40)], range(41))
    order = [*tree.schedule]
    needs = BothWaysBytes(tree, order, [(v,) for v in range(41)], 8)
    assert 8 * max(tree.cells[node] for node in order) > needs.least() / 2
    assert min(needs.least(cuts) for cuts in needs.fitting(needs.least() - 1)) < 0.9 * needs.least()


def test_few_steps_are_lowered_to_see_that_a_plan_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, lowered = grid(8, 40, 3), []
    original = StepBuilder.forward
    monkeypatch.setattr(StepBuilder, "forward", lambda *args: lowered.append(1) or original(*args))
    tree = bucket_tree(problem.dims, problem.scopes, range(320))
    peak = Planner(problem, PlanOptions(), RATES).of(tree).peak_bytes
    assert len(lowered) == len(tree.children) > 300
    lowered.clear()
    assert Planner(problem, PlanOptions(memory_bytes=peak // 8), RATES).within(tree) is None
    assert Planner(problem, PlanOptions(memory_bytes=peak - 1), RATES).within(tree) is None
    assert not lowered
    monkeypatch.setattr(Sizing, "least_workspace_bytes", lambda *_: 0)
    assert Planner(problem, PlanOptions(memory_bytes=peak - 1), RATES).within(tree) is None
    assert 0 < len(lowered) < 30


def test_messages_alive_are_those_that_wait_for_their_reader() -> None:
    tree = Tree((2, 2, 2), ((0, 1), (1, 2), (0, 2), (2,)), ((0,), (1,), (4, 5), (2, 6), (3, 7)))
    cells = tree.cells
    assert live_cells(tree, (4, 5, 6, 7, 8)) == [
        cells[4],
        cells[4] + cells[5],
        cells[4] + cells[5] + cells[6],
        cells[6] + cells[7],
        cells[7] + cells[8],
    ]


def test_further_trees_that_fit_only_in_slices_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, made = grid(9, 9, 3), []
    list(Planner(problem, PlanOptions(order_seconds=0.2), RATES).plans())  # what is compiled now shortens a search
    original = Planner.lowered
    monkeypatch.setattr(Planner, "lowered", lambda *args, **more: made.append(1) or original(*args, **more))
    options = PlanOptions(order_seconds=0.2)
    plans = list(Planner(problem, options, RATES).plans())
    assert len(made) == len(plans) > 1
    made.clear()
    first, others = first_plan(Planner(problem, PlanOptions(order_seconds=0.2, memory_bytes=1000), RATES).plans())
    outlined = list(others)
    assert len(made) == 1
    assert first.tree == plans[0].tree
    assert all(isinstance(each, Outline) for each in outlined)
    assert [each.tree for each in outlined] == [plan.tree for plan in plans[1:]]
    assert [each.seconds for each in outlined] == pytest.approx([plan.seconds for plan in plans[1:]])


def test_a_search_goes_by_its_own_time_unless_seconds_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does other things meanwhile makes the same plan."""
    problem, slow = grid(9, 12, 3), Rates(1e6, 1e6, 1e6)
    found = TreeSearch(problem.dims, problem.scopes, rates=slow, longest=0.5).trees()
    hours = count(0, 3600)
    monkeypatch.setattr(tree_search.time, "monotonic", lambda: float(next(hours)))
    assert TreeSearch(problem.dims, problem.scopes, rates=slow, longest=0.5).trees() == found
    effort = PlanningBudget()
    TreeSearch(problem.dims, problem.scopes, rates=slow, seconds=0.5).trees(effort=effort)
    assert effort.spent < 0.1


def test_better_plans_are_looked_for_as_long_as_the_best_known_justifies() -> None:
    effort = PlanningBudget()
    assert effort.left(1000.0) == pytest.approx(1000 * SHARE)
    effort.know(20.0)
    effort.know(50.0)
    assert effort.left(1000.0) == pytest.approx(20 * SHARE)
    effort.know(0.0)
    assert effort.left(inf) == pytest.approx(LEAST)
