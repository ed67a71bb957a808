"""Plans in slices: conditioning on as few variables as bring a plan into its budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

# Slices that take so many times the work need another tree before others are tried of this one.
_FAR = 8.0


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
    found: list[tuple[Plan, Slicing]] = []
    refusals: list[BudgetError] = []
    # a tree that was given is not searched on unless slicing costs much
    searched = options.tree == "refined" and isinstance(options.order, str)

    def best() -> tuple[Plan, Slicing]:
        return min(found, key=lambda one: one[0].seconds)

    for whole in wholes:
        if found and (
            best()[0].seconds <= CLOSE * whole.seconds
            or not effort.allows(_TRIES_A_TREE * planning_seconds(whole), best()[0].seconds)
        ):
            break
        slicing = Slicing(problem, options, rates, whole.tree, first, effort)
        try:
            plan = slicing.first()
        except BudgetError as error:
            refusals.append(error)
            continue
        if not (searched and _is_far(plan, first, effort)):
            plan = slicing.freed(plan)
        found.append((plan, slicing))
    if not found:
        raise refusals[0]
    plan, slicing = best()
    if searched and (options.children is None or plan.seconds > CLOSE * first.seconds):
        rearranged = _rearranged(problem, options, rates, plan, first, effort)
        plan = slicing.freed(plan) if rearranged is plan and not slicing.was_freed else rearranged
    plan = replace(plan, unsliced_cells=first.cells)
    if plan.slice_overhead > MAX_SLICE_OVERHEAD:
        raise _refusal(first, frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


@dataclass
class Slicing:
    """Conditions a tree on variables of its largest tables.

    Parameters
    ----------
    tree : Tree
        Without slices.
    whole : Plan
        Of this tree or another without slices, which does not fit.
    """

    problem: Problem
    options: PlanOptions
    rates: Rates
    tree: Tree
    whole: Plan
    effort: Effort

    def __post_init__(self) -> None:
        self.was_freed = False
        unfit = self.tree is self.whole.tree and not self.whole.fits(self.options.memory_bytes)
        self._tried = {frozenset[int]()} if unfit else set()

    def first(self) -> Plan:
        """Condition on variables of the largest tables, and of ever smaller ones, until the plan fits."""
        problem, options, tree = self.problem, self.options, self.tree
        limit = max((options.memory_bytes - problem.model_bytes) // problem.itemsize, 1)
        while True:
            self.effort.spend(SLICING_SECONDS * len(tree.scopes))
            sliced = slice_tree(
                tree, limit, self.rates, itemsize=problem.itemsize, seed=options.seed, most_slices=MAX_SLICES
            )
            if slice_count(tree, sliced) > MAX_SLICES:
                raise _refusal(self.whole, sliced, options.memory_bytes)
            if plan := self._made(sliced):
                return plan
            if limit == 1:
                raise _refusal(self.whole, sliced, options.memory_bytes)
            limit //= 2

    def freed(self, plan: Plan) -> Plan:
        """Give up conditioning on variables where the plan fits without: not all tables are there at the same time."""
        self.was_freed = True
        for v in sorted(plan.sliced, key=lambda v: -self.problem.dims[v]):
            enough = plan.seconds <= CLOSE * self.whole.seconds
            if enough or not self.effort.allows(planning_seconds(plan), plan.seconds):
                break
            fewer = self._made(frozenset(plan.sliced) - {v})
            if fewer and fewer.seconds < plan.seconds:
                plan = fewer
        return plan

    def _made(self, sliced: frozenset[int]) -> Plan | None:
        """Plan slices that were not tried before, if their largest step may fit."""
        problem, options, tree = self.problem, self.options, self.tree
        if sliced in self._tried or least_bytes(problem, tree, sliced) > options.memory_bytes:
            return None
        self._tried.add(sliced)
        plan = plan_within(problem, options, self.rates, tree, sliced)
        self.effort.spend(planning_seconds(plan) if plan else OUTLINE_SECONDS * len(tree.scopes))
        return plan


def _is_far(plan: Plan, whole: Plan, effort: Effort) -> bool:
    """Whether slices take so much more work that another tree, for which there is time, has to come first."""
    return plan.seconds > _FAR * whole.seconds and effort.left(plan.seconds) > REARRANGING_SECONDS


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
        slicing = Slicing(problem, options, rates, tree, whole, effort)
        try:
            plan = slicing.freed(slicing.first())
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
