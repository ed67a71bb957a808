"""A program: the part of a plan that one task runs, with its leaf tables, for any of the plan's slices."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..gpu.memory import portable_errors
from ..steps.light_dataclass import dataclass
from ..steps.policy import SweepPolicy
from ..steps.step import Step
from .sweep import Algebra, OnTable, Plain, freed_tables, restrict, sweep

# The parts of tables that belong to slices: those of small tables are taken all at once, by one array of places.

Array = NDArray[Any]


class SlicedTables:
    """Tables of the host, of which each slice has the cells at its states of some variables.

    Parameters
    ----------
    tables : mapping of int to ndarray
        C-ordered, by node.
    axes : mapping of int to tuple of int
        Variables of each.
    sizes : sequence of int
        Of all variables.
    variables : collection of int
        Those that have one state in a slice.
    """

    def __init__(
        self,
        tables: Mapping[int, Any],
        axes: Mapping[int, Sequence[int]],
        sizes: Sequence[int],
        variables: Collection[int],
    ) -> None:
        self._tables, self._axes, self._sizes = tables, axes, sizes
        self._variables, self._taken = [*variables], 0
        self._small, self._others = list[int](), [*tables]

    def _find_places(self) -> None:
        """Find where the cells of small tables are, from now on taken at once."""
        tables, policy = self._tables, SweepPolicy.current()
        small = [n for n, table in tables.items() if type(table) is np.ndarray and table.size <= policy.sliced_cells]
        small.sort(key=lambda n: tables[n].size)
        small = small[: bisect_right([*accumulate(tables[n].size for n in small)], policy.sliced_together)]
        if not small or len({tables[n].dtype for n in small}) > 1:
            return
        chosen = set(small)
        self._small, self._others = small, [n for n in tables if n not in chosen]
        self._steps = np.zeros((len(self._variables), len(small)), np.intp)
        places, start = list[Array](), 0
        for k, node in enumerate(small):
            places.append(start + self._places(k, self._axes[node]))
            start += tables[node].size
        counts = [len(each) for each in places]
        self._parts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *counts]).tolist())]
        self._owners, self._at = np.repeat(np.arange(len(small)), counts), np.concatenate(places)
        self._cells = np.concatenate([tables[n] for n in small], axis=None)

    def _places(self, table: int, axes: Sequence[int]) -> Array:
        """Return where the cells are of a table at the first states; how far apart others are is written down."""
        places, stride = np.zeros(1, np.intp), 1
        for v in reversed(axes):
            size = self._sizes[v]
            if size == 1:
                continue
            if v in self._variables:
                self._steps[self._variables.index(v), table] = stride
            else:
                places = (np.arange(size)[:, np.newaxis] * stride + places).reshape(-1)
            stride *= size
        return places

    def at(self, states: Mapping[int, int]) -> dict[int, Any]:
        """Return the tables of a slice, flat."""
        if self._taken == 4:  # finding the places takes at least as long as taking these slices one by one
            self._find_places()
        self._taken += 1
        found = {n: restrict(self._tables[n], self._axes[n], self._sizes, states) for n in self._others}
        if self._small:
            moved = np.array([states[v] for v in self._variables], np.intp) @ self._steps
            cells = self._cells[self._at + moved[self._owners]]
            found.update(zip(self._small, [cells[part] for part in self._parts], strict=True))
        return found


T = TypeVar("T")

Freed = Sequence[tuple[int, ...]]
"""For each step the tables that are dropped after it."""


@dataclass(frozen=True)
class Program(Generic[T]):
    """Steps and the leaf tables they read.

    Parameters
    ----------
    steps : tuple of Step
        In execution order. Those before ``variant_from`` give the same tables in every slice.
    leaves : mapping of int to table
        Leaf tables with all states, in the axis order that the steps expect.
    leaf_axes : mapping of int to tuple of int
    outputs : tuple of int
        The tables that the task returns.
    dims : tuple of int
        Domain sizes without slicing.
    algebra : Algebra

    Attributes
    ----------
    shared : dict of int to dict
        By device, the tables that all slices share; copies and other processes have their own.
    """

    steps: tuple[Step, ...]
    leaves: Mapping[int, T]
    leaf_axes: Mapping[int, tuple[int, ...]]
    outputs: tuple[int, ...]
    dims: tuple[int, ...]
    algebra: Algebra[T]
    variant_from: int = 0
    shared: dict[int, dict[int, T]] = field(default_factory=dict, compare=False, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = tuple(getattr(self, f.name) for f in fields(self) if f.init)
        cells = sum(prod(self.dims[v] for v in self.leaf_axes[node]) for node in self.leaves)
        if cells > SweepPolicy.current().packed_cells:
            return type(self), parts
        return _unpacked, (type(self), pickle.dumps(parts, pickle.HIGHEST_PROTOCOL))

    @cached_property
    def freed(self) -> tuple[tuple[int, ...], ...]:
        """For each step the tables that no later step needs."""
        return freed_tables(self.steps, self.outputs)

    def remember_freed(self, freed: tuple[tuple[int, ...], ...]) -> None:
        """Take the freed tables from a plan of the same steps, to avoid finding them again; copies do not have them."""
        self.__dict__["freed"] = freed

    def restricted_leaves(self, states: Mapping[int, int]) -> dict[int, T]:
        """Return the leaf tables with the given variables fixed (their axes keep one state)."""
        return self.leaves_at(states, self.leaves)

    def leaves_at(self, states: Mapping[int, int], nodes: Iterable[int]) -> dict[int, T]:
        """Return some of the leaf tables with the given variables fixed."""
        if not states:
            return {node: self.leaves[node] for node in nodes}
        restrict = self.algebra.restrict
        return {node: restrict(self.leaves[node], self.leaf_axes[node], self.dims, states) for node in nodes}

    def sliced_leaves(self, nodes: Collection[int], variables: Collection[int]) -> Callable[[Mapping[int, int]], Any]:
        """Return a function that takes some leaf tables at the states of a slice, which fixes the given variables."""
        algebra: Any = self.algebra
        if isinstance(algebra, Plain):
            leaves: dict[int, Any] = {node: self.leaves[node] for node in nodes}
            return SlicedTables(leaves, self.leaf_axes, self.dims, variables).at
        return lambda states: self.leaves_at(states, nodes)

    def swept(
        self, steps: Sequence[Step], tables: Mapping[int, T], freed: Freed, threads: int, on_table: OnTable | None
    ) -> dict[int, T]:
        """Sweep some steps; return the outputs, and hold nothing else."""
        live = sweep(steps, tables, self.algebra, freed, threads=threads, on_table=on_table)
        return {node: live[node] for node in self.outputs}

    def part(self, steps: Sequence[Step], outputs: tuple[int, ...] = ()) -> Program[T]:
        """Return a program of some of the steps, with only the leaf tables that they read."""
        leaves, steps = self.leaves, tuple(steps)
        if len(steps) < len(self.steps):
            leaves = {i: leaves[i] for step in steps for i in step.inputs if i in leaves}
        return replace(self, steps=steps, leaves=leaves, outputs=outputs, variant_from=0)

    def again(self, steps: tuple[Step, ...], leaves: Mapping[int, T]) -> Program[T]:
        """Return a program of other steps on other leaf tables; its results stay where they are made."""
        return replace(self, steps=steps, leaves=leaves)

    def here(self, tables: Mapping[int, T]) -> dict[int, T]:
        """Return tables that steps made, in the host's memory."""
        return dict(tables)

    def step_at(self, position: int, states: Mapping[int, int], made: Mapping[int, T]) -> T:
        """Return the result of the step at a position, with some variables fixed, from tables that others made."""
        step = self.steps[position]
        given = {**made, **self.leaves_at(states, [i for i in dict.fromkeys(step.inputs) if i not in made])}
        return self.algebra.step(step, [given[i] for i in step.inputs], 1)

    def step_here(self, position: int, states: Mapping[int, int], made: Mapping[int, T]) -> T:
        """Return the same with all tables in the host's memory: the tables that others made, and the result."""
        return self.step_at(position, states, made)

    def run(
        self,
        messages: Mapping[int, T] | None = None,
        *,
        keep: Collection[int] = (),
        threads: int = 1,
        on_table: OnTable | None = None,
    ) -> dict[int, T]:
        """Sweep once, without slicing; return the outputs and every table in ``keep``."""
        tables = {**self.leaves, **(messages or {})}
        kept = {*keep, *self.outputs}
        freed = freed_tables(self.steps, kept) if keep else self.freed
        live = sweep(self.steps, tables, self.algebra, freed, threads=threads, on_table=on_table)
        return {node: live[node] for node in kept if node in live}

    def run_slices(
        self,
        slices: Iterable[Mapping[int, int]],
        *,
        threads: int = 1,
        on_table: OnTable | None = None,
        shared: dict[int, T] | None = None,
    ) -> Iterator[dict[int, T]]:
        """Sweep once per slice and yield the outputs of each.

        Steps that no slice changes run once; their tables are put into ``shared`` with the leaf tables that no slice
        changes, unless they are there already.

        Parameters
        ----------
        slices : iterable of mapping of int to int
            The same variables in each, with their states.
        threads : int
            Threads of large steps.
        on_table : callable, optional
            Called with each step and its table.
        shared : dict, optional
            Filled by the first slice, if it is empty.

        Yields
        ------
        dict of int to table
            The program's outputs, by node.
        """
        slices = iter(slices)
        shared = {} if shared is None else shared
        for one in slices:
            varying = [node for node, axes in self.leaf_axes.items() if not one.keys().isdisjoint(axes)]
            first, rest = self.steps[: self.variant_from], self.steps[self.variant_from :]
            if not shared:
                live = self.leaves_at({}, self.leaves.keys() - varying)
                if first:
                    read = {i for step in rest for i in step.inputs} | set(self.outputs)
                    freed = freed_tables(first, read)
                    live = sweep(first, live, self.algebra, freed, threads=threads, on_table=on_table)
                    live = {node: table for node, table in live.items() if node in read}
                shared |= live
            freed = freed_tables(rest, self.outputs) if first else self.freed
            leaves_of = self.sliced_leaves(varying, one.keys())
            for states in chain((one,), slices):
                # nothing of a slice is held here while the next one is swept
                yield self.swept(rest, {**shared, **leaves_of(states)}, freed, threads, on_table)


class ProgramOwner(Protocol):
    """An owner of a program, such as all slices and all boxes of a stage."""

    @property
    def program(self) -> Program[Any]:
        """Steps with their leaf tables."""
        ...


def run_part(
    program: Program[T],
    nodes: Collection[int],
    outputs: tuple[int, ...],
    keep: bool,
    threads: int,
    on_table: OnTable | None,
    *messages: Mapping[int, T],
) -> dict[int, T]:
    """Task: the steps of a program that make ``nodes``, from received tables; with ``keep`` all its tables stay."""
    wanted = set(nodes)
    given = {i: table for message in messages for i, table in message.items()}
    part = program.part([step for step in program.steps if step.node in wanted], outputs)
    return part.run(given, keep=nodes if keep else (), threads=threads, on_table=on_table)


def run_step(
    step: Step, algebra: Algebra[T], threads: int, read: tuple[int, ...], leaves: Mapping[int, T], *tables: T
) -> T:
    """Task: one step, from the leaf tables that go with it and the tables ``read`` that other tasks made."""
    given = {**leaves, **dict(zip(read, tables, strict=True))}
    with portable_errors():
        return algebra.step(step, [given[i] for i in step.inputs], threads)


def run_step_at(held: ProgramOwner, position: int, states: Mapping[int, int], read: tuple[int, ...], *tables: T) -> T:
    """Task: the step at a position of a program that tasks share, with some variables fixed, in one thread.

    It reads the tables ``read`` that other tasks made, and leaf tables of the program.
    """
    with portable_errors():
        return held.program.step_at(position, states, dict(zip(read, tables, strict=True)))  # type: ignore[no-any-return]


def run_step_here(held: ProgramOwner, position: int, states: Mapping[int, int], read: tuple[int, ...], *tables: T) -> T:
    """Task: the same with the tables of tasks in the host's memory, even if a device computes in between."""
    with portable_errors():
        return held.program.step_here(position, states, dict(zip(read, tables, strict=True)))  # type: ignore[no-any-return]


def together(nodes: tuple[int, ...], *tables: T) -> dict[int, T]:
    """Task: tables that several tasks made, by number."""
    return dict(zip(nodes, tables, strict=True))


def pick(tables: Mapping[int, T], nodes: Collection[int]) -> dict[int, T]:
    """Task: some of the tables that another task made, so that only those travel."""
    return {i: tables[i] for i in nodes}


def _unpacked(kind: type[Program[T]], parts: bytes) -> Program[T]:
    return kind(*pickle.loads(parts))
