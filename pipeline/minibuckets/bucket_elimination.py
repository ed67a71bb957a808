"""One elimination by mini-buckets in memory, by a rule: how the parts of a bucket agree, and what messages tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .joins import BucketTable, Joins, on_one_side
from .partition import MiniBucket, Partition

Array = NDArray[np.float64]
Stop = Callable[[], bool]
Answered = TypeVar("Answered")


class Extent(NamedTuple):
    """Facts of a message before it is read.

    Parameters
    ----------
    least, greatest : float
        Of its entries, the least one without -inf, the greatest one without inf.
    shared : float
        Greatest magnitude of the values that its bucket's mini-buckets were compared by; 0 if the bucket was not split.
    """

    least: float
    greatest: float
    shared: float

    @classmethod
    def of(cls, costs: Array, shared: float) -> Extent:
        """Measure a message of the host, or a part of one."""
        least = float(np.min(costs, where=costs > -np.inf, initial=np.inf))
        return cls(least, float(np.max(costs, where=costs < np.inf, initial=-np.inf)), shared)


class Rule(Protocol[Answered]):
    """The rule of an elimination: how the mini-buckets of a bucket agree, how messages change the bound, and how they
    are read afterwards.
    """

    def agreed(self, sums: Sequence[Any]) -> tuple[list[Any], float]:
        """Return the amounts to add to each mini-bucket to make them agree, and the compared values' magnitude."""
        ...

    def added(self, total: Array, share: Array) -> Array:
        """Return the combination of parts of a mini-bucket that fix different states of a variable."""
        ...

    def written(self, costs: Any, parts: int) -> None:
        """Turn the projection of a mini-bucket into a message, in place."""
        ...

    def measured(self, costs: Any, shared: float) -> Extent:
        """Return the facts of a message in memory that :meth:`told` uses."""
        ...

    def told(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> list[Answered] | None:
        """Take account of a bucket's messages; None if nothing is possible."""
        ...

    def read(self, costs: Any, told: Answered) -> None:
        """Subtract from a message, in place, the amount that it contributed to the bound."""
        ...

    def raised(self, costs: Any, parts: int, out: Any = None) -> Any:
        """Turn a table, or a read message, into the input of a mini-bucket, as an array."""
        ...


class BucketElimination(Generic[Answered]):
    """The state of one elimination.

    Parameters
    ----------
    split : Partition
    tables : sequence of BucketTable
        Those of the network.
    rule : Rule
    joins : Joins
    keep : bool
        Whether buckets and messages are kept.
    """

    def __init__(
        self, split: Partition, tables: Sequence[BucketTable], rule: Rule[Answered], joins: Joins, *, keep: bool
    ) -> None:
        self.split, self.rule, self.joins, self.keep = split, rule, joins, keep
        self._tables: list[BucketTable | None] = [*tables]
        n = len(split.dims)
        self.buckets: list[tuple[BucketTable, ...]] = [()] * n
        self.messages: list[tuple[BucketTable, ...]] = [()] * n
        self.told: list[list[Answered]] = [[]] * n

    def run(self, stop: Stop | None) -> bool | None:
        """Eliminate all variables; return whether anything is possible, or None if it was stopped."""
        for v, minis in zip(self.split.order, self.split.buckets, strict=True):
            if stop is not None and stop():
                return None
            if not self._bucket(v, minis):
                return False
        return True

    def _bucket(self, v: int, minis: Sequence[MiniBucket]) -> bool:
        """Eliminate one variable; return whether anything is possible."""
        parts = len(minis)
        tables = [[self._take(number, parts) for number in mini.tables] for mini in minis]
        if self.keep:
            self.buckets[v] = tuple(chain.from_iterable(tables))
        shared = self._agree(minis, tables) if parts > 1 else 0.0
        messages: list[BucketTable] = []
        for mini, each in zip(minis, tables, strict=True):
            costs = self.joins.projected(mini.scope, each, mini.message)
            if parts > 1:
                self.rule.written(costs, parts)
            messages.append(BucketTable(mini.message, costs))
        told = self.rule.told(minis, [self.rule.measured(message.costs, shared) for message in messages])
        if told is None:
            return False
        for message, its_own in zip(messages, told, strict=True):
            self.rule.read(message.costs, its_own)
        self._tables += messages
        self.told[v] = told
        if self.keep:
            self.messages[v] = tuple(message for message in messages if message.scope)
        return True

    def _take(self, number: int, parts: int) -> BucketTable:
        table = self._tables[number]
        assert table is not None
        if not self.keep:
            self._tables[number] = None
        return table if parts == 1 else BucketTable(table.scope, self.rule.raised(table.costs, parts))

    def _agree(self, minis: Sequence[MiniBucket], tables: Sequence[list[BucketTable]]) -> float:
        """Give the mini-buckets equal shares of their combination, by one more table for each; return its magnitude."""
        common = self.split.shared(minis)
        sums = [self.joins.projected(mini.scope, each, common) for mini, each in zip(minis, tables, strict=True)]
        added, size = self.rule.agreed(on_one_side(sums))
        for each, costs in zip(tables, added, strict=True):
            each.append(BucketTable(common, costs))
        return size
