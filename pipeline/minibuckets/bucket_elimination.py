"""One elimination by mini-buckets in memory, by a rule: how the parts of a bucket agree, and what messages tell.

Each message is computed by a task, from the tables of its mini-bucket. A task knows no other subtree of messages.
Therefore this process and workers, which run tasks concurrently, compute the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from .joins import BucketTable, Joins, on_one_side
from .partition import MiniBucket, Partition, Scope

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

    def within(self, below: int) -> Rule[Answered]:
        """Return the rule of one bucket, whose incoming messages and those below them added ``below`` to the bound."""
        ...

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
        """Return the facts of a message in memory."""
        ...

    def told(self, extent: Extent) -> Answered | None:
        """Return the contribution of a message to the bound; None if nothing is possible."""
        ...

    def below(self, told: Answered) -> int:
        """Return the amount of a contribution, as :meth:`within` takes it."""
        ...

    def entered(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> bool:
        """Take account of a bucket's messages, in the order of the buckets; return whether anything is possible."""
        ...

    def read(self, costs: Any, told: Answered) -> None:
        """Subtract from a message, in place, the amount that it contributed to the bound."""
        ...

    def raised(self, costs: Any, parts: int, out: Any = None) -> Any:
        """Turn a table, or a read message, into the input of a mini-bucket, as an array."""
        ...


@dataclass(frozen=True, eq=False)
class BucketMessage(BucketTable):
    """A message as it is read, and its facts before that."""

    extent: Extent = Extent(0.0, 0.0, 0.0)


class CommonSum(NamedTuple):
    """The projection of a mini-bucket to the variables that all parts of its bucket have."""

    costs: Any
    below: int


class BucketAgreement(NamedTuple):
    """Amounts to add to the parts of a bucket so that they agree, the compared values' magnitude, and the bucket's
    rule.
    """

    added: Sequence[Any]
    size: float
    rule: Rule[Any]


@dataclass(frozen=True)
class BucketTasks(Generic[Answered]):
    """The tasks of one bucket, from the scopes of its mini-buckets.

    Parameters
    ----------
    minis : sequence of MiniBucket
    common : tuple of int
        Variables that all of them have.
    rule : Rule
        Without the account of other buckets.
    joins : Joins
    """

    minis: Sequence[MiniBucket]
    common: Scope
    rule: Rule[Answered]
    joins: Joins

    def compared(self, part: int, *tables: BucketTable) -> CommonSum:
        """Task: project a mini-bucket to the variables that all of them have."""
        costs = self.joins.projected(self.minis[part].scope, self._raised(tables), self.common)
        return CommonSum(costs, _below(tables))

    def agreed(self, part: int, *sums: CommonSum) -> BucketAgreement:
        """Task: compare the mini-buckets; all parts have the same result."""
        rule = self.rule.within(sum([share.below for share in sums]))
        added, size = rule.agreed(on_one_side([share.costs for share in sums]))
        return BucketAgreement(added, size, rule)

    def message(self, part: int, agreement: BucketAgreement | None, *tables: BucketTable) -> BucketMessage:
        """Task: eliminate the variable of a mini-bucket."""
        mini, joined, below = self.minis[part], self._raised(tables), _below(tables)
        if agreement is None:
            rule, size = self.rule.within(below), 0.0
            costs = self.joins.projected(mini.scope, joined, mini.message)
        else:
            rule, size = agreement.rule, agreement.size
            joined.append(BucketTable(self.common, agreement.added[part]))
            costs = self.joins.projected(mini.scope, joined, mini.message)
            rule.written(costs, len(self.minis))
        extent = rule.measured(costs, size)
        told = rule.told(extent)
        if told is not None:
            rule.read(costs, told)
            below += rule.below(told)
        return BucketMessage(mini.message, costs, below, extent)

    def submitted(self, submit: Callable[..., Any], tables: Sequence[Sequence[Any]]) -> list[Any]:
        """Submit all tasks; return the handles of the messages.

        Parameters
        ----------
        submit : callable
            Takes a task, the first word of its name, the number of its mini-bucket, and further arguments.
        tables : sequence of sequence
            Handles of the tables of each mini-bucket.
        """
        agreement = None
        if len(self.minis) > 1:
            sums = [submit(self.compared, "compare", part, *each) for part, each in enumerate(tables)]
            agreement = submit(self.agreed, "agree", 0, *sums)
        return [submit(self.message, "eliminate", part, agreement, *each) for part, each in enumerate(tables)]

    def _raised(self, tables: Iterable[BucketTable]) -> list[BucketTable]:
        parts = len(self.minis)
        if parts == 1:
            return [*tables]
        raised = [(table, self.rule.raised(table.costs, parts)) for table in tables]
        return [table if costs is table.costs else BucketTable(table.scope, costs) for table, costs in raised]


def _below(tables: Iterable[BucketTable]) -> int:
    return sum([table.below for table in tables])


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
        self._tables: list[Any] = [*tables]
        n = len(split.dims)
        self.buckets: list[tuple[BucketTable, ...]] = [()] * n
        self.messages: list[tuple[BucketMessage, ...]] = [()] * n

    def run(self, stop: Stop | None) -> bool | None:
        """Eliminate all variables; return whether anything is possible, or None if it was stopped."""
        for v, minis in zip(self.split.order, self.split.buckets, strict=True):
            if stop is not None and stop():
                return None
            messages = self._submitted(v, minis, lambda task, _, part, *args: task(part, *args))
            if not self.rule.entered(minis, [message.extent for message in messages]):
                return False
            if self.keep:
                self.messages[v] = tuple(messages)
        return True

    def _submitted(self, v: int, minis: Sequence[MiniBucket], submit: Callable[..., Any]) -> list[Any]:
        """Submit the tasks of a bucket, and return its messages' handles."""
        tables = [[self._take(number, len(minis)) for number in mini.tables] for mini in minis]
        messages = self._tasks(minis).submitted(submit, tables)
        if self.keep:
            self.buckets[v] = tuple(chain.from_iterable(tables))
        self._tables += messages
        return messages

    def _tasks(self, minis: Sequence[MiniBucket]) -> BucketTasks[Answered]:
        common = self.split.shared(minis) if len(minis) > 1 else ()
        # the rule without its account, which tasks do not know
        return BucketTasks(minis, common, self.rule.within(0), self.joins)

    def _take(self, number: int, parts: int) -> Any:
        """Return the handle of a table for a bucket of some parts."""
        table = self._tables[number]
        if not self.keep:
            self._tables[number] = None
        return table
