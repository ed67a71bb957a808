"""Plans in slices: conditioning on as few variables as bring a plan into its budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..errors import BudgetError
from ..planning.outlines import Outline, least_bytes
from ..planning.planner import joined_tree, plan_within, planning_seconds
from ..plans.plan import Plan
from ..plans.problem import PlanOptions, Problem
from ..search.effort import OUTLINE_SECONDS, SLICING_SECONDS, Effort
from ..search.orders import refine_tree
from ..text import format_bytes, format_count
from ..trees.costs import Rates
from ..trees.memory import table_bytes
from ..trees.slicing import slice_count, slice_tree
from ..trees.tree import Tree

# Beyond this many slices, or this much repeated work, conditioning is no answer to a small budget.
MAX_SLICES = 1 << 20
MAX_SLICE_OVERHEAD = 64.0

# A plan within this factor of the cheapest is not worth looking for a better one.
CLOSE = 1.1

# Planning time for rearranging a tree for its slices, at most.
REARRANGING_SECONDS = 4.0
REARRANGINGS = 2

# A tree is planned so often until it fits.
_TRIES_A_TREE = 2


def sliced_plan(
    problem: Problem, options: PlanOptions, rates: Rates, wholes: Sequence[Plan | Outline], effort: Effort | None = None
) -> Plan:
    """Condition on as few variables as bring a plan into its budget, then rearrange its tree for the slices.

    Parameters
    ----------
    wholes : sequence of Plan or Outline
        Without slices, the cheapest first, which is a plan; the others are tried while they may make cheaper slices.
    effort : Effort, optional
        What may still be spent on better slices than the first that fit.

    Raises
    ------
    BudgetError
        If that takes too many slices or too much repeated work.
    """
    effort = effort or Effort()
    first = wholes[0]
    assert isinstance(first, Plan)
    found: list[Plan] = []
    refusals: list[BudgetError] = []

    def best() -> Plan:
        return min(found, key=lambda plan: plan.seconds)

    for whole in wholes:
        if found and (
            best().seconds <= CLOSE * whole.seconds
            or not effort.allows(_TRIES_A_TREE * planning_seconds(whole), best().seconds)
        ):
            break
        try:
            found.append(_conditioned(problem, options, rates, whole.tree, first, effort))
        except BudgetError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    plan = best()
    # a tree that was given is not searched on unless slicing costs much
    given = not isinstance(options.order, str) or (
        options.children is not None and plan.seconds <= CLOSE * first.seconds
    )
    if options.tree == "refined" and not given:
        plan = _rearranged(problem, options, rates, plan, first, effort)
    plan = replace(plan, unsliced_cells=first.cells)
    if plan.slice_overhead > MAX_SLICE_OVERHEAD:
        raise _refusal(first, frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


def _conditioned(problem: Problem, options: PlanOptions, rates: Rates, tree: Tree, whole: Plan, effort: Effort) -> Plan:
    """Condition on variables of the largest tables, and of ever smaller ones, until the plan fits.

    ``whole`` is the plan of this tree or another without slices, which does not fit.
    """
    limit = max((options.memory_bytes - problem.model_bytes) // problem.itemsize, 1)
    tried = {frozenset[int]()} if tree is whole.tree and not whole.fits(options.memory_bytes) else set()

    def made(sliced: frozenset[int]) -> Plan | None:
        """Plan slices that were not tried before, if their largest step may fit."""
        if sliced in tried or least_bytes(problem, tree, sliced) > options.memory_bytes:
            return None
        tried.add(sliced)
        plan = plan_within(problem, options, rates, tree, sliced)
        effort.spend(planning_seconds(plan) if plan else OUTLINE_SECONDS * len(tree.scopes))
        return plan

    while True:
        effort.spend(SLICING_SECONDS * len(tree.scopes))
        sliced = slice_tree(tree, limit, rates, itemsize=problem.itemsize, seed=options.seed, most_slices=MAX_SLICES)
        if slice_count(tree, sliced) > MAX_SLICES:
            raise _refusal(whole, sliced, options.memory_bytes)
        if plan := made(sliced):
            break
        if limit == 1:
            raise _refusal(whole, sliced, options.memory_bytes)
        limit //= 2
    # not all tables are there at the same time
    for v in sorted(sliced, key=lambda v: -problem.dims[v]):
        if plan.seconds <= CLOSE * whole.seconds or not effort.allows(planning_seconds(plan), plan.seconds):
            break
        fewer = made(frozenset(plan.sliced) - {v})
        if fewer and fewer.seconds < plan.seconds:
            plan = fewer
    return plan


def _rearranged(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan, whole: Plan, effort: Effort) -> Plan:
    """Rearrange a tree for its slices and condition again, a few times; return the cheapest plan on the way."""
    best = plan
    for turn in range(REARRANGINGS):
        left = effort.left(best.seconds) / (REARRANGINGS - turn) - _TRIES_A_TREE * planning_seconds(plan)
        seconds = min(REARRANGING_SECONDS / REARRANGINGS, best.seconds / (2 * REARRANGINGS), left)
        if seconds <= 0:
            break
        effort.spend(seconds)
        sliced = frozenset(plan.sliced)
        tree = replace(plan.tree, dims=problem.dims)
        tree = refine_tree(
            tree, sliced=sliced, seconds=seconds, seed=options.seed + turn, rates=rates, itemsize=problem.itemsize
        )
        tree = joined_tree(tree, problem, options, rates, sliced)
        try:
            plan = _conditioned(problem, options, rates, tree, whole, effort)
        except BudgetError:
            break
        best = min(best, plan, key=lambda plan: plan.seconds)
    return best


def _refusal(whole: Plan, sliced: frozenset[int], allowed_bytes: int, tried: Plan | None = None) -> BudgetError:
    """Say what the plan needs, what is allowed, and what slicing would cost."""
    largest = max(table_bytes(whole.tree.dims, s.axes, whole.itemsize) for s in whole.steps)
    slices = prod(whole.dims[v] for v in sliced)
    price = "" if tried is None else f" at {tried.slice_overhead:.3g} times the work"
    where, otherwise = (" on a GPU", ", or leave --gpus out") if whole.device else ("", "")
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} (largest message {format_bytes(largest)}){where}, allowed "
        f"{format_bytes(allowed_bytes)}; slicing would take {format_count(slices)} slices or more{price}; "
        f"try a larger --memory or a longer --order-time{otherwise}"
    )
