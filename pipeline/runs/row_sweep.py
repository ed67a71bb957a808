"""Running a sweep by rows whose tables do not fit memory: some are on disk, some steps are done box by box.

The size of a table is known only when it is made. A step runs in memory if it fits. Otherwise it runs in boxes: ranges
of states, each a task that reads its ranges, joins, reduces and writes a sorted run. Boxes that do not fit are cut
further. Cuts and finished boxes are in the ledger. Both methods give the same result.

On a pool, a step is a task that needs the futures of the tables it reads, and hands on receipts. It runs the boxes of
its table one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from ...cluster.dask_pool import DaskPool
from ...cluster.pool import SerialPool, TaskLabel
from ...storage.files import free_bytes
from ...storage.spec import Receipt
from ...tasks.boxes.row_box import RowBoxes, RowsAlgebra, read_table, stored_run
from ...tasks.boxes.sorted_runs import RowRun
from ...tasks.boxes.stores import ChunkFiles, chunk_store
from ...tasks.gpu.memory import is_short
from ...tasks.rows.memory_account import MemoryAccount, RowsNoRoomError, possible
from ...tasks.rows.ordering import Ranges
from ...tasks.rows.relation import Relation
from ...tasks.steps.number_limits import CELL_BYTES
from ...tasks.steps.policy import INPUT_PART, BoxPolicy, RowPolicy
from ...tasks.steps.semiring import LOG_SUM
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import freed_tables
from ..queries.decode import decode, entry
from .pools import open_tables
from .row_ledger import BoxedStep, RowsOnDisk, refusal
from .run import Run, ignored

# Tables that stay in memory take at most 1 / this together, and each at most 1 / this.
_HELD_PART: Final = 4
# Results of joins with at least this many rows are stored, and not computed again after a stop.
_KEPT_JOIN_ROWS: Final = 1 << 21
# Maximum bytes of an answer's tables that are stored in the ledger itself.
_TOLD_BYTES: Final = 1 << 14

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class RowTables(Generic[T]):
    """The tables of a sweep by rows, or of both.

    Parameters
    ----------
    run : Run
    store : ChunkFiles
    keep : bool
        Whether tables are needed after the sweep, for decoding.
    apart : bool
        Whether each step is a task of its own, which finds the tables that it reads on disk.

    Attributes
    ----------
    held : dict of int to table
        Messages in memory.
    """

    run: Run[T]
    store: ChunkFiles
    keep: bool
    apart: bool = False
    held: dict[int, T] = field(default_factory=dict)

    def for_task(self, held: Mapping[int, T]) -> RowTables[T]:
        """Return the tables as one task of a step has them, with an account of its own and some in memory."""
        room = MemoryAccount(self.room.nbytes, self.room.most_work)
        found = replace(self, run=replace(self.run, room=room), held={**held})
        found.program = replace(self.program, algebra=self.algebra.in_room(room))
        return found

    @cached_property
    def program(self) -> Program[T]:
        """Steps and leaf tables, of the host."""
        return replace(self.run, device=False).program(self.run.plan.steps, self.run.plan.outputs)

    @property
    def algebra(self) -> RowsAlgebra[T]:
        """The algebra of sparse tables on the host."""
        return self.program.algebra  # type: ignore[return-value]

    @cached_property
    def steps_algebra(self) -> RowsAlgebra[T]:
        """The algebra that runs the steps: on a device if the run has one."""
        if not self.run.device:
            return self.algebra
        from ...tasks.rows.device_algebra import rows_there

        given: Any = self.algebra
        there: Any = rows_there(given, self.run.least_cells)
        return there  # type: ignore[no-any-return]

    @property
    def _there(self) -> bool:
        """Whether steps in memory are done on a device of this process: others have theirs for boxes."""
        return self.run.device and self.run.serial

    @property
    def room(self) -> MemoryAccount:
        """The memory account of tables in this process."""
        assert self.run.room is not None
        return self.run.room

    @cached_property
    def steps(self) -> dict[int, Step]:
        """The step that makes each table."""
        return {step.node: step for step in self.program.steps}

    @cached_property
    def disk(self) -> RowsOnDisk:
        """The sparse tables on disk."""
        return RowsOnDisk(self.store, self.steps, self.run.plan.tree.dims, self.room, self.run.disk_bytes)

    def roots(self) -> list[T]:
        """Run what is not done yet; return the root tables."""
        found = self.outputs()
        return [found[root] for root in self.run.plan.tree.roots]

    def outputs(self) -> dict[int, T]:
        """Run what is not done yet; return the tables that the answer is read from."""
        open_tables(self.run.pool, self.store.folder, self.run.told)
        self.disk.resume()
        return self.complete(lambda: {node: self._whole(node) for node in self.run.plan.outputs})

    def complete(self, then: Callable[[], R]) -> R:
        """Make the tables that the answer still needs, and read them."""

        def attempt() -> R:
            self._sweep()
            self.store.sync()
            return then()

        return self.disk.receipts.until_whole(attempt)

    def decoded(self, is_optimal: Callable[[dict[int, int]], bool]) -> dict[int, int]:
        """Return the optimal states; reads only rows that agree with those found so far, lost ones are made again."""
        try:
            return self.disk.receipts.until_whole(self._states, lambda: self.complete(lambda: None), is_optimal)
        except RowsNoRoomError as error:
            raise refusal(error) from None

    def _states(self) -> dict[int, int]:
        states: dict[int, int] = {}
        for step in reversed(self.run.plan.up):
            known = {v: states[v] for axes in step.input_axes for v in axes if v in states}
            self.disk.account(step)
            with self.disk.same_runs():
                states |= self._states_of(step, known)
        return states

    def _states_of(self, step: Step, known: Mapping[int, int]) -> dict[int, int]:
        """Return the states of the variables that a step eliminated: some that attain what it made."""
        sizes, semiring = self.run.plan.tree.dims, self.run.problem.semiring
        fixed = {v: (state, state + 1) for v, state in known.items()}

        def value(table: Any) -> Any:
            return entry(table, step.axes, sizes, known, semiring)

        boxes = [*self._boxes_at(step, known)]
        if len(boxes) > 1 and all(run is not None for _, run in boxes):
            # the box with the least value has the optimal states, so the other boxes need not be read
            made = [(value(self._read_runs([run], fixed)), ranges) for ranges, run in boxes if run is not None]
            made.sort(key=lambda one: one[0])
            least = made[0][0]
        else:
            least = value(self._read(step.node, fixed))
            made = [(least, ranges) for ranges, _ in boxes]
        best: tuple[Any, dict[int, int]] | None = None
        for _, ranges in made:
            found = self.best_within(step, known, {**ranges, **fixed}, least)
            best = found if best is None else min(best, found, key=lambda one: one[0])
            if best[0] <= least:
                break
        assert best is not None
        return best[1]

    def _boxes_at(self, step: Step, states: Mapping[int, int]) -> Iterator[tuple[Ranges, RowRun | None]]:
        """Yield the ranges of a step's boxes that agree with some states, with their runs if present."""
        for ranges, run in self.disk.boxes(step.node):
            if all(first <= states[v] < stop for v, (first, stop) in ranges.items() if v in states):
                yield ranges, run

    def best_within(
        self, step: Step, known: Mapping[int, int], ranges: Ranges, least: float
    ) -> tuple[Any, dict[int, int]]:
        """Return the least sum of the inputs of a step that agrees with states, within ranges, and its states."""
        tables: dict[int, Any] = self._inputs_within(step, ranges)
        sizes, semiring, states = self.run.plan.tree.dims, self.run.problem.semiring, dict(known)
        decode((step,), tables, sizes, semiring, states, self.run.compiled, self.room, least)
        read = zip(step.inputs, step.input_axes, strict=True)
        return sum(entry(tables[node], axes, sizes, states, semiring) for node, axes in read), states

    def inputs_at(self, step: Step, states: Mapping[int, int]) -> dict[int, T]:
        """Return the inputs of a step.

        Tables on disk are read only at rows that agree with the states; lost tables are made again.

        Raises
        ------
        RowsNoRoomError
            If they do not fit.
        """

        def read() -> dict[int, T]:
            self.disk.account(step)
            return self._inputs_within(step, {v: (state, state + 1) for v, state in states.items()})

        return self.disk.receipts.until_whole(read, lambda: self.complete(lambda: None))

    def _inputs_within(self, step: Step, ranges: Ranges) -> dict[int, T]:
        return {node: self._read(node, ranges) for node in step.inputs}

    def _sweep(self) -> None:
        self.collect()
        needed = self._behind(lambda node: node in self.held or self.disk.has(node))[0]
        self.run.report(sum(map(self.moved, (step for step in self.program.steps if step.node not in needed))))
        self.make_all(needed)
        self.collect()

    def make_all(self, needed: Collection[int]) -> None:
        """Make tables one after another, and drop the tables without remaining readers."""
        for step, gone in zip(self.program.steps, self._freed, strict=True):
            if step.node in needed:
                self.make(step)
                self.free(gone)
                self.run.report(self.moved(step))

    def moved(self, step: Step) -> int:
        """Rows that a step is reported with, whether it runs here, on workers or not again."""
        return self.run.plan.step_cells(step)

    @cached_property
    def _freed(self) -> Sequence[Sequence[int]]:
        """For each step, the tables that no later step needs."""
        steps = self.program.steps
        return [()] * len(steps) if self.keep else freed_tables(steps, self.run.plan.outputs)

    def _behind(self, is_known: Callable[[int], bool]) -> tuple[set[int], set[int]]:
        """Return the tables that must be made if some are known, and the known tables that they need."""
        unknown, known = set[int](), set[int]()
        stack = [*(self.steps if self.keep else self.run.plan.outputs)]
        while stack:
            node = stack.pop()
            if node not in self.steps or node in unknown or node in known:
                continue
            if is_known(node):
                known.add(node)
            else:
                unknown.add(node)
                stack.extend(self.steps[node].inputs)
        return unknown, known

    def make(self, step: Step) -> None:
        """Do a step in memory, or in boxes where it does not fit."""
        self.disk.account(step)
        in_boxes = self.disk.is_begun(step.node) or not BoxPolicy.current().memory_first
        if in_boxes or not self._is_made_in_memory(step):
            self._boxed(step).complete()

    def _is_made_in_memory(self, step: Step) -> bool:
        before, start = self.room.joined, time.perf_counter()
        try:
            inputs = self._fitting(step)
            if inputs is None:
                return False
            algebra = self.steps_algebra if self._there else self.algebra
            made = self._here(algebra.step(step, inputs, self.run.threads))
        except RowsNoRoomError:
            return False
        except MemoryError as error:
            if not is_short(error):
                raise
            return False
        del inputs
        self._enter(step, made, self.room.joined - before, start)
        return True

    def _fitting(self, step: Step) -> list[T] | None:
        """Return the inputs of a step in memory, if those on disk are small; all, where a worker's device is faster."""
        stored = [i for i in step.inputs if i not in self.held and i in self.steps]
        most = self.room.nbytes // INPUT_PART
        there = sum(run.nbytes for i in stored for run in self.disk.runs(i))
        if there > most:
            return None
        if self.run.device and not self._there:
            held = sum(self._bytes_of(self.held[i], self.steps[i]) for i in step.inputs if i in self.held)
            # a row is a key and a value
            if there + held > 2 * CELL_BYTES * RowPolicy.current().device_rows:
                return None
        return [self._read(i, {}, there=True) if i in stored else self._whole(i) for i in step.inputs]

    def _here(self, made: T) -> T:
        """Return the table of a step in the host's memory."""
        if not self._there:
            return made
        from ...tasks.rows.device_algebra import entries, table_here

        found = table_here(made)
        self.room.keep(entries(found))
        return found

    def _enter(self, step: Step, made: T, joined: int, start: float) -> None:
        """Hold a table that was made in memory, or store it where it is large or took long."""
        nbytes, policy = self._bytes_of(made, step), BoxPolicy.current()
        if step.node in self.run.plan.outputs and nbytes <= _TOLD_BYTES:
            if not self.keep and any(self.disk.is_begun(i) for i in step.inputs):
                bare, kept = self.algebra.keyed(made, step.axes)
                self.disk.tell(step.node, bare.values, kept, start)
            self.held[step.node] = made
            return
        others = sum(self._bytes_of(table, self.steps[node]) for node, table in self.held.items())
        small, all_small = self.room.nbytes // policy.large_part, self.room.nbytes // _HELD_PART
        if not self.apart and nbytes <= small and others + nbytes <= all_small and joined < _KEPT_JOIN_ROWS:
            self.held[step.node] = made
            return
        self.disk.check(self._stored_bytes(made, step))
        self.disk.record(stored_run(self._boxes(step, {}), (), made, start, {}))

    def _bytes_of(self, table: T, step: Step) -> int:
        bare = self.algebra.keyed(table, step.axes)[0]
        return int(bare.nbytes if isinstance(bare, Relation) else bare.values.nbytes)

    def _stored_bytes(self, table: T, step: Step) -> int:
        """Return the disk bytes of the values of a table's rows, without their compressed keys."""
        bare, kept = self.algebra.keyed(table, step.axes)
        share = self.store.share(bare.values)
        if isinstance(bare, Relation):
            return int(share * bare.values.nbytes)
        semiring = LOG_SUM if kept.get("logs") else self.run.problem.semiring
        return int(share * possible(bare.values, semiring) * bare.values.itemsize)

    def free(self, gone: Sequence[int]) -> None:
        """Drop tables that no step will read."""
        for node in gone:
            self.held.pop(node, None)
        if any(self.disk.is_begun(node) for node in gone):
            self.collect()

    def collect(self) -> None:
        """Delete the tables on disk that are not needed, even if the tables in memory are lost."""
        needed = self._behind(self.disk.has)
        done = [node for node in self.steps if self.disk.is_begun(node) and not any(node in some for some in needed)]
        if done:
            self.disk.delete(done)

    def _read(self, node: int, ranges: Ranges, *, there: bool = False) -> T:
        """Return the rows of a table within ranges, or a table in memory whole; rows where steps are done."""
        if node in self.held:
            return self.held[node]
        if node not in self.steps:
            return self.program.leaves[node]
        table = self._read_runs([*self.disk.runs(node)], ranges, there=there and self._there)
        self.room.keep(self.algebra.keyed(table, self.steps[node].axes)[0])
        return table

    def _read_runs(self, runs: Sequence[RowRun], ranges: Ranges, *, there: bool = False) -> T:
        """Return the rows of runs within ranges, merged."""
        limit = self.room.free // BoxPolicy.current().merged_copies
        return read_table(self.store, self.algebra, runs, ranges, limit, there=there)[0]

    def _whole(self, node: int) -> T:
        """Return a table. A table of the answer is returned as a dense array."""
        if node in self.held or node not in self.run.plan.outputs:
            return self._read(node, {})
        if (told := self.disk.told(node)) is not None:
            return self.algebra.restored(*told)
        found = self._read(node, {})
        return self.algebra.made(self.steps[node], found) if node in self.steps else found

    def _boxed(self, step: Step) -> BoxedStep[T]:
        stored = {i: [*self.disk.runs(i)] for i in step.inputs if i in self.steps and i not in self.held}

        def shared(count: int) -> RowBoxes[T]:
            self.disk.account(step, count)
            return self._boxes(step, stored)

        return BoxedStep(self.run, self.disk, step.node, shared)

    def _boxes(self, step: Step, stored: dict[int, list[RowRun]]) -> RowBoxes[T]:
        held = {
            i: self._read(i, {}) for i in step.inputs if i not in stored and (i in self.held or i not in self.steps)
        }
        nbytes = self.room.nbytes - self.room.beside
        nbytes -= nbytes // _HELD_PART
        how = self.steps_algebra, self.run.problem.semiring, self.run.plan.tree.dims, self.store
        return RowBoxes(step, *how, held, stored, self.disk.name(step.node), nbytes, self.run.device)


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
