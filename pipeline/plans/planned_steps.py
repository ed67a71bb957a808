"""The steps of a plan, the places of their tables, and their cells and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal, TypeVar

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import freed_tables
from ..trees.costs import TreeCost
from ..trees.layouts import JunctionTreeSizes, junction_tree_sizes
from ..trees.memory import Sizing, sweep_peak
from ..trees.tree import Target, Tree
from .prediction import RunOverhead
from .stages import Evaluations, Parts

if TYPE_CHECKING:
    from .stages import DeviceNeeds, Spill

_Amount = TypeVar("_Amount", int, float)


@dataclass(frozen=True, repr=False)
class PlannedSteps:
    """The fields of a plan, and what its steps take in tables, cells and bytes: of one sweep, or both ways.

    Parameters
    ----------
    tree : Tree
        With domain sizes as inside one slice (one state for a sliced variable).
    dims : tuple of int
        Domain sizes without slicing.
    layouts : tuple of tuple of int
        Axis order of every node's table.
    up : tuple of Step
        The forward sweep, in execution order.
    back : tuple of Step
        The backward sweep with the readings; with ``cuts`` also the upward steps that are done again on the way.
    results : mapping of tuple of int to int
        The table that answers each target.
    cuts : frozenset of int
        Nodes whose table is kept while the parts below them are dropped and made again later: to decode an
        assignment with the variables above them fixed, or on the way back. Empty: all messages are kept.
    sliced : tuple of int
        Variables that are conditioned on; the steps run once for each of their joint states.
    leaf_bytes, model_bytes, peak_bytes : int
        Bytes of leaf tables, of the model, and of everything at the peak, for one slice or one box. On a GPU, both
        sweeps hold all tables of a slice with their descriptions.
    cost : TreeCost
        Of one slice.
    unsliced_cells : int
        Cells of the best plan without slicing.
    variant_from : int
        The steps before this one do not depend on the slice.
    shared_seconds : float
        Predicted for these.
    threads : int
        Threads that share a large step, each with a workspace of its own.
    spill : Spill or None
        How the steps run with their large tables on disk; None for a plan in memory.
    device : bool
        Whether steps run on a GPU.
    needs : DeviceNeeds or None
        GPU memory of a slice of both sweeps.
    group : int
        Slices in a task, which leave one receipt.
    parts : Parts or None
        Tasks of both sweeps; None where one does all. A forward sweep has a task for the steps below each cut.
    evaluations : Evaluations or None
        The later sweeps of a count. Cells and bytes of the plan are those of its first sweep.
    row_bounds : dict of int to int or None
        Rows of every table at most, where tables hold only what is possible; peak and bytes of leaves are bounds then.
        None where all tables are dense.
    rows_stored : bool
        Whether tables of rows that do not fit memory are on disk, and steps that do not are done in boxes.
    stored_bytes, most_stored_bytes : int
        Expected disk bytes of all sparse tables if functions were independent, and maximum disk bytes; 0 if no table is
        on disk.
    around : RunOverhead
        Work of a run other than its steps, for predictions.
    names : tuple of str
        Names of the variables, for drawings; empty if only their numbers are known.
    """

    tree: Tree
    dims: tuple[int, ...]
    layouts: tuple[tuple[int, ...], ...]
    up: tuple[Step, ...]
    cuts: frozenset[int]
    sliced: tuple[int, ...]
    itemsize: int
    leaf_bytes: int
    model_bytes: int
    peak_bytes: int
    cost: TreeCost
    unsliced_cells: int
    variant_from: int = 0
    shared_seconds: float = 0.0
    back: tuple[Step, ...] = ()
    results: Mapping[Target, int] = field(default_factory=dict)
    threads: int = 1
    spill: Spill | None = None
    device: bool = False
    needs: DeviceNeeds | None = None
    group: int = 1
    parts: Parts | None = None
    evaluations: Evaluations | None = None
    row_bounds: Mapping[int, int] | None = None
    rows_stored: bool = False
    stored_bytes: int = 0
    most_stored_bytes: int = 0
    around: RunOverhead = RunOverhead()
    names: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in execution order."""
        return (*self.up, *self.back)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Tables that outlive the sweeps: the roots and the results."""
        return tuple(dict.fromkeys((*self.tree.roots, *self.results.values())))

    @cached_property
    def freed(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the tables that no later step needs."""
        return freed_tables(self.steps, self.outputs)

    def remember_freed(self, freed: tuple[tuple[int, ...], ...]) -> None:
        """Set the freed tables, which the planner has already computed."""
        self.__dict__["freed"] = freed

    @cached_property
    def swept_bytes(self) -> int:
        """Peak host bytes of the step tables in a slice, without the leaf tables."""
        return sweep_peak(self.steps, Sizing(self.tree.dims, self.itemsize), self.outputs)

    @cached_property
    def junction_tree(self) -> JunctionTreeSizes:
        """Sizes of the tree's cliques and separators, as a junction tree of all states, even if some variables are
        sliced.
        """
        return junction_tree_sizes(self.tree.resized(self.dims) if self.sliced else self.tree)

    @cached_property
    def leaf_axes(self) -> dict[int, tuple[int, ...]]:
        """Axes of the leaf tables that the steps read, or that are outputs."""
        return self.leaf_axes_of(self.steps, self.outputs)

    def leaf_axes_of(self, steps: Iterable[Step], outputs: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return the axes of the leaf tables that some steps read, or that are among some outputs."""
        leaves = self.tree.n_leaves
        axes = {
            node: node_axes
            for step in steps
            for node, node_axes in zip(step.inputs, step.input_axes, strict=True)
            if node < leaves
        }
        return axes | {node: self.layouts[node] for node in outputs if node < leaves}

    @property
    def shared_tables(self) -> tuple[int, ...]:
        """Tables that do not depend on the slice and are read in every one of them."""
        made = {s.node for s in self.steps[: self.variant_from]}
        return tuple(dict.fromkeys(i for s in self.steps[self.variant_from :] for i in s.inputs if i in made))

    @property
    def way(self) -> Literal["memory", "slices", "disk"]:
        """Where the tables are: in memory, as a whole or slice by slice, or on disk."""
        if self.spill or self.rows_stored:
            return "disk"
        return "slices" if self.sliced else "memory"

    @property
    def disk_bytes(self) -> int:
        """Bytes that tables take on disk at a time, by rows at most."""
        if self.rows_stored:
            return self.most_stored_bytes
        return self.spill.disk_bytes if self.spill else 0

    def kept_tables_bytes(self, least: int) -> int:
        """Return the disk bytes of the tables kept for inspection: tables of at least ``least`` bytes, or all stored
        tables.

        By rows that is not known before, and checked as tables are made.
        """
        if self.rows_stored:
            return 0
        if self.spill:
            cells = [prod(self.spill.dims[v] for v in table.axes) for table in self.spill.tables.values()]
            return sum(cells) * self.itemsize
        sizes = {step.node: step.lowered.out_cells * self.itemsize for step in self.steps}
        return sum([nbytes for nbytes in sizes.values() if nbytes >= least])

    def fits(self, memory_bytes: int) -> bool:
        """Whether a slice fits the budget and, on a GPU, its tables can be counted."""
        return self.peak_bytes <= memory_bytes and (self.needs is None or self.needs.countable)

    @property
    def slices(self) -> int:
        """Number of independent sub-problems."""
        return prod(self.dims[v] for v in self.sliced)

    @property
    def slices_name(self) -> str:
        """Name of the table of slice results. A sparse plan may have more slices than were planned first."""
        return "slices" if self.row_bounds is None else f"slices_{self.slices}"

    @property
    def groups(self) -> int:
        """Number of tasks that slices are done in."""
        return -(-self.slices // self.group)

    @property
    def cells(self) -> int:
        """Cells swept over all slices; steps that do not depend on the slice are run once."""
        return self._over_slices(self.cost.cells, self._shared[0])

    @property
    def read_bytes(self) -> int:
        """Bytes read by the steps of all slices."""
        return self._over_slices(self.cost.read_cells, self._shared[1]) * self.itemsize

    @property
    def written_bytes(self) -> int:
        """Bytes written by the steps of all slices."""
        return self._over_slices(self.cost.written_cells, self._shared[2]) * self.itemsize

    @cached_property
    def reported_cells(self) -> int:
        """Cells that one sweep will have reported at its end."""
        if self.spill:
            return sum(self.spill.boxes(stage) * self.spill.box_cells(stage) for stage in self.spill.stages)
        cells = [self.step_cells(step) for step in self.steps]
        return self._over_slices(sum(cells), sum(cells[: self.variant_from]))

    def step_cells(self, step: Step) -> int:
        """Return the cells that a step sweeps; with sparse tables, the rows of its table at most."""
        return step.lowered.cells if self.row_bounds is None else self.row_bounds[step.node]

    @cached_property
    def _shared(self) -> tuple[int, int, int]:
        """Cells that the steps sweep, read and write that do not depend on the slice."""
        lowered = [step.lowered for step in self.steps[: self.variant_from]]
        return (
            sum([each.cells for each in lowered]),
            sum([sum(each.input_cells) for each in lowered]),
            sum([each.out_cells for each in lowered]),
        )

    def _over_slices(self, each: _Amount, once: _Amount) -> _Amount:
        """Return the amount for all slices, given the amount for one slice and the part shared by all slices."""
        return once + (each - once) * self.slices

    @property
    def evaluated(self) -> int:
        """How many times the cells of the plan are swept, at one point each time."""
        return 1 + (self.evaluations.points * self.evaluations.primes if self.evaluations else 0)

    @property
    def sweeps(self) -> int:
        """Number of sweeps, one after the other."""
        return 1 + (self.evaluations.sweeps if self.evaluations else 0)

    @property
    def step_tasks(self) -> int:
        """How many times steps run, in all slices, boxes and sweeps."""
        if self.spill:
            return self.sweeps * sum(self.spill.boxes(stage) * len(stage.steps) for stage in self.spill.stages)
        return self.sweeps * int(self._over_slices(len(self.steps), self.variant_from))

    @property
    def most_rows(self) -> int:
        """Rows of the largest table at most, where tables hold only what is possible."""
        return max((self.row_bounds or {}).values(), default=0)

    @property
    def part_count(self) -> int:
        """Parts of the tree that are swept on their own, by several workers or one after the other."""
        return len(self.parts.heads) if self.parts else len(self.cuts) + 1

    @property
    def tasks(self) -> int:
        """Number of pieces of work that may run independently."""
        if self.spill:
            return self.spill.tasks
        if self.parts:
            return len({*self.parts.makers.values()})
        return (1 if self.back else self.part_count) * self.slices

    @property
    def slice_overhead(self) -> float:
        """Work of all slices over the work without slicing."""
        return self.cells / max(self.unsliced_cells, 1)
