"""Sweeps on a GPU: large steps run on the device, where their tables stay; subtrees of small steps on the CPU.

A small step costs a launch either way, so what decides is where its inputs are: a chain stays where its data is,
and a message goes to the device once, when the first large step reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from ..cpu import dense
from ..gpu import launch as gpu
from ..gpu.arrays import is_device, upload
from ..gpu.decoding import decode_kernel
from ..gpu.device_policy import DevicePolicy
from ..gpu.gather import FETCHED_BYTES, gather_kernel, pinned
from ..gpu.kernels import Kernel, compile_together, cupy
from ..gpu.memory import portable_errors, to_host
from ..gpu.recorded import DeviceBlock, RecordedSweep, room_for
from ..gpu.small_steps import SmallSteps, small_kernel, takes
from ..steps.caches import Remembered
from ..steps.light_dataclass import dataclass
from ..steps.lowering import Lowered
from ..steps.number_limits import ordered_sum
from ..steps.semiring import LOG_SUM
from ..steps.step import Step
from .program import Freed, Program
from .scaled import Scaled, SumProduct, as_logs, centred, from_logs
from .sweep import Algebra, OnTable, Plain, StepReport, freed_tables, steps_are_timed, sweep

T = TypeVar("T")

LEAST_CELLS: Final = DevicePolicy().step_least_cells
"""Cells from which a step on host tables goes to the device, unless it was measured."""

_ROOMS: Final[Remembered[tuple[DeviceBlock, tuple[tuple[int, ...], ...]]]] = Remembered()

_RECORDS: Final[Remembered[RecordedSweep | None]] = Remembered(8)


class _Asked(NamedTuple):
    """The request to a sweep.

    Parameters
    ----------
    kept : collection of int
        Tables that are returned.
    others : collection of int
        Those of them that outlast the rest, and have memory of their own.
    threads : int
    on_table : callable, optional
        See `sweep`.
    decoded : bool
        Whether the tables are decoded on the device, by kernels that are compiled with the others.
    """

    kept: Collection[int]
    others: Collection[int]
    threads: int
    on_table: OnTable | None
    decoded: bool = False


class DevicePlaces:
    """Which steps run on the device, and their launches, chosen once and used for every slice."""

    def __init__(self, least_cells: int | None = None) -> None:
        self.least_cells = DevicePolicy.current().step_least_cells if least_cells is None else least_cells
        self._runs: dict[int, tuple[Lowered, gpu.DeviceRun]] = {}
        self._room: DeviceBlock | None = None

    def within(self, room: DeviceBlock) -> DevicePlaces:
        """Return the same launches for one sweep at a time, whose tables have fixed places."""
        same = DevicePlaces(self.least_cells)
        same._runs, same._room = self._runs, room
        return same

    def __reduce__(self) -> tuple[type[DevicePlaces], tuple[int]]:
        return DevicePlaces, (self.least_cells,)

    def run(self, step: Step, tables: Sequence[Any], threads: int, compiled: bool) -> Any:
        """Run a step where it belongs."""
        if step.lowered.cells < self.least_cells and not any(map(is_device, tables)):
            return dense.run(step.lowered, tables, threads=threads, compiled=compiled)
        run = self.prepared(step)
        if self._room is None:
            return run(tables)
        place, workspace = self._room.of(step)
        out = None if place is None else cupy().ndarray(run.cells, run.semiring.dtype, memptr=place)
        return run(tables, out, workspace)

    def prepared(self, step: Step) -> gpu.DeviceRun:
        """Return a step's launches."""
        lowered, prepared = self._runs.get(step.node, (None, None))
        if prepared is None or lowered is not step.lowered:
            prepared = gpu.prepare(step.lowered)
            self._runs[step.node] = (step.lowered, prepared)
        return prepared

    def device_nodes(self, steps: Sequence[Step]) -> frozenset[int]:
        """Steps that run on the device if no leaf is there yet."""
        nodes: set[int] = set()
        for step in steps:
            if step.lowered.cells >= self.least_cells or not nodes.isdisjoint(step.inputs):
                nodes.add(step.node)
        return frozenset(nodes)


def kernels_of(steps: Sequence[Step], least_cells: int | None = None, *, decoded: bool = False) -> Iterator[Kernel]:
    """Yield the kernels of a sweep, some of them more than once.

    Parameters
    ----------
    steps : sequence of Step
        In execution order; steps of at least ``least_cells`` cells and steps that read their tables run on a device.
    least_cells : int, optional
    decoded : bool
        Whether an assignment is decoded from the tables.

    Raises
    ------
    LongStepError
        If a step has more parts than a launch counts.
    """
    nodes, found = DevicePlaces(least_cells).device_nodes(steps), False
    there = {id(step.lowered): step.lowered for step in steps if step.node in nodes}
    for each in chain.from_iterable(map(gpu.step_kernels, there.values())):
        found = True
        yield each
    if found and decoded:
        semiring = steps[0].lowered.semiring
        yield gather_kernel(semiring.itemsize)
        yield decode_kernel(semiring)
        if len(nodes) < len(steps):
            yield small_kernel(semiring)


@dataclass(frozen=True)
class DevicePlain(Plain):
    """Bare arrays, on either side."""

    places: DevicePlaces = field(default_factory=DevicePlaces, compare=False)

    def step(self, step: Step, tables: Sequence[Any], threads: int) -> Any:
        """Return the output array of ``step``."""
        return self.places.run(step, tables, threads, self.compiled)


@dataclass(frozen=True)
class DeviceSumProduct(SumProduct):
    """Scaled tables, on either side."""

    places: DevicePlaces = field(default_factory=DevicePlaces, compare=False)

    def _moved(self, tables: Sequence[Scaled], summed: float) -> Sequence[Scaled]:
        return centred(tables, summed)

    def _run(self, step: Step, tables: Sequence[Scaled], threads: int) -> Any:
        return self.places.run(step, [t.values for t in tables], threads, self.compiled)

    def log_step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        logs = [as_logs(t).values for t in tables]
        if any(map(is_device, logs)):
            logs = [cupy().asarray(values) for values in logs]
        sizes = dict(enumerate(self.sizes))
        out = dense.contract(logs, step.input_axes, step.axes, sizes, LOG_SUM, threads=threads)
        return from_logs(out, float(ordered_sum(t.log_scale for t in tables)))


def on_device(algebra: Algebra[Any], least_cells: int | None = None) -> Algebra[Any]:
    """Return the same algebra with large steps on the device: steps of at least ``least_cells`` cells, if given."""
    places = DevicePlaces(least_cells)
    if isinstance(algebra, SumProduct):
        return DeviceSumProduct(algebra.sizes, algebra.compiled, places)
    if isinstance(algebra, Plain):
        return DevicePlain(algebra.semiring, algebra.compiled, places)
    raise TypeError(f"{type(algebra).__name__} does not run on a GPU")


def device_program(program: Program[T], *, fetched: bool, least_cells: int | None = None) -> DeviceProgram[T]:
    """Return the same program with large steps on the device; ``fetched``: its results come back to the host."""
    parts = {f.name: getattr(program, f.name) for f in fields(Program) if f.init}
    parts["algebra"] = on_device(program.algebra, least_cells)
    return DeviceProgram(**parts, fetched=fetched)


@dataclass(frozen=True)
class DeviceProgram(Program[T]):
    """A program whose leaf tables go to the device in one copy, before the steps that read them there.

    With ``fetched`` its results come back to the host, so that other processes can have them.
    """

    fetched: bool = False

    @cached_property
    def _steps_there(self) -> tuple[Step, ...]:
        places = getattr(self.algebra, "places", None)
        nodes = places.device_nodes(self.steps) if isinstance(places, DevicePlaces) else frozenset()
        return tuple(step for step in self.steps if step.node in nodes)

    @cached_property
    def _nodes_there(self) -> frozenset[int]:
        return frozenset(step.node for step in self._steps_there)

    @cached_property
    def _read_there(self) -> frozenset[int]:
        return frozenset(i for step in self._steps_there for i in step.inputs)

    @cached_property
    def _read(self) -> frozenset[int]:
        return frozenset(i for step in self.steps for i in step.inputs)

    def compile_kernels(self, decoded: bool, others: Sequence[Kernel] = ()) -> None:
        """Choose all launches and compile their kernels together before the first is needed, with ``others``."""
        algebra: Any = self.algebra
        kernels = [*others, *[each for step in self._steps_there for each in algebra.places.prepared(step).kernels]]
        if decoded:
            kernels += [gather_kernel(algebra.semiring.itemsize), decode_kernel(algebra.semiring)]
        compile_together(kernels)

    def _staged(self, leaves: Mapping[int, T]) -> dict[int, T]:
        wanted = [node for node in leaves if node in self._read_there and not _on_device(leaves[node])]
        moved = upload([_values(leaves[node]) for node in wanted])
        return {**leaves, **{n: _with_values(leaves[n], v) for n, v in zip(wanted, moved, strict=True)}}

    def again(self, steps: tuple[Step, ...], leaves: Mapping[int, T]) -> Program[T]:
        """Return a program of other steps on other leaf tables; its results stay where they are made."""
        return replace(self, steps=steps, leaves=leaves, fetched=False)

    def here(self, tables: Mapping[int, T]) -> dict[int, T]:
        """Return tables that steps made, in the host's memory."""
        return {node: fetch(table) for node, table in tables.items()}

    def leaves_at(self, states: Mapping[int, int], nodes: Iterable[int]) -> dict[int, T]:
        """Return some of the leaf tables with the given variables fixed, on the device where they are read there."""
        return self._staged(super().leaves_at(states, nodes))

    def swept(
        self, steps: Sequence[Step], tables: Mapping[int, T], freed: Freed, threads: int, on_table: OnTable | None
    ) -> dict[int, T]:
        """Sweep some steps; return the outputs, and hold nothing else."""
        asked = _Asked(self.outputs, (), threads, on_table)
        found = self._repeated(steps, dict(tables), asked)
        if found is None:
            return super().swept(steps, self._staged(tables), freed, threads, on_table)
        return {node: found[node] for node in self.outputs}

    def step_here(self, position: int, states: Mapping[int, int], made: Mapping[int, T]) -> T:
        """Return a step's result on the host from tables of the host; it runs on the same side as in a sweep of all
        steps.

        The device holds what one step needs, however many tables wait.
        """
        step = self.steps[position]
        given = {**made, **super().leaves_at(states, [i for i in dict.fromkeys(step.inputs) if i not in made])}
        if step.node in self._nodes_there:
            given = self._staged({i: given[i] for i in step.inputs})
        return fetch(self.algebra.step(step, [given[i] for i in step.inputs], 1))

    def _with_room(
        self, steps: Sequence[Step], kept: Collection[int], others: Collection[int]
    ) -> tuple[Algebra[T], Sequence[tuple[int, ...]]]:
        """Return the algebra for one sweep at a time of some steps, whose tables have fixed places in one block.

        With it, the tables that are dropped after each step, where some are ``kept``.
        """
        algebra: Any = self.algebra
        if not isinstance(algebra, DevicePlain | DeviceSumProduct):
            return self.algebra, freed_tables(steps, kept)

        def described() -> tuple[DeviceBlock, tuple[tuple[int, ...], ...]]:
            runs = {step.node: algebra.places.prepared(step) for step in steps if step.node in self._nodes_there}
            freed = freed_tables(steps, kept)
            return room_for(steps, runs, freed, others), freed

        more = self._nodes_there, frozenset(kept), frozenset(others)
        room, freed = _ROOMS.of(steps, more, described)
        placed: Any = replace(algebra, places=algebra.places.within(room.begun()))
        return placed, freed

    def run(
        self,
        messages: Mapping[int, T] | None = None,
        *,
        keep: Collection[int] = (),
        threads: int = 1,
        on_table: OnTable | None = None,
    ) -> dict[int, T]:
        """Sweep once, without slicing; return the outputs and every table in ``keep``.

        Steps of the CPU come first: none waits for one of the device, which gets all that it reads in one copy.
        """
        kept, others = {*keep, *self.outputs}, () if keep else self.outputs
        asked = _Asked(kept, others, threads, on_table, decoded=bool(keep) and isinstance(self.algebra, DevicePlain))
        with portable_errors():
            tables: dict[int, Any] = {**self.leaves, **(messages or {})}
            live = self._repeated(self.steps, tables, asked)
            if live is None:
                live = self._swept_once(tables, asked)
        found = {node: live[node] for node in kept if node in live}
        return {node: fetch(table) for node, table in found.items()} if self.fetched else found

    def _swept_once(self, tables: dict[int, Any], asked: _Asked) -> dict[int, Any]:
        """Sweep step by step; return all tables that were not dropped."""
        self.compile_kernels(asked.decoded)
        here = [step for step in self.steps if step.node not in self._nodes_there]
        tables = self._staged(tables | self._made_here(here, tables, asked))
        # tables that are kept for decoding go with the block, because results would hold it
        algebra, freed = self._with_room(self._steps_there, asked.kept, asked.others)
        return sweep(self._steps_there, tables, algebra, freed, threads=asked.threads, on_table=asked.on_table)

    def _made_here(self, steps: Sequence[Step], tables: Mapping[int, Any], asked: _Asked) -> dict[int, Any]:
        """Run steps of the CPU; return their tables that are kept, or read on the device."""
        wanted = [step.node for step in steps if step.node in asked.kept or step.node in self._read_there]
        dropped = freed_tables(steps, wanted)
        made = sweep(steps, tables, self.algebra, dropped, threads=asked.threads, on_table=asked.on_table)
        return {node: made[node] for node in wanted}

    def _repeated(self, steps: Sequence[Step], tables: dict[int, Any], asked: _Asked) -> dict[int, Any] | None:
        """Sweep by launches that are recorded; None where each step has to be run for itself."""
        if not self._repeats(asked.on_table):
            return None
        if self._nodes_there.isdisjoint([step.node for step in steps]):
            return None
        record = self._recorded(steps, tables, asked)
        live = None if record is None else record.run(tables)
        if live is None:
            return None
        if asked.on_table is not None:
            for step in steps:
                asked.on_table(step, None)
        return tables | live

    def _repeats(self, on_table: OnTable | None) -> bool:
        """Whether no caller wants each table or times each step, and no step looks at values before it runs."""
        algebra: Any = self.algebra
        told = on_table is None or isinstance(on_table, StepReport)
        return told and isinstance(algebra, DevicePlain) and not steps_are_timed()

    def _recorded(self, steps: Sequence[Step], tables: Mapping[int, Any], asked: _Asked) -> RecordedSweep | None:
        """Return the launches of a sweep that ran before, or make them; None where they cannot be repeated."""
        algebra: Any = self.algebra
        places, semiring = algebra.places, algebra.semiring
        given = frozenset([node for node in self._read if node in tables and type(tables[node]) is not np.ndarray])

        def described() -> RecordedSweep | None:
            there = [step for step in steps if step.node in self._nodes_there]
            here = [step for step in steps if step.node not in self._nodes_there]
            runs = {step.node: places.prepared(step) for step in there}
            small = SmallSteps(here, semiring)
            self.compile_kernels(asked.decoded, small.kernels)
            nodes = {*runs, *small.runs}
            if len(nodes) < len(steps) or not (all(run.repeats for run in runs.values()) and all(map(takes, here))):
                return None
            ordered = [*small.steps, *there]
            freed = freed_tables(ordered, asked.kept)
            return RecordedSweep(ordered, runs, small, freed, asked.kept, asked.others, given, semiring)

        more = frozenset(asked.kept), frozenset(asked.others), given, cupy().cuda.Device().id, asked.decoded
        return _RECORDS.of(steps, more, described)

    def run_slices(
        self,
        slices: Any,
        *,
        threads: int = 1,
        on_table: OnTable | None = None,
        shared: dict[int, T] | None = None,
    ) -> Iterator[dict[int, T]]:
        """Sweep once per slice and yield the outputs of each slice, one slice behind the device.

        Parameters
        ----------
        slices : Slices
            Leaf tables and states of each slice.
        threads : int
            Cores for steps on the host.
        on_table : callable, optional
            Receives each table when it is computed.
        shared : dict, optional
            Tables that all slices share.
        """
        with portable_errors():
            before: Callable[[], dict[int, T]] | None = None
            inner = self
            self.compile_kernels(decoded=False)
            if not self._repeats(on_table):
                varying = self.steps[self.variant_from :]
                algebra, _ = self._with_room(varying, self.outputs, self.outputs)
                inner = self if algebra is self.algebra else replace(self, algebra=algebra)
            try:
                for outputs in Program.run_slices(inner, slices, threads=threads, on_table=on_table, shared=shared):
                    coming = fetching(outputs)
                    del outputs
                    if before is not None:
                        yield before()
                    before = coming
                if before is not None:
                    yield before()
            finally:
                # who leaves early gives memory back that a copy may be on its way to
                cupy().cuda.get_current_stream().synchronize()


def fetching(tables: Mapping[int, T]) -> Callable[[], dict[int, T]]:
    """Begin to copy tables to the host; return a function that waits for these copies, but not for later launches."""
    moved = {node: _values(table) for node, table in tables.items() if _on_device(table)}
    if sum(values.nbytes for values in moved.values()) > FETCHED_BYTES or not moved:
        here = {node: fetch(table) for node, table in tables.items()}
        return lambda: here
    copies = dict(zip(moved, pinned([(values.size, values.dtype) for values in moved.values()]), strict=True))
    for node, values in moved.items():
        to_host(values.reshape(-1), copies[node])
    there = cupy().cuda.Event(disable_timing=True)
    there.record()
    bare = {node: _with_values(table, copies.get(node, _values(table))) for node, table in tables.items()}

    def fetched() -> dict[int, T]:
        there.synchronize()
        return bare

    return fetched


def fetch(table: T) -> T:
    """Return a table on the host."""
    values = _values(table)
    return _with_values(table, values.get()) if is_device(values) else table


def _on_device(table: Any) -> bool:
    return is_device(_values(table))


def _values(table: Any) -> Any:
    return table.values if isinstance(table, Scaled) else table


def _with_values(table: Any, values: Any) -> Any:
    return table.with_values(values) if isinstance(table, Scaled) else values
