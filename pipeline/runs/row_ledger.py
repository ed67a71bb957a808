"""The ledger of sparse tables on disk: the boxes of each step, the finished boxes, and their sorted runs.

A box is a range of states of some variables. A finished box has written a run: its rows of the table, sorted by key.

The inputs of a step determine its first boxes. Boxes that do not fit in memory are cut further.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import Node, TaskLabel
from ...storage import ledger
from ...storage.faults import ChunkLostError
from ...storage.files import free_bytes
from ...storage.spec import Receipt, TableSpec
from ...tasks.boxes.box import new_receipt
from ...tasks.boxes.row_box import (
    Path,
    RowBoxes,
    TooMuchToReadError,
    box_there,
    is_within,
    known_run,
    row_box_phases,
    run_of,
    run_row_box,
    told_ranges,
)
from ...tasks.boxes.sorted_runs import RowRun
from ...tasks.boxes.stores import ChunkFiles, Key, Receipts
from ...tasks.rows.keys import Keys, Words
from ...tasks.rows.memory_account import MemoryAccount, RowsNoRoomError
from ...tasks.rows.ordering import Ranges, inside
from ...tasks.rows.relation import Relation
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.policy import MOST_CUTS, BoxPolicy
from ...tasks.steps.step import Step
from ..errors import BudgetError, format_bytes
from ..plans.row_bounds import MOST_BOXES
from .run import Run

# About this many keys of a table in memory, and of each chunk, are sampled to decide how a box is cut.
_SAMPLED_KEYS: Final = 1 << 12
# Penalty, as a fraction of the input, for a cut along a summed-out variable: the boxes of such a cut write runs with
# the same rows, which readers must merge.
_SUMMED_OUT: Final = 0.3
# Minimum receipts of a sparse box: its own, one of a chunk of keys and one of a chunk of values.
_BOX_RECEIPTS: Final = 3

# How a step is cut into boxes, by keys that are sampled from its inputs. Pure.


@dataclass(frozen=True)
class Sample:
    """Sampled keys of an input, and the number of bytes that each key stands for."""

    keys: Keys
    words: Words
    nbytes: NDArray[np.float64]

    def within(self, ranges: Ranges) -> Sample:
        """Return the part within ranges."""
        found = inside(self.keys, self.words, ranges)
        return Sample(self.keys, self.words[found], self.nbytes[found])


@dataclass(frozen=True)
class Split:
    """A cut of a box along a variable; ``cuts`` are the first states of all parts except the first part."""

    variable: int
    cuts: tuple[int, ...]

    def parts(self, ranges: Ranges, sizes: Sequence[int]) -> Iterator[Ranges]:
        """Yield the ranges of the parts."""
        first, stop = ranges.get(self.variable, (0, sizes[self.variable]))
        for part in zip((first, *self.cuts), (*self.cuts, stop), strict=True):
            yield {**ranges, self.variable: part}


def sample_of_runs(runs: Sequence[RowRun]) -> Sample:
    """Return the sample in the receipts of an input on disk."""
    found = [(run.samples[0], run.samples[1] * run.row_bytes) for run in runs]
    return Sample(runs[0].keys, *(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def sample_of_rows(table: Relation) -> Sample:
    """Return some keys of an input in memory."""
    words = table.words[:: max(1, len(table) // _SAMPLED_KEYS)]
    return Sample(table.keys, words, np.full(len(words), table.nbytes / max(len(words), 1)))


def bytes_within(samples: Sequence[Sample], ranges: Ranges) -> float:
    """Predict the bytes of all inputs within ranges."""
    return float(sum(sample.within(ranges).nbytes.sum() for sample in samples))


def split(
    step: Step, sizes: Sequence[int], samples: Sequence[Sample], ranges: Ranges, parts: int, *, reads: bool
) -> Split | None:
    """Choose how a box is cut; None if it has one state of every variable.

    Parameters
    ----------
    reads : bool
        Whether the box is cut because its inputs are too large; otherwise its result is too large.
    """
    inside_ = [sample.within(ranges) for sample in samples]
    variables = [*step.axes, *(v for axes in step.input_axes for v in axes if v not in step.axes)]
    open_ = {v: ranges.get(v, (0, sizes[v])) for v in variables}
    candidates = [v for v, (first, stop) in open_.items() if stop - first > 1]
    if not candidates:
        return None
    weights = [sample.nbytes.sum() for sample in inside_]
    total = max(ordered_sum(weights), 1.0)

    def left(v: int) -> float:
        read = (
            ordered_sum(w * (0.5 if v in s.keys.fields else 1.0) for s, w in zip(inside_, weights, strict=True)) / total
        )
        return float(read + (0.0 if v in step.axes else _SUMMED_OUT if reads else 1.0))

    chosen = min(candidates, key=left)
    own = [sample for sample in inside_ if chosen in sample.keys.fields]
    return Split(chosen, _cuts(chosen, *open_[chosen], own, min(parts, MOST_CUTS)))


def _cuts(variable: int, first: int, stop: int, samples: Sequence[Sample], parts: int) -> tuple[int, ...]:
    """Return the states that split the bytes into about equal parts.

    A state with more bytes than a part is a part of its own.
    """
    load: NDArray[Any] = np.full(stop - first, 1e-9)
    for sample in samples:
        word, shift, bits = sample.keys.fields[variable]
        states = sample.words[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1)
        load += np.bincount(states.astype(np.int64) - first, sample.nbytes, stop - first)
    behind = np.cumsum(load)
    goals = behind[-1] * np.arange(1, parts) / parts
    found = {int(cut) for cut in np.searchsorted(behind, goals) + first + 1}
    found |= {int(at) for state in np.flatnonzero(load > behind[-1] / parts) + first for at in (state, state + 1)}
    heaviest = first + int(load.argmax())
    cuts = sorted(cut for cut in found if first < cut < stop)
    return tuple(cuts) or ((heaviest,) if heaviest > first else (heaviest + 1,))


@dataclass
class RowsOnDisk:
    """Sparse tables of a sweep on disk, by the step that computes them.

    Parameters
    ----------
    store : ChunkFiles
    steps : mapping of int to Step
    sizes : tuple of int
        Domain sizes.
    room : Room
        The memory account, which also counts the written rows and bytes.
    allowed : int, optional
        Bytes of disk for tables; the free bytes by default.

    Attributes
    ----------
    receipts : Receipts
        Of boxes, and of the chunks that they wrote.
    """

    store: ChunkFiles
    steps: Mapping[int, Step]
    sizes: tuple[int, ...]
    room: MemoryAccount
    allowed: int | None = None
    _left: int = field(default=1 << 62, init=False)
    _runs: dict[int, list[RowRun]] | None = field(default=None, init=False)

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self.store, lambda: self._specs(self.steps))

    def resume(self) -> None:
        """Take over the finished boxes of an earlier run that are still on disk."""
        self.receipts.take(self.store.known({}).values())  # which runs there are is in receipts
        self.receipts.resume()
        self.room.on_disk = max(self.room.on_disk, self.receipts.nbytes)
        self._left = free_bytes(self.store.folder) + self.receipts.nbytes

    def name(self, node: int) -> str:
        """Name of a table."""
        return table_name(node)

    @cached_property
    def keys(self) -> dict[int, Keys]:
        """The layout of each table, which all its runs share."""
        sizes = self.sizes
        return {node: Keys(step.axes, tuple([sizes[v] for v in step.axes])) for node, step in self.steps.items()}

    def leaves(self, node: int) -> Iterator[tuple[Path, Ranges, Receipt | None]]:
        """Yield the uncut boxes of a step: path, ranges, and receipt, which is None for an unfinished box."""
        stack: list[tuple[Path, Ranges]] = [((), {})]
        while stack:
            path, ranges = stack.pop()
            receipt = self.receipts.get((self.name(node), path))
            if receipt is not None and not is_within(receipt, ranges):
                receipt = None
            if receipt is None or "variable" not in receipt.value:
                yield path, ranges, receipt
                continue
            cut = Split(receipt.value["variable"], tuple(receipt.value["cuts"]))
            stack += [((*path, i), part) for i, part in enumerate(cut.parts(ranges, self.sizes))][::-1]

    def runs(self, node: int) -> Iterator[RowRun]:
        """Yield the sorted runs that the finished boxes of a step wrote."""
        if self._runs is None:
            yield from self._found_runs(node)
            return
        if node not in self._runs:
            self._runs[node] = [*self._found_runs(node)]
        yield from self._runs[node]

    def _found_runs(self, node: int) -> Iterator[RowRun]:
        return (run for _, run in self.boxes(node) if run is not None)

    def boxes(self, node: int) -> Iterator[tuple[Ranges, RowRun | None]]:
        """Yield the ranges of each uncut box of a step, and its run, or None if the run is unfinished or missing."""
        for _, ranges, receipt in self.leaves(node):
            yield ranges, None if receipt is None else known_run(receipt, self.keys[node], self.receipts, ranges)

    @contextmanager
    def same_runs(self) -> Iterator[None]:
        """Cache the runs of each table within this context, in which no run may be written."""
        self._runs = {}
        try:
            yield
        finally:
            self._runs = None

    def open(self, node: int) -> list[tuple[Path, Ranges, Receipt | None]]:
        """Return the unfinished boxes of a step, with the receipts of boxes that were finished earlier."""
        return [
            (path, ranges, receipt)
            for path, ranges, receipt in self.leaves(node)
            if receipt is None or known_run(receipt, self.keys[node], self.receipts) is None
        ]

    def tell(self, node: int, values: NDArray[Any], kept: Mapping[str, Any], start: float) -> None:
        """Store the values of a small table in the ledger itself, with the facts ``kept`` about them."""
        cells = b64encode(values.tobytes()).decode()
        value = {"values": cells, "dtype": values.dtype.name, "kept": {**kept}}
        self.receipts.record([new_receipt(*_told_key(node), 0, 0, start, value)])

    def told(self, node: int) -> tuple[NDArray[Any], Mapping[str, Any]] | None:
        """Return the table that the ledger itself holds, if it holds the whole table."""
        receipt = self.receipts.get(_told_key(node))
        if receipt is None:
            return None
        value = receipt.value
        return np.frombuffer(b64decode(value["values"]), value["dtype"]).copy(), value["kept"]

    def is_begun(self, node: int) -> bool:
        """Whether a step was cut, or done in one box."""
        return (self.name(node), ()) in self.receipts

    def has(self, node: int) -> bool:
        """Whether all of a table is on disk."""
        return _told_key(node) in self.receipts or not self.open(node)

    def cut(self, node: int, path: Path, ranges: Ranges, split: Split) -> None:
        """Record how a box with some ranges is cut, and delete the files of the uncut box."""
        if path in {found for found, _, receipt in self.open(node) if receipt is not None}:
            self.receipts.delete(run_of(self.receipts[self.name(node), path], self.keys[node]).specs)
        value = {"variable": split.variable, "cuts": [*split.cuts], "within": told_ranges(ranges)}
        self.receipts.record([new_receipt(self.name(node), path, 0, 0, time.perf_counter(), value)])

    def record(self, receipts: Sequence[Receipt]) -> None:
        """Enter the receipts of a finished box, and its work.

        Raises
        ------
        BudgetError
            If the tables take more disk space than allowed.
        """
        value = receipts[-1].value
        self.enter(receipts, value.get("joined", 0), value.get("work", 0.0))

    def enter(self, receipts: Sequence[Receipt], joined: int, work: float) -> None:
        """Enter receipts that any process wrote, with the joined rows and the work; see :meth:`record`."""
        self.receipts.take(receipts)
        self.room.written += sum(receipt.nbytes for receipt in receipts)
        self.room.on_disk = max(self.room.on_disk, self.receipts.nbytes)
        self.room.elsewhere(joined, work)
        self.check(0)

    def of(self, node: int) -> list[Receipt]:
        """Return all receipts of a table: of the cuts of its step, of its boxes, and of their chunks."""
        names = {self.name(node), _told_key(node)[0], *self._specs([node])}
        return [receipt for receipt in self.receipts.values() if receipt.table in names]

    def take_left(self, node: int) -> None:
        """Take over the work of a lost worker on a step: cuts, and boxes that are undamaged on disk."""
        for key, receipt in ledger.load(self.store.folder, [(self.name(node), None)]).items():
            if key not in self.receipts:
                there, _ = box_there(self.store, key[0], self.keys[node], key[1])
                self.receipts.take([receipt] if "cuts" in receipt.value else there.values() if key in there else ())

    def made(self, node: int) -> None:
        """Enter the size of a finished table into the memory account."""
        self.room.stored(sum(run.rows for run in self.runs(node)), prod(self.keys[node].dims))

    def check(self, more: int) -> None:
        """Refuse to write ``more`` bytes if this exceeds the limit.

        Raises
        ------
        BudgetError
            With both numbers.
        """
        needed, allowed = self.receipts.nbytes + more, self._left if self.allowed is None else self.allowed
        if needed > allowed:
            limit = f"allowed {format_bytes(allowed)}"
            if self.allowed is None:
                limit = f"but {self.store.folder} has {format_bytes(allowed)} left"
            raise BudgetError(
                f"the tables of the plan need more than {format_bytes(needed)} of disk, {limit}; "
                "try a larger --disk or --memory, or --fit slice"
            )

    def account(self, step: Step, boxes: int = 1) -> None:
        """Enter the memory of the known runs, and of ``boxes`` future boxes of a step, into the memory account.

        Raises
        ------
        NoRoomError
            If this takes more than half of the memory.
        """
        receipts = len(self.receipts) + _BOX_RECEIPTS * boxes
        runs = sum(1 for i in step.inputs if i in self.steps for _ in self.runs(i))
        self.room.beside = (receipts + 2 * runs) * BoxPolicy.current().receipt_bytes
        if (most := self.room.nbytes // 2) < self.room.beside:
            axes = dict.fromkeys(v for scope in step.input_axes for v in scope)
            raise RowsNoRoomError(tuple(axes), self.room.beside, most)

    def delete(self, nodes: Collection[int]) -> None:
        """Delete tables; first, force the receipts of their dependents to disk.

        Raises
        ------
        ChunkLostError
            If a chunk of an earlier run is damaged. Nothing is deleted then, because the tables may be needed to
            compute the chunk again.
        """
        kept = self._specs(node for node in self.steps if node not in nodes)
        if lost := self.receipts.lost_of_earlier(kept):
            raise ChunkLostError(*lost[0], "its checksum differs")
        self.receipts.delete(self._specs(nodes).values())
        names = {self.name(node) for node in nodes}
        self.receipts.forget([key for key in self.receipts if key[0] in names])

    def _specs(self, nodes: Iterable[int]) -> dict[str, TableSpec]:
        """Return the arrays that the finished boxes of steps wrote, by name."""
        return {spec.name: spec for node in nodes for run in self.runs(node) for spec in run.specs}


def table_name(node: int) -> str:
    """Return the name of the table of a step, which is part of the keys of its receipts."""
    return f"rows_{node}"


def _told_key(node: int) -> Key:
    return f"told_{node}", ()


def counted_boxes(table: str, receipts: Mapping[Key, Receipt]) -> tuple[int, int]:
    """Return the number of boxes of a step, and the number of finished boxes, from receipts alone."""
    stack: list[Path] = [()]
    boxes = done = 0
    while stack:
        path = stack.pop()
        receipt = receipts.get((table, path))
        if receipt is not None and "cuts" in receipt.value:
            stack += [(*path, part) for part in range(len(receipt.value["cuts"]) + 1)]
        else:
            boxes, done = boxes + 1, done + (receipt is not None)
    return boxes, done


T = TypeVar("T")


@dataclass(frozen=True)
class BoxedStep(Generic[T]):
    """A step in boxes.

    Parameters
    ----------
    run : Run
    disk : RowsOnDisk
    node : int
        The table that it makes.
    shared : callable
        Returns the data shared by the given number of boxes that will run.
    """

    run: Run[T]
    disk: RowsOnDisk
    node: int
    shared: Callable[[int], RowBoxes[T]]

    def complete(self) -> None:
        """Run the unfinished boxes, and cut those that do not fit."""
        boxes, disk = self.shared(0), self.disk
        samples = [sample_of_runs(runs) for runs in boxes.stored.values()]
        while waiting := self._cut_to_read(boxes, samples):
            boxes = self.shared(len(waiting))
            self._run_boxes(boxes, samples, waiting)
        if self.node not in self.run.plan.outputs:  # those count when they are read
            disk.made(self.node)

    def _run_boxes(self, boxes: RowBoxes[T], samples: Sequence[Sample], waiting: Mapping[Path, Ranges]) -> None:
        """Run boxes, and cut those that do not fit."""
        label = TaskLabel(f"box-table_{self.node}", f"table {self.node}")
        sent = self.run.pool.put(boxes, TaskLabel(f"load-table_{self.node}"))
        # a device of this process does boxes one after the other, and threads read what the next one needs
        task = row_box_phases if boxes.device and self.run.serial else run_row_box
        nodes = {
            path: Node(set(), lambda path: (task, sent, path, waiting[path], self.run.threads), label=label)
            for path in waiting
        }
        lost: list[ChunkLostError] = []
        for path, outcome in self.run.pool.run_graph(nodes):
            if isinstance(outcome, ChunkLostError):
                lost.append(outcome)
            elif isinstance(outcome, RowsNoRoomError):
                self._cut_further(boxes, samples, path, waiting[path], outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self.disk.record(outcome)
        if lost:
            self.disk.receipts.forget([(error.table, error.chunk) for error in lost])
            raise lost[0]

    def _cut_to_read(self, boxes: RowBoxes[T], samples: Sequence[Sample]) -> dict[Path, Ranges]:
        """Cut open boxes until what they read is expected to fit; return them."""
        limit = boxes.read_bytes
        while True:
            waiting, cut = {path: ranges for path, ranges, _ in self.disk.open(self.node)}, False
            for path, ranges in waiting.items():
                needed = bytes_within(samples, ranges)
                if needed > limit:
                    cut |= self.cut(samples, path, ranges, needed / limit, reads=True)
            if not cut:
                return waiting

    def cut(self, samples: Sequence[Sample], path: Path, ranges: Ranges, times: float, *, reads: bool) -> bool:
        """Cut a box, and write that down; False where it cannot be."""
        parts = int(min(max(times + 1, 2), MOST_CUTS))
        found = split(self.disk.steps[self.node], self.disk.sizes, samples, ranges, parts, reads=reads)
        if found is None:
            return False
        self.disk.cut(self.node, path, ranges, found)
        return True

    def _cut_further(
        self, boxes: RowBoxes[T], samples: Sequence[Sample], path: Path, ranges: Ranges, error: RowsNoRoomError
    ) -> None:
        """Cut a box that did not fit.

        Raises
        ------
        BudgetError
            If it cannot be cut, or there are too many.
        """
        reads = isinstance(error, TooMuchToReadError)
        if not reads:
            held = [boxes.algebra.keyed(table, boxes.axes[i])[0] for i, table in boxes.held.items()]
            samples = [*samples, *(sample_of_rows(table) for table in held if isinstance(table, Relation))]
        several = sum(1 for _ in self.disk.leaves(self.node)) < MOST_BOXES
        times = error.needed / max(error.allowed, 1)
        if not several or not self.cut(samples, path, ranges, times, reads=reads):
            raise refusal(error)


def refusal(error: RowsNoRoomError) -> BudgetError:
    """Return the error for a box that does not fit."""
    return BudgetError(
        f"a box of sparse tables needs {format_bytes(error.needed)}, allowed {format_bytes(error.allowed)}; "
        "try a larger --memory"
    )
