"""Bounds on all slices of a network together: mini-buckets with an order that ends with the conditioned variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost_networks.cost_network import CostNetwork
from ..orders.min_fill import min_fill_order
from .joins import BucketTable
from .least_costs import MiniBuckets, eliminate, greedy_states
from .partition import Partition, Size, partition

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
