"""Choosing among trees and slices: what fits is found, and nothing is conditioned on in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from bucketflow.pipeline.budget import fit
from bucketflow.pipeline.budget import sliced_plans as in_slices
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.fit import fitted
from bucketflow.pipeline.budget.sliced_plans import sliced_plan
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.orders.effort import PlanningBudget
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner, forget_plans
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.trees.memory import Sizing, sweep_peak
from bucketflow.pipeline.trees.tree import Tree
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.steps.semiring import min_plus
from bucketflow.tasks.steps.step import Step, make_step
from tests.policies import InForce

RATES = Rates()
OPTIONS = PlanOptions(order_seconds=0.3)


@pytest.fixture
def tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but tables take memory: in small models, buffers are most of it."""
    for method in ("workspace_bytes", "least_workspace_bytes"):
        monkeypatch.setattr(Sizing, method, lambda *_: 0)


def grid(side: int, states: int = 2) -> Problem:
    n = side * side
    scopes = [(i, i + 1) for i in range(n) if (i + 1) % side] + [(i, i + side) for i in range(n - side)]
    return problem((states,) * n, scopes)


def problem(dims: tuple[int, ...], scopes: list[tuple[int, ...]]) -> Problem:
    semiring = min_plus("int32")
    return Problem(dims, tuple(scopes), semiring, semiring.itemsize)


def copies(part: Problem, count: int) -> Problem:
    """Independent parts that share one variable."""
    n = len(part.dims) - 1
    scopes = [tuple(v + n * c if v else 0 for v in scope) for c in range(count) for scope in part.scopes]
    return problem(part.dims[:1] + part.dims[1:] * count, scopes)


def in_memory(wanted: Problem, options: PlanOptions, way: fit.Fit = "slice") -> Plan:
    return fitted(Planner(wanted, options, RATES), way, 0, lambda: 1e9).chosen


@pytest.mark.usefixtures("tables_only")
@pytest.mark.parametrize("way", ["auto", "slice", "refuse"])
def test_a_dearer_tree_that_fits_is_taken(way: fit.Fit) -> None:
    wanted, options = grid(8), replace(OPTIONS, seed=0)
    first, *others = Planner(wanted, options, RATES).plans()
    memory = min(plan.peak_bytes for plan in others)
    assert memory < first.peak_bytes
    options = replace(options, memory_bytes=memory)
    chosen = in_memory(wanted, options, way)
    assert chosen.slices == 1
    assert chosen.peak_bytes <= memory
    assert first.seconds < chosen.seconds <= sliced_plan(Planner(wanted, options, RATES), [first]).seconds
    with pytest.raises(BudgetError, match="allowed"):
        in_memory(wanted, replace(options, memory_bytes=memory // 4), "refuse")


def test_others_are_tried_where_nothing_fits_however_much_was_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = grid(8)
    first, *others = Planner(wanted, OPTIONS, RATES).plans()
    options = replace(OPTIONS, memory_bytes=min(plan.peak_bytes for plan in others) // 2)

    def refused(planner: Planner, wholes: Sequence[Plan], *_: object) -> Plan:
        if wholes[0] is first:
            raise BudgetError("this tree takes too many slices")
        return sliced_plan(planner, wholes)

    monkeypatch.setattr(fit, "sliced_plan", refused)
    spent = Planner(wanted, options, RATES, PlanningBudget(spent=inf))
    found = fit.cheapest(spent, iter([first, *others]), "slice", None).chosen
    assert found.slices > 1
    assert found.peak_bytes <= options.memory_bytes
    assert found.unsliced_cells == first.cells
    with pytest.raises(BudgetError, match="this tree"):
        fit.cheapest(spent, iter([first]), "slice", None)


def test_others_are_planned_only_where_the_cheapest_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Planner.of
    monkeypatch.setattr(Planner, "of", lambda *args: made.append(1) or original(*args))
    in_memory(grid(9), OPTIONS)
    assert made == [1]


@pytest.mark.usefixtures("tables_only")
@pytest.mark.parametrize("share", [2, 4, 8])
@pytest.mark.parametrize(("side", "count"), [(8, 1), (7, 3)])
def test_no_variable_is_conditioned_on_in_vain(side: int, count: int, share: int) -> None:
    wanted, options = copies(grid(side, 3), count), replace(OPTIONS, decode=True, seed=1)
    whole = next(Planner(wanted, options, RATES).plans())
    options = replace(options, memory_bytes=whole.peak_bytes // share)
    plans = []
    for effort in (PlanningBudget(spent=inf), PlanningBudget(asked=inf)):
        try:
            slicing = in_slices.Slicing(Planner(wanted, options, RATES, effort), whole.tree, whole)
            plans.append(slicing.freed(slicing.first()))
        except BudgetError:
            assert (count, share) == (3, 8)
            return
    hasty, plan = plans
    assert 1 < plan.slices <= hasty.slices
    assert plan.peak_bytes <= options.memory_bytes
    assert plan.seconds > BudgetPolicy.close * whole.seconds
    for v in plan.sliced:
        fewer = Planner(wanted, options, RATES).conditioned(plan, frozenset(plan.sliced) - {v})
        assert fewer.peak_bytes > options.memory_bytes


@pytest.mark.usefixtures("tables_only")
def test_slices_that_take_much_more_work_need_another_tree_first(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Where there is time for a search, no variable of a tree whose slices are far dearer is freed one by one."""
    wanted, options = grid(8, 3), replace(OPTIONS, decode=True)
    whole = next(Planner(wanted, options, RATES).plans())
    options = replace(options, memory_bytes=whole.peak_bytes // 4)
    freed: list[Plan] = []
    original = in_slices.Slicing.freed
    monkeypatch.setattr(in_slices.Slicing, "freed", lambda self, plan: freed.append(plan) or original(self, plan))
    monkeypatch.setattr(in_slices, "rearranged_slices", lambda *args, **_: args[1])
    for far, first in ((0.0, 0), (1e6, 1)):
        in_force(BudgetPolicy, far=far)
        freed.clear()
        found = in_slices.sliced_plan(Planner(wanted, options, RATES, PlanningBudget(asked=inf)), [whole])
        assert len(freed) == 1  # before the search, or after it was in vain
        assert found.slices <= freed[0].slices
        monkeypatch.setattr(in_slices, "rearranged_slices", lambda *args, **_: replace(args[1], threads=7))
        freed.clear()
        in_slices.sliced_plan(Planner(wanted, options, RATES, PlanningBudget(asked=inf)), [whole])
        assert len(freed) == first
        monkeypatch.setattr(in_slices, "rearranged_slices", lambda *args, **_: args[1])


@pytest.mark.usefixtures("tables_only")
def test_of_trees_whose_slices_are_far_dearer_the_most_promising_is_sliced(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """The others are estimated; before, each of them was planned."""
    wanted, options = grid(8, 3), replace(OPTIONS, decode=True)
    wholes = list(Planner(wanted, options, RATES).plans())
    assert len(wholes) > 3
    options = replace(options, memory_bytes=min(plan.peak_bytes for plan in wholes) // 4)
    alone = [in_slices.Slicing(Planner(wanted, options, RATES), each.tree, wholes[0]) for each in wholes]
    estimates = [slicing.estimate(1000) for slicing in alone]
    cheapest = min(range(1, len(wholes)), key=estimates.__getitem__)
    tried: list[Tree] = []
    original = in_slices.Slicing.first
    monkeypatch.setattr(in_slices.Slicing, "first", lambda self: tried.append(self.tree) or original(self))
    monkeypatch.setattr(in_slices.Slicing, "estimate", lambda self, _: estimates[alone_index(self.tree)])
    monkeypatch.setattr(in_slices, "rearranged_slices", lambda *args, **_: args[1])
    in_force(BudgetPolicy, far=0.0)

    def alone_index(tree: Tree) -> int:
        return next(i for i, slicing in enumerate(alone) if slicing.tree is tree)

    in_slices.sliced_plan(Planner(wanted, options, RATES, PlanningBudget(asked=inf)), wholes)
    assert tried == [wholes[0].tree, wholes[cheapest].tree]


@pytest.mark.usefixtures("tables_only")
def test_another_way_is_found_before_a_tree_is_searched_for_slices_that_are_far_dearer(
    monkeypatch: pytest.MonkeyPatch,
    in_force: InForce,
) -> None:
    wanted, options = grid(8, 3), replace(OPTIONS, decode=True)
    whole = next(Planner(wanted, options, RATES).plans())
    options = replace(options, memory_bytes=whole.peak_bytes // 4)
    turns: list[str] = []
    original = TreeSearch.refined
    monkeypatch.setattr(TreeSearch, "refined", lambda *args: turns.append("tree") or original(*args))
    in_force(BudgetPolicy, far=0.0)
    for known, most in ((0.0, 1), (inf, 1 + BudgetPolicy.rearrangings)):
        effort = PlanningBudget(asked=inf)

        def boxes(effort: PlanningBudget = effort, known: float = known) -> None:
            turns.append("boxes")
            effort.know(known)

        turns.clear()
        in_slices.sliced_plan(Planner(wanted, options, RATES, effort), [whole], boxes)
        assert turns == ["boxes", *["tree"] * most]


@pytest.mark.usefixtures("tables_only")
def test_a_given_tree_is_not_searched_on_where_slices_cost_little(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    wanted, options = grid(8, 3), replace(OPTIONS, decode=True)
    wholes = list(Planner(wanted, options, RATES).plans())
    options = replace(options, memory_bytes=min(plan.peak_bytes for plan in wholes) // 2)
    turns = []
    original = TreeSearch.refined
    monkeypatch.setattr(TreeSearch, "refined", lambda *args: turns.append(1) or original(*args))
    searched = in_memory(wanted, options)
    assert len(turns) == BudgetPolicy.rearrangings
    assert searched.peak_bytes <= options.memory_bytes
    slicing = in_slices.Slicing(Planner(wanted, options, RATES, PlanningBudget()), wholes[0].tree, wholes[0])
    assert searched.seconds <= slicing.freed(slicing.first()).seconds
    given = replace(options, children=wholes[0].tree.children)
    in_memory(wanted, given)
    assert len(turns) == 2 * BudgetPolicy.rearrangings
    in_force(BudgetPolicy, close=1e6)
    assert in_memory(wanted, given).tree.children == wholes[0].tree.children
    assert len(turns) == 2 * BudgetPolicy.rearrangings


def test_temporaries_of_a_device_count_with_the_step_that_has_them() -> None:
    """A deep product, cut into partial products on a device, then a small step."""
    sizes, scopes = (256,) * 4, ((0, 1, 2), (0, 2, 3))
    semiring = min_plus("int32")
    large = make_step(2, (0, 1), scopes, (1, 3), sizes, semiring)
    small = make_step(3, (2,), ((1, 3),), (), sizes, semiring)
    temporaries = device_step(large.lowered).workspace_cells * 4
    assert temporaries > 1 << 20
    sizing = Sizing(sizes, 4, device=True)
    assert sweep_peak([large, small], sizing, ()) == 4 * 256**2 + temporaries
    inner = replace(sizing, sizes=(2, 256, 256, 256))
    fixed = make_step(2, (0, 1), scopes, (1, 3), inner.sizes, semiring)
    assert large.lowered.workspace_bytes < inner.workspace_bytes(large) < temporaries
    assert inner.workspace_bytes(large) == device_step(fixed.lowered).workspace_cells * 4
    assert sizing.workspace_bytes(small) == replace(sizing, device=False).workspace_bytes(small)


def test_passes_are_looked_for_in_steps_that_may_need_most(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, scopes = (256,) * 4, ((0, 1, 2), (0, 2, 3))
    semiring, sizing = min_plus("int32"), Sizing((256,) * 4, 4, device=True)
    large = make_step(2, (0, 1), scopes, (1, 3), sizes, semiring)
    smaller = [make_step(3 + i, (2,), ((1, 3),), (1,), sizes, semiring) for i in range(4)]
    live = [4 * 256**2 + 4 * 256 * i for i in range(5)]
    most = max(there + sizing.workspace_bytes(step) for there, step in zip(live, (large, *smaller), strict=True))
    looked: list[Step] = []
    original = Sizing.workspace_bytes
    monkeypatch.setattr(Sizing, "workspace_bytes", lambda self, step: looked.append(step) or original(self, step))
    assert sweep_peak([large, *smaller], sizing, range(7)) == most
    assert looked == [large]
    assert all(sizing.most_workspace_bytes(step) >= original(sizing, step) for step in (large, *smaller))
    looked.clear()
    assert sweep_peak([large, *smaller], sizing, range(7), live[-1] - 1) == live[-1]
    assert not looked


def test_the_plan_of_one_sweep_is_made_once_for_all_memory_that_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    search = TreeSearch.trees

    def counted(*args: Any, **given: Any) -> list[Tree]:
        nonlocal searches
        searches += 1
        return search(*args, **given)

    monkeypatch.setattr(TreeSearch, "trees", counted)
    forget_plans()
    wanted = grid(5)
    first = in_memory(wanted, replace(OPTIONS, memory_bytes=1 << 40), "auto")
    for memory_bytes in (1 << 30, first.peak_bytes):
        assert in_memory(wanted, replace(OPTIONS, memory_bytes=memory_bytes), "auto") is first
    assert searches == 1
    assert in_memory(wanted, replace(OPTIONS, memory_bytes=first.peak_bytes - 1), "slice") is not first
    assert in_memory(replace(wanted, itemsize=8), replace(OPTIONS, memory_bytes=1 << 40)) is not first
    assert searches == 3
