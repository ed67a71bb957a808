"""Steps on sparse tables with a GPU: large joins and loops run there, where their tables stay, small ones on the CPU.

A join takes about 12 launches, and waits for some of them. Therefore few rows are joined faster on the host, wherever
the tables are. A loop over cells takes one launch, and runs where its tables are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Final, TypeVar

from ..gpu.arrays import free_pools, is_device, upload
from ..gpu.arrays import on_host as array_on_host
from ..gpu.cold_kernels import AVOIDED_START, cores_end_first
from ..gpu.kernels import Kernel, compile_seconds, compile_together
from ..gpu.memory import LongStepError, out_of_memory
from ..gpu.tiling.device_lowering import device_step
from ..steps.light_dataclass import dataclass
from ..steps.policy import RowPolicy
from ..steps.step import Step
from ..sweeps.device_sweep import DevicePlaces, DeviceProgram, on_device
from ..sweeps.program import Program
from ..sweeps.scaled import Scaled
from .algebra import PlainRows, Representation, bare
from .device import join_kernels
from .keys import Keys
from .memory_account import LargeJoinError
from .relation import Dense, Relation, Table, on_host
from .scaled_rows import ScaledRows, SumProductRows, values_of, with_values

# A loop over cells gains this many times as much from a device as a join.
_DEVICE_LOOP_GAIN: Final = 2
# Loops over tables on the device with at most this multiple of ``small_cells`` end before a join is launched.
_DEVICE_SHORT_LOOPS: Final = 1 << 12

T = TypeVar("T")

# Loops over fewer cells need almost no memory besides their tables.
_WORKED_CELLS: Final = 1 << 22
_MANY: Final = 1 << 1000


@dataclass(frozen=True)
class DeviceChoice(Representation):
    """The choices of a step: arrays or rows, and the device or the host.

    Parameters
    ----------
    part : (int, int)
        Index of the range of keys that joins are restricted to, and the number of ranges.
    most_joined : int, optional
        Maximum number of rows of a join on the device.
    shared : callable, optional
        Joins on several devices, given the choice, the step and its tables.
    """

    places: DevicePlaces = field(default_factory=DevicePlaces, compare=False)
    part: tuple[int, int] = (0, 1)
    most_joined: int | None = None
    shared: Callable[[DeviceChoice, Step, Sequence[Table]], Relation] | None = field(default=None, compare=False)

    def is_swept(self, step: Step, tables: Sequence[Table]) -> bool:
        """Whether looping over all cells is expected to take less than joining, fits memory, and can be launched."""
        if not super().is_swept(step, tables):
            return False
        there = step.lowered.cells >= self.places.least_cells or _any_there(tables)
        return not there or self.kernels(step) is not None

    def kernels(self, step: Step) -> Sequence[Kernel] | None:
        """Return the kernels of a loop over all cells; None if it has more parts than a launch counts."""
        try:
            return self.places.prepared(step).kernels
        except LongStepError:
            return None

    def _workspace_bytes(self, step: Step) -> int:
        if step.lowered.cells < _WORKED_CELLS:
            return 0
        return device_step(step.lowered).workspace_cells * self.semiring.itemsize

    def _is_short(self, step: Step, tables: Sequence[Table]) -> bool:
        if not _any_there(tables):
            return super()._is_short(step, tables)
        policy = RowPolicy.current()
        return step.lowered.cells <= _DEVICE_SHORT_LOOPS * policy.small_cells

    def _cells_of_a_row(self, tables: Sequence[Table]) -> int:
        return super()._cells_of_a_row(tables) * (_DEVICE_LOOP_GAIN if _any_there(tables) else 1)

    def placed(self, step: Step, tables: Sequence[Table]) -> Sequence[Table]:
        """Return the inputs of a loop over all cells, copied to the device if the loop runs there."""
        there = _any_there(tables) or step.lowered.cells >= self.places.least_cells
        return tables_there(tables) if there else tables

    def joined(self, step: Step, tables: Sequence[Table]) -> Relation:
        """Join sparse tables: on the device if the tables or their joins have many rows, otherwise on the host.

        Raises
        ------
        NoRoomError
            If the result does not fit.
        LargeJoinError
            If a join would have more rows than ``most_joined``.
        """
        tables = self.fewer(tables)
        sizes = {v: d for table in tables for v, d in table.keys.sizes.items()}
        words, rows = Keys(tuple(sizes), tuple(sizes.values())).n_words, sum(map(len, tables))
        if rows < (few := self.few_rows(words)):
            here = self.with_rows([_here(table) for table in tables])
            try:
                with AVOIDED_START.counted(few > RowPolicy.current().device_rows):
                    return self.room.joined_reduced(here, step.axes, self.semiring, few)
            except LargeJoinError:
                pass
        AVOIDED_START.pay(compile_seconds(join_kernels(words, self.semiring)))
        if self.shared is not None:
            return self.shared(self, step, tables)
        return self.joined_there(step, tables)

    def few_rows(self, words: int) -> int:
        """Return the number of rows from which a join, or a table, goes to the device.

        While kernels are missing, the number is higher: joins that the cores end before the kernels are compiled stay
        there.

        Parameters
        ----------
        words : int
            Words of a key.
        """
        policy = RowPolicy.current()
        missing = AVOIDED_START.remaining(compile_seconds(join_kernels(words, self.semiring)))
        return max(policy.device_rows, int(policy.rows_per_second * missing))

    def joined_there(self, step: Step, tables: Sequence[Table]) -> Relation:
        """Join sparse tables on the present device, for all keys or a range of keys; see :meth:`joined`."""
        try:
            return self._joined(step, tables_there(tables))
        except MemoryError as error:
            if not out_of_memory(error):
                raise
        # the free memory may consist of cached blocks of another size
        free_pools()
        return self._joined(step, tables_there(tables))

    def _joined(self, step: Step, tables: Sequence[Table]) -> Relation:
        given, how = self.with_rows(self.fewer(tables)), (step.axes, self.semiring, self.most_joined, self.part)
        return self.room.joined_reduced(given, *how)


def _any_there(tables: Sequence[Table]) -> bool:
    return any(is_device(table.values) for table in tables)


def _here(table: Table) -> Table:
    if isinstance(table, Relation):
        return on_host(table)
    return replace(table, values=array_on_host(table.values))


def tables_there(tables: Sequence[Table]) -> list[Table]:
    """Return tables on the device; tables that are not there yet are copied in one transfer."""
    values = values_there([bare(table) for table in tables])
    return [
        one if isinstance(one, Relation) else Dense(table.keys, one) for table, one in zip(tables, values, strict=True)
    ]


def values_there(values: Sequence[Any]) -> list[Any]:
    """Return arrays and relations on the device; the missing ones are copied in one transfer."""
    found = [*values]
    far = [i for i, one in enumerate(values) if not is_device(one.values if isinstance(one, Relation) else one)]
    copies = iter(upload([part for i in far for part in _parts(found[i])]))
    for i in far:
        found[i] = _of_parts(found[i], copies)
    return found


def _parts(one: Any) -> list[Any]:
    return [one.words, one.values] if isinstance(one, Relation) else [one]


def _of_parts(one: Any, parts: Iterator[Any]) -> Any:
    """Return an array or a relation of flat arrays."""
    if not isinstance(one, Relation):
        return next(parts)
    words = next(parts).reshape(-1, one.keys.n_words)
    return replace(one, words=words, values=next(parts))


def large_there(tables: Mapping[int, T], is_large: Callable[[Any], bool]) -> dict[int, T]:
    """Return all tables, with large arrays and tables with many rows on the device."""
    bare = {node: entries(table) for node, table in tables.items()}
    wanted = [node for node, values in bare.items() if is_large(values)]
    moved = values_there([bare[node] for node in wanted])
    return {**tables, **{n: with_entries(tables[n], v) for n, v in zip(wanted, moved, strict=True)}}


def has_many_rows(values: Any) -> bool:
    """Whether the values are sparse, with enough rows for a join on the device."""
    return isinstance(values, Relation) and len(values) >= RowPolicy.current().device_rows


def table_here(table: T) -> T:
    """Return a table in the host's memory."""
    values = entries(table)
    here = on_host(values) if isinstance(values, Relation) else array_on_host(values)
    return table if here is values else with_entries(table, here)


def together_here(nodes: tuple[int, ...], *tables: T) -> dict[int, T]:
    """Task: tables that several tasks made on a device, by number, in the host's memory."""
    return {node: table_here(table) for node, table in zip(nodes, tables, strict=True)}


def rows_there(given: PlainRows | SumProductRows, least_cells: int | None = None) -> PlainRows | SumProductRows:
    """Return the same algebra with large steps on the device: loops over at least ``least_cells`` cells, if given."""
    base: Any = on_device(given.base, least_cells)
    own = {f.name: getattr(given.choice, f.name) for f in fields(Representation)}
    return replace(given, choice=DeviceChoice(**own, places=base.places), base=base)


def device_rows_program(program: Program[T], *, fetched: bool, least_cells: int | None = None) -> DeviceRowsProgram[T]:
    """Return the same program with large steps on the device; if ``fetched``, its results come back to the host."""
    parts: dict[str, Any] = {f.name: getattr(program, f.name) for f in fields(Program) if f.init}
    parts["algebra"] = rows_there(parts["algebra"], least_cells)
    return DeviceRowsProgram(**parts, fetched=fetched)


@dataclass(frozen=True)
class DeviceRowsProgram(DeviceProgram[T]):
    """A program whose large leaf tables go to the device once, and are sliced there."""

    def here(self, tables: Mapping[int, T]) -> dict[int, T]:
        """Return tables that steps made, in the host's memory."""
        return {node: table_here(table) for node, table in tables.items()}

    @cached_property
    def _steps_there(self) -> tuple[Step, ...]:
        return self.steps  # the place of a step depends on its numbers of rows, known at run time

    @cached_property
    def _there(self) -> Program[T]:
        return Program(self.steps, self._staged(self.leaves), self.leaf_axes, self.outputs, self.dims, self.algebra)

    @property
    def _choice(self) -> DeviceChoice:
        algebra: Any = self.algebra
        assert isinstance(algebra.choice, DeviceChoice)
        return algebra.choice

    def _staged(self, leaves: Mapping[int, T]) -> dict[int, T]:
        return large_there(leaves, self._is_large)

    def leaves_there(self, nodes: Iterable[int]) -> dict[int, T]:
        """Return some of the leaf tables, large ones on the present device."""
        return self._staged({node: self.leaves[node] for node in nodes})

    def _is_large(self, values: Any) -> bool:
        if isinstance(values, Relation):
            return has_many_rows(values) and len(values) >= self._choice.few_rows(values.keys.n_words)
        return int(values.size) >= self._choice.places.least_cells

    def compile_kernels(self, decoded: bool, others: Sequence[Kernel] = ()) -> None:
        """Compile the kernels of loops over dense tables that are expected on the device.

        The expected sizes assume that the zeros of tables are independent. If the cores end these loops sooner, all
        loops run on the cores.
        """
        choice, share = self._choice, {node: _share(entries(table)) for node, table in self.leaves.items()}
        policy, kernels, looped_cells = RowPolicy.current(), list[Kernel](), 0
        for step in self.steps:
            joined = prod([share.get(i, 1.0) for i in step.inputs])
            cells, out_bytes = step.lowered.cells, step.lowered.out_cells * choice.semiring.itemsize
            looped = joined * _DEVICE_LOOP_GAIN * policy.cells_of_a_row >= 1.0
            if looped and cells >= choice.places.least_cells and out_bytes <= choice.room.nbytes:
                kernels += choice.kernels(step) or ()
                looped_cells += cells
            share[step.node] = min(1.0, joined * min(cells // step.lowered.out_cells, _MANY))
        cores = looped_cells / (policy.rows_per_second * policy.cells_of_a_row) if policy.cells_of_a_row else 0.0
        if kernels and cores_end_first(kernels, cores):
            AVOIDED_START.add(cores)
            choice.places.least_cells = _MANY
            kernels = []
        compile_together([*others, *kernels])

    def leaves_at(self, states: Mapping[int, int], nodes: Iterable[int]) -> dict[int, T]:
        """Return some of the leaf tables with the given variables fixed, large ones on the device."""
        return self._there.leaves_at(states, nodes)


def entries(table: Any) -> Any:
    """Return the array or the relation of a table, as it is."""
    return values_of(table, logs=table.logs) if isinstance(table, Scaled | ScaledRows) else table


def with_entries(table: Any, values: Any) -> Any:
    """Return a table with the same scale and other values."""
    return with_values(table, values) if isinstance(table, Scaled | ScaledRows) else values


def _share(values: Any) -> float:
    """Return the fraction of a table's cells that it stores: less than 1 for sparse tables."""
    return len(values) / values.cells if isinstance(values, Relation) else 1.0
