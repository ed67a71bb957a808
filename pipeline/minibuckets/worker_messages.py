"""Mini-bucket elimination on workers: a task for each message, which depends on the messages that it joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, Protocol

from ...cluster.pool import TaskLabel
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES
from ..plans.task_graph import TaskGraph, TaskNode, ascii_name
from .bucket_elimination import Answered, BucketElimination, BucketMessage, BucketTasks, Extent, Rule, Stop
from .joins import BucketTable
from .partition import MiniBucket, Partition

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
