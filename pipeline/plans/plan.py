"""The plan as a value: the steps to run, their predicted cost, and their display.

A plan is priced by other rates, or its steps are lowered for another semiring, without planning again: the steps stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ...tasks.steps.caches import Remembered
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.step import Step, make_step
from ..errors import ShortDir, format_bytes, format_cells, public
from ..trees.costs import Rates, TreeCost, lowered_seconds, residue_rates, steps_cost
from ..trees.memory import Sizing
from ..trees.tree import Tree
from .planned_steps import PlannedSteps
from .prediction import CORES_OF_A_DEVICE
from .problem import Problem, sliced_dims
from .stages import Evaluations

if TYPE_CHECKING:
    from ..drawings.svg import Svg
    from .task_graph import GraphSection, TaskGraph


# A shorter sweep or propagation is done by one thread before others have started.
THREADED_SECONDS = 0.02


@public
class Plan(ShortDir, PlannedSteps):
    """A frozen description of everything that will run, and what it costs: one sweep, or both ways.

    :class:`.PlannedSteps` defines its fields and its sizes in cells and bytes.

    Examples
    --------
    >>> import bucketflow
    >>> plan = bucketflow.plan("diagnosis", "marginals")
    >>> plan.width, len(plan.steps)
    (5, 71)
    >>> plan.graph().save("plan.svg")
    """

    _SHOWN = (
        *("width", "largest_table_cells", "cells", "peak_bytes", "read_bytes", "written_bytes", "disk_bytes", "slices"),
        *("predicted_seconds", "tasks", "steps", "junction_tree", "summary", "rows", "graph"),
        *("draw", "plot"),
    )

    @property
    def width(self) -> int:
        """Number of variables of the largest table that a step joins, less one: the induced width of the order."""
        return self.cost.width

    @property
    def largest_table_cells(self) -> int:
        """Cells of the largest table that is stored."""
        return self.cost.largest_table_cells

    def summary(self) -> str:
        """Return the plan in one line: width, cells, slices, peak memory, predicted time."""
        if not self.steps:
            return "no steps: preprocessing gives the answer"
        slices = f" in {self.slices:,} slices" if self.slices > 1 else ""
        return (
            f"width {self.width}, {format_cells(self.cells)} cells{slices}, peak {format_bytes(self.peak_bytes)}, "
            f"about {self.predicted_seconds:.3g} s on one core"
        )

    @property
    def seconds(self) -> float:
        """Price of all steps on one core, by which plans are compared."""
        return self.sweep_seconds + self._evaluation_seconds

    @cached_property
    def predicted_seconds(self) -> float:
        """Predicted time of the whole run on one core: steps as they are lowered, and what is done around them.

        Sparse tables are unknown before they are made; the maximum work of their steps is priced as in `seconds`.
        """
        around = self.around
        sweep = self.sweep_seconds if self.row_bounds is not None else self._predicted_sweep
        later, cells = self.evaluations and self.evaluations.likely, self.leaf_bytes // self.itemsize
        if later is not None:
            each = sweep if self.row_bounds is not None else self._predicted_residues(later)
            sweep += later.sweeps * each + around.evaluation_seconds(later, cells)
        inputs = sum([len(step.inputs) for step in self.up])
        made = 3 if self._best_is_swept_again else 1  # for bounds of slices, for slices, for the best one
        leaves = made * around.leaf_seconds(self.device, cells)
        return sweep + leaves + around.reading_seconds(self.device, inputs, len(self.results))

    @property
    def _best_is_swept_again(self) -> bool:
        return self.slices > 1 and self.around.evaluated > 0

    def _predicted_residues(self, later: Evaluations) -> float:
        """Predicted for a sweep modulo a prime."""
        if later.steps:
            return self.around.residues_seconds(later.steps, self.itemsize)
        return self._predicted(self.around.residues_seconds)

    @property
    def _predicted_sweep(self) -> float:
        """Predicted for one sweep over all slices or boxes, or both ways."""
        return self._predicted(self.around.steps_seconds)

    def _predicted(self, steps_seconds: Callable[[Iterable[Step], int], float]) -> float:
        """Return the prediction for one sweep, given a function for the seconds of steps by number size in bytes."""
        around, itemsize, spill = self.around, self.itemsize, self.spill
        # both ways a device is planned for by the rates of a core
        share = 1 / CORES_OF_A_DEVICE if self.device and self.results else 1.0
        if spill is not None:
            boxes = [spill.boxes(stage) * steps_seconds(stage.steps, itemsize) for stage in spill.stages]
            return spill.moving_seconds + share * ordered_sum(boxes)
        first, rest = self.steps[: self.variant_from], self.steps[self.variant_from :]
        sweeps = self.slices + self._best_is_swept_again + (around.evaluated > 0 and bool(self.cuts))
        steps = steps_seconds(first, itemsize) + sweeps * steps_seconds(rest, itemsize)
        sliced = {*self.sliced}
        varying = sum([not sliced.isdisjoint(axes) for axes in self.leaf_axes.values()]) if sliced else 0
        launched = rest if self.device and not self.results else ()
        return share * steps + sweeps * around.slice_seconds(self.device, launched, varying)

    @property
    def sweep_seconds(self) -> float:
        """Price of one sweep over all slices, or both ways."""
        if self.spill:
            return self.spill.seconds
        return self._over_slices(self.cost.seconds, self.shared_seconds if self.variant_from else 0.0)

    @property
    def _evaluation_seconds(self) -> float:
        if self.evaluations is None:
            return 0.0
        found = self.evaluations.likely
        if found.points == 1:  # as a sweep of floats: plans are compared with others that have as many
            return found.sweeps * self.sweep_seconds
        each = found.seconds if found.together > 1 else found.share * self.sweep_seconds
        return found.sweeps * each + self.around.evaluation_seconds(found, self.leaf_bytes // self.itemsize)

    @property
    def kept_threads(self) -> int:
        """Threads of a propagation that keeps its tables: one is done with a short one before others have started."""
        return self.threads if self.seconds > THREADED_SECONDS else 1

    @property
    def kept_bytes(self) -> int:
        """Bytes of the model, the leaves and all other tables, with workspace: the memory of a compiled model."""
        from ...tasks.incremental.schedule import scratch_cells

        sizing = Sizing(self.tree.dims, self.itemsize, self.threads)
        tables = sum(step.lowered.out_cells for step in self.steps) * self.itemsize
        workspace = max((sizing.workspace_bytes(step) for step in self.steps), default=0)
        scratch = scratch_cells(self.steps, self.kept_threads) * self.itemsize
        return self.model_bytes + 2 * self.leaf_bytes + tables + workspace + scratch

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures of the plan as pairs of label and text.

        Returns
        -------
        list of (str, str)
            Bytes, cells and seconds with units. With sparse tables, ``<=`` stands before upper bounds.
        """
        if not self.steps:
            return [("steps", "0, preprocessing gives the answer")]
        most = "" if self.row_bounds is None else "<= "
        rows = [
            ("variables", f"{len(self.dims)} to eliminate in {len(self.steps)} steps"),
            ("width", str(self.cost.width)),
            ("largest table", f"{format_cells(self.cost.largest_table_cells)} cells of {self.itemsize} bytes"),
            *([("rows", f"<= {format_cells(self.most_rows)} in a table")] if self.row_bounds else []),
            ("cells", format_cells(self.cells)),
            ("read / written", f"{most}{format_bytes(self.read_bytes)} / {most}{format_bytes(self.written_bytes)}"),
            ("peak memory", f"{most}{format_bytes(self.peak_bytes)}"),
        ]
        if self.sliced:
            rows.append(("slices", f"{self.slices:,}, {self.slice_overhead:.2f} times the work"))
        # the figures that only some plans have follow
        if self.most_stored_bytes:
            which = (
                "that do not fit in memory, computed in boxes"
                if self.rows_stored
                else "if they turn out not to fit memory"
            )
            disk = f"about {format_bytes(self.stored_bytes)}, <= {format_bytes(self.most_stored_bytes)}"
            rows.append(("disk", f"{disk}, tables of rows {which}"))
        if self.spill:
            moved = f"{format_bytes(self.spill.written_bytes)} written, {format_bytes(self.spill.read_bytes)} read"
            rows.append((self.spill.place, f"{format_bytes(self.spill.disk_bytes)} at a time, {moved}"))
            rows.append(("stages", f"{len(self.spill.stages)}, in {self.spill.tasks:,} boxes"))
        if self.cuts:
            rows.append(("parts", f"{self.part_count}, each swept separately, and again on the way back"))
        if later := self.evaluations:
            points = f"at {later.points:,} points, {later.together} at a time, " if later.points > 1 else ""
            about = "" if later.likely.sweeps == later.sweeps else f"about {1 + later.likely.sweeps:,} expected, "
            text = f"up to {self.sweeps:,}, {about}after the first {points}modulo {later.primes} primes"
            rows.append(("sweeps", text))
        if self.parts:
            rows.append(("on workers", f"{self.part_count} parts, {self.parts.seconds:.3g} s one after the other"))
        predicted = f"{most}{self.predicted_seconds:.3g} s on one core"
        return [*rows, ("tasks", f"{self.tasks:,}"), ("predicted", predicted)]

    def graph(self, names: Sequence[str] | None = None) -> TaskGraph:
        """Return the task graph: a node for each elimination, each message back and each result.

        Slices and boxes repeat nodes, which say how often; a plan that spills has the steps of each stage.

        Parameters
        ----------
        names : sequence of str, optional
            Names of the variables that are eliminated; by default ``names``, or their numbers.
        """
        from .task_graph import TableMeasure, task_graph

        measure = TableMeasure(len(self.tree.scopes), self._size_of, self._seconds_of)
        return task_graph(self._sections(), measure, self._namer(names))

    def _namer(self, names: Sequence[str] | None = None) -> Callable[[int], str]:
        """Return a function that gives the name of a variable, or its number if names are unknown."""
        known = names or self.names
        return lambda variable: known[variable] if known else str(variable)

    def named_steps(self, names: Sequence[str]) -> list[list[tuple[str, str, int]]]:
        """Return key, place and cells of each step's task, as in the graph: a list for each stage, or only one."""
        from .task_graph import step_keys

        nodes, name, found = len(self.tree.scopes), self._namer(names), []
        for section in self._sections():
            keys = step_keys(section.steps, nodes, name, section.suffix)
            where = [(section.place(step.node), self._size_of(step)[0]) for step in section.steps]
            found.append([(key, *each) for key, each in zip(keys, where, strict=True)])
        return found

    def _size_of(self, step: Step) -> tuple[int, int]:
        """Cells that a step sweeps and bytes of its table; by rows, rows and bytes of its table at most."""
        dense = step.lowered.out_cells * self.itemsize
        if self.row_bounds is None:
            return step.lowered.cells, dense
        from ...tasks.rows.keys import Keys

        keys = Keys(tuple(step.axes), tuple([self.tree.dims[v] for v in step.axes]))
        rows = self.row_bounds[step.node]
        return rows, min(dense, rows * (8 * keys.n_words + self.itemsize))

    def _seconds_of(self, step: Step) -> float | None:
        return None if self.row_bounds is not None else self.around.steps_seconds([step], self.itemsize)

    def _sections(self) -> list[GraphSection]:
        """The steps, with where and how often they run."""
        from .task_graph import GraphSection

        if self.spill is None:
            shared = self.variant_from
            times = lambda k: self.sweeps * (1 if k < shared else self.slices)  # noqa: E731
            return [GraphSection(self.steps, self._place_of(), times, self.outputs)]
        spill, sections = self.spill, []
        where = f"{'in' if spill.resident else 'on'} {spill.place}"
        for number, stage in enumerate(spill.stages, 1):
            text, boxes = f"stage {number}, boxes {where}", self.sweeps * spill.boxes(stage)
            told = (lambda _, text=text: text), (lambda _, boxes=boxes: boxes)
            ends = (*stage.results.values(), *stage.roots)
            sections.append(GraphSection(stage.steps, *told, ends, f"-stage{number}", stage.outputs))
        return sections

    def _place_of(self) -> Callable[[int], str]:
        """Return where the step that makes a table runs."""
        from ..trees.memory import parts_below

        place = "device" if self.device else "memory"
        if self.rows_stored:
            place = "memory, or disk where rows do not fit"
        if self.slices > 1:
            place = f"slices, {place}"
        heads: dict[int, int] = {}
        if self.parts:
            heads = {table: task[0] for table, task in self.parts.makers.items()}
        elif self.cuts:
            below = parts_below(self.tree, self.up, self.cuts)
            heads = {step.node: head for head, steps in below.items() for step in steps}
        return lambda table: f"part {heads[table]}, {place}" if heads.get(table, -1) >= 0 else place

    def draw(self, names: Sequence[str] | None = None, most: int | None = None) -> Svg:
        """Draw the task graph: by level, coloured by the bytes of tables, areas by cells, frames by disk and device.

        Parameters
        ----------
        names : sequence of str, optional
            Of the variables that are eliminated; by default their numbers.
        most : int, optional
            Draw at most ``most`` tasks, the tasks with the largest tables.
        """
        return self.graph(names).draw(most)

    def plot(self, names: Sequence[str] | None = None) -> Svg:
        """Draw the plan, as :meth:`draw` does."""
        return self.draw(names)

    def __repr__(self) -> str:
        return "\n".join(f"{label:<14}  {text}" for label, text in self.rows())

    def _repr_html_(self) -> str:
        from ..drawings.html import shown_rows

        return shown_rows(self.rows())


def empty_plan() -> Plan:
    """Return the plan of a question that preprocessing answers: no step, and nothing that it takes.

    Examples
    --------
    >>> empty_plan()
    steps           0, preprocessing gives the answer
    """
    nothing = TreeCost(cells=0, largest_table_cells=0, width=0, read_cells=0, written_cells=0, seconds=0.0, steps=0)
    return Plan(
        tree=Tree((), (), ()),
        dims=(),
        layouts=(),
        up=(),
        cuts=frozenset(),
        sliced=(),
        itemsize=8,
        leaf_bytes=0,
        model_bytes=0,
        peak_bytes=0,
        cost=nothing,
        unsliced_cells=0,
    )


#: The last few plans by other rates: predicting hundreds of steps takes a tenth as long as running them.
PRICED: Final[Remembered[Plan]] = Remembered(8)


def with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates."""
    later = plan.evaluations and repriced(plan.evaluations, rates, plan.itemsize)
    cost = steps_cost(plan.steps, plan.tree, rates, plan.itemsize)
    shared = steps_cost(plan.steps[: plan.variant_from], plan.tree, rates, plan.itemsize).seconds
    around = replace(plan.around, rates=rates)
    return replace(plan, cost=cost, shared_seconds=shared, evaluations=later, around=around)


def repriced(evaluations: Evaluations, rates: Rates, itemsize: int) -> Evaluations:
    """Predict the seconds of a sweep of several points with other rates of floats."""
    rates = residue_rates(rates)
    return replace(evaluations, seconds=ordered_sum(lowered_seconds(s, rates, itemsize) for s in evaluations.steps))


def remembered_with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with seconds predicted from other rates. The results for the last few plans are cached."""
    return PRICED.of((plan,), rates, lambda: with_rates(plan, rates))


def relowered(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its steps lowered for another semiring of the same value size."""

    def lowered(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[Step, ...]:
        return tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in steps)

    spill = plan.spill
    if spill is not None:
        stages = (replace(s, steps=lowered(s.steps, sliced_dims(spill.dims, s.boxed))) for s in spill.stages)
        spill = replace(spill, stages=tuple(stages))
    return replace(plan, up=lowered(plan.up, plan.tree.dims), spill=spill)


def lowered_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    problem: Problem,
) -> Step:
    """Fix the loops of one step for the given domain sizes."""
    return make_step(node, inputs, input_axes, axes, sizes, problem.semiring)


class MorePrimesError(Exception):
    """A count needs more sweeps than its price includes; the argument is the number of primes."""


def with_primes(plan: Plan, primes: int) -> Plan:
    """Return the plan of a count for which the number of primes is known."""
    later = plan.evaluations
    assert later is not None
    return replace(plan, evaluations=replace(later, primes=max(later.primes, primes), expected=primes))
