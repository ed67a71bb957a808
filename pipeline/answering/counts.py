"""Exact counts by sweeps: plan the sweeps modulo several primes, and run them.

:mod:`bucketflow.pipeline.queries.counting` decides how a network is counted.

The first sweep of a count estimates its size in floating point. The sweeps modulo primes follow. A count under a limit
of costs is read from the coefficients of a polynomial, which is evaluated at many points. One sweep evaluates several
points: they are the states of an additional variable, the last axis of all tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ...tasks.steps.number_limits import LARGEST_INT32
from ...tasks.steps.semiring import Semiring, mod_sum_product
from ...tasks.steps.step import Step, make_step
from ..errors import BudgetError
from ..orders.tree_search import HOPELESS_SECONDS
from ..plans.plan import MorePrimesError, Plan, relowered, repriced
from ..plans.row_bounds import least_seconds
from ..plans.stages import Evaluations
from ..queries.counting import CountPlan, CountResidue
from ..results.result import Result
from ..runs.run import TABLES, Run
from ..trees.costs import Rates, residue_rates, steps_cost
from ..trees.memory import Sizing, sweep_peak
from .answers import swept_total

# Numbers of points of a sweep that are tried. Rows of 64 points hide the fixed cost of a step.
_TOGETHER = (2048, 512, 64, 16, 4)
# Larger tables leave the cache, and gain nothing from several points.
_MOST_CELLS = 1 << 19
# Stands for the residues modulo any prime in plans.
_RESIDUES: Final = mod_sum_product(LARGEST_INT32)


def counted_plan(
    plan: Plan, counting: CountPlan, rates: Rates, memory_bytes: int, longest: float = HOPELESS_SECONDS
) -> Plan:
    """Add the sweeps modulo primes to the plan of a count.

    Parameters
    ----------
    longest : float
        Maximum seconds of sweeps over sparse tables, by the lower bound of their time.

    Raises
    ------
    BudgetError
        If the sweeps would take too long.
    """
    if counting.network.fixed is None or counting.is_small:
        return plan
    found = with_evaluations(plan, counting, rates, memory_bytes)
    assert found.evaluations is not None
    # the refusal compares the most primes that may be needed, not the expected number
    longest_seconds = replace(found, evaluations=replace(found.evaluations, expected=None)).seconds
    if plan.row_bounds is None and longest_seconds > HOPELESS_SECONDS:
        raise BudgetError(
            f"the count needs up to {found.sweeps:,} sweeps of {float(plan.cells):.3g} cells, {longest_seconds:.3g} s "
            "in all"
        )
    if plan.row_bounds is not None and (least := least_seconds_by_rows(found)) > longest:
        raise BudgetError(
            f"the count takes {found.sweeps:,} sweeps over sparse tables, one after the other, at least {least:.3g} s "
            f"in all, allowed {longest:.3g}"
        )
    return found


def with_evaluations(plan: Plan, counting: CountPlan, rates: Rates, memory_bytes: int) -> Plan:
    """Return the plan of a count with its sweeps modulo primes.

    If a sweep is neither sliced nor on disk nor sparse, it evaluates several points together if this is faster and fits
    in ``memory_bytes``.
    """
    share = 1.0 if plan.row_bounds is not None else _residue_share(plan, rates)
    points, primes = counting.points, counting.most_primes
    alone = Evaluations(points, primes, share=share, expected=min(primes, counting.expected_primes))
    if points > 1 and plan.row_bounds is None and plan.spill is None and plan.slices == 1 and not plan.cuts:
        for most in [count for count in _TOGETHER if count * plan.cost.largest_table_cells <= _MOST_CELLS]:
            found = _together(plan, replace(alone, together=min(points, most)), rates)
            peak = _peak(plan, found)
            if peak <= memory_bytes and found.seconds < found.together * share * plan.sweep_seconds:
                return replace(plan, evaluations=found, peak_bytes=max(plan.peak_bytes, peak))
    return replace(plan, evaluations=alone)


def _residue_share(plan: Plan, rates: Rates) -> float:
    """Return the seconds of a plan's steps with residues, divided by their seconds with floats."""
    floats, residues = (steps_cost(plan.up, plan.tree, r, plan.itemsize).seconds for r in (rates, residue_rates(rates)))
    return residues / floats if floats else 1.0


def _together(plan: Plan, wanted: Evaluations, rates: Rates) -> Evaluations:
    steps = _pointwise(plan, _RESIDUES, wanted.together)
    return repriced(replace(wanted, steps=steps), rates, plan.itemsize)


def _peak(plan: Plan, found: Evaluations) -> int:
    """Add up the memory of a sweep of several points, with the leaf tables' powers of a point."""
    sizing = Sizing((*plan.tree.dims, found.together), plan.itemsize, plan.threads, plan.device)
    tables = plan.leaf_bytes * (found.together + 1) + sweep_peak(found.steps, sizing, plan.tree.roots)
    return plan.model_bytes + tables


def _pointwise(plan: Plan, semiring: Semiring, together: int) -> tuple[Step, ...]:
    """Return the forward steps with an additional variable of the highest number, the last axis of all tables."""
    added, sizes = len(plan.dims), (*plan.tree.dims, together)
    return tuple(
        make_step(s.node, s.inputs, tuple([(*axes, added) for axes in s.input_axes]), (*s.axes, added), sizes, semiring)
        for s in plan.up
    )


def least_seconds_by_rows(plan: Plan) -> float:
    """Return a lower limit of the seconds of all sweeps of a sparse plan."""
    return plan.sweeps * plan.slices * least_seconds(plan)


def count(counting: CountPlan, run: Run[Any], most: float) -> Result:
    """Return the exact number of possible assignments.

    Parameters
    ----------
    counting : CountPlan
    run : Run
        A run of ``counting.network`` whose arithmetic is ``CountEstimate``.
    most : float
        Maximum number of primes.

    Returns
    -------
    Result
        ``value`` is an integer of any size: residues modulo 31-bit primes, combined by the Chinese remainder theorem.

    Raises
    ------
    MorePrimesError
        If the first sweep shows that the count needs more than ``most`` primes.
    """
    network = counting.network
    if network.fixed is None:
        return Result("count", "ok", value=0)
    if run.planned is None:
        return Result("count", "ok", value=network.free_states)
    log_bound = swept_total(run, TABLES)
    if log_bound is None:
        return Result("count", "ok", value=0)
    if counting.is_small:
        return Result("count", "ok", value=round(math.exp(log_bound)) * network.free_states)
    primes = counting.primes(log_bound)
    if len(primes) > most:
        raise MorePrimesError(len(primes))
    together = run.plan.evaluations.together if run.plan.evaluations else 1
    value = counting.combined(primes, log_bound, _residue_sweeps(run), together)
    return Result("count", "ok", value=value * network.free_states)


def _residue_sweeps(run: Run[Any]) -> Callable[[CountResidue], list[int]]:
    """Return a function that sweeps the run's plan once more, modulo a prime, at one or several points."""

    @lru_cache(maxsize=1)  # only the last sweep modulo a prime may have fewer points
    def planned(semiring: Semiring, points: int) -> Plan:
        if points == 1:
            return relowered(run.plan, replace(run.problem, semiring=semiring))
        tree = replace(run.plan.tree, dims=(*run.plan.tree.dims, points))
        return replace(run.plan, up=_pointwise(run.plan, semiring, points), dims=(*run.plan.dims, points), tree=tree)

    def sums(residue: CountResidue) -> list[int]:
        semiring, points = residue.semiring, residue.points
        once = replace(run, planned=planned(semiring, len(points)), problem=replace(run.problem, semiring=semiring))
        once = replace(once, arithmetic=residue, progress=None, kept_bytes=None)
        found: list[int] = swept_total(once, f"{TABLES}_{semiring.modulus}_{points[0]}")
        if run.progress is not None:
            run.progress(len(points) * run.plan.reported_cells)
        return found

    return sums
