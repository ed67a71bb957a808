"""The forward sweep: a list of steps run over tables in memory, in one semiring.

The loop is the same for every query and every place it runs (one process, a Dask worker); what differs is
the algebra, which knows how one step combines its input tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..dense import run
from ..steps.semiring import Semiring
from ..steps.step import Step

Array = NDArray[Any]
T = TypeVar("T")

# A smaller step is done before another thread has started.
THREADED_CELLS = 1 << 22


class Algebra(Protocol[T]):
    """How one step combines its tables; ``T`` is the kind of table."""

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels may be used."""
        ...

    def step(self, step: Step, tables: Sequence[T], threads: int) -> T:
        """Return the output table of ``step``."""
        ...

    def restrict(self, table: T, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> T:
        """Return the table with some variables fixed; their axes keep one state."""
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


def useful_threads(step: Step, threads: int) -> int:
    """Return how many of ``threads`` a step is shared among: all of them if it is large."""
    return threads if step.lowered.cells >= THREADED_CELLS else 1


def sweep(
    steps: Sequence[Step],
    tables: Mapping[int, T],
    algebra: Algebra[T],
    *,
    keep: Collection[int] = (),
    threads: int = 1,
    on_step: Callable[[Step], None] | None = None,
) -> dict[int, T]:
    """Run ``steps`` in order and return every table that was not freed.

    A table is freed after the step that reads it, except the given ``tables`` (the caller's) and those in
    ``keep``.
    """
    live: dict[int, T] = dict(tables)
    kept = set(keep) | set(tables)
    for step in steps:
        inputs = [live[i] for i in step.inputs]
        live[step.node] = algebra.step(step, inputs, useful_threads(step, threads))
        for i in step.inputs:
            if i not in kept:
                del live[i]
        if on_step is not None:
            on_step(step)
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


def on_host(array: Any) -> Array:
    """Return an array in the host's memory."""
    return array if isinstance(array, np.ndarray) else array.get()
