"""Bounds by mini-buckets whose messages are on disk: the same as in memory, and resumed from chunks that are there."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .....tasks.steps.semiring import LOG_SUM, MIN_PLUS
from ...network import CostNetwork, States
from ..decode import greedy_states
from ..joins import BucketTable, Joins
from ..mini_buckets import MiniBuckets, Reach, Told, beginning, shifts
from ..partition import MiniBucket
from ..weighted import Account, magnitude, shares
from .boxes import Boxes, StoredCosts, unless_lost
from .boxing import Boxing
from .message_files import Extent, MessageFiles

Array = NDArray[np.float64]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Spilling:
    """Where messages of one elimination are: in boxes, in folders of their own below this one."""

    boxing: Boxing
    folder: Path


@dataclass(frozen=True)
class Found:
    """A lower bound on a network's totals, whether any is possible, and an assignment that was read from messages."""

    lower: int
    feasible: bool
    states: States | None


def least_total(
    network: CostNetwork, spilling: Spilling, upper: int | None, *, joins: Joins, stop: Stop
) -> Found | None:
    """Bound the least total, as :func:`~.mini_buckets.eliminate` does, and decode; None if it was stopped.

    Parameters
    ----------
    network : CostNetwork
    spilling : Spilling
    upper : int, optional
        A cut-off, as there.
    joins : Joins
        Over all states of every variable.
    stop : callable
        Asked before each box; what is done by then stays.
    """
    boxing = spilling.boxing
    tables, reach = beginning(network, boxing.split, upper)
    if not reach.feasible:
        return Found(reach.bound, False, None)
    files = MessageFiles(spilling.folder, _key(MIN_PLUS.name, (reach.lower, reach.upper), tables, boxing), boxing)
    if (known := files.finding) is not None:
        states = known["states"]
        return Found(known["lower"], known["feasible"], None if states is None else tuple(states))

    def attempt() -> Found | None:
        rule = _LeastRule(Reach(reach.lower, reach.upper))
        boxes = Boxes(boxing, files, rule, joins, tables, stop)
        feasible = boxes.run()
        if feasible is None:
            return None
        return Found(rule.reach.bound, feasible, _decoded(boxes, rule.reach) if feasible else None)

    found = unless_lost(files, attempt)
    if found is not None:
        files.finish(vars(found))
    return found


def log_sum(
    tables: Sequence[BucketTable], spilling: Spilling, *, joins: Joins, stop: Stop
) -> tuple[float, float] | None:
    """Bound a sum of products, as :func:`~.weighted.log_sum_bounds` does; None if it was stopped."""
    boxing = spilling.boxing
    files = MessageFiles(spilling.folder, _key(LOG_SUM.name, (), tables, boxing), boxing)
    if (known := files.finding) is not None:
        return known["lower"], known["upper"]

    def attempt() -> tuple[float, float] | None:
        rule = _LogSumRule(Account(boxing.split, tables))
        possible = Boxes(boxing, files, rule, joins, tables, stop).run()
        if possible is None:
            return None
        return rule.account.bounds() if possible else (-math.inf, -math.inf)

    found = unless_lost(files, attempt)
    if found is not None:
        files.finish({"lower": found[0], "upper": found[1]})
    return found


@dataclass(frozen=True)
class _LeastRule:
    """Integer costs: shares are whole, messages are cut off."""

    reach: Reach

    def agreed(self, sums: Sequence[Array]) -> tuple[list[Array], float]:
        return shifts(sums, self.reach.room), 0.0

    def added(self, total: Array, share: Array) -> Array:
        return np.minimum(total, share, out=total)

    def written(self, costs: Array, parts: int) -> None:
        pass

    def told(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> list[Told] | None:
        told = []
        for extent in extents:
            if (each := self.reach.told(extent.least)) is None:
                return None
            told.append(each)
        return told

    def read(self, costs: Array, told: Told | None, parts: int) -> None:
        if told is not None:
            told.apply(costs)


@dataclass(frozen=True)
class _LogSumRule:
    """Logarithms: parts of a bucket are powers, and rounding is accounted for."""

    account: Account

    def agreed(self, sums: Sequence[Array]) -> tuple[list[Array], float]:
        return shares(sums), max(map(magnitude, sums))

    def added(self, total: Array, share: Array) -> Array:
        return np.logaddexp(total, share, out=total)

    def written(self, costs: Array, parts: int) -> None:
        costs /= parts

    def told(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> list[float] | None:
        size = max((extent.shared for extent in extents), default=0.0)
        shift = self.account.agreed(len(minis), size) if len(minis) > 1 else 0.0
        for mini, extent in zip(minis, extents, strict=True):
            if extent.greatest == -math.inf:
                return None
            self.account.sent(mini, len(minis), shift, extent.greatest, extent.greatest - extent.least)
        return [extent.greatest for extent in extents]

    def read(self, costs: Array, told: float | None, parts: int) -> None:
        if told is not None:
            costs -= told
        if parts > 1:
            costs *= parts


def _decoded(boxes: Boxes[Told], reach: Reach) -> States:
    """Read an assignment from messages on disk."""
    split, n = boxes.boxing.split, len(boxes.boxing.split.dims)
    buckets: list[tuple[BucketTable, ...]] = [()] * n
    for v, minis in zip(split.order, split.buckets, strict=True):
        numbers = [number for mini in minis for number in mini.tables]
        buckets[v] = tuple(BucketTable(split.scopes[number], StoredCosts(boxes, number)) for number in numbers)
    empty = ((),) * n
    found = MiniBuckets(
        split.order, reach.lower, True, split.exact, tuple(buckets), empty, (0,) * n, split.cells, split.largest
    )
    return greedy_states(found, split.dims)


def _key(name: str, begun: tuple[int, ...], tables: Sequence[BucketTable], boxing: Boxing) -> str:
    """Return a hash of everything that messages and their chunks depend on."""
    split = boxing.split
    chunks = [sorted(spec.chunked) for spec in boxing.specs]
    digest = hashlib.sha256(repr((name, begun, split.dims, split.order, split.scopes, split.buckets)).encode())
    digest.update(repr((boxing.fixed, chunks)).encode())
    for table in tables:
        digest.update(np.ascontiguousarray(table.costs).tobytes())
    return digest.hexdigest()[:32]
