"""What runs: a plan with its tables, and the place where it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...cluster.dask_pool import DaskPool, count_cells
from ...cluster.pool import Pool, SerialPool, TaskLabel
from ...storage.files import Place
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import OnTable, StepReport
from ..plans.plan import Plan
from ..plans.problem import Problem
from ..preprocessing.preprocess import Network
from ..queries.arithmetic import Arithmetic
from ..results.remaining_time import SweptCells

if TYPE_CHECKING:
    from ...tasks.boxes.box import TableArchive
    from ...tasks.rows.memory_account import MemoryAccount

T = TypeVar("T")
V = TypeVar("V")

#: Where a run directory keeps tables.
TABLES: Final = "tables"


def count_step(step: Step) -> None:
    """Count the cells of a step on a worker."""
    count_cells(step.lowered.cells)


def ignored(_: str) -> None:
    """Tell nobody."""


@dataclass
class Held(Generic[V]):
    """Data shared by tasks of single steps: the value in this process, and its handle in the pool.

    Parameters
    ----------
    value
    handle
        The handle that represents the value in tasks.
    labels : sequence of TaskLabel
        Of its steps.
    made : dict of int to handle
        Tables that were made once, for all slices.
    """

    value: V
    handle: Any
    labels: Sequence[TaskLabel] = ()
    made: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run(Generic[T]):
    """A plan with its tables and the place where it runs.

    Parameters
    ----------
    network, planned, problem, arithmetic
        What to run; ``planned`` is None where preprocessing left nothing to eliminate.
    pool : Pool
    threads : int
        Threads of one step in a serial pool.
    progress : SweptCells, optional
        Called with the number of cells that were swept since the last call.
    states : mapping of int to int
        Sliced variables that are fixed for the whole run.
    folder : Place, optional
        Where a plan that spills keeps its tables.
    device : bool
        Whether large steps run on a GPU.
    least_cells : int, optional
        Cells from which a step on host tables does; the nominal number where the machine was not measured.
    device_bytes : int
        Budget on the device, for both sweeps of a slice at once.
    room : Room, optional
        Memory account of sparse tables, if the plan is sparse.
    disk_bytes : int, optional
        Disk limit of the sparse tables.
    by_steps : bool
        Whether each step is a task of the pool.
    kept_bytes : int, optional
        From how many bytes on tables are kept in the run's folder.
    note : callable
        Called with notes for the caller.
    """

    network: Network
    planned: Plan | None
    problem: Problem
    arithmetic: Arithmetic[T]
    pool: Pool
    threads: int = 1
    compiled: bool = True
    progress: SweptCells | None = None
    states: Mapping[int, int] = field(default_factory=dict)
    folder: Place | None = None
    device: bool = False
    least_cells: int | None = None
    device_bytes: int = 0
    room: MemoryAccount | None = None
    disk_bytes: int | None = None
    by_steps: bool = False
    kept_bytes: int | None = None
    note: Callable[[str], None] = ignored

    @property
    def plan(self) -> Plan:
        """The plan; only asked for where something is left to eliminate."""
        assert self.planned is not None
        return self.planned

    @property
    def serial(self) -> bool:
        """Whether everything runs in this thread."""
        return isinstance(self.pool, SerialPool)

    @property
    def devices(self) -> int:
        """On how many devices of this process steps of rows in memory are done side by side."""
        in_memory = self.device and self.plan.row_bounds is not None and self.plan.way == "memory"
        return self.slice_devices if in_memory else 1

    @property
    def slice_devices(self) -> int:
        """On how many devices of this process slices run."""
        from ...cluster.pool import DeviceThreads

        return self.pool.devices if isinstance(self.pool, DeviceThreads) else 1

    @property
    def _all_names(self) -> tuple[str, ...]:
        return self.names(range(len(self.plan.dims)))

    def names(self, axes: Sequence[int]) -> tuple[str, ...]:
        """Return the names of local variables."""
        model, variables = self.network.model, self.network.variables
        return tuple(model.names[variables[v]] for v in axes)

    @property
    def told(self) -> dict[str, Any]:
        """Return the attributes of a group of tables; rows refer to variables by their places in this list."""
        semiring = self.problem.semiring
        told = {
            "query": self.network.query,
            "semiring": semiring.name,
            "variables": self._all_names,
        }
        if semiring.modulus:
            return {**told, "scale": f"residues modulo {semiring.modulus}"}
        if semiring.name == "sum_product":
            return {**told, "scale": "values times exp(log_scale), or exp(values + log_scale) where logs is true"}
        if not semiring.saturates:
            return {**told, "scale": "energies: natural logarithms of 1/p"}
        return {**told, "scale": "costs; costs of top and more are forbidden", "top": int(semiring.zero)}

    def told_of(self, table: int, axes: Sequence[int]) -> dict[str, Any]:
        """Return the additional attributes of a table's array; its task is the task in the plan's graph."""
        told = {key: value for key, value in self.told.items() if key != "query"}
        return {**told, "step": table, "task": self._keys[table], "variables": self.names(axes)}

    @cached_property
    def labels(self) -> list[list[TaskLabel]]:
        """The labels of the tasks of single steps: a list for each stage on disk, or only one."""
        return [[TaskLabel(*step) for step in steps] for steps in self.plan.named_steps(self._all_names)]

    @cached_property
    def _keys(self) -> dict[int, str]:
        """The task that makes each table, by the number of the table between stages, or in the only sequence."""
        spill = self.plan.spill
        stages = [spill_stage.steps for spill_stage in spill.stages] if spill else [self.plan.steps]
        keys: dict[int, str] = {}
        for number, (steps, labels) in enumerate(zip(stages, self.labels, strict=True)):
            own = {step.node: label.name for step, label in zip(reversed(steps), reversed(labels), strict=True)}
            keys |= {table: own[node] for table, node in spill.stages[number].outputs.items()} if spill else own
        return keys

    def on_table(self) -> OnTable | None:
        """Return the callback for every table, in this process or on a worker; None where none is called."""
        report, kept = self.progress, self._keeper()
        if report is not None and isinstance(self.pool, DaskPool) and self.plan.row_bounds is None:
            return StepReport(count_step)  # with sparse tables, a task counts its rows at its end
        if not self.serial or (report is None and kept is None):
            return None

        def done(step: Step) -> None:
            if report is not None:
                report(self.plan.step_cells(step))

        def told(step: Step, table: Any) -> None:
            if kept is not None:
                kept.keep(step, table)
            done(step)

        return StepReport(done) if kept is None else told

    def _keeper(self) -> TableArchive[T] | None:
        """Return the archive that writes the kept tables of an in-memory plan; None if no table is kept."""
        if self.kept_bytes is None or self.folder is None or self.plan.way != "memory":
            return None
        from ...tasks.boxes.box import TableArchive
        from ...tasks.boxes.stores import chunk_store

        store, codec = chunk_store((self.folder / TABLES).absolute()), self.arithmetic.codec
        return TableArchive(store, codec, self.plan.dims, self.kept_bytes, self.names, self.told_of)

    def shared(self, value: Any, what: str, section: int = 0) -> Any:
        """Send shared data to the pool, and return its handle for calls that the pool streams or runs as a graph.

        Parameters
        ----------
        what : str
            What it is, for the name of the task.
        section : int
            The stage on disk whose steps it holds.
        """
        handle = self.pool.put(value, TaskLabel(f"load-{what}"))
        return Held(value, handle, self.labels[section]) if self.by_steps else handle

    def report(self, cells: int) -> None:
        """Report more swept cells. Cells beyond the plan are reported as complete."""
        if self.progress is not None:
            self.progress(cells)

    def program(self, steps: Sequence[Step], outputs: Sequence[int], variant_from: int = 0) -> Program[T]:
        """Build the leaf tables that ``steps`` read and put them together."""
        plan = self.plan
        whole = steps is plan.steps and outputs is plan.outputs
        axes = plan.leaf_axes if whole else plan.leaf_axes_of(steps, outputs)
        algebra: Any = self.arithmetic.algebra(plan.tree.dims, self.compiled)
        if self.room is None:
            leaves = self.arithmetic.leaves(axes)
        else:
            from ..queries.row_arithmetic import leaf_tables, rows_algebra

            algebra = rows_algebra(self.arithmetic, plan.tree.dims, self.compiled, self.room, plan.outputs)
            leaves = leaf_tables(self.arithmetic, algebra, axes, self.room.nbytes)
        if self.states:
            leaves = {node: algebra.restrict(t, axes[node], plan.dims, self.states) for node, t in leaves.items()}
        program = Program(tuple(steps), leaves, axes, tuple(outputs), plan.dims, algebra, variant_from)
        if whole:
            program.remember_freed(plan.freed)  # later questions run the plan again
        if not self.device:
            return program
        if self.room is not None:
            from ...tasks.rows.device_algebra import device_rows_program

            return device_rows_program(program, fetched=not self.serial, least_cells=self.least_cells)
        from ...tasks.sweeps.device_sweep import device_program

        return device_program(program, fetched=not self.serial, least_cells=self.least_cells)
