"""Making a plan fit its budget: in memory as it is, in slices, or spilled to disk, whichever is cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ..errors import BudgetError, format_bytes
from ..models.query import Fit
from ..orders.effort import LEAST_SEARCH, PlanningBudget
from ..plans.lower_bounds import Outline, first_plan
from ..plans.plan import Plan
from ..plans.planner import HopelessError, Planner, planning_seconds
from ..trees.tree import Tree
from .budget_policy import BudgetPolicy
from .sliced_plans import sliced_plan

# A longer search finds plans that need at most this factor less memory. A plan that fits only with this factor is
# not pursued if it would take longer than the second number of seconds.
_HOPED_MEMORY: Final = 4
_HOPED_SECONDS: Final = 1e6
# The first boxes that fit take this many times the planning work of a plan.
_FIRST_BOXES: Final = 2

Spilled = Callable[[Planner, Plan], Plan]
"""Makes boxes of a plan."""


@dataclass(frozen=True)
class Prices:
    """The three ways to run a query; a way that is impossible is the error that says why.

    Parameters
    ----------
    chosen : Plan
    slices, spill : Plan, BudgetError or None
        None where it was not asked for, because a plan fits memory anyway or the other way was found good enough.
    """

    chosen: Plan
    slices: Plan | BudgetError | None = None
    spill: Plan | BudgetError | None = None


def fitted(planner: Planner, fit: Fit, disk_bytes: int, disk_rate: Callable[[], float]) -> Prices:
    """Choose how a query runs within its budget.

    Parameters
    ----------
    fit : {"auto", "slice", "spill", "store", "refuse"}
        Which way to take where memory does not suffice; ``spill`` also where it does, which ``store`` does not.
    disk_bytes : int
        Budget for tables on disk.
    disk_rate : callable
        Measures the disk, in bytes per second; only called if spilling is considered.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """
    one_way = planner.problem.targets is None
    before = planner.remembered() if one_way and fit != "spill" else None
    if before is not None:
        return Prices(before)
    planner = replace(planner, effort=PlanningBudget(planner.options.order_seconds or 0.0))
    within = partial(_spilled, disk_bytes=disk_bytes, disk_rate=disk_rate)
    spills = within if fit in ("spill", "store") or disk_bytes != 0 else None
    plans = planner.plans(partial(refuse_hopeless, planner=planner, fit=fit, spilled=spills))
    whole, plans = first_plan(plans)
    if one_way and whole.fits(planner.memory_bytes):
        planner.remember(whole)
    return cheapest(planner, chain((whole,), plans), fit, spills)


def _spilled(planner: Planner, whole: Plan, *, disk_bytes: int, disk_rate: Callable[[], float]) -> Plan:
    from .spill import plan_spill

    plan = plan_spill(planner, whole, disk_rate)
    assert plan.spill is not None
    check_disk(plan.spill.disk_bytes, disk_bytes)
    return plan


def refuse_hopeless(tree: Tree, planner: Planner, fit: Fit, spilled: Spilled | None) -> None:
    """End a hopeless search: its tree fits by no method, and even with more memory not by a fast one.

    Raises
    ------
    HopelessError
    """
    ways = spilled
    for times in (_HOPED_MEMORY, 1):
        wanted = replace(planner, effort=PlanningBudget(spent=inf))
        wanted = wanted.with_options(memory_bytes=times * planner.memory_bytes)
        try:
            found = cheapest(wanted, iter([wanted.of(tree)]), fit, ways)
            if times == 1 or found.chosen.seconds <= _HOPED_SECONDS:
                return
        except BudgetError as error:
            if times == 1:
                raise HopelessError(str(error), tree) from None
            # boxes that do not fit in more memory do not fit in this
            ways = spilled if fit in ("spill", "store") else None


def cheapest(planner: Planner, plans: Iterator[Plan | Outline], fit: Fit, spilled: Spilled | None) -> Prices:
    """Choose among plans in memory, the cheapest first, and what slicing and spilling make of them.

    The first is a plan; further trees that fit only in slices need not be.

    A second way and further trees are tried as far as the planner's effort allows, or where nothing else fits.

    Parameters
    ----------
    plans : iterator of Plan or Outline
    fit : {"auto", "slice", "spill", "store", "refuse"}
    spilled : callable, optional
        Makes boxes of a plan; None where tables may not leave memory.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """
    effort, allowed = planner.effort, planner.memory_bytes
    whole, plans = first_plan(plans)
    if fit != "spill" and whole.fits(allowed):
        return Prices(whole)
    fit = "spill" if fit == "store" else fit
    others: list[Plan | Outline] = []
    while fit != "spill" and effort.allows(planning_seconds(whole), whole.seconds) and (other := next(plans, None)):
        others.append(other)
    smaller = next((plan for plan in others if isinstance(plan, Plan) and plan.fits(allowed)), None)
    # a tree that fits whole needs no slices, unless it takes much more work than the best tree
    if smaller and (fit == "refuse" or smaller.seconds <= BudgetPolicy.current().close * whole.seconds):
        return Prices(smaller)
    if fit == "refuse":
        raise _refusal(whole, allowed)
    slices = spill = None

    def boxes() -> None:
        nonlocal spill
        assert spilled is not None
        effort.kept = 0.0
        spill = _attempt(lambda: spilled(planner, whole))
        if isinstance(spill, Plan):
            effort.know(spill.seconds)

    both = fit != "slice" and spilled is not None
    if fit != "spill":
        with effort.set_aside(0.5 if both else 0.0):
            far = boxes if both else None
            slices = _attempt(lambda: sliced_plan(planner, [whole, *others], far))
    for found in (smaller, slices):
        if isinstance(found, Plan):
            effort.know(found.seconds)
    if both and spill is None and _worth_another(slices, whole, effort):
        boxes()
    possible = [plan for plan in (smaller, slices, spill) if isinstance(plan, Plan)]
    if possible and fit != "spill":
        possible += _grown(planner, plans, whole, min([plan.seconds for plan in possible]))
    if not possible and fit != "spill" and (others := list(plans)):
        if isinstance(others[0], Outline):
            others[0] = planner.of(others[0].tree)
        slower = _attempt(lambda: sliced_plan(planner, others))
        if isinstance(slower, Plan):
            slices = replace(slower, unsliced_cells=whole.cells)
            possible.append(slices)
    if not possible:
        raise next(error for error in (slices, spill) if isinstance(error, BudgetError))
    return Prices(min(possible, key=lambda plan: plan.seconds), slices, spill)


def _refusal(whole: Plan, allowed_bytes: int) -> BudgetError:
    """Return the error for a plan that must fit unchanged."""
    where, ways = ("or more on a GPU", "--fit slice") if whole.device else ("of memory", "--fit slice or --fit spill")
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} {where}, allowed {format_bytes(allowed_bytes)}; {ways} may "
        "avoid this"
    )


def _worth_another(found: Plan | BudgetError | None, whole: Plan, effort: PlanningBudget) -> bool:
    """Whether another method may be considered besides a plan: it may gain more than its planning costs."""
    policy = BudgetPolicy.current()
    if not isinstance(found, Plan):
        return True
    seconds = _FIRST_BOXES * planning_seconds(whole)
    gain = found.seconds - whole.seconds
    return found.seconds > policy.close * whole.seconds and (gain > seconds or effort.allows(seconds, found.seconds))


def _grown(planner: Planner, plans: Iterator[Plan | Outline], whole: Plan, seconds: float) -> list[Plan]:
    """Return further plans that fit, looked for where what was found loses more than twice what that takes."""
    taken = planning_seconds(whole) + LEAST_SEARCH
    if seconds - whole.seconds <= _FIRST_BOXES * taken:
        return []
    planner.effort.grant(taken, whole.seconds)
    return [plan for plan in plans if isinstance(plan, Plan) and plan.fits(planner.memory_bytes)]


def _attempt(make: Callable[[], Plan]) -> Plan | BudgetError:
    try:
        return make()
    except BudgetError as error:
        return error


def check_disk(needed_bytes: int, disk_bytes: int) -> None:
    """Refuse a plan whose tables exceed the budget for the disk.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    if needed_bytes > disk_bytes:
        raise BudgetError(
            f"the tables of the plan need {format_bytes(needed_bytes)} of disk, allowed "
            f"{format_bytes(disk_bytes)}; try a larger --disk or --memory, another --workdir, or --fit slice"
        )
