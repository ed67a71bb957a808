"""Running a sweep by rows whose tables do not fit memory: some are on disk, some steps are done box by box.

What a table takes is known when it is made. A step is done in memory if it fits; if not, in boxes: ranges of states,
each a task of its own that reads by range, joins, reduces and writes a sorted run. Boxes that turn out not to fit are
cut further. What was cut and what is done is in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Final, Generic, TypeVar

from ...cluster.pool import Node
from ...storage.errors import ChunkLostError
from ...storage.spec import Receipt, TableSpec
from ...tasks.boxes.boxes import new_receipt
from ...tasks.boxes.row_boxes import (
    INPUT_SHARE,
    Path,
    RowBoxes,
    RowsAlgebra,
    TooMuchToReadError,
    known_run,
    read_table,
    run_row_box,
    stored_run,
)
from ...tasks.boxes.row_tables import RowRun
from ...tasks.boxes.stores import ChunkFiles, Key
from ...tasks.relations.ranges import Ranges
from ...tasks.relations.relation import Relation
from ...tasks.rows.keys import Keys
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.rows.room import NoRoomError, Room
from ..errors import BudgetError, InternalError, format_bytes
from ..queries.decode import decode, entry
from .boxes import ATTEMPTS
from .pools import open_tables
from .row_splits import MOST_PARTS, Sample, Split, bytes_within, sample_of_rows, sample_of_runs, split
from .run import Run

T = TypeVar("T")
R = TypeVar("R")

# Of what tables may take, those that stay in memory have this part together, and each of them that.
_HELD_SHARE: Final = 4
_LARGE_SHARE: Final = 32
# Runs, what they become together, and what that takes.
_MERGED_COPIES: Final = 4
# What took a join of so many rows is not done again after a stop.
_WORTH_KEEPING: Final = 1 << 21
# More boxes of a step than this cost more to keep account of than anyone waits for.
_MOST_BOXES: Final = 1 << 14
# What receipts, and runs that are read, take in memory; a box writes a run of a chunk at least.
RECEIPT_BYTES: Final = 900
_RUN_BYTES: Final = 2000
_BOX_RECEIPTS: Final = 3


@dataclass
class RowTables(Generic[T]):
    """The tables of a sweep by rows.

    Parameters
    ----------
    run : Run
    store : ChunkFiles
    keep : bool
        Whether tables are needed after the sweep, for decoding.

    Attributes
    ----------
    held : dict of int to table
        Messages in memory.
    receipts : dict of Key to Receipt
        Of boxes, and of the chunks that they wrote.
    """

    run: Run[T]
    store: ChunkFiles
    keep: bool
    held: dict[int, T] = field(default_factory=dict)
    receipts: dict[Key, Receipt] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program[T]:
        """Steps and leaf tables."""
        return self.run.program(self.run.plan.up, self.run.plan.outputs)

    @property
    def algebra(self) -> RowsAlgebra[T]:
        """What steps are done with in this process."""
        return self.program.algebra  # type: ignore[return-value]

    @property
    def room(self) -> Room:
        """What tables take in this process."""
        assert self.run.room is not None
        return self.run.room

    @cached_property
    def steps(self) -> dict[int, Step]:
        """The step that makes each table."""
        return {step.node: step for step in self.program.steps}

    def roots(self) -> list[T]:
        """Run what is not done yet; return the root tables."""
        self.resume()
        return self.complete(lambda: [self._whole(root) for root in self.run.plan.tree.roots])

    def resume(self) -> None:
        """Take over what an earlier run finished and is still there."""
        open_tables(self.run.pool, self.store.folder)
        self.receipts = self.store.known({})
        self.receipts = self.store.known(self._specs())

    def complete(self, then: Callable[[], R]) -> R:
        """Make the tables that the answer lacks, and read them; once a chunk is lost, all others are verified too."""
        for _ in range(ATTEMPTS):
            try:
                self._sweep()
                self.store.sync()
                return then()
            except ChunkLostError as error:
                self.forget([(error.table, error.chunk), *self._damaged()])
        raise InternalError(f"chunks of {self.store.folder} are lost as fast as they are written")

    def decoded(self, is_optimal: Callable[[dict[int, int]], bool]) -> dict[int, int]:
        """Return the optimal states; reads only rows that agree with those found so far, lost ones are made again."""
        for _ in range(ATTEMPTS):
            try:
                states = self._states()
            except ChunkLostError as error:
                lost = [(error.table, error.chunk)]
            except NoRoomError as error:
                raise _refusal(error) from None
            else:
                lost = [] if is_optimal(states) else self._damaged()
                if not lost:
                    return states
            self.forget([*lost, *self._damaged()])
            self.complete(lambda: None)
        raise InternalError(f"chunks of {self.store.folder} are lost as fast as they are written")

    def forget(self, lost: Sequence[Key]) -> None:
        """Drop the receipts of lost chunks."""
        for key in lost:
            self.receipts.pop(key, None)

    def _damaged(self) -> list[Key]:
        return self.store.damaged(self._specs(), self.receipts)

    def _specs(self) -> dict[str, TableSpec]:
        """Return the arrays of everything that finished boxes wrote, by name."""
        return {spec.name: spec for node in self.steps for run in self._runs(node) for spec in run.specs}

    def _states(self) -> dict[int, int]:
        states: dict[int, int] = {}
        for step in reversed(self.run.plan.up):
            known = {v: states[v] for axes in step.input_axes for v in axes if v in states}
            self._enter_known(step)
            boxes = (self._best_within(step, known, ranges) for ranges in self._boxes_at(step, known))
            states |= min(boxes, key=lambda found: found[0])[1]
        return states

    def _boxes_at(self, step: Step, states: Mapping[int, int]) -> Iterator[Ranges]:
        """Yield the ranges in which a step was done, those that agree with some states."""
        fixed = {v: (state, state + 1) for v, state in states.items()}
        for _, ranges, _ in self._leaves(step.node):
            if all(first <= states[v] < stop for v, (first, stop) in ranges.items() if v in states):
                yield {**ranges, **fixed}

    def _best_within(self, step: Step, known: Mapping[int, int], ranges: Ranges) -> tuple[Any, dict[int, int]]:
        """Return the least sum of the inputs of a step that agrees with states, within ranges, and its states."""
        tables: dict[int, Any] = {node: self._read(node, ranges) for node in step.inputs}
        sizes, semiring, states = self.run.plan.tree.dims, self.run.problem.semiring, dict(known)
        decode((step,), tables, sizes, semiring, states, self.run.compiled, self.room)
        read = zip(step.inputs, step.input_axes, strict=True)
        return sum(entry(tables[node], axes, sizes, states, semiring) for node, axes in read), states

    def _sweep(self) -> None:
        needed, report = self._needed(), self.run.on_table()
        for step in self.program.steps:
            if step.node in needed:
                self._make(step)
                if not self.keep:
                    self._free(step)
            if report is not None:
                report(step, None)

    def _needed(self) -> set[int]:
        """Return the tables that have to be made."""
        found: set[int] = set()
        stack = [*self.run.plan.tree.roots]
        while stack:
            node = stack.pop()
            if node in self.steps and node not in self.held and not self._is_stored(node):
                found.add(node)
                stack.extend(self.steps[node].inputs)
        return found

    def _make(self, step: Step) -> None:
        """Do a step in memory, or in boxes where it does not fit."""
        self._enter_known(step)
        if (self._name(step.node), ()) in self.receipts or not self._is_made_in_memory(step):
            self._in_boxes(step)

    def _enter_known(self, step: Step, boxes: int = 1) -> None:
        """Enter what is known of runs into the account of memory, and what will be of so many boxes.

        Raises
        ------
        BudgetError
            If that leaves little for tables.
        """
        receipts = len(self.receipts) + _BOX_RECEIPTS * boxes
        runs = sum(1 for i in step.inputs if i in self.steps for _ in self._runs(i))
        self.room.beside = receipts * RECEIPT_BYTES + runs * _RUN_BYTES
        if (most := self.room.nbytes // 2) < self.room.beside:
            raise BudgetError(
                f"by rows what is known of {receipts:,} chunks and boxes on disk needs "
                f"{format_bytes(self.room.beside)}, allowed {format_bytes(most)}; try a larger --memory, or --fit slice"
            )

    def _is_made_in_memory(self, step: Step) -> bool:
        before, start = self.room.joined, time.perf_counter()
        try:
            inputs = self._fitting(step)
            if inputs is None:
                return False
            made = self.algebra.step(step, inputs, self.run.threads)
        except NoRoomError:
            return False
        del inputs
        self._enter(step, made, self.room.joined - before, start)
        return True

    def _fitting(self, step: Step) -> list[T] | None:
        """Return the inputs of a step in memory, if those on disk are small."""
        stored = [i for i in step.inputs if i not in self.held and i in self.steps]
        if sum(run.nbytes for i in stored for run in self._runs(i)) > self.room.nbytes // INPUT_SHARE:
            return None
        return [self._whole(i) for i in step.inputs]

    def _enter(self, step: Step, made: T, joined: int, start: float) -> None:
        """Hold a table that was made in memory, or store it where it is large or took long."""
        nbytes = self._bytes_of(made, step)
        others = sum(self._bytes_of(table, self.steps[node]) for node, table in self.held.items())
        small = nbytes <= self.room.nbytes // _LARGE_SHARE and others + nbytes <= self.room.nbytes // _HELD_SHARE
        if step.node in self.run.plan.tree.roots or (small and joined < _WORTH_KEEPING):
            self.held[step.node] = made
            return
        receipts = stored_run(self._boxes(step, {}), (), made, start, {})
        self._record(receipts)

    def _bytes_of(self, table: T, step: Step) -> int:
        bare = self.algebra.keyed(table, step.axes)[0]
        return int(bare.nbytes if isinstance(bare, Relation) else bare.values.nbytes)

    def _free(self, step: Step) -> None:
        """Delete the inputs of a step; first the receipts of what was made from them are forced to disk."""
        for node in step.inputs:
            self.held.pop(node, None)
            runs = [*self._runs(node)] if node in self.steps else []
            if runs:
                self.store.sync()
            for run in runs:
                for spec in run.specs:
                    self.store.delete(spec)
                self.forget([key for chunk in range(run.chunks) for key in run.keys_of(chunk)])
            self.forget([key for key in self.receipts if key[0] == self._name(node)])

    def _name(self, node: int) -> str:
        return f"rows_{node}"

    @cached_property
    def _keys(self) -> dict[int, Keys]:
        """The layout of each table, which all its runs share."""
        sizes = self.run.plan.tree.dims
        return {node: Keys(step.axes, tuple([sizes[v] for v in step.axes])) for node, step in self.steps.items()}

    def _leaves(self, node: int) -> Iterator[tuple[Path, Ranges, Receipt | None]]:
        """Yield the boxes of a step that are not cut, and their receipts if they are done."""
        stack: list[tuple[Path, Ranges]] = [((), {})]
        while stack:
            path, ranges = stack.pop()
            receipt = self.receipts.get((self._name(node), path))
            if receipt is None or "variable" not in receipt.value:
                yield path, ranges, receipt
                continue
            cut = Split(receipt.value["variable"], tuple(receipt.value["cuts"]))
            stack += [((*path, i), part) for i, part in enumerate(cut.parts(ranges, self.run.plan.tree.dims))][::-1]

    def _runs(self, node: int) -> Iterator[RowRun]:
        """Yield what the finished boxes of a step wrote."""
        for _, _, receipt in self._leaves(node):
            run = None if receipt is None else known_run(receipt, self._keys[node], self.receipts)
            if run is not None:
                yield run

    def _open(self, node: int) -> list[tuple[Path, Ranges, Receipt | None]]:
        """Return the boxes of a step that are not done, and the receipts of those that were."""
        return [
            (path, ranges, receipt)
            for path, ranges, receipt in self._leaves(node)
            if receipt is None or known_run(receipt, self._keys[node], self.receipts) is None
        ]

    def _is_stored(self, node: int) -> bool:
        return not self._open(node)

    def _read(self, node: int, ranges: Ranges) -> T:
        """Return the rows of a table within ranges, or a table in memory whole."""
        if node in self.held:
            return self.held[node]
        if node not in self.steps:
            return self.program.leaves[node]
        limit = self.room.free // _MERGED_COPIES
        table, _ = read_table(self.store, self.algebra, [*self._runs(node)], ranges, limit)
        self.room.keep(self.algebra.keyed(table, self.steps[node].axes)[0])
        return table

    def _whole(self, node: int) -> T:
        found = self._read(node, {})
        return self.algebra.made(self.steps[node], found) if node in self.run.plan.tree.roots else found

    def _boxes(self, step: Step, stored: dict[int, list[RowRun]]) -> RowBoxes[T]:
        held = {
            i: self._read(i, {}) for i in step.inputs if i not in stored and (i in self.held or i not in self.steps)
        }
        nbytes = self.room.nbytes - self.room.beside
        nbytes -= nbytes // _HELD_SHARE
        lost = (receipt for _, _, receipt in self._open(step.node) if receipt is not None)
        nbytes = max([nbytes, *(receipt.value.get("nbytes", 0) for receipt in lost)])  # what fitted then is not cut now
        how = self.algebra, self.run.problem.semiring, self.run.plan.tree.dims, self.store
        return RowBoxes(step, *how, held, stored, self._name(step.node), nbytes)

    def _in_boxes(self, step: Step) -> None:
        """Do the boxes of a step that are not done, and cut those that do not fit."""
        stored = {i: [*self._runs(i)] for i in step.inputs if i in self.steps and i not in self.held}
        samples = [sample_of_runs(runs) for runs in stored.values()]
        limit = self._boxes(step, stored).nbytes // INPUT_SHARE
        while waiting := self._cut_to_read(step, samples, limit):
            self._enter_known(step, len(waiting))
            boxes = self._boxes(step, stored)
            limit = boxes.nbytes // INPUT_SHARE
            self._run_boxes(boxes, samples, waiting)
        self.room.stored(sum(run.rows for run in self._runs(step.node)), prod(self._keys[step.node].dims))

    def _run_boxes(self, boxes: RowBoxes[T], samples: Sequence[Sample], waiting: Mapping[Path, Ranges]) -> None:
        """Do boxes, and cut those that do not fit."""
        sent = self.run.pool.put(boxes)
        nodes = {path: Node(set(), lambda path: (run_row_box, sent, path, waiting[path], self.run.threads))
                 for path in waiting}  # fmt: skip
        lost: list[ChunkLostError] = []
        for path, outcome in self.run.pool.run_graph(nodes):
            if isinstance(outcome, ChunkLostError):
                lost.append(outcome)
            elif isinstance(outcome, NoRoomError):
                self._cut_further(boxes, samples, path, waiting[path], outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._record(outcome)
        if lost:
            self.forget([(error.table, error.chunk) for error in lost])
            raise lost[0]

    def _cut_to_read(self, step: Step, samples: Sequence[Sample], limit: int) -> dict[Path, Ranges]:
        """Cut open boxes until what they read is expected to fit; return them."""
        while True:
            waiting, cut = {path: ranges for path, ranges, _ in self._open(step.node)}, False
            for path, ranges in waiting.items():
                needed = bytes_within(samples, ranges)
                if needed > limit:
                    cut |= self._cut(step, samples, path, ranges, needed / limit, reads=True)
            if not cut:
                return waiting

    def _cut(
        self, step: Step, samples: Sequence[Sample], path: Path, ranges: Ranges, times: float, *, reads: bool
    ) -> bool:
        """Cut a box, and write that down; False where it cannot be."""
        parts = int(min(max(times + 1, 2), MOST_PARTS))
        found = split(step, self.run.plan.tree.dims, samples, ranges, parts, reads=reads)
        if found is None:
            return False
        value = {"variable": found.variable, "cuts": [*found.cuts]}
        receipt = new_receipt(self._name(step.node), path, 0, 0, time.perf_counter(), value)
        self.store.record([receipt])
        self.receipts[receipt.key] = receipt
        return True

    def _cut_further(
        self, boxes: RowBoxes[T], samples: Sequence[Sample], path: Path, ranges: Ranges, error: NoRoomError
    ) -> None:
        """Cut a box that did not fit.

        Raises
        ------
        BudgetError
            If it cannot be cut, or there are too many.
        """
        step, reads = boxes.step, isinstance(error, TooMuchToReadError)
        if not reads:
            held = [self.algebra.keyed(table, boxes.axes[i])[0] for i, table in boxes.held.items()]
            samples = [*samples, *(sample_of_rows(table) for table in held if isinstance(table, Relation))]
        several = sum(1 for _ in self._leaves(step.node)) < _MOST_BOXES
        times = error.needed / max(error.allowed, 1)
        if not several or not self._cut(step, samples, path, ranges, times, reads=reads):
            raise _refusal(error)

    def _record(self, receipts: Sequence[Receipt]) -> None:
        """Enter what a box wrote, and its work.

        Raises
        ------
        BudgetError
            If tables take more of the disk than was allowed.
        """
        self.receipts.update({receipt.key: receipt for receipt in receipts})
        self.room.written += sum(receipt.nbytes for receipt in receipts)
        value = receipts[-1].value
        self.room.elsewhere(value.get("joined", 0), value.get("work", 0.0))
        allowed = self.run.disk_bytes
        if allowed is not None and (taken := sum(r.nbytes for r in self.receipts.values())) > allowed:
            raise BudgetError(
                f"the tables of the plan need more than {format_bytes(taken)} of disk, allowed "
                f"{format_bytes(allowed)}; try a larger --disk or --memory, or --fit slice"
            )


def _refusal(error: NoRoomError) -> BudgetError:
    return BudgetError(
        f"by rows a box of a step needs {format_bytes(error.needed)}, allowed {format_bytes(error.allowed)}; "
        "try a larger --memory"
    )


@contextmanager
def opened_row_tables(run: Run[T], name: str, *, keep: bool) -> Iterator[RowTables[T]]:
    """Open the tables of a sweep by rows in the run's folder."""
    assert run.folder is not None
    store = ChunkFiles((run.folder / name).absolute())
    try:
        yield RowTables(run, store, keep)
    finally:
        store.close()
