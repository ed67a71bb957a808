"""Making a propagation fit its budget: as it is, in slices, or with its large tables on disk, whichever is cheapest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import BudgetError
from ..plans.plan import PlanOptions, Problem, format_bytes
from ..plans.two_way import TwoWay
from ..plans.two_way_planner import fits, plan_propagation, plan_whole
from ..trees.costs import Rates
from ..trees.tree import Target
from .fit import Fit, check_disk
from .spill import plan_marginal_spill


def fitted_propagation(
    problem: Problem,
    targets: Sequence[Target],
    options: PlanOptions,
    fit: Fit,
    disk_bytes: int | None,
    disk_rate: Callable[[], float],
) -> TwoWay:
    """Choose how a propagation runs within its budget.

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
    whole = plan_whole(problem, targets, options, Rates())
    if fits(whole, options) and fit != "spill":
        return whole
    if fit == "refuse":
        where, otherwise = ("on a GPU", "") if options.device else ("of memory", " or --fit spill")
        raise BudgetError(
            f"propagation needs {format_bytes(whole.peak_bytes)} {where}, allowed "
            f"{format_bytes(options.memory_bytes)}; --fit slice{otherwise} would find another way"
        )
    plans: list[TwoWay] = []
    refusals: list[BudgetError] = []
    if fit in ("auto", "slice"):
        try:
            plans.append(plan_propagation(problem, targets, options, Rates()))
        except BudgetError as error:
            refusals.append(error)
    if fit == "spill" or (fit == "auto" and disk_bytes != 0):
        try:
            plans.append(_spilled(problem, targets, options, whole, disk_bytes, disk_rate()))
        except BudgetError as error:
            refusals.append(error)
    if not plans:
        raise refusals[0]
    return min(plans, key=lambda plan: plan.seconds)


def _spilled(
    problem: Problem,
    targets: Sequence[Target],
    options: PlanOptions,
    whole: TwoWay,
    disk_bytes: int | None,
    disk_rate: float,
) -> TwoWay:
    plan = plan_marginal_spill(problem, targets, options, Rates(), whole, disk_rate)
    assert plan.spill is not None
    check_disk(plan.spill.disk_bytes, disk_bytes)
    return plan
