"""Running a spill plan on a device: several boxes at a time, tables in host memory or in chunk files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from ...storage.spec import TableSpec
from ...tasks.boxes.boxes import Box
from ...tasks.boxes.device_boxes import DeviceBox, run_device_box
from ...tasks.boxes.device_stores import BUFFERS, ChunkFiles, HostTables, Store, picked
from ...tasks.gpu.memory import DeviceMemoryError, Pinned
from ...tasks.sweeps.device_sweep import on_device
from ..plans.plan import sliced_dims
from ..plans.stages import Stage
from ..trees.memory import table_bytes
from .boxes import OutOfCore, Task
from .forward import Run

T = TypeVar("T")

# What parts have in common is computed in each of them: a box that needs more is planned again, or given up.
_MOST_PARTS = 1 << 6


@dataclass
class OnDevice(OutOfCore[T]):
    """One sweep of a plan that spills, whose boxes run on a device; tables are chunk files.

    A box that does not fit the device is done again in parts: first with one more variable fixed, then with two, and
    so on; variables of its output, or in the last stage any.
    """

    cut: dict[Task, list[int]] = field(default_factory=dict)
    """Boxes that did not fit, and the further variables that they fix by now."""
    failed: dict[Task, DeviceMemoryError] = field(default_factory=dict)

    @cached_property
    def store(self) -> Store:
        """Where the tables are."""
        return ChunkFiles(self.folder)

    def box(self, index: int) -> Box[T]:
        """Build the leaf tables of a stage."""
        box = super().box(index)
        parts: dict[str, Any] = {f.name: getattr(box, f.name) for f in fields(box)}
        parts["program"] = replace(box.program, algebra=on_device(box.program.algebra, self.run.least_cells))
        return DeviceBox(**parts, store=self.store)

    def call(self, task: Task) -> tuple[Any, ...]:
        """The function call of a task, once all that it needs is there."""
        _, *arguments = super().call(task)
        return run_device_box, *arguments, self.cut.get(task, [])

    def further(self, task: Task) -> int | None:
        """Choose a variable that the parts of a box fix besides those that they fix by now; None if nothing is left.

        Of its output, those of most readers first; of the last stage, the one that makes its large tables smallest.
        """
        stage, cut = self.spill.stages[task[0]], self.cut.get(task, [])
        sizes = sliced_dims(self.spill.dims, (*stage.boxed, *cut))
        spec = self.specs.get(stage.head)
        if spec is not None:
            return next((v for v in spec.variables if sizes[v] > 1), None)
        gains: Counter[int] = Counter()
        for axes in (axes for step in stage.steps for axes in (*step.input_axes, step.axes)):
            cells = table_bytes(sizes, axes, 1)
            gains.update({v: cells**2 * (1 - 1 / sizes[v] ** 2) for v in axes if sizes[v] > 1})
        return max(gains, key=lambda v: (gains[v], -v), default=None)

    def complete(self) -> None:
        """Run what the answer lacks; boxes that do not fit the device are cut until they do."""
        while True:
            self.failed.clear()
            super().complete()
            if not self.failed:
                return
            for task, error in self.failed.items():
                variable, cut = self.further(task), self.cut.get(task, [])
                if variable is None or prod(self.spill.dims[v] for v in (*cut, variable)) > _MOST_PARTS:
                    raise error
                self.cut[task] = [*cut, variable]
                if not cut:
                    self.run.note(f"a box did not fit the device ({error}); it was done in parts")

    def fail(self, task: Task, error: BaseException) -> None:
        """Remember boxes that did not fit."""
        if not isinstance(error, DeviceMemoryError):
            raise error
        self.failed[task] = error

    def decode_stage(self, stage: Stage, fixed: Mapping[int, int], assignment: dict[int, int]) -> None:
        """Decode a stage where this process has the device to itself, otherwise on its CPU: workers hold devices."""
        if self.run.serial:
            super().decode_stage(stage, fixed, assignment)
            return
        here = OutOfCore(replace(self.run, device=False), self.folder, self.keep, self.receipts)
        here.decode_stage(stage, fixed, assignment)

    def sweep(self) -> list[list[Any]]:
        """Run every box that is not done yet; return the root tables of the last stage's boxes, in order."""
        try:
            return super().sweep()
        finally:
            BUFFERS.release()


@dataclass
class HostResident(OnDevice[T]):
    """The same with all tables in page-locked memory of this process; nothing is kept for a later run."""

    memory: Pinned = field(default_factory=Pinned)

    @cached_property
    def store(self) -> HostTables:
        """Where the tables are."""
        return HostTables(self.memory)

    def resume(self) -> None:
        """Begin from nothing."""
        self.receipts = {}

    def damaged(self) -> list[tuple[str, tuple[int, ...]]]:
        """Nothing can be."""
        return []

    def create(self, spec: TableSpec) -> None:
        """Make room for a table."""
        self.store.create(spec)

    def delete(self, spec: TableSpec) -> None:
        """Remove a table."""
        self.store.delete(spec)

    def cells(self, spec: TableSpec, fixed: Mapping[int, int]) -> Any:
        """Return the cells of a table that agree with fixed variables."""
        return picked(self.store, spec, fixed)

    def close(self) -> None:
        """Free the tables."""
        self.store.close()


@contextmanager
def spilled_sweep(run: Run[T], name: str, keep: bool) -> Iterator[OnDevice[T]]:
    """Open the sweep of a plan that spills: in the run's folder if it has one, otherwise in host memory."""
    if run.folder is not None:
        yield OnDevice(run, run.folder / name, keep)
        return
    assert run.plan.spill is not None
    sweep = HostResident(run, Path(name), keep, memory=Pinned(run.plan.spill.disk_bytes))
    try:
        yield sweep
    finally:
        sweep.close()
