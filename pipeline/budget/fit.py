"""Making a plan fit its budget: in memory as it is, in slices, or spilled to disk, whichever is cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import BudgetError
from ..plans.plan import Plan, PlanOptions, Problem, format_bytes
from ..plans.planner import whole_plans
from ..plans.slices import CLOSE, sliced_plan
from ..trees.costs import Rates
from .spill import plan_spill

Fit = Literal["auto", "slice", "spill", "refuse"]


@dataclass(frozen=True)
class Prices:
    """The three ways to run a query; a way that is impossible is the error that says why.

    Parameters
    ----------
    chosen : Plan
    slices, spill : Plan, BudgetError or None
        None where it was not asked for, because a plan fits memory anyway.
    """

    chosen: Plan
    slices: Plan | BudgetError | None = None
    spill: Plan | BudgetError | None = None


def fitted(
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    fit: Fit,
    disk_bytes: int | None,
    disk_rate: Callable[[], float],
) -> Prices:
    """Choose how a query runs within its budget.

    Parameters
    ----------
    fit : {"auto", "slice", "spill", "refuse"}
        Which way to take where memory does not suffice; ``spill`` also where it does.
    disk_bytes : int or None
        Budget for tables on disk.
    disk_rate : callable
        Measures the disk, in bytes per second; only called if spilling is considered.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """

    def spilled(whole: Plan) -> Plan:
        plan = plan_spill(problem, options, rates, whole, disk_rate())
        assert plan.spill is not None
        check_disk(plan.spill.disk_bytes, disk_bytes)
        return plan

    spills = fit == "spill" or disk_bytes != 0
    return cheapest(whole_plans(problem, options, rates), problem, options, rates, fit, spilled if spills else None)


def cheapest(
    plans: Iterator[Plan],
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    fit: Fit,
    spilled: Callable[[Plan], Plan] | None,
) -> Prices:
    """Choose among plans in memory, the cheapest first, and what slicing and spilling make of them.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """
    whole = next(plans)
    if fit != "spill" and whole.fits(options.memory_bytes):
        return Prices(whole)
    others = list(plans) if fit != "spill" else []
    smaller = next((plan for plan in others if plan.fits(options.memory_bytes)), None)
    if smaller and (fit == "refuse" or smaller.seconds <= CLOSE * whole.seconds):
        return Prices(smaller)
    if fit == "refuse":
        where, ways = ("on a GPU", "--fit slice") if options.device else ("of memory", "--fit slice or --fit spill")
        raise BudgetError(
            f"the plan needs {format_bytes(whole.peak_bytes)} {where}, allowed "
            f"{format_bytes(options.memory_bytes)}; {ways} would find another way"
        )
    slices = spill = None
    if fit != "spill":
        slices = _attempt(lambda: sliced_plan(problem, options, rates, [whole, *others]))
    if fit != "slice" and spilled:
        spill = _attempt(lambda: spilled(whole))
    possible = [plan for plan in (smaller, slices, spill) if isinstance(plan, Plan)]
    if not possible:
        raise next(error for error in (slices, spill) if isinstance(error, BudgetError))
    return Prices(min(possible, key=lambda plan: plan.seconds), slices, spill)


def _attempt(make: Callable[[], Plan]) -> Plan | BudgetError:
    try:
        return make()
    except BudgetError as error:
        return error


def check_disk(needed_bytes: int, disk_bytes: int | None) -> None:
    """Refuse a plan whose tables exceed the budget for the disk, if there is one.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    if disk_bytes is not None and needed_bytes > disk_bytes:
        raise BudgetError(
            f"the tables of the plan need {format_bytes(needed_bytes)} of disk, allowed "
            f"{format_bytes(disk_bytes)}; try a larger --disk or --memory, or --fit slice"
        )
