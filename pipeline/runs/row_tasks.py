"""Steps by rows on disk as tasks of a pool: each needs the futures of the tables it reads, and hands on receipts.

The size of a table, and so of its boxes, is known only when it is made. The table's task therefore runs its boxes one
after another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ...cluster.dask_pool import DaskPool
from ...cluster.pool import SerialPool, TaskLabel
from ...storage.files import free_bytes
from ...storage.spec import Receipt
from ...tasks.boxes.box_policy import BoxPolicy
from ...tasks.boxes.stores import ChunkFiles, chunk_store
from .row_sweep import RowTables
from .run import Run, ignored

T = TypeVar("T")


@dataclass(frozen=True)
class RowsMade(Generic[T]):
    """The result of a task of a sparse step.

    Parameters
    ----------
    node : int
    receipts : sequence of Receipt
        Of what it wrote.
    table : table, optional
        The table that the answer is read from, if it is small; all other tables are on disk.
    joined, work, dense
        Figures of the work in the task's memory account.
    """

    node: int
    receipts: Sequence[Receipt]
    table: T | None = None
    joined: int = 0
    work: float = 0.0
    dense: int = 0


@dataclass
class RowTasks(RowTables[T]):
    """The tables of a sparse sweep in which each step is a task of the pool."""

    def make_all(self, needed: Collection[int]) -> None:
        """Submit steps, each as a task that does its boxes one after the other, and enter what they made.

        All tasks have ended when this returns or raises: none writes what is made again.

        Raises
        ------
        ChunkLostError
            If a chunk is missing or damaged.
        BudgetError
            If a box does not fit, or the tables do not fit the disk.
        """
        made = self._submitted(needed)
        failure: Exception | None = None
        for node in [*made]:
            try:
                self._take(self.run.pool.get(made.pop(node)))
                self.run.report(self.moved(self.steps[node]))
                if failure is None:
                    self.collect()
            except Exception as error:  # running tasks continue, and their dependents end with this error
                failure = failure or error
        if failure is not None:
            raise failure

    def _submitted(self, needed: Collection[int]) -> dict[int, Any]:
        """Submit steps in the order of the sweep; return the futures of their tables."""
        run, disk = self.run, self.disk
        alone = replace(run, pool=SerialPool(), progress=None, by_steps=False, note=ignored)
        there = RowTables(alone, self.store, self.keep, apart=True)
        there.program = self.program  # leaf tables are built once, here
        assert isinstance(run.pool, DaskPool)
        batch = run.pool.batch(make_rows)
        shared = batch.put(there, TaskLabel(f"load-{len(needed)}_steps"))
        made: dict[int, Any] = {}
        (labels,) = run.labels
        for step, label in zip(self.program.steps, labels, strict=True):
            if step.node in needed:
                read = dict.fromkeys(i for i in step.inputs if i in self.steps)
                inputs = [made[i] if i in made else RowsMade(i, disk.of(i), self.held.get(i)) for i in read]
                known = disk.of(step.node)
                made[step.node] = batch.submit(make_rows, shared, step.node, known, *inputs, label=label)
        return batch.send(made)

    def _take(self, made: RowsMade[T]) -> None:
        """Enter what a task made."""
        new = [receipt for receipt in made.receipts if receipt.key not in self.disk.receipts]
        self.room.dense += made.dense
        if made.table is not None:
            self.held[made.node] = made.table
        self.disk.enter(new, made.joined, made.work)
        if made.table is not None or made.node not in self.run.plan.outputs:  # others count when they are read
            self.disk.made(made.node)


def make_rows(shared: RowTables[T], node: int, known: Sequence[Receipt], *inputs: RowsMade[T]) -> RowsMade[T]:
    """Task: run a sparse step in memory, or in boxes; known boxes are not run again."""
    tables = shared.for_task({one.node: one.table for one in inputs if one.table is not None})
    tables.disk.receipts.take([*known, *(receipt for one in inputs for receipt in one.receipts)])
    tables.disk.take_left(node)
    if not tables.disk.has(node):
        tables.make(tables.steps[node])
    room = tables.room
    return RowsMade(node, tables.disk.of(node), tables.held.get(node), room.joined, room.done, room.dense)


@contextmanager
def opened_row_tables(run: Run[T], name: str, *, keep: bool) -> Iterator[RowTables[T]]:
    """Open the tables of a sweep by rows in the run's folder."""
    assert run.folder is not None
    folder = (run.folder / name).absolute()
    allowed = free_bytes(run.folder) if run.disk_bytes is None else run.disk_bytes
    compact = BoxPolicy.current().compact_part * run.plan.stored_bytes > allowed
    if run.device:
        from ...tasks.boxes.device_stores import BufferedFiles

        store: ChunkFiles = BufferedFiles(folder, compact=compact)
    else:
        store = chunk_store(folder, compact=compact)
    try:
        yield (RowTasks if run.by_steps else RowTables)(run, store, keep)
    finally:
        store.close()
