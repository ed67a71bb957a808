"""Exact counts: plan sweeps modulo several primes, and combine their residues by the Chinese remainder theorem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LARGEST_INT32, ordered_sum
from ...tasks.steps.semiring import Semiring, mod_sum_product
from ...tasks.steps.step import Step, make_step
from ..errors import BudgetError, InternalError
from ..orders.tree_search import HOPELESS_SECONDS
from ..plans.plan import MorePrimesError, Plan, relowered, repriced
from ..plans.row_bounds import least_seconds
from ..plans.stages import Evaluations
from ..preprocessing.consistency import allowed
from ..preprocessing.leaf_tables import COST_LIMIT, CostScale, cost_leaf
from ..preprocessing.preprocess import Leaf, Network, fixed_value
from ..queries.arithmetic import Arithmetic, arithmetic_for
from ..queries.counting import (
    CountEstimate,
    CountResidue,
    Levels,
    Spectrum,
    combine,
    enough_primes,
    most_primes,
    powers_of,
    prefix_sum,
    root_of_unity,
    spectrum,
)
from ..queries.formula import QueryPolicy
from ..results.result import Result
from ..runs.run import TABLES, Run
from ..trees.costs import Rates, residue_rates, steps_cost
from ..trees.memory import Sizing, sweep_peak
from .answers import swept_total

# The first sweep of a count estimates its size in floating point. The sweeps modulo primes follow.
#
# A count under a limit of costs is read from the coefficients of a polynomial, which is evaluated at many points. One
# sweep evaluates several points: they are the states of an additional variable, the last axis of all tables.

# Numbers of points of a sweep that are tried. Rows of 64 points hide the fixed cost of a step.
_TOGETHER = (64, 16, 4)
# Larger tables leave the cache, and gain nothing from several points.
_MOST_CELLS = 1 << 19
# Long rows amortise a sweep's overhead if it has at most this many cells.
_LONG_ROWS, _FEW_CELLS = (2048, 512), 1 << 18


def with_evaluations(
    plan: Plan, semiring: Semiring, points: int, primes: int, expected: int, rates: Rates, memory_bytes: int
) -> Plan:
    """Return the plan with sweeps at ``points`` points, modulo ``expected`` and at most ``primes`` primes.

    If a sweep is neither sliced nor on disk nor sparse, it evaluates several points together if this is faster and fits
    in ``memory_bytes``.

    Parameters
    ----------
    semiring : Semiring
        The semiring of residues modulo any prime.
    """
    share = 1.0 if plan.row_bounds is not None else _residue_share(plan, rates)
    alone = Evaluations(points, primes, share=share, expected=min(primes, expected))
    if points > 1 and plan.row_bounds is None and plan.spill is None and plan.slices == 1 and not plan.cuts:
        wide = [count for count in _LONG_ROWS if count * plan.cells <= _FEW_CELLS]
        for most in wide + [count for count in _TOGETHER if count * plan.cost.largest_table_cells <= _MOST_CELLS]:
            found = _together(plan, semiring, replace(alone, together=min(points, most)), rates)
            peak = _peak(plan, found)
            if peak <= memory_bytes and found.seconds < found.together * share * plan.sweep_seconds:
                return replace(plan, evaluations=found, peak_bytes=max(plan.peak_bytes, peak))
    return replace(plan, evaluations=alone)


def _residue_share(plan: Plan, rates: Rates) -> float:
    """Return the seconds of a plan's steps with residues, divided by their seconds with floats."""
    floats, residues = (steps_cost(plan.up, plan.tree, r, plan.itemsize).seconds for r in (rates, residue_rates(rates)))
    return residues / floats if floats else 1.0


def _together(plan: Plan, semiring: Semiring, wanted: Evaluations, rates: Rates) -> Evaluations:
    steps = pointwise(plan, semiring, wanted.together)
    return repriced(replace(wanted, steps=steps), rates, plan.itemsize)


def _peak(plan: Plan, found: Evaluations) -> int:
    """Add up the memory of a sweep of several points, with the leaf tables' powers of a point."""
    sizing = Sizing((*plan.tree.dims, found.together), plan.itemsize, plan.threads, plan.device)
    tables = plan.leaf_bytes * (found.together + 1) + sweep_peak(found.steps, sizing, plan.tree.roots)
    return plan.model_bytes + tables


def pointwise(plan: Plan, semiring: Semiring, together: int) -> tuple[Step, ...]:
    """Return the forward steps with an additional variable of the highest number, the last axis of all tables."""
    added, sizes = len(plan.dims), (*plan.tree.dims, together)
    return tuple(
        make_step(s.node, s.inputs, tuple([(*axes, added) for axes in s.input_axes]), (*s.axes, added), sizes, semiring)
        for s in plan.up
    )


def plan_of_points(plan: Plan, semiring: Semiring, together: int) -> Plan:
    """Return the plan of one sweep that takes several points."""
    tree = replace(plan.tree, dims=(*plan.tree.dims, together))
    return replace(plan, up=pointwise(plan, semiring, together), dims=(*plan.dims, together), tree=tree)


# Maximum cells of a leaf table whose possible cells are counted to estimate the number of primes. For larger tables,
# the functions count as independent, which is less precise.
_JOINT_CELLS: Final = 1 << 12

# A count up to this value follows from its logarithm, because the rounding error is far below half a unit.
_LOG_EXACT = 1 << 30


def counted_plan(
    plan: Plan,
    network: Network,
    arithmetic: Arithmetic[Any],
    rates: Rates,
    memory_bytes: int,
    longest: float = HOPELESS_SECONDS,
) -> Plan:
    """Add the sweeps modulo primes to the plan of a count; other plans are unchanged.

    Parameters
    ----------
    longest : float
        Maximum seconds of sweeps over sparse tables, by the lower bound of their time.

    Raises
    ------
    BudgetError
        If the sweeps would take too long.
    """
    fixed = fixed_value(network)
    if not isinstance(arithmetic, CountEstimate) or fixed is None:
        return plan
    spread = spectrum_of(network, arithmetic, int(fixed))
    # such a count is small enough to be read off one floating-point sweep
    if spread is None and _is_small(network):
        return plan
    primes = most_primes(ordered_sum(map(math.log, network.dims)))
    points = spread.points if spread else 1
    numbers = points, primes, expected_primes(network)
    found = with_evaluations(plan, mod_sum_product(LARGEST_INT32), *numbers, rates, memory_bytes)
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
            "in "
            f"all, allowed {longest:.3g}"
        )
    return found


def least_seconds_by_rows(plan: Plan) -> float:
    """Return a lower limit of the seconds of all sweeps of a sparse plan."""
    return plan.sweeps * plan.slices * least_seconds(plan)


def expected_primes(network: Network) -> int:
    """Return the expected number of primes of a count, if leaf tables exclude assignments independently."""
    arithmetic = arithmetic_for(network)
    found = ordered_sum(map(math.log, network.dims)) + ordered_sum(
        _possible_log(network, arithmetic, leaf) for leaf in network.leaves
    )
    return most_primes(max(found, 0.0))


def _possible_log(network: Network, arithmetic: Arithmetic[Any], leaf: Leaf) -> float:
    """Return ln of the fraction of possible cells of a leaf; functions of large tables count as independent."""
    cells = math.prod([network.dims[v] for v in leaf.scope])
    if len(leaf.functions) > 1 and cells <= _JOINT_CELLS:
        return math.log(max(int(np.count_nonzero(arithmetic.leaf(leaf, leaf.scope).values)), 1) / cells)
    model, found = network.model, 0.0
    for f in leaf.functions:
        function = model.functions[f]
        if len(function.scope) > 1:  # functions of one variable are already part of its domain
            cells = math.prod(model.dims[v] for v in function.scope)
            possible = int(np.count_nonzero(allowed(model, f, function.values)))
            if function.rows is not None and bool(allowed(model, f, np.array([function.default]))[0]):
                possible += cells - len(function.values)
            found += math.log(max(possible, 1) / cells)
    return found


def _is_small(network: Network) -> bool:
    """Whether the first sweep alone proves any count."""
    return math.prod(network.dims) <= _LOG_EXACT


def count(run: Run[Any]) -> Result:
    """Return the exact number of possible assignments.

    Parameters
    ----------
    run : Run
        A run whose arithmetic is ``CountEstimate``; its first sweep bounds the logarithm of the count.

    Returns
    -------
    Result
        ``value`` is an integer of any size: residues modulo 31-bit primes, combined by the Chinese remainder theorem.

    Raises
    ------
    MorePrimesError
        If the first sweep shows that the count needs more than ``run.most_primes`` primes.
    """
    network = run.network
    fixed = fixed_value(network)
    if fixed is None:
        return Result("count", "ok", value=0)
    arithmetic = run.arithmetic
    assert isinstance(arithmetic, CountEstimate)
    spread = spectrum_of(network, arithmetic, int(fixed))
    if run.planned is None:
        return Result("count", "ok", value=network.free_states)
    bound = swept_total(run, TABLES)
    if bound is None:
        return Result("count", "ok", value=0)
    if spread is None and _is_small(network):
        return Result("count", "ok", value=round(math.exp(bound)) * network.free_states)
    points = spread.points if spread else 1
    levels: Levels = {}
    chosen = enough_primes(bound, points)
    if len(chosen) > run.most_primes:
        raise MorePrimesError(len(chosen))
    residues = [(_residue(run, arithmetic.scale, prime, spread, levels), prime) for prime in chosen]
    value = combine(residues)
    # the floating-point sweep bounds the count independently of the residues
    if value and math.log(value) > bound + 1e-6:
        raise InternalError("the residues of the count contradict each other")
    return Result("count", "ok", value=value * network.free_states)


def spectrum_of(network: Network, arithmetic: CountEstimate, fixed: int) -> Spectrum | None:
    """Return the spectrum of the costs of the leaf tables; None if their sums cannot reach ``top``."""
    if arithmetic.scale is None:
        return None
    bound, unit = 0, 0
    for leaf in network.leaves:
        for finite in _finite_costs(network, leaf):
            bound += int(finite.max(initial=0))
            unit = math.gcd(unit, int(np.gcd.reduce(finite, axis=None, initial=0)))
    return spectrum(network, arithmetic.scale, bound, max(unit, 1), fixed)


def _finite_costs(network: Network, leaf: Leaf) -> Iterator[NDArray[np.int64]]:
    """Yield the finite costs of a leaf's table; for a large table, the finite costs of each function."""
    if math.prod([network.dims[v] for v in leaf.scope]) < QueryPolicy.current().inspected_cells:
        costs = cost_leaf(network, leaf, leaf.scope)
        yield costs[costs < COST_LIMIT]
        return
    model = network.model
    for f in leaf.functions:
        function = model.functions[f]
        values = function.values if function.rows is None else np.append(function.values, function.default)
        yield values[allowed(model, f, values)] - model.lowest[f]


def _residue(run: Run[Any], scale: CostScale | None, prime: int, spread: Spectrum | None, levels: Levels) -> int:
    """Return the count modulo a prime."""
    points, unit = (spread.points, spread.unit) if spread else (1, 1)
    root = root_of_unity(prime, points)
    powers, places = powers_of(root, points, prime), np.arange(points, dtype=np.int64)
    some = CountResidue(run.network, mod_sum_product(prime), scale, unit, powers, places, levels)
    together = run.plan.evaluations.together if run.plan.evaluations else 1
    values: list[int] = []
    planned = _plan_of_points(run, some.semiring, min(together, points))
    for start in range(0, points, together):
        residue = replace(some, points=some.points[start : start + together])
        if (count := len(residue.points)) != min(together, points):  # the last ones
            planned = _plan_of_points(run, some.semiring, count)
        values += _evaluated(run, residue, planned)
    return prefix_sum(values, spread.limit, root, prime) if spread else values[0]


def _plan_of_points(run: Run[Any], semiring: Semiring, count: int) -> Plan:
    """Return the plan of a sweep over ``count`` points modulo a prime."""
    if count == 1:
        return relowered(run.plan, replace(run.problem, semiring=semiring))
    return plan_of_points(run.plan, semiring, count)


def _evaluated(run: Run[Any], residue: CountResidue, planned: Plan) -> list[int]:
    """Evaluate the generating polynomial at some points modulo a prime, in one sweep."""
    problem = replace(run.problem, semiring=residue.semiring)
    again = replace(run, planned=planned, problem=problem, arithmetic=residue, progress=None, kept_bytes=None)
    found: list[int] = swept_total(again, f"{TABLES}_{residue.semiring.modulus}_{residue.points[0]}")
    if run.progress is not None:
        run.progress(len(residue.points) * run.plan.reported_cells)
    return found
