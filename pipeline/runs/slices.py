"""Running a plan slice by slice: groups of slices as tasks, each with a receipt where there is a run directory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.dask_pool import DaskPool
from ...cluster.pool import Call, DeviceThreads, LabelOf, TaskLabel, present_device
from ...storage.faults import ChunkLostError
from ...storage.files import Place
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import OnTable, timed_steps
from ..plans.plan import Plan
from ..plans.problem import sliced_dims
from ..queries.arithmetic import Arithmetic
from ..queries.beliefs import Beliefs, merge, place
from ..trees.tree import Target
from .pools import open_tables
from .run import TABLES, Run

if TYPE_CHECKING:
    from ...storage.spec import Receipt, TableSpec
    from .device_slices import DeviceSweeps


@dataclass(frozen=True)
class SlicePolicy(Policy):
    """The numbers behind slices as tasks and their bounds.

    Parameters
    ----------
    least_seconds : float
        Slices that are predicted to take less together are run in their order.
    bounds_part : int
        Bounds may take 1 / this of the slices' predicted time,
    cell_seconds, device_cell_seconds : float
        at this many seconds per cell, or beside devices, whose slices are short: measured beside two H200, where
        bounds of Promedas_41 took as long as its slices on one card.
    slice_bytes : int
        Maximum numbers of all slices held at a time.
    step_tasks : int
        Most tasks of single steps that a run is cut into: each takes 2 CPU ms.
    """

    least_seconds: float = 0.1
    bounds_part: int = 16
    cell_seconds: float = 5e-9
    device_cell_seconds: float = 1.5e-8
    slice_bytes: int = 5 * 8
    step_tasks: int = 200_000


Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class GroupResult:
    """The result of a group of slices: the value of every slice, and for each target a belief with its shape."""

    totals: list[Any]
    tables: dict[Target, Array]


@dataclass(frozen=True)
class Slices(Generic[T]):
    """Data shared by all groups of slices.

    Parameters
    ----------
    program : Program
        One sweep or both.
    results : mapping of tuple of int to int
        The table that answers each target.
    roots : tuple of int
    sliced : tuple of int
        Variables that are conditioned on; the last one varies fastest.
    size : int
        Slices in a group.
    arithmetic : Arithmetic
    folder : Place or None
        Where receipts and beliefs of finished groups go, if anywhere.
    device : DeviceSweeps or None
        The two-way sweep of a slice on a device, if a device is used.
    name : str
        Of the table of receipts and beliefs.
    """

    program: Program[T]
    results: Mapping[Target, int]
    roots: tuple[int, ...]
    sliced: tuple[int, ...]
    size: int
    arithmetic: Arithmetic[T]
    folder: Place | None = None
    device: DeviceSweeps | None = None
    name: str = "slices"

    @property
    def slices(self) -> int:
        """Number of slices."""
        return prod(self.program.dims[v] for v in self.sliced)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return -(-self.slices // self.size)

    @cached_property
    def shapes(self) -> dict[Target, tuple[int, ...]]:
        """Shape of every belief."""
        return {target: tuple(self.program.dims[v] for v in target) for target in self.results}

    @cached_property
    def table(self) -> TableSpec:
        """The array of the beliefs that the groups found: one after the other, one chunk a group."""
        from ...storage.spec import TableSpec

        cells, dtype = sum(map(prod, self.shapes.values())), self.arithmetic.codec.belief_dtype
        labels = f"{self.name}_group", f"{self.name}_cell"
        told = {"kind": "beliefs of each group, one after the other", "of": [list(target) for target in self.shapes]}
        return TableSpec(self.name, (0, 1), labels, (self.groups, cells), frozenset((0,)), dtype, attributes=told)

    def label(self, number: int, cells: int) -> TaskLabel:
        """Return the label of a group: ``slice-3of8``, or ``slice-9to16of64`` for several slices."""
        first, last = number * self.size + 1, min((number + 1) * self.size, self.slices)
        name = f"slice-{first}{f'to{last}' if last > first else ''}of{self.slices}"
        return TaskLabel(name, "slices", cells * (last - first + 1))

    def states(self, number: int, worth: Sequence[bool] | None = None) -> list[dict[int, int]]:
        """Return the states of the sliced variables in every slice of a group, or in the slices marked in ``worth``."""
        indices = range(number * self.size, min((number + 1) * self.size, self.slices))
        chosen = [slice_states(self.program.dims, self.sliced, i) for i in indices]
        return chosen if worth is None else [states for states, w in zip(chosen, worth, strict=True) if w]


def slices_of(run: Run[T], name: str = TABLES) -> Slices[T]:
    """Put the program of a plan together, with all states of the sliced variables; ``name`` is the ledger's folder."""
    plan, folder = run.plan, run.folder and (run.folder / name).absolute()
    launched = run.device and plan.needs is not None and not run.by_steps
    program = replace(run, device=run.device and not launched).program(plan.steps, plan.outputs, plan.variant_from)
    device = None
    if launched:
        from .device_slices import DeviceSweeps

        device = DeviceSweeps(plan, program.leaves, run.arithmetic, run.device_bytes)
    where = folder, device, plan.slices_name
    return Slices(program, plan.results, plan.tree.roots, plan.sliced, plan.group, run.arithmetic, *where)


def slice_states(dims: tuple[int, ...], sliced: tuple[int, ...], index: int) -> dict[int, int]:
    """Return the states of the sliced variables in slice ``index``; the last one varies fastest."""
    states = {}
    for v in reversed(sliced):
        index, states[v] = divmod(index, dims[v])
    return states


def run_group(
    slices: Slices[Any],
    number: int,
    threads: int,
    on_table: OnTable | None = None,
    worth: Sequence[bool] | None = None,
) -> GroupResult:
    """Task: sweep the slices of a group; the tables that all slices share stay for the worker's next task.

    A slice not marked in ``worth`` gets the value None. Beliefs always cover all slices.
    """
    if slices.slices == 1 and slices.device is not None and worth is None:
        found = slices.device.beliefs(slices.program.leaves, slices.program.dims)
        if found is not None:
            return GroupResult([found[0]], found[1])
        slices = replace(slices, device=None, program=host_program(slices.program))
    return group_result(slices, number, worth, swept_slices(slices, slices.states(number, worth), threads, on_table))


def group_result(
    slices: Slices[T], number: int, worth: Sequence[bool] | None, swept: Iterator[tuple[Any, dict[Target, T]]]
) -> GroupResult:
    """Put together what the slices of a group found, which arrives slice by slice."""
    if worth is not None:
        return GroupResult([next(swept)[0] if w else None for w in worth], {})
    chosen, dims = slices.states(number), sliced_dims(slices.program.dims, slices.sliced)
    if not slices.results:
        return GroupResult([total for total, _ in swept], {})
    if slices.slices == 1:
        return _whole(slices.arithmetic, *next(swept), dims)
    combiner, totals = slices.arithmetic.combiner(slices.shapes), []
    for states, (total, tables) in zip(chosen, swept, strict=True):
        totals.append(total)
        found = combiner.read(tables, dims)
        combiner.add(total, {target: (table, place(target, states)) for target, table in found.items()})
    return GroupResult(totals, combiner.beliefs().tables)


def swept_slices(
    slices: Slices[T], chosen: list[dict[int, int]], threads: int, on_table: OnTable | None
) -> Iterator[tuple[Any, dict[Target, T]]]:
    """Yield value and tables of all targets of slices; the CPU sweeps what the device, if any, cannot prove."""
    program = slices.program
    if slices.device is None:
        shared = program.shared.setdefault(present_device(), {})
        for tables in program.run_slices(chosen, threads=threads, on_table=on_table, shared=shared):
            yield read_slice(slices, tables)
        return
    for states in chosen:
        found = slices.device.swept(program.restricted_leaves(states))
        if found is None:
            program = host_program(program)
            (tables,) = program.run_slices([states], threads=threads)
            found = read_slice(slices, tables)
        yield found


def host_program(program: Program[T]) -> Program[T]:
    """Return the program for the host, which is asked what the device cannot prove, with compiled loops if they pay."""
    algebra: Any = program.algebra
    compiled = algebra.compiled or compiler_pays(sum([step.lowered.cells for step in program.steps]))
    return replace(program, algebra=replace(algebra, compiled=compiled))


def read_slice(slices: Slices[T], tables: Mapping[int, T]) -> tuple[Any, dict[Target, T]]:
    """Return the value of a slice and the tables of all targets, from the outputs of its sweep."""
    return _read(slices.arithmetic, slices.roots, slices.results, tables)


def _read(
    arithmetic: Arithmetic[T], roots: tuple[int, ...], results: Mapping[Target, int], tables: Mapping[int, T]
) -> tuple[Any, dict[Target, T]]:
    total = arithmetic.total([tables[r] for r in roots])
    return total, {target: tables[node] for target, node in results.items()}


def _whole(arithmetic: Arithmetic[T], total: Any, tables: Mapping[Target, T], dims: tuple[int, ...]) -> GroupResult:
    possible = arithmetic.joined([total]) is not None
    return GroupResult([total], arithmetic.combiner({}).read(tables, dims) if possible else {})


def whole_beliefs(arithmetic: Arithmetic[T], plan: Plan, tables: Mapping[int, T]) -> Beliefs:
    """Read the beliefs from roots and results where one slice is all there is."""
    found = _whole(arithmetic, *_read(arithmetic, plan.tree.roots, plan.results, tables), plan.dims)
    return Beliefs(arithmetic.joined(found.totals), found.tables)


def store_group(
    slices: Slices[Any],
    number: int,
    threads: int,
    on_table: OnTable | None = None,
    worth: Sequence[bool] | None = None,
) -> Receipt:
    """Task: run a group, unless it was, and leave its beliefs, if any, and its receipt in the run directory."""
    return receipt_of(slices, number, lambda: run_group(slices, number, threads, on_table, worth))


def receipt_of(slices: Slices[Any], number: int, find: Callable[[], GroupResult]) -> Receipt:
    """Return the receipt of a group from the ledger, or a new receipt of a new result."""
    from ...storage import ledger
    from ...storage.chunks import write_chunk
    from ...tasks.boxes.box import new_receipt, told_steps

    assert slices.folder is not None
    if done := ledger.finished(slices.folder, slices.table, [(number, 0)]):
        return done[0]
    start = time.perf_counter()
    with timed_steps() as spent:
        found = find()
    chunk, nbytes, checksum = (number, 0), 0, 0
    if slices.results:
        values = np.zeros(slices.table.shape[1], slices.table.dtype)
        if found.tables:
            np.concatenate([found.tables[target].reshape(-1) for target in slices.shapes], out=values)
        nbytes, checksum = write_chunk(slices.folder, slices.table, chunk, values)
    receipt = new_receipt(slices.table.name, chunk, nbytes, checksum, start, {"totals": found.totals})
    receipt = replace(receipt, steps=told_steps(spent))
    ledger.append(slices.folder, [receipt])
    return receipt


def stored_group(slices: Slices[Any], receipt: Receipt) -> GroupResult:
    """Read what a group found."""
    from ...storage.chunks import read_chunk

    assert slices.folder is not None
    totals = receipt.value["totals"]
    if not slices.results or slices.arithmetic.joined(totals) is None:
        return GroupResult(totals, {})
    values = np.empty(slices.table.shape[1], slices.table.dtype)
    read_chunk(slices.folder, slices.table, receipt, values)
    tables, start = {}, 0
    for target, shape in slices.shapes.items():
        tables[target] = values[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    return GroupResult(totals, tables)


def sweep_groups(run: Run[Any], slices: Slices[Any], sent: Any = None) -> Iterator[GroupResult]:
    """Run every group that has no receipt yet and yield what all found, in the order of their numbers.

    Parameters
    ----------
    sent
        The pool's handle of ``slices``, if it has them already.
    """
    plan, by_step = run.plan, None if slices.device else _on_table(run)
    _compile(run, slices)
    cells = plan.reported_cells
    by_group = by_step is None or isinstance(run.pool, DaskPool)
    receipts = {} if slices.folder is None else _receipts(run, slices)
    missing = [number for number in range(slices.groups) if number not in receipts]
    sent = run.shared(slices, f"{slices.slices}_slices") if sent is None and missing else sent
    task = run_group if slices.folder is None else store_group
    calls = ((sent, number, run.threads, by_step) for number in missing)
    stream = run.pool.stream(task, calls, _labels(run, slices))
    run.report(len(receipts) * (cells // slices.groups))
    try:
        for number in range(slices.groups):
            found: Any = receipts[number] if number in receipts else next(stream)
            if by_group and number not in receipts:
                run.report(cells // slices.groups)
            yield found if slices.folder is None else _reread(run, slices, number, found)
        run.report(cells)
    finally:
        slices.program.shared.clear()
    if slices.folder is not None:
        from ...storage import ledger

        ledger.sync(slices.folder)


def group_totals(
    run: Run[Any], slices: Slices[Any], wanted: Iterable[tuple[int, Sequence[bool]]], sent: Any = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield what groups with receipts found, by slice, then run others; slices have no beliefs.

    Parameters
    ----------
    wanted : iterable
        Groups in the order in which they are run, and which of their slices; each is asked for when it begins.
    sent
        The pool's handle of ``slices``, if it has them already.
    """
    by_step = _on_table(run)
    by_group = by_step is None or isinstance(run.pool, DaskPool)
    _compile(run, slices)
    receipts = {} if slices.folder is None else _receipts(run, slices)
    run.report(len(receipts) * (run.plan.reported_cells // slices.groups))
    yield from ((number, receipt.value["totals"]) for number, receipt in receipts.items())
    task, under_way = run_group if slices.folder is None else store_group, deque[int]()

    def calls() -> Iterator[Call]:
        there = run.shared(slices, f"{slices.slices}_slices") if sent is None else sent
        for number, worth in wanted:
            if number not in receipts:
                under_way.append(number)
                yield there, number, run.threads, by_step, worth

    try:
        for found in run.pool.stream(task, calls(), _labels(run, slices)):
            # without reports of steps, a whole group is the unit of progress
            if by_group:
                run.report(run.plan.reported_cells // slices.groups)
            yield under_way.popleft(), found.totals if slices.folder is None else found.value["totals"]
        run.report(run.plan.reported_cells)
    finally:
        slices.program.shared.clear()
    if slices.folder is not None:
        from ...storage import ledger

        ledger.sync(slices.folder)


def _compile(run: Run[Any], slices: Slices[Any]) -> None:
    """Compile kernels once, before threads of different devices load them."""
    if isinstance(run.pool, DeviceThreads) and slices.device is None:
        program: Any = slices.program
        program.compile_kernels(decoded=False)


def _labels(run: Run[Any], slices: Slices[Any]) -> LabelOf:
    """Return a function that labels the call of a group."""

    @cache
    def cells() -> int:
        return sum([run.plan.step_cells(step) for step in run.plan.steps[run.plan.variant_from :]])

    return lambda _, number, *rest: slices.label(number, cells())


def _on_table(run: Run[Any]) -> OnTable | None:
    """Return the callback for every table; None where groups of slices report from several threads or processes."""
    return None if isinstance(run.pool, DeviceThreads) else run.on_table()


def _receipts(run: Run[Any], slices: Slices[Any]) -> dict[int, Receipt]:
    """Open the tables of a run directory; return the receipts of the groups whose beliefs are undamaged."""
    from ...storage.tables import create_table
    from ...tasks.boxes.stores import ChunkFiles, Receipts

    assert slices.folder is not None
    open_tables(run.pool, slices.folder, run.told)
    specs = {slices.table.name: slices.table} if slices.results else {}
    for spec in specs.values():
        create_table(slices.folder, spec)
    receipts = Receipts(ChunkFiles(slices.folder), lambda: specs)
    receipts.resume()
    receipts.verify()
    return {number: receipt for (table, (number, *_)), receipt in receipts.items() if table == slices.table.name}


def _reread(run: Run[Any], slices: Slices[Any], number: int, receipt: Receipt) -> GroupResult:
    """Read the result of a group. A group damaged since it was written or verified is swept again."""
    try:
        return stored_group(slices, receipt)
    except ChunkLostError:
        return stored_group(slices, store_group(slices, number, run.threads))


def sweep_beliefs(run: Run[Any]) -> Beliefs:
    """Add up what all groups of slices find."""
    slices, beliefs = slices_of(run), Beliefs(None, {})
    many = slices.groups > 1
    combiner = run.arithmetic.combiner(slices.shapes if many else {})
    for found in sweep_groups(run, slices):
        beliefs = Beliefs(run.arithmetic.joined(found.totals), found.tables)
        if many:
            merge(combiner, beliefs)
    return combiner.beliefs() if many else beliefs
