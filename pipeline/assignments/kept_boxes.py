"""Tables of a sweep that are on disk: an assignment passes one box of each stage, which is swept again when it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from ...tasks.boxes.box import read_part
from ...tasks.sweeps.program import Program
from ..answering.placement import temporary_folder
from ..errors import BudgetError, format_bytes
from ..machine.resources import Resources
from ..plans.problem import sliced_dims
from ..plans.stages import Stage
from ..runs.box_answers import ends, swept_roots, swept_stage
from ..runs.dense_boxes import BoxRun, opened_boxes
from ..runs.run import TABLES, Run
from .swept_tables import SweptTables

T = TypeVar("T")


@dataclass
class KeptBoxes(Generic[T]):
    """The stages of a plan whose tables are on disk, from the roots down.

    Parameters
    ----------
    boxes : BoxRun
    allowed : int
        Bytes that all tables of a box may take.
    """

    boxes: BoxRun[T]
    allowed: int
    _programs: dict[int, Program[T]] = field(default_factory=dict)
    _passed: dict[int, tuple[Any, SweptTables[T]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = max(self._box_bytes(stage) for stage in self.stages)
        if needed > self.allowed:
            raise BudgetError(
                f"all tables of a box take {format_bytes(needed)}, allowed {format_bytes(self.allowed)}; give more "
                "memory, or leave out --fit spill"
            )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """That at the roots first."""
        spill = self.boxes.spill
        return spill.stages[: spill.top + 1][::-1]

    @cached_property
    def totals(self) -> list[Any]:
        """The value of each box at the roots, or of its parts; sweeps what was not swept yet."""
        return [self.boxes.run.arithmetic.total(roots) for roots in swept_roots(self.boxes)]

    @cached_property
    def _tops(self) -> list[dict[int, int]]:
        """Return the states that each end box fixes."""
        return [fixed for fixed, _ in ends(self.boxes)]

    def top(self, index: int) -> int:
        """Return the box at the roots that a value is of."""
        return int(self.number(0, self._tops[index]))

    def number(self, place: int, states: Any) -> Any:
        """Return the box of a stage that assignments pass: states, or arrays of them, by variable."""
        return self.boxes.spill.number(self.stages[place], states)

    @cached_property
    def fit_together(self) -> bool:
        """Whether a box of each stage may be there at a time."""
        return sum(self._box_bytes(stage) for stage in self.stages) <= self.allowed

    def tables(self, place: int, number: int) -> SweptTables[T]:
        """Sweep a box of a stage, by its place from the roots on, keeping its tables."""
        stage = self.stages[place]
        return self.boxes.receipts.until_whole(lambda: self._swept(stage, number), self.boxes.complete)

    def passed(self, index: int, place: int, states: Mapping[int, int]) -> SweptTables[T]:
        """Sweep a stage where an assignment passes it: all variables above it are fixed.

        Parameters
        ----------
        index : int
            Which of the values at the roots it has.
        place : int
            Of the stage.
        states : mapping of int to int
            Of variables above.
        """
        stage, boxes = self.stages[place], self.boxes
        fixed = {v: states[v] for v in boxes.run.plan.tree.scopes[stage.head]} if place else self._tops[index]
        key = index if not place else tuple(fixed.values())
        if self._passed.get(place, (None, None))[0] != key:
            if not self.fit_together:
                self._passed.clear()
            self._passed.pop(place, None)  # before others are swept
            steps, tables, sizes = boxes.receipts.until_whole(lambda: swept_stage(boxes, stage, fixed), boxes.complete)
            self._passed[place] = key, SweptTables(steps, tables, sizes, fixed)
        return self._passed[place][1]

    def _swept(self, stage: Stage, number: int) -> SweptTables[T]:
        boxes = self.boxes
        if stage.head not in self._programs:
            self._programs[stage.head] = self._on_host.program(stage, set())
        program, states = self._programs[stage.head], boxes.spill.states(stage, number)
        box = replace(boxes.box(boxes.spill.stages.index(stage)), program=program, device=False)
        given = {}
        for node in stage.inputs:
            spec = boxes.specs[node]
            receipts = [boxes.receipts[spec.name, chunk] for chunk in spec.chunks_at(states)]
            given[node] = read_part(box, node, {spec.name: receipts}, states, there=False)
        leaves = program.restricted_leaves(states)
        made = program.again(stage.steps, leaves).run(
            given, keep=[step.node for step in stage.steps], threads=boxes.run.threads
        )
        return SweptTables(stage.steps, {**leaves, **given, **made}, sliced_dims(program.dims, stage.boxed), states)

    @property
    def _on_host(self) -> BoxRun[T]:
        """The same boxes, swept by this process's cores: walks go there."""
        return replace(self.boxes, run=replace(self.boxes.run, device=False))

    def _box_bytes(self, stage: Stage) -> int:
        """Bytes of all tables of a box."""
        cells: dict[int, int] = {}
        for step in stage.steps:
            cells |= dict(zip(step.inputs, step.lowered.input_cells, strict=True)) | {step.node: step.lowered.out_cells}
        return sum(cells.values()) * self.boxes.spill.itemsize


@contextmanager
def opened_kept_boxes(run: Run[T], resources: Resources) -> Iterator[KeptBoxes[T]]:
    """Open the boxes of a plan, with tables that stay on disk until the end."""
    with (
        temporary_folder(run.planned, resources) as folder,
        opened_boxes(replace(run, folder=folder), TABLES, keep=True) as boxes,
    ):
        yield KeptBoxes(boxes, resources.host_bytes)
