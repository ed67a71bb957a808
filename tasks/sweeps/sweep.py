"""The sweep: a list of steps run over tables in memory, in one semiring.

The loop is the same for every query, both ways and in every place it runs (one process, a Dask worker); what differs
is the algebra, which knows how one step combines its input tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..cpu.dense import run
from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from ..steps.step import Step

Array = NDArray[Any]
T = TypeVar("T")

OnTable = Callable[[Step, Any], None]
"""Called with a step and the table that it made."""


@dataclass(frozen=True)
class StepReport:
    """What is told of each step that was done, or is on its way, and not of its table, which may be gone by then."""

    report: Callable[[Step], None]

    def __call__(self, step: Step, table: Any) -> None:
        """Report a step."""
        self.report(step)


# A smaller step is done before another thread has started.
THREADED_CELLS = 1 << 22


Spent = dict[int, tuple[float, int]]
"""Wall seconds of steps and how often each was done, by the table that it makes."""

_here = local()


@contextmanager
def timed_steps() -> Iterator[Spent]:
    """Add up what each step takes that this thread sweeps meanwhile; on a device, until it is launched."""
    before: Spent | None = getattr(_here, "spent", None)
    spent: Spent = {}
    _here.spent = spent
    try:
        yield spent
    finally:
        _here.spent = before


def steps_are_timed() -> bool:
    """Whether this thread adds up what each step takes."""
    return getattr(_here, "spent", None) is not None


def spend(node: int, seconds: float) -> None:
    """Add what a step took that this thread had others do, where such are added up."""
    spent: Spent | None = getattr(_here, "spent", None)
    if spent is not None:
        _add(spent, node, seconds)


def _add(spent: Spent, node: int, seconds: float) -> None:
    before, times = spent.get(node, (0.0, 0))
    spent[node] = before + seconds, times + 1


class Steps(Protocol[T]):
    """The part of an algebra that runs steps; ``T`` is the kind of table."""

    def step(self, step: Step, tables: Sequence[T], threads: int) -> T:
        """Return the output table of ``step``."""
        ...


class Algebra(Steps[T], Protocol[T]):
    """How one step combines its tables."""

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels may be used."""
        ...

    def restrict(self, table: T, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> T:
        """Return the table with some variables fixed; their axes keep one state."""
        ...

    def resized(self, sizes: tuple[int, ...]) -> Self:
        """Return the algebra for tables over other domain sizes."""
        ...


@dataclass(frozen=True)
class Plain:
    """Tables are bare arrays; the kernel's semiring does everything (min-plus, residues)."""

    semiring: Semiring
    compiled: bool = True

    def step(self, step: Step, tables: Sequence[Array], threads: int) -> Array:
        """Return the output array of ``step``."""
        return run(step.lowered, tables, threads=threads, compiled=self.compiled)

    def restrict(self, table: Array, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Array:
        """Return the array with some variables fixed."""
        return restrict(table, axes, sizes, states)

    def resized(self, sizes: tuple[int, ...]) -> Self:
        """Return the same: arrays have no bounds that sizes move."""
        return self


def useful_threads(step: Step, threads: int) -> int:
    """Return how many of ``threads`` a step is shared among: all of them if it is large."""
    return threads if step.lowered.cells >= THREADED_CELLS else 1


def freed_tables(steps: Sequence[Step], keep: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each step the tables that nobody needs after it, those in ``keep`` not among them.

    A table may be made more than once: what a step made is freed after its last reader before it is made again, or
    at once where nobody reads it.

    Table 2 is made of table 0, read with table 1 to make table 3, made again and read to make table 4:

    >>> readings = {2: (0,), 3: (2, 1)}, {2: (0,), 4: (2, 3)}
    >>> steps = [Step(node, tables, (), (), None) for part in readings for node, tables in part.items()]
    >>> freed_tables(steps, keep={4})
    ((), (2, 1), (0,), (2, 3))
    """
    kept = frozenset(keep)
    read = set(kept)
    freed: list[tuple[int, ...]] = []
    for step in reversed(steps):
        own = () if step.node in read else (step.node,)
        if step.node not in kept:
            read.discard(step.node)
        gone = [i for i in dict.fromkeys(step.inputs) if i not in read]
        read.update(step.inputs)
        freed.append((*gone, *own))
    return tuple(freed[::-1])


def sweep(
    steps: Sequence[Step],
    tables: Mapping[int, T],
    algebra: Steps[T],
    freed: Sequence[tuple[int, ...]],
    *,
    threads: int = 1,
    on_table: OnTable | None = None,
) -> dict[int, T]:
    """Run ``steps`` in order; the only loop over steps, for every question and wherever it runs.

    Parameters
    ----------
    steps : sequence of Step
    tables : mapping of int to table
        Leaf tables and messages that the steps read.
    freed : sequence of tuple of int
        For each step the tables to drop after it; see :func:`freed_tables`.
    on_table : callable, optional
        Called with every step and the table it made, before any is dropped.

    Returns
    -------
    dict
        Every table that was not dropped, the given ones among them.
    """
    live: dict[int, T] = dict(tables)
    several, spent = 1, getattr(_here, "spent", None)
    for step, gone in zip(steps, freed, strict=True):
        if threads > 1:
            several = useful_threads(step, threads)
        start = 0.0 if spent is None else time.perf_counter()
        live[step.node] = made = algebra.step(step, [live[i] for i in step.inputs], several)
        if spent is not None:
            _add(spent, step.node, time.perf_counter() - start)
        if on_table is not None:
            on_table(step, made)
        for i in gone:
            del live[i]
    return live


def restrict(array: Array, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Array:
    """Fix some variables of a C-ordered table; the result is flat and contiguous.

    Parameters
    ----------
    array : ndarray
        ``prod(sizes[v] for v in axes)`` values.
    axes : sequence of int
        Variables of the table; ``sizes`` is indexed by variable.
    states : mapping of int to int
        Variables to fix; those that the table lacks, or that have one state there, do not matter.
    """
    wide = [v for v in axes if sizes[v] > 1]
    if not any(v in states for v in wide):
        return array
    if type(array) is not np.ndarray:
        from ..gpu.gather import restrict as restrict_there

        return restrict_there(array, axes, sizes, states)  # type: ignore[no-any-return]
    index = tuple(states.get(v, slice(None)) for v in wide)
    return np.ascontiguousarray(array.reshape([sizes[v] for v in wide])[index]).reshape(-1)
