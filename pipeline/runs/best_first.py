"""Slices of an optimum, in the order of their lower bounds. A slice that cannot beat the incumbent never runs.

Every slice that reaches the optimum is run, so that the first of them is found whatever the order was.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import SAME_SHARE
from ..cost_networks.cost_network import CostNetwork
from ..minibuckets.joins import BucketTable
from ..minibuckets.least_costs import MiniBuckets, eliminate, greedy_states
from ..minibuckets.partition import Partition, Size, partition
from ..orders.min_fill import min_fill_order
from ..queries.arithmetic import CostOptimum, EnergyOptimum
from ..trees.memory import leaf_bytes
from .run import Run
from .slices import SlicePolicy, Slices, group_totals

# Bounds on all slices of a network together: mini-buckets with an order that ends with the conditioned variables.

# Sizes of mini-buckets, the largest that is affordable is taken.
_SIZES = tuple(1 << bits for bits in (20, 18, 16, 14, 12, 10, 8, 6, 4))


@dataclass(frozen=True, eq=False)
class SliceBounds:
    """Facts of slices before any of them runs.

    Parameters
    ----------
    least : (slices,) float64
        No total of a slice is below it; inf if it allows nothing. The last variable that is sliced varies fastest.
    known : float
        A total that is reached; inf if none is known.
    """

    least: NDArray[np.float64]
    known: float


def affordable(
    network: CostNetwork, sliced: Sequence[int], seed: int, *, cells: float, memory_bytes: int
) -> Partition | None:
    """Return the mini-buckets for bounds on slices within these limits; None if even small ones exceed them."""
    first = [v for v in min_fill_order(network.dims, network.scopes, seed) if v not in sliced]
    for size in _SIZES:
        split = partition(network.dims, network.scopes, (*first, *reversed(sliced)), Size(cells=size))
        if split.cells <= cells and split.kept_bytes <= memory_bytes:
            return split
    return None


def slice_bounds(network: CostNetwork, sliced: Sequence[int], split: Partition) -> SliceBounds:
    """Bound the least total of every slice.

    Parameters
    ----------
    network : CostNetwork
    sliced : sequence of int
        Variables that have one state in each slice.
    split : Partition
        Of an order that ends with these, the last one first.
    """
    found = eliminate(network, split, compiled=False)
    assert found is not None
    shape = [network.dims[v] for v in sliced]
    if not found.feasible:
        return SliceBounds(np.full(math.prod(shape), math.inf), math.inf)
    known = float(network.total(greedy_states(found, network.dims)))
    return SliceBounds(_sums(found, sliced, shape).reshape(-1), known)


def _sums(found: MiniBuckets, sliced: Sequence[int], shape: list[int]) -> NDArray[np.float64]:
    sums = np.full(shape, float(found.lower))
    for v in sliced:
        sums -= found.offsets[v]
        for table in found.messages[v]:
            told = _placed(table, sliced, shape)
            sums -= np.where(told < np.inf, told, 0.0)  # entries forbidden here are also forbidden in the bucket
    for v in sliced:
        for table in found.buckets[v]:
            sums += _placed(table, sliced, shape)
    return sums


def _placed(table: BucketTable, sliced: Sequence[int], shape: list[int]) -> Any:
    """Return a table with an axis for every variable that is sliced, in their order."""
    axes = sorted(range(len(table.scope)), key=lambda i: sliced.index(table.scope[i]))
    costs = table.costs.reshape([shape[sliced.index(v)] for v in table.scope]).transpose(axes)
    return costs.reshape([d if v in table.scope else 1 for v, d in zip(sliced, shape, strict=True)])


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
    # several devices divide the slices, but not their bounds
    cell_seconds = policy.device_cell_seconds * run.slice_devices if run.device else policy.cell_seconds
    cells = plan.seconds / policy.bounds_part / cell_seconds
    beside = 3 * leaf_bytes(plan.tree, plan.dims, 8) + policy.slice_bytes * plan.slices
    left = plan.peak_bytes - plan.model_bytes - beside
    if left <= 0:
        return None
    from ..cost_networks.cost_network import cost_network

    network, units = cost_network(run.network)
    split = affordable(network, plan.sliced, seed, cells=cells, memory_bytes=left)
    if split is None:
        return None
    found = slice_bounds(network, plan.sliced, split)
    offset = arithmetic.scale.offset if isinstance(arithmetic, CostOptimum) else 0
    # bounds of the integer network are converted to the units of the sweep
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
