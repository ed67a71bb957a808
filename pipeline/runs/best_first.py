"""Slices of an optimum, in the order of their lower bounds. A slice that cannot beat the incumbent never runs.

Every slice that reaches the optimum is run, so that the first of them is found whatever the order was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tasks.steps.number_limits import SAME_SHARE
from ..queries.arithmetic import CostOptimum, EnergyOptimum
from ..trees.memory import leaf_bytes
from .run import Run
from .run_policy import SlicePolicy
from .slices import Slices, group_totals

if TYPE_CHECKING:
    from ..minibuckets.slice_bounds import SliceBounds

_LOG = logging.getLogger(__name__)


def bounds_of(run: Run[Any], seed: int = 0) -> SliceBounds | None:
    """Bound the total of every slice of an optimum, in its arithmetic; None where that does not pay.

    Parameters
    ----------
    run : Run
        Of a plan in slices.
    seed : int
        Of the order of mini-buckets.

    Returns
    -------
    SliceBounds or None
        ``least`` (slices,) float64, and the best total that is known; energies are rounded outwards.
    """
    plan, arithmetic, policy = run.plan, run.arithmetic, SlicePolicy.current()
    if plan.seconds < policy.least_seconds or not isinstance(arithmetic, (CostOptimum, EnergyOptimum)):
        return None
    cells = plan.seconds / policy.bounds_part / policy.cell_seconds
    beside = 3 * leaf_bytes(plan.tree, plan.dims, 8) + policy.slice_bytes * plan.slices
    left = plan.peak_bytes - plan.model_bytes - beside
    if left <= 0:
        return None
    from ..cost_networks.cost_network import cost_network
    from ..minibuckets.slice_bounds import SliceBounds, affordable, slice_bounds

    network, units = cost_network(run.network)
    split = affordable(network, plan.sliced, seed, cells=cells, memory_bytes=left)
    if split is None:
        return None
    found = slice_bounds(network, plan.sliced, split)
    offset = arithmetic.scale.offset if isinstance(arithmetic, CostOptimum) else 0
    least = units.base - offset + units.unit * (found.least - units.below)
    known = units.base - offset + units.unit * (found.known + units.above)
    if isinstance(arithmetic, EnergyOptimum):
        some = least < np.inf
        least[some] -= SAME_SHARE * (1 + abs(least[some]))
        known += SAME_SHARE * (1 + abs(known))
    elif arithmetic.scale.cap is not None:
        known = min(known, float(arithmetic.scale.cap - 1))
    return SliceBounds(least, known)


def least_slice(run: Run[Any], slices: Slices[Any], bounds: SliceBounds, sent: Any = None) -> tuple[Any, int] | None:
    """Return the least total and the first slice that has it; None if there is none.

    Parameters
    ----------
    bounds : SliceBounds
        In the run's arithmetic.
    sent
        The pool's handle of ``slices``, if it has them already.
    """
    size, least = slices.size, np.minimum.reduceat(bounds.least, range(0, slices.slices, slices.size))
    best: tuple[Any, int] | None = None
    known, done = bounds.known, 0

    def wanted() -> Iterator[tuple[int, list[bool]]]:
        nonlocal done
        for number in np.argsort(least, kind="stable").tolist():
            here = bounds.least[number * size : (number + 1) * size]
            worth = (here <= known) & (here < np.inf)
            if not worth.any():
                return
            done += int(np.count_nonzero(worth))
            yield number, worth.tolist()

    for number, totals in group_totals(run, slices, wanted(), sent):
        found = [(total, number * size + i) for i, total in enumerate(totals) if total is not None]
        best = min(found if best is None else [best, *found], default=None)
        known = known if best is None else min(known, float(best[0]))
    _LOG.info("%d of %d slices run, best bound first; the other slices hold nothing better", done, slices.slices)
    return best
