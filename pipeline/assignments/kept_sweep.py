"""Planning and running a sweep whose tables all stay: whole, slice by slice, in blocks on disk, or as sparse tables.

If the tables are on disk, an assignment passes one block of each stage, which is swept again when it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...tasks.boxes.box import read_part
from ...tasks.gpu.cold_kernels import AVOIDED_START, cores_end_first
from ...tasks.rows.memory_account import RowsNoRoomError, TooMuchWorkError
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ..answering.engines.strategy_policy import StrategyPolicy
from ..answering.placement import plan_kernels, pool_for, temporary_folder
from ..answering.prepared import PATIENCE, Prepared, by_rows, known_rates, planned, problem_of
from ..answering.question import Question
from ..answering.running import run_of
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..models.query import Fit
from ..options import Options
from ..plans.problem import sliced_dims
from ..plans.stages import Stage
from ..preprocessing.leaf_rows import leaf_rows, possible
from ..preprocessing.preprocess import Network
from ..queries.arithmetic import Arithmetic
from ..runs.dense_boxes import BoxRun, ends, opened_boxes, swept_roots, swept_stage
from ..runs.run import TABLES, Run
from ..runs.slices import Slices, slice_states, slices_of, sweep_groups

if TYPE_CHECKING:
    from ..runs.row_sweep import RowTables

T = TypeVar("T")


@dataclass(frozen=True)
class SweptTables(Generic[T]):
    """All tables of a sweep, or of one of its slices or boxes, and how assignments are read from them.

    Parameters
    ----------
    steps : tuple of Step
        In execution order.
    tables : mapping of int to table
        Leaf tables and step tables on the host.
    sizes : tuple of int
        Domain sizes; 1 for variables that the slice or box fixes.
    states : mapping of int to int
        States that the slice or box fixes.
    """

    steps: Sequence[Step]
    tables: Mapping[int, T]
    sizes: tuple[int, ...]
    states: Mapping[int, int]

    def read(self, step: Step) -> list[tuple[T, tuple[int, ...]]]:
        """Return the tables that a step joins, with their variables."""
        return [(self.tables[node], axes) for node, axes in zip(step.inputs, step.input_axes, strict=True)]


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


def kept_options(options: Options, what: str) -> Options:
    """Refuse what does not go with tables that all stay until assignments are read from them.

    Raises
    ------
    ModelError
        Naming the option.
    """
    given = [name for name in ("workdir", "keep_tables") if getattr(options, name)]
    given += ["tasks"] * (options.tasks == "steps")
    if given:
        raise ModelError(f"{what} are read from stored tables; {given[0]!r} does not apply")
    if options.representation == "rows" and options.gpus is not None:
        raise ModelError(f"{what} from sparse tables are computed on this machine's CPU cores; 'gpus' does not apply")
    return options


def with_room(options: Options, nbytes: int, what: str) -> Options:
    """Return options with the memory budget reduced by ``nbytes``.

    Raises
    ------
    BudgetError
        With both numbers, if they leave nothing.
    """
    allowed = Resources(options).host_bytes
    if nbytes >= allowed:
        raise BudgetError(f"{what} take {format_bytes(nbytes)}, allowed {format_bytes(allowed)}; ask for fewer")
    return replace(options, memory=allowed - nbytes)


def prepare_kept(question: Question, network: Network, arithmetic: Arithmetic[T], options: Options) -> Prepared:
    """Plan a sweep whose tables all stay: in memory, whole or in slices, or else in boxes on disk, or by rows.

    Raises
    ------
    BudgetError
        If no plan fits.
    """
    problem = problem_of(network, arithmetic, None)
    prepared = Prepared(question, Resources(options), network, arithmetic, problem)
    if not network.leaves:
        return prepared
    if options.representation == "rows":
        return planned(by_rows(prepared, leaf_rows(network), "as was asked"), known_rates)
    if options.fit != "auto":
        return planned(prepared, known_rates)
    here = None if options.gpus is None else _on_cores(prepared)
    if here is not None and _seconds(here) < StrategyPolicy().device_start_seconds:
        return here
    try:
        found = planned(_fitted(prepared, "slice"), known_rates)
        return found if here is None else _unless_compiling_is_longer(found, here)
    except BudgetError as refused:
        with suppress(BudgetError):
            return planned(_fitted(prepared, "spill"), known_rates)
        with suppress(BudgetError):
            return _by_rows(prepared, refused)
        raise


def _by_rows(prepared: Prepared, refused: BudgetError) -> Prepared:
    """Return a question planned by rows, on disk where they do not fit, if few cells are possible.

    Raises
    ------
    BudgetError
        If that does not go, or takes long.
    """
    from ..budget.rows_fit import is_sparse

    counts = leaf_rows(prepared.network)
    why = f"because {possible(prepared.network, counts)} and the dense sweep was refused: {refused}"
    rows = by_rows(_fitted(prepared, "spill"), counts, why, PATIENCE)
    asked = prepared.resources.asked
    if asked.representation == "dense" or asked.gpus is not None or not is_sparse(rows.problem):
        raise refused
    return planned(rows, known_rates)


def _on_cores(prepared: Prepared) -> Prepared | None:
    """Return a sweep that is planned for the CPU; None if it does not fit in memory."""
    try:
        here = planned(_fitted(replace(prepared, resources=prepared.resources.without_devices()), "slice"), known_rates)
    except BudgetError:
        return None
    return None if here.plan is None else here


def _seconds(prepared: Prepared) -> float:
    return math.inf if prepared.plan is None else prepared.plan.predicted_seconds


def _unless_compiling_is_longer(there: Prepared, here: Prepared) -> Prepared:
    """Return the sweep ``here`` on the CPU if it ends before the kernels of the device are compiled, else ``there``."""
    plan, resources = there.plan, there.resources
    if plan is None or not plan.device or resources.distributed:
        return there
    kernels = plan_kernels(plan, there.problem.semiring, resources)
    if not cores_end_first(kernels, _seconds(here), plan.predicted_seconds):
        return there
    AVOIDED_START.add(_seconds(here))
    return here


def kept_notes(prepared: Prepared, options: Options) -> tuple[str, ...]:
    """Say where tables were swept, or that they are rows, if that is not what was asked for."""
    if prepared.why_rows and options.representation != "rows":
        return (f"tables are sparse, {prepared.why_rows}",)
    if options.gpus is None or prepared.plan is None or prepared.resources.asked.gpus is not None:
        return ()
    why = "because this takes less time than starting a device or compiling its kernels"
    return (f"all tables were swept on the CPU, {why}",)


def _fitted(prepared: Prepared, fit: Fit) -> Prepared:
    """Return a question that is to fit in one way."""
    return replace(prepared, resources=Resources(replace(prepared.resources.asked, fit=fit)))


def kept_tables(slices: Slices[T], sizes: tuple[int, ...], index: int, threads: int = 1) -> SweptTables[T]:
    """Sweep one slice, or the whole network, and return its stored tables.

    Tables of a device are copied to the host as they are made.

    Raises
    ------
    BudgetError
        If tables of rows do not fit, or their joins take longer than allowed.
    """
    program = slices.program
    states = slice_states(program.dims, slices.sliced, index)
    leaves, made = program.restricted_leaves(states), dict[int, T]()
    there = hasattr(program.algebra, "places")

    def keep(step: Step, table: T) -> None:
        made[step.node] = _fetched(table) if there else table

    with refusals():
        program.again(program.steps, leaves).run(threads=threads, on_table=keep)
    if there:  # where large ones lie, too
        leaves = {node: _fetched(table) for node, table in leaves.items()}
    return SweptTables(program.steps, {**leaves, **made}, sizes, states)


@contextmanager
def refusals() -> Iterator[None]:
    """Refuse sparse tables that do not fit, or whose joins take longer than allowed."""
    try:
        yield
    except RowsNoRoomError as error:
        raise no_room(error) from None
    except TooMuchWorkError:
        raise BudgetError(
            "sparse tables take longer than allowed; representation rows runs without this limit"
        ) from None


def _fetched(table: T) -> T:
    """Return a table that a device may have on the host."""
    from ...tasks.sweeps.device_sweep import fetch

    return fetch(table)


def no_room(error: RowsNoRoomError) -> BudgetError:
    """Return the refusal of tables of rows, with both numbers."""
    return BudgetError(
        f"sparse tables need {format_bytes(error.needed)}, allowed {format_bytes(error.allowed)}; "
        "give more memory, or leave out representation rows"
    )


@dataclass(frozen=True)
class KeptSweep(Generic[T]):
    """A planned sweep in the pool where its slices run.

    Parameters
    ----------
    run : Run
    slices : Slices or None
        None where tables are on disk.
    sent
        Results of the pool for the slices.
    boxes : KeptBoxes or None
        Those of a plan whose tables are on disk.
    rows : RowTables or None
        Tables of a sparse plan that stores some tables on disk.
    """

    run: Run[T]
    slices: Slices[T] | None
    sent: Any = None
    boxes: KeptBoxes[T] | None = None
    rows: RowTables[T] | None = None
    _there: dict[int, SweptTables[T]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether one sweep has all tables, in memory or as rows on disk."""
        return self.boxes is None and self.run.plan.slices == 1

    @cached_property
    def totals(self) -> list[Any]:
        """The value of each slice, or of each box at the roots: every assignment is of one of them."""
        if self.boxes is not None:
            return self.boxes.totals
        total = self.run.arithmetic.total
        if self.rows is not None:
            with refusals():
                return [total(self.rows.roots())]
        if self.is_whole:
            return [total([self.tables(0).tables[root] for root in self.run.plan.tree.roots])]
        assert self.slices is not None
        return [total for group in sweep_groups(self.run, self.slices, self.sent) for total in group.totals]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Domain sizes inside a slice; all of them where tables are on disk."""
        return self.run.plan.tree.dims

    @cached_property
    def algebra(self) -> Any:
        """That of tables in this process."""
        if self.rows is not None:
            return self.rows.algebra
        if self.slices is not None:
            return self.slices.program.algebra
        return self.run.arithmetic.algebra(self.sizes, self.run.compiled)

    @cached_property
    def order(self) -> tuple[tuple[int, int], ...]:
        """The steps from the roots down: the part of the tree that each is of, and its number in it."""
        stages = (self.run.plan.up,) if self.boxes is None else [stage.steps for stage in self.boxes.stages]
        return tuple([(stage, i) for stage, steps in enumerate(stages) for i in reversed(range(len(steps)))])

    @cached_property
    def given(self) -> tuple[frozenset[int], ...]:
        """For each entry of ``order``, the variables of its table whose states are chosen before."""
        stages = (self.run.plan.up,) if self.boxes is None else [stage.steps for stage in self.boxes.stages]
        return tuple([frozenset(stages[stage][i].axes) for stage, i in self.order])

    @property
    def stages(self) -> int:
        """How many parts of the tree an assignment is read from, one after the other."""
        return 1 if self.boxes is None else len(self.boxes.stages)

    def tables(self, index: int = 0, stage: int = 0) -> SweptTables[T]:
        """Sweep a slice or a box of a stage here, and return its tables. The tables of one slice are cached."""
        if self.boxes is not None:
            return self.boxes.tables(stage, index)
        assert self.slices is not None
        if index not in self._there:
            self._there.clear()
            self._there[index] = kept_tables(self.slices, self.sizes, index, self.run.threads)
        return self._there[index]

    def passed(self, index: int, place: int, states: Mapping[int, int]) -> tuple[Step, SweptTables[T]]:
        """Return a step, from the roots down, and the tables of an assignment that has one of the values.

        Parameters
        ----------
        index : int
            Of the value: a slice, or a box at the roots.
        place : int
            In :attr:`order`.
        states : mapping of int to int
            At least of variables above the step.
        """
        stage, i = self.order[place]
        if self.rows is not None:
            step = self.run.plan.up[i]
            return step, self.read_rows(step, {v: states[v] for v in self.given[place]})
        swept = self.tables(index) if self.boxes is None else self.boxes.passed(index, stage, states)
        return swept.steps[i], swept

    def read_rows(self, step: Step, states: Mapping[int, int]) -> SweptTables[T]:
        """Read what a step joins from disk, the rows that agree with some states.

        Raises
        ------
        RowsNoRoomError
            If they do not fit.
        """
        assert self.rows is not None
        return SweptTables((step,), self.rows.inputs_at(step, states), self.sizes, {})


@contextmanager
def opened_sweep(prepared: Prepared) -> Iterator[KeptSweep[Any]]:
    """Open the pool of a planned sweep. Workers are used only for slices and boxes."""
    resources, plan = prepared.resources, prepared.plan
    assert plan is not None
    if plan.slices == 1 and plan.spill is None and not plan.rows_stored:
        resources = resources.in_this_process()
    with pool_for(plan, resources) as pool:
        run = run_of(replace(prepared, resources=resources), pool)
        if plan.rows_stored:
            with _opened_rows(run, resources) as rows:
                yield KeptSweep(run, None, rows=rows)
        elif plan.spill is None:
            slices = slices_of(run)
            yield KeptSweep(run, slices, pool.put(slices))
        else:
            with opened_kept_boxes(run, resources) as boxes:
                yield KeptSweep(run, None, boxes=boxes)


@contextmanager
def _opened_rows(run: Run[T], resources: Resources) -> Iterator[RowTables[T]]:
    """Open tables of rows on disk, which stay until the end."""
    from ..runs.row_sweep import opened_row_tables

    with (
        temporary_folder(run.planned, resources) as folder,
        opened_row_tables(replace(run, folder=folder), TABLES, keep=True) as rows,
    ):
        yield rows
