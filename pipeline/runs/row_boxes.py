"""A sparse step in boxes: the first cut follows from its inputs, and boxes that do not fit are cut further."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...cluster.pool import Node, TaskLabel
from ...storage.spec import ChunkLostError
from ...tasks.boxes.box_policy import MOST_CUTS
from ...tasks.boxes.row_box import Path, RowBoxes, TooMuchToReadError, row_box_phases, run_row_box
from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.rows.ordering import Ranges
from ...tasks.rows.relation import Relation
from ..errors import BudgetError, format_bytes
from ..plans.row_bounds import MOST_BOXES
from .row_ledger import RowsOnDisk, Sample, bytes_within, sample_of_rows, sample_of_runs, split
from .run import Run

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
