"""The sweeps modulo primes that follow the first one of a count: how many there are, and how many points each takes.

A count that costs may bound is read off a polynomial, known by its values at many points. The points of one sweep are
the states of one more variable, which all tables have as their last axis. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step, make_step
from ..plans.plan import Plan
from ..plans.plan_parts import Evaluations
from ..plans.repricing import repriced
from ..trees.costs import Rates, residue_rates, steps_cost
from ..trees.memory import Sizing, sweep_peak

# Numbers of points that are tried: rows of 64 hide what a step costs besides.
_TOGETHER = (64, 16, 4)
# Tables of more cells leave the cache, and are as fast by themselves.
_MOST_CELLS = 1 << 19
# Long rows amortise a sweep's overhead if it has at most this many cells.
_LONG_ROWS, _FEW_CELLS = (2048, 512), 1 << 18


def with_evaluations(
    plan: Plan, semiring: Semiring, points: int, primes: int, expected: int, rates: Rates, memory_bytes: int
) -> Plan:
    """Return the plan with later sweeps at ``points`` points, modulo at most ``primes`` primes, ``expected`` of them
    expected.

    Where one sweep takes all tables at once it takes several points, if that is faster and fits ``memory_bytes``.

    Parameters
    ----------
    semiring : Semiring
        Residues modulo any of the primes.
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
    """Return how many times as long the steps of a plan take with residues."""
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
    """Return the forward steps with one more variable, numbered after all others, as the last axis of all tables."""
    added, sizes = len(plan.dims), (*plan.tree.dims, together)
    return tuple(
        make_step(s.node, s.inputs, tuple([(*axes, added) for axes in s.input_axes]), (*s.axes, added), sizes, semiring)
        for s in plan.up
    )


def plan_of_points(plan: Plan, semiring: Semiring, together: int) -> Plan:
    """Return the plan of one sweep that takes several points."""
    tree = replace(plan.tree, dims=(*plan.tree.dims, together))
    return replace(plan, up=pointwise(plan, semiring, together), dims=(*plan.dims, together), tree=tree)
