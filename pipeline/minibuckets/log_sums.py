"""Weighted mini-buckets: an upper bound on a sum of products, rounded outwards.

A split bucket is eliminated by Hölder's inequality: its parts are summed as powers with exponents that add up to one,
here equal exponents. Before that, the parts are made to agree on their common variables (Liu & Ihler, ICML 2011).
Tables are logarithms. Possible rounding errors are added up beside the bound: each message is off by at most a multiple
of its inputs, and a constant added to a message is added to the bound.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...tasks.gpu.arrays import is_device
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.semiring import LOG_SUM
from .bucket_elimination import Array, Extent, MessageWorkers, Stop, elimination
from .joins import BucketTable, Joins
from .partition import MiniBucket, Partition

# A few roundings for each operation: logarithms and powers may be wrong by more than one.
ROUNDING = 8 * sys.float_info.epsilon


def log_sum_bounds(
    tables: Sequence[BucketTable],
    split: Partition,
    *,
    threads: int = 1,
    device_cells: int | None = None,
    stop: Stop | None = None,
    workers: MessageWorkers | None = None,
) -> tuple[float, float] | None:
    """Bound ``ln sum exp(sum of tables)`` over all assignments; None if it was stopped.

    Parameters
    ----------
    tables : sequence of BucketTable
        Logarithms, -inf for impossible assignments, with axes as in ``split.scopes``.
    split : Partition
        Of their scopes.
    threads : int
        Threads of large steps.
    device_cells : int, optional
        Minimum cells of a join that runs on the GPU.
    stop : callable, optional
        Asked before each bucket.
    workers : MessageWorkers, optional
        Where messages are computed; by default in this process.

    Returns
    -------
    tuple of float
        A lower bound, which is -inf unless no bucket was split, and an upper bound; both -inf if the sum is zero.
    """
    account, joins = Account(split, tables), Joins(split.dims, LOG_SUM, threads, True, device_cells)
    possible = elimination(workers, split, tables, LogSums(account), joins, keep=False).run(stop)
    if possible is None:
        return None
    return account.bounds() if possible else (-math.inf, -math.inf)


def _free_dims(split: Partition) -> list[int]:
    """Domain sizes of the variables that no table has."""
    return [split.dims[v] for v, bucket in zip(split.order, split.buckets, strict=True) if not bucket]


class Account:
    """The messages' contributions to the bound, and the possible rounding error.

    Parameters
    ----------
    split : Partition
    tables : sequence of BucketTable
        The given tables.
    """

    def __init__(self, split: Partition, tables: Sequence[BucketTable]) -> None:
        self.split = split
        self.sizes = [magnitude(table.costs) for table in tables]
        self.parts: list[float] = []
        self.slack = 0.0

    def agreed(self, parts: int, size: float) -> float:
        """Count how the parts of a bucket were made to agree on sums up to a size; return how large shares may be."""
        self.slack += ROUNDING * parts * size
        return 2 * size

    def sent(self, mini: MiniBucket, parts: int, shift: float, top: float, size: float) -> None:
        """Count a message whose greatest entry was ``top``, and its size without that."""
        spread = shift + abs(top) + parts * ordered_sum(self.sizes[t] for t in mini.tables)
        operations = len(mini.tables) + (parts > 1) + self.split.dims[mini.variable] + 2
        self.slack += ROUNDING * operations * (spread + 8)
        self.parts.append(top)
        self.sizes.append(size)

    def bounds(self) -> tuple[float, float]:
        """A lower bound, -inf unless no bucket was split, and an upper bound."""
        total = math.fsum(self.parts) + math.fsum(math.log(d) for d in _free_dims(self.split))
        slack = self.slack + ROUNDING * (abs(total) + len(self.split.order))
        return total - slack if self.split.exact else -math.inf, total + slack


@dataclass(frozen=True)
class LogSums:
    """The rule of logarithms: parts of a bucket are powers, and rounding is accounted for."""

    account: Account | None = None

    def within(self, below: int) -> LogSums:
        return LogSums()

    def agreed(self, sums: Sequence[Any]) -> tuple[list[Any], float]:
        return shares(sums), max(map(magnitude, sums))

    def added(self, total: Array, share: Array) -> Array:
        return np.logaddexp(total, share, out=total)

    def written(self, costs: Any, parts: int) -> None:
        costs /= parts

    def measured(self, costs: Any, shared: float) -> Extent:
        return Extent(*_extremes(costs), shared)

    def told(self, extent: Extent) -> float | None:
        return None if extent.greatest == -math.inf else extent.greatest

    def below(self, told: float) -> int:
        return 0

    def entered(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> bool:
        assert self.account is not None
        size = max((extent.shared for extent in extents), default=0.0)
        shift = self.account.agreed(len(minis), size) if len(minis) > 1 else 0.0
        for mini, extent in zip(minis, extents, strict=True):
            if extent.greatest == -math.inf:
                return False
            self.account.sent(mini, len(minis), shift, extent.greatest, extent.greatest - extent.least)
        return True

    def read(self, costs: Any, told: float) -> None:
        costs -= told

    def raised(self, costs: Any, parts: int, out: Any = None) -> Any:
        return costs if parts == 1 else np.multiply(costs, parts, out=out)


def shares(sums: Sequence[Any]) -> list[Any]:
    """Return the amounts to add to several logarithms of sums so that all equal their mean."""
    mean = reduce(np.add, sums) / len(sums)
    dead = mean == -np.inf
    return [np.where(dead, -np.inf, mean - np.where(dead, 0.0, logs)) for logs in sums]


def magnitude(logs: Any) -> float:
    """Return the greatest size of the entries that are not -inf."""
    least, greatest = _extremes(logs)
    return max(abs(least), abs(greatest)) if least <= greatest else 0.0


def _extremes(logs: Any) -> tuple[float, float]:
    """Return the least and the greatest entry above -inf; infinity and minus infinity if there is none."""
    if is_device(logs):
        from ...tasks.gpu.gather import extremes_above

        return extremes_above(logs, -math.inf)
    return float(logs.min(where=logs > -np.inf, initial=np.inf)), float(logs.max())
