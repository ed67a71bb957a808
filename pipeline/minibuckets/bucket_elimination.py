"""One elimination by mini-buckets, by a rule: how the parts of a bucket agree, and what messages tell.

Each message is computed by a task, from the tables of its mini-bucket. A task knows no other subtree of messages.
Therefore this process and workers, which run tasks concurrently, compute the same messages. On workers, a task depends
on the messages that it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import TaskLabel
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES
from ..plans.task_graph import TaskGraph, TaskNode, ascii_name
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


Name = Callable[[int], str]
"""Returns the name of a variable."""

_STAGE: Final = "mini-buckets"


class WorkerPool(Protocol):
    """A pool of workers that takes whole graphs of tasks."""

    def batch(self, function: Callable[..., Any]) -> Any:
        """Return a batch of tasks."""
        ...

    def get(self, handle: Any) -> Any:
        """Wait for a result."""
        ...

    def counting(self, tell: Callable[[int], None]) -> Any:
        """Call ``tell`` now and then while this thread waits."""
        ...


@dataclass(frozen=True)
class MessageWorkers:
    """Workers that compute messages, and the names of variables for their tasks."""

    pool: WorkerPool
    name: Name


class _Stopped(Exception):
    """The caller stopped the elimination while this thread waited."""


class WorkerElimination(BucketElimination[Answered]):
    """An elimination whose messages workers compute. The results are those of this process, bit by bit.

    Parameters
    ----------
    workers : MessageWorkers
    *args, **options
        As for :class:`~.bucket_elimination.BucketElimination`.
    """

    def __init__(self, workers: MessageWorkers, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._workers, self._own = workers, len(self._tables)
        self._batch = workers.pool.batch(BucketTasks.message)

    def run(self, stop: Stop | None) -> bool | None:
        """Eliminate all variables; return whether anything is possible, or None if it was stopped."""
        kept: list[BucketTable] = self._tables[: self._own] if self.keep else []
        sent = self._sent()

        def look(_: int = 0) -> None:
            if stop is not None and stop():
                raise _Stopped

        try:
            with self._workers.pool.counting(look):
                for v, minis in zip(self.split.order, self.split.buckets, strict=True):
                    found: list[Any] = []
                    for _ in minis:
                        look()
                        found.append(self._workers.pool.get(sent.pop(0)))
                    if not self.rule.entered(minis, [each.extent if self.keep else each for each in found]):
                        return False
                    if self.keep:
                        kept += found
                        self.buckets[v] = tuple([kept[number] for mini in minis for number in mini.tables])
                        self.messages[v] = tuple(found)
        except _Stopped:
            return None
        return True

    def _sent(self) -> list[Any]:
        """Send all tasks; return the futures of the messages or, if they are not kept, of their extents."""
        read: dict[int, Any] = {}
        for v, minis in zip(self.split.order, self.split.buckets, strict=True):
            first = len(self._tables)

            def submit(
                task: Any, word: str, part: int, *args: Any, v: int = v, minis: Any = minis, first: int = first
            ) -> Any:
                cells = 0 if word == "agree" else minis[part].cells
                label = TaskLabel(_key(word, self._workers.name(v), first + part), _STAGE, cells)
                return self._batch.submit(task, part, *args, label=label)

            for number, handle in enumerate(self._submitted(v, minis, submit), first):
                label = TaskLabel(_key("collect", self._workers.name(v), number), _STAGE)
                read[number] = handle if self.keep else self._batch.submit(extent_of, handle, label=label)
        self._tables.clear()
        return list(self._batch.send(read).values())

    def _tasks(self, minis: Sequence[MiniBucket]) -> BucketTasks[Answered]:
        tasks = super()._tasks(minis)
        # a task gets the sizes of its own variables only
        dims: Any = {v: self.split.dims[v] for mini in minis for v in mini.scope}
        return replace(tasks, joins=replace(tasks.joins, dims=dims))

    def _take(self, number: int, parts: int) -> Any:
        table = super()._take(number, parts)
        # two tasks of a split bucket read each of its tables: a large one is sent once
        large = number < self._own and parts > 1 and table.costs.size > self.joins.policy.quick_cells
        return self._batch.put(table, TaskLabel(f"load-function_{number}")) if large else table


def elimination(
    workers: MessageWorkers | None,
    split: Partition,
    tables: Sequence[BucketTable],
    rule: Rule[Answered],
    *args: Any,
    **how: Any,
) -> BucketElimination[Answered]:
    """Return an elimination on workers, or in this process if there are none."""
    if workers is None:
        return BucketElimination(split, tables, rule, *args, **how)
    return WorkerElimination(workers, split, tables, rule, *args, **how)


def extent_of(message: BucketMessage) -> Extent:
    """Task: return the facts of a message."""
    return message.extent


def task_count(split: Partition) -> int:
    """Return the number of tasks of an elimination that keeps its messages."""
    return sum(len(minis) if len(minis) < 2 else 2 * len(minis) + 1 for minis in split.buckets)


def task_bytes(split: Partition) -> int:
    """Return the bytes of the tables of the largest task."""
    minis = [mini for bucket in split.buckets for mini in bucket]
    read = [[mini.message, mini.message, *(split.scopes[t] for t in mini.tables)] for mini in minis]
    return CELL_BYTES * max([sum(prod(split.dims[v] for v in scope) for scope in each) for each in read], default=0)


def _key(word: str, name: str, number: int) -> str:
    return f"{word}-{ascii_name(name)}.{number}"


def message_graph(split: Partition, name: Name) -> TaskGraph:
    """Return the task graph of an elimination: a task for each message. Pure.

    Parts of a bucket that was split are compared first, so that each of their tasks needs the messages of all of them.
    """
    nodes: dict[str, TaskNode] = {}
    own = len(split.scopes) - sum(map(len, split.buckets))
    keys: dict[int, str] = {}
    for v, minis in zip(split.order, split.buckets, strict=True):
        needs = tuple(keys[t] for mini in minis for t in mini.tables if t >= own)
        level = 1 + max((nodes[key].level for key in needs), default=-1)
        first = own + len(keys)
        for number, mini in enumerate(minis, first):
            keys[number] = key = _key("eliminate", name(v), number)
            nodes[key] = TaskNode(
                key=key,
                kind="elimination",
                needs=needs,
                functions=sum(t < own for t in mini.tables),
                level=level,
                variables=tuple(map(name, mini.message)),
                eliminated=(name(v),),
                cells=mini.cells,
                nbytes=CELL_BYTES * prod(split.dims[u] for u in mini.message),
                seconds=None,
                place="memory",
                bucket=keys[first],
            )
    return TaskGraph(nodes, tuple(keys[number] for number in keys if not split.scopes[number]))
