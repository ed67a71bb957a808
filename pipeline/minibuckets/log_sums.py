"""Weighted mini-buckets: an upper bound on a sum of products, rounded outwards.

A bucket that was split is eliminated by Hölder's inequality: its parts are summed as powers whose exponents add up to
one, here equal ones, after they were made to agree on what they share (Liu & Ihler, ICML 2011). Tables are logarithms.
What rounding may have taken away is added up beside the bound: each message is off by at most a multiple of what it
was computed from, and a constant that is added to a message is added to the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...tasks.gpu.arrays import is_device
from ...tasks.steps.semiring import LOG_SUM
from .joins import BucketTable, Joins, on_one_side
from .partition import MiniBucket, Partition

# A few roundings for each operation: logarithms and powers may be wrong by more than one.
_ROUNDING = 16 * 2.0**-53


def log_sum_bounds(
    tables: Sequence[BucketTable],
    split: Partition,
    *,
    threads: int = 1,
    device_cells: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[float, float] | None:
    """Bound ``ln sum exp(sum of tables)`` over all assignments; None if it was stopped.

    Parameters
    ----------
    tables : sequence of BucketTable
        Logarithms, -inf for what is impossible, axes as in ``split.scopes``.
    split : Partition
        Of their scopes.
    threads : int
        Threads of large steps.
    device_cells : int, optional
        Joins of at least so many cells run on the GPU.
    stop : callable, optional
        Asked before each bucket.

    Returns
    -------
    tuple of float
        A lower bound, which is -inf unless no bucket was split, and an upper bound; both -inf if the sum is zero.
    """
    work = _Elimination(tables, split, Joins(split.dims, LOG_SUM, threads, True, device_cells))
    for place in range(len(split.order)):
        if stop is not None and stop():
            return None
        if not work.bucket(place):
            return -math.inf, -math.inf
    return work.account.bounds()


def _free_dims(split: Partition) -> list[int]:
    """Domain sizes of the variables that no table has."""
    return [split.dims[v] for v, bucket in zip(split.order, split.buckets, strict=True) if not bucket]


class Account:
    """What messages add to the bound, and how far rounding may have led.

    Parameters
    ----------
    split : Partition
    tables : sequence of BucketTable
        The ones that are given.
    """

    def __init__(self, split: Partition, tables: Sequence[BucketTable]) -> None:
        self.split = split
        self.sizes = [magnitude(table.costs) for table in tables]
        self.parts: list[float] = []
        self.slack = 0.0

    def agreed(self, parts: int, size: float) -> float:
        """Count how the parts of a bucket were made to agree on sums up to a size; return how large shares may be."""
        self.slack += _ROUNDING * parts * size
        return 2 * size

    def sent(self, mini: MiniBucket, parts: int, shift: float, top: float, size: float) -> None:
        """Count a message whose greatest entry was ``top``, and its size without that."""
        spread = shift + abs(top) + parts * sum(self.sizes[t] for t in mini.tables)
        operations = len(mini.tables) + (parts > 1) + self.split.dims[mini.variable] + 2
        self.slack += _ROUNDING * operations * (spread + 8)
        self.parts.append(top)
        self.sizes.append(size)

    def bounds(self) -> tuple[float, float]:
        """A lower bound, -inf unless no bucket was split, and an upper bound."""
        total = math.fsum(self.parts) + math.fsum(math.log(d) for d in _free_dims(self.split))
        slack = self.slack + _ROUNDING * (abs(total) + len(self.split.order))
        return total - slack if self.split.exact else -math.inf, total + slack


class _Elimination:
    """The state of one elimination."""

    def __init__(self, tables: Sequence[BucketTable], split: Partition, joins: Joins) -> None:
        self.split, self.joins = split, joins
        self.tables: list[BucketTable | None] = list(tables)
        self.account = Account(split, tables)

    def bucket(self, place: int) -> bool:
        """Eliminate one variable; return whether anything is possible."""
        minis = self.split.buckets[place]
        tables = [[self._scaled(t, len(minis)) for t in mini.tables] for mini in minis]
        shift = self._agree(minis, tables) if len(minis) > 1 else 0.0
        return all(self._send(mini, each, len(minis), shift) for mini, each in zip(minis, tables, strict=True))

    def _scaled(self, number: int, parts: int) -> BucketTable:
        """Take a table, to the power of the number of parts of its bucket."""
        table = self.tables[number]
        assert table is not None
        self.tables[number] = None
        return table if parts == 1 else BucketTable(table.scope, table.costs * parts)

    def _agree(self, minis: Sequence[MiniBucket], tables: list[list[BucketTable]]) -> float:
        """Give the mini-buckets equal shares of their sums, by one more table for each; return how large it may be."""
        common = self.split.shared(minis)
        sums = on_one_side(
            [self.joins.projected(mini.scope, each, common) for mini, each in zip(minis, tables, strict=True)]
        )
        size = max(map(magnitude, sums))
        for each, logs in zip(tables, shares(sums), strict=True):
            each.append(BucketTable(common, logs))
        return self.account.agreed(len(minis), size)

    def _send(self, mini: MiniBucket, tables: Sequence[BucketTable], parts: int, shift: float) -> bool:
        """Eliminate one mini-bucket; return whether anything is possible."""
        message = self.joins.projected(mini.scope, tables, mini.message)
        message /= parts
        top = float(message.max())
        if top == -math.inf:
            return False
        message -= top
        self.tables.append(BucketTable(mini.message, message))
        self.account.sent(mini, parts, shift, top, magnitude(message))
        return True


def shares(sums: Sequence[Any]) -> list[Any]:
    """Return what to add to each of several logarithms of sums so that all become their mean."""
    mean = reduce(np.add, sums) / len(sums)
    dead = mean == -np.inf
    return [np.where(dead, -np.inf, mean - np.where(dead, 0.0, logs)) for logs in sums]


def magnitude(logs: Any) -> float:
    """Return the greatest size of the entries that are not -inf."""
    if is_device(logs):
        from ...tasks.gpu.gather import extremes_above

        least, greatest = extremes_above(logs, -math.inf)
    else:
        possible = logs > -np.inf
        least, greatest = logs.min(where=possible, initial=np.inf), logs.max(where=possible, initial=-np.inf)
    return max(abs(float(least)), abs(float(greatest))) if least <= greatest else 0.0
