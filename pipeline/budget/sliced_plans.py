"""Plans in slices: conditioning on as few variables as bring a plan into its budget. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from operator import itemgetter
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ..errors import BudgetError, format_bytes, format_count
from ..orders.effort import OUTLINE_SECONDS, PlanningBudget
from ..plans.lower_bounds import Outline, least_bytes
from ..plans.plan import Plan
from ..plans.planner import Planner, planning_seconds
from ..trees.costs import tree_cost
from ..trees.cutsets import CAREFUL_ROUNDS, slice_count, slice_tree
from ..trees.memory import table_bytes
from ..trees.tree import Tree
from .budget_policy import BudgetPolicy

# or this much repeated work, conditioning is no answer to a small budget.
_MOST_OVERHEAD: Final = 64.0
# Maximum planning time for rearranging a tree for its slices, and the number of turns.
_REARRANGING_SECONDS: Final = 4.0
# Seconds of the first turn if slices are far from the whole plan. If slices are still slower than another method by
# the second factor, rearranging ends.
_SHORT_REARRANGING_SECONDS: Final = 0.5
# Maximum attempts to plan a tree until it fits.
_TRIES_A_TREE: Final = 2


def sliced_plan(planner: Planner, wholes: Sequence[Plan | Outline], when_far: Callable[[], None] | None = None) -> Plan:
    """Condition on as few variables as bring a plan into its budget, then rearrange its tree for the slices.

    Parameters
    ----------
    wholes : sequence of Plan or Outline
        Without slices, the cheapest first, which is a plan; the others are tried while they may make cheaper slices.
    when_far : callable, optional
        Looks for another way before a tree is rearranged whose slices take far more work than the whole.

    Raises
    ------
    BudgetError
        If that takes too many slices or too much repeated work.
    """
    policy = BudgetPolicy.current()
    first, options = wholes[0], planner.options
    assert isinstance(first, Plan)
    if planner.problem.last:
        raise planner.last_refusal(first, "slices")
    # a tree that was given is not searched on unless slicing costs much
    searched = options.tree == "refined" and isinstance(options.order, str)
    found, refusals = _first_slices(planner, wholes, searched)
    if not found:
        raise refusals[0]
    plan, slicing = min(found, key=lambda one: one[0].seconds)
    if searched and (options.children is None or plan.seconds > policy.close * first.seconds):
        if (far := _is_far(plan, first, planner.effort)) and when_far:
            when_far()
        rearranged = rearranged_slices(planner, plan, first, far=far)
        plan = slicing.freed(plan) if rearranged is plan and not slicing.was_freed else rearranged
    plan = replace(plan, unsliced_cells=first.cells)
    if plan.slice_overhead > _MOST_OVERHEAD:
        raise _refusal(first, frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


def _first_slices(
    planner: Planner, wholes: Sequence[Plan | Outline], searched: bool
) -> tuple[list[tuple[Plan, Slicing]], list[BudgetError]]:
    """Slice trees as they are, as long as others may be cheaper.

    If the first tree does not fit, or takes far more work, the other trees are tried in the order of their slices'
    estimated cost, until one fits.

    Parameters
    ----------
    wholes : sequence of Plan or Outline
        Without slices, the cheapest first, which is a plan.
    searched : bool
        Whether another tree may be searched for later, so that variables need not be freed where slices are far dearer.

    Returns
    -------
    list of (Plan, Slicing), list of BudgetError
        Slices that fit, with their makers, and the errors of other trees.
    """
    policy = BudgetPolicy.current()
    first, effort = wholes[0], planner.effort
    assert isinstance(first, Plan)
    found: list[tuple[Plan, Slicing]] = []
    refusals: list[BudgetError] = []
    waiting = [(whole.seconds, Slicing(planner, whole.tree, first)) for whole in wholes]
    estimated = False
    while waiting:
        seconds, slicing = waiting.pop(0)
        least = min([plan.seconds for plan, _ in found], default=inf)
        if found and (
            least <= policy.close * seconds or not effort.allows(_TRIES_A_TREE * planning_seconds(slicing.whole), least)
        ):
            break
        far = True
        try:
            plan = slicing.first()
        except BudgetError as error:
            refusals.append(error)
        else:
            far = searched and _is_far(plan, first, effort)
            found.append((plan if far else slicing.freed(plan), slicing))
            if far and estimated:
                break
        # If the first trees are far off, an estimate sorts the remaining trees, because slicing each one takes long. Of
        # two remaining trees, both are sliced: the first may be far off or refused, too.
        if far and not estimated and len(waiting) > 2:
            estimated = True
            waiting = sorted([(each.estimate(slicing.limit), each) for _, each in waiting], key=itemgetter(0))
    return found, refusals


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

    planner: Planner
    tree: Tree
    whole: Plan

    def __post_init__(self) -> None:
        self.was_freed = False
        problem, self.allowed = self.planner.problem, self.planner.memory_bytes
        self.limit = max((self.allowed - problem.model_bytes) // problem.itemsize, 1)
        unfit = self.tree is self.whole.tree and not self.whole.fits(self.allowed)
        self._tried = {frozenset[int]()} if unfit else set()
        self._least: dict[frozenset[int], int] = {}

    def first(self) -> Plan:
        """Condition on variables of the largest tables, and of ever smaller ones, until the plan fits.

        Variables are chosen carefully only if the greedy choice might fit.
        """
        while True:
            sliced = self._sliced(self.limit, rounds=0)
            if self._may_fit(sliced) and self.planner.may_fit(self.tree, sliced):
                sliced = self._sliced(self.limit)
            if slice_count(self.tree, sliced) > BudgetPolicy.current().most_slices:
                raise _refusal(self.whole, sliced, self.allowed)
            if plan := self._made(sliced):
                return plan
            if self.limit == 1:
                raise _refusal(self.whole, sliced, self.allowed)
            self.limit //= 2

    def estimate(self, limit: int) -> float:
        """Predict slices whose tables are within a limit, not planned."""
        sliced = self._sliced(limit)
        each = tree_cost(self.tree, self.planner.rates, self.planner.problem.itemsize, sliced)
        return each.seconds * slice_count(self.tree, sliced)

    def _sliced(self, limit: int, rounds: int = CAREFUL_ROUNDS) -> frozenset[int]:
        planner = self.planner
        planner.effort.spend(OUTLINE_SECONDS * len(self.tree.scopes) * (1 + rounds) / (1 + CAREFUL_ROUNDS))
        return slice_tree(
            self.tree,
            limit,
            planner.rates,
            itemsize=planner.problem.itemsize,
            seed=planner.options.seed,
            rounds=rounds,
            most_slices=BudgetPolicy.current().most_slices,
        )

    def freed(self, plan: Plan) -> Plan:
        """Give up conditioning on variables where the plan fits without: not all tables are there at the same time."""
        policy = BudgetPolicy.current()
        self.was_freed, effort = True, self.planner.effort
        for v in sorted(plan.sliced, key=lambda v: -self.planner.problem.dims[v]):
            enough = plan.seconds <= policy.close * self.whole.seconds or plan.seconds > policy.behind * effort.known
            if enough or not effort.allows(planning_seconds(plan), plan.seconds):
                break
            fewer = self._made(frozenset(plan.sliced) - {v})
            if fewer and fewer.seconds < plan.seconds:
                plan = fewer
        return plan

    def _may_fit(self, sliced: frozenset[int]) -> bool:
        """Whether slices were not tried before, and their largest step fits."""
        if sliced in self._tried:
            return False
        if sliced not in self._least:
            self._least[sliced] = least_bytes(self.planner.problem, self.tree, sliced)
        return self._least[sliced] <= self.allowed

    def _made(self, sliced: frozenset[int]) -> Plan | None:
        """Plan slices that were not tried before, if their largest step may fit."""
        planner, tree = self.planner, self.tree
        if not self._may_fit(sliced):
            return None
        self._tried.add(sliced)
        plan = planner.within(tree, sliced)
        planner.effort.spend(planning_seconds(plan) if plan else OUTLINE_SECONDS * len(tree.scopes))
        return plan


def _is_far(plan: Plan, whole: Plan, effort: PlanningBudget) -> bool:
    """Whether slices take so many times the whole work that another tree comes first, if there is time for it."""
    policy = BudgetPolicy.current()
    return plan.seconds > policy.far * whole.seconds and effort.left(plan.seconds) > _SHORT_REARRANGING_SECONDS


def rearranged_slices(planner: Planner, plan: Plan, whole: Plan, *, far: bool) -> Plan:
    """Rearrange a tree for its slices and condition again, a few times; return the cheapest plan on the way.

    If slices are ``far`` from the whole plan, a short turn comes first: its gain predicts the gain of more turns.
    """
    policy = BudgetPolicy.current()
    best, effort, search = plan, planner.effort, planner.search
    for turn in range(-1 if far else 0, policy.rearrangings):
        left = effort.left(best.seconds) / (policy.rearrangings - max(turn, 0)) - _TRIES_A_TREE * planning_seconds(plan)
        seconds = min(_REARRANGING_SECONDS / policy.rearrangings, best.seconds / (2 * policy.rearrangings), left)
        if turn < 0:
            seconds = min(seconds, _SHORT_REARRANGING_SECONDS)
        elif far and best.seconds > policy.behind * effort.known:
            break
        if seconds <= 0:
            break
        effort.spend(seconds)
        sliced = frozenset(plan.sliced)
        tree = replace(plan.tree, dims=planner.problem.dims)
        tree = replace(search, seconds=seconds, seed=search.seed + turn).refined(tree, sliced)
        slicing = Slicing(planner, planner.joined(tree, sliced), whole)
        try:
            plan = slicing.freed(slicing.first())
        except BudgetError:
            break
        best = min(best, plan, key=lambda plan: plan.seconds)
    return best


def _refusal(whole: Plan, sliced: frozenset[int], allowed_bytes: int, tried: Plan | None = None) -> BudgetError:
    """Return the error with the plan's memory, the limit, and the cost of slicing."""
    largest = max(table_bytes(whole.tree.dims, s.axes, whole.itemsize) for s in whole.steps)
    slices = prod(whole.dims[v] for v in sliced)
    price = "" if tried is None else f" at {tried.slice_overhead:.3g} times the work"
    where, otherwise = (" or more on a GPU", ", or leave --gpus out") if whole.device else ("", "")
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} (largest message {format_bytes(largest)}){where}, allowed "
        f"{format_bytes(allowed_bytes)}; slicing would take {format_count(slices)} slices or more{price}; "
        f"try a larger --memory or a longer --order-time{otherwise}"
    )
