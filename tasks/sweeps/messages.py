"""Messages between cliques: the two classical operations on stored tables, and both sweeps without any.

Reduction and scattering are those of junction trees in the style of Hugin (Jensen, Lauritzen and Olesen 1990;
Zheng and Mengshoel 2013): a clique that keeps its table absorbs a neighbour's news as the ratio of the new
separator to the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..dense import contract
from ..steps.semiring import SUM_PRODUCT
from ..steps.step import Step
from .sweep import Algebra, useful_threads

Array = NDArray[Any]
T = TypeVar("T")


def reduction(
    clique: Array, axes: tuple[int, ...], separator: tuple[int, ...], sizes: Mapping[int, int], threads: int = 1
) -> Array:
    """Marginalise a clique's table onto a separator.

    Parameters
    ----------
    clique : ndarray, float64, C-contiguous
        ``prod(sizes[v] for v in axes)`` values.
    axes, separator : tuples of int
        Variables of the clique and of the separator, in the order of their axes.

    Returns
    -------
    ndarray, flat
    """
    return contract([clique], [axes], separator, sizes, SUM_PRODUCT, threads=threads)


def scattering(
    clique: Array,
    axes: tuple[int, ...],
    separator: tuple[int, ...],
    sizes: Mapping[int, int],
    old: Array,
    new: Array,
    threads: int = 1,
) -> Array:
    """Multiply a clique's table by ``new / old`` on a separator, where 0 / 0 is 0.

    A zero of the old separator stands for states that the clique excludes already, so nothing is lost.

    Returns
    -------
    ndarray, flat
        A new table; the given ones are left as they are.
    """
    ratio = np.divide(new, old, out=np.zeros(old.size), where=old != 0.0)
    return contract([clique, ratio], [axes, separator], axes, sizes, SUM_PRODUCT, threads=threads)


def freed_tables(steps: Sequence[Step], keep: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each step the tables that it is the last to read, those in ``keep`` not among them."""
    last = {i: k for k, step in enumerate(steps) for i in step.inputs}
    freed: list[list[int]] = [[] for _ in steps]
    for i, k in last.items():
        if i not in keep:
            freed[k].append(i)
    return tuple([tuple(gone) for gone in freed])


class Steps(Protocol[T]):
    """The part of an algebra that runs steps."""

    def step(self, step: Step, tables: Sequence[T], threads: int) -> T:
        """Return the output table of ``step``."""
        ...


def two_sweeps(
    steps: Sequence[Step],
    leaves: Mapping[int, T],
    freed: Sequence[tuple[int, ...]],
    keep: Collection[int],
    algebra: Steps[T],
    *,
    threads: int = 1,
    on_step: Callable[[Step], None] | None = None,
) -> dict[int, T]:
    """Run collection and distribution and return the tables in ``keep``.

    Parameters
    ----------
    steps : sequence of Step
        Forward, then backward.
    leaves : mapping of int to table
    freed : sequence of tuple of int
        For each step the tables that nobody needs after it; see :func:`freed_tables`.
    """
    live: dict[int, T] = dict(leaves)
    several = 1
    for step, gone in zip(steps, freed, strict=True):
        if threads > 1:
            several = useful_threads(step, threads)
        live[step.node] = algebra.step(step, [live[i] for i in step.inputs], several)
        for i in gone:
            del live[i]
        if on_step is not None:
            on_step(step)
    return {node: live[node] for node in keep}


@dataclass(frozen=True)
class TwoSweeps(Generic[T]):
    """Both sweeps with their leaf tables, for any slice.

    Parameters
    ----------
    steps : tuple of Step
        Forward, then backward.
    leaves : mapping of int to table
        Leaf tables with all states.
    leaf_axes : mapping of int to tuple of int
    freed : tuple of tuple of int
        For each step the tables that nobody needs after it.
    keep : tuple of int
        The tables that are returned.
    dims : tuple of int
        Domain sizes without slicing.
    algebra : Algebra
    """

    steps: tuple[Step, ...]
    leaves: Mapping[int, T]
    leaf_axes: Mapping[int, tuple[int, ...]]
    freed: tuple[tuple[int, ...], ...]
    keep: tuple[int, ...]
    dims: tuple[int, ...]
    algebra: Algebra[T]

    def restricted(self, states: Mapping[int, int]) -> Mapping[int, T]:
        """Return the leaf tables with some variables fixed."""
        if not states:
            return self.leaves
        restrict, axes = self.algebra.restrict, self.leaf_axes
        return {node: restrict(table, axes[node], self.dims, states) for node, table in self.leaves.items()}

    def run(
        self, states: Mapping[int, int], *, threads: int = 1, on_step: Callable[[Step], None] | None = None
    ) -> dict[int, T]:
        """Sweep up and down with some variables fixed; their axes keep one state."""
        leaves = self.restricted(states)
        return two_sweeps(self.steps, leaves, self.freed, self.keep, self.algebra, threads=threads, on_step=on_step)
