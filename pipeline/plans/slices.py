"""Plans in slices: conditioning on as few variables as bring a plan into its budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..errors import BudgetError
from ..search.orders import refine_tree
from ..trees.costs import Rates
from ..trees.memory import table_bytes
from ..trees.slicing import slice_count, slice_tree
from .plan import Plan, PlanOptions, Problem, format_bytes
from .planner import joined_tree, plan_tree

# Beyond this many slices, or this much repeated work, conditioning is no answer to a small budget.
MAX_SLICES = 1 << 20
MAX_SLICE_OVERHEAD = 64.0

# A plan within this factor of the cheapest is not worth looking for a better one.
CLOSE = 1.1

# Planning time for rearranging a tree for its slices, at most.
REARRANGING_SECONDS = 4.0
REARRANGINGS = 2

# Nominal time of planning a step, and how often a tree is planned until it fits.
PLANNING_SECONDS = 3e-4
_TRIES_A_TREE = 8


def sliced_plan(problem: Problem, options: PlanOptions, rates: Rates, wholes: Sequence[Plan]) -> Plan:
    """Condition on as few variables as bring a plan into its budget, then rearrange its tree for the slices.

    Parameters
    ----------
    wholes : sequence of Plan
        Without slices, the cheapest first; the others are tried while they may make cheaper slices.

    Raises
    ------
    BudgetError
        If that takes too many slices or too much repeated work.
    """
    found: list[Plan] = []
    refusals: list[BudgetError] = []

    def best() -> Plan:
        return min(found, key=lambda plan: plan.seconds)

    for i, whole in enumerate(wholes):
        if found and (best().seconds <= CLOSE * whole.seconds or _tries(best()) < i * _TRIES_A_TREE):
            break
        try:
            found.append(_conditioned(problem, options, rates, whole))
        except BudgetError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    plan = best()
    # a tree that was given is not searched on unless slicing costs much
    given = not isinstance(options.order, str) or (
        options.children is not None and plan.seconds <= CLOSE * wholes[0].seconds
    )
    if options.tree == "refined" and not given:
        plan = _rearranged(problem, options, rates, plan)
    plan = replace(plan, unsliced_cells=wholes[0].cells)
    if plan.slice_overhead > MAX_SLICE_OVERHEAD:
        raise _refusal(wholes[0], frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


def _conditioned(problem: Problem, options: PlanOptions, rates: Rates, whole: Plan) -> Plan:
    """Condition on variables of the largest tables, and of ever smaller ones, until the plan fits."""
    tree = whole.tree
    limit = max((options.memory_bytes - problem.model_bytes) // problem.itemsize, 1)
    while True:
        sliced = slice_tree(tree, limit, rates, itemsize=problem.itemsize, seed=options.seed)
        if slice_count(tree, sliced) > MAX_SLICES:
            raise _refusal(whole, sliced, options.memory_bytes)
        plan = plan_tree(problem, options, rates, tree, sliced)
        if plan.fits(options.memory_bytes):
            break
        if limit == 1:
            raise _refusal(whole, sliced, options.memory_bytes)
        limit //= 2
    # not all tables are there at the same time
    for v in sorted(sliced, key=lambda v: -problem.dims[v])[: _tries(plan)]:
        if plan.seconds <= CLOSE * whole.seconds:
            break
        fewer = plan_tree(problem, options, rates, tree, frozenset(plan.sliced) - {v})
        if fewer.fits(options.memory_bytes) and fewer.seconds < plan.seconds:
            plan = fewer
    return plan


def _rearranged(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan) -> Plan:
    """Rearrange a tree for its slices and condition again, a few times; return the cheapest plan on the way."""
    seconds = min(REARRANGING_SECONDS, plan.seconds / 2) / REARRANGINGS
    best = plan
    for turn in range(REARRANGINGS):
        sliced = frozenset(plan.sliced)
        tree = replace(plan.tree, dims=problem.dims)
        tree = refine_tree(
            tree, sliced=sliced, seconds=seconds, seed=options.seed + turn, rates=rates, itemsize=problem.itemsize
        )
        tree = joined_tree(tree, problem, options, rates, sliced)
        try:
            plan = _conditioned(problem, options, rates, plan_tree(problem, options, rates, tree, frozenset()))
        except BudgetError:
            break
        best = min(best, plan, key=lambda plan: plan.seconds)
    return best


def _tries(plan: Plan) -> int:
    """Return how many plans of that many steps may be made for a better one: a quarter of the time that it takes."""
    return int(plan.seconds / 4 / (PLANNING_SECONDS * max(len(plan.steps), 1)))


def _refusal(whole: Plan, sliced: frozenset[int], allowed_bytes: int, tried: Plan | None = None) -> BudgetError:
    """Say what the plan needs, what is allowed, and what slicing would cost."""
    largest = max(table_bytes(whole.tree.dims, s.axes, whole.itemsize) for s in whole.steps)
    slices = prod(whole.dims[v] for v in sliced)
    price = "" if tried is None else f" at {tried.slice_overhead:.3g} times the work"
    where, otherwise = (" on a GPU", ", or leave --gpus out") if whole.device else ("", "")
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} (largest message {format_bytes(largest)}){where}, allowed "
        f"{format_bytes(allowed_bytes)}; slicing would take {float(slices):.3g} slices or more{price}; "
        f"try a larger --memory or a longer --order-time{otherwise}"
    )
