"""Both sweeps with all their tables kept: the part that the engines with kept tables have in common."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.step import Step
from ..steps.streaming import BLOCK_CELLS
from ..sweeps.scaled import Scaled, SumProduct
from ..sweeps.sweep import useful_threads

Array = NDArray[Any]

# Two tables are the same if no entry differs by more than this, relative to itself: the effect of rounding on a message
# that new evidence cannot change (for example a message below which nothing is observed). If a table is kept for this
# reason, every entry is right up to this relative error, however often its inputs change: sums of products add errors
# up, and magnify none.
SAME = 1e-14


class KeptTables(ABC):
    """The tables of a propagation, brought up to date on demand: after a change only what depends on it.

    After an exception they may be half changed, and have to be reset.

    Parameters
    ----------
    steps : sequence of Step
        Forward, then backward.
    n_forward : int
        Number of forward steps. The tables of forward steps keep their scale; of other tables only ratios matter.
    leaves : mapping of int to Scaled
    algebra : SumProduct
    threads : int
        As many as ever compute at once.

    Attributes
    ----------
    computed : int
        Steps that were run so far.
    seconds : float
        CPU time of the calling thread that they took.
    """

    compiled: bool
    """Whether compiled loops run the small steps."""

    def __init__(
        self,
        steps: Sequence[Step],
        n_forward: int,
        leaves: Mapping[int, Scaled],
        algebra: SumProduct,
        threads: int = 1,
    ) -> None:
        self.computed = 0
        self.seconds: float = 0.0
        self._steps = tuple(steps)
        self._forward = n_forward
        self._algebra = algebra
        self._threads = threads
        self._position = {step.node: k for k, step in enumerate(steps)}
        self._needs: dict[tuple[int, ...], Array] = {}
        self._set_up(leaves)
        self.reset(leaves)

    @abstractmethod
    def table(self, node: int) -> Scaled:
        """Return a table, up to date if it was refreshed; its values may change with the next refresh."""

    @abstractmethod
    def reset(self, leaves: Mapping[int, Scaled]) -> None:
        """Forget every table but the given leaves."""

    @abstractmethod
    def set_leaf(self, node: int, table: Scaled) -> None:
        """Replace a leaf table."""

    def posteriors(self, nodes: tuple[int, ...]) -> list[Array] | None:
        """Return tables, flat, each summing to 1; None where they have to be read one by one."""
        return None

    def current(self) -> dict[int, Scaled]:
        """Return the results of the steps that are still up to date."""
        return {step.node: self.table(step.node) for k, step in enumerate(self._steps) if not self._is_stale(k)}

    def copies(self, nodes: Iterable[int]) -> dict[int, Scaled]:
        """Return tables that stay as they are."""
        return {node: self.table(node) for node in nodes}

    def restore(self, tables: Mapping[int, Scaled]) -> None:
        """Take over tables that were computed from the present leaves.

        Raises
        ------
        ValueError
            If a table has no step, or another size.
        """
        for node, table in tables.items():
            if node not in self._position or table.values.size != self._step(node).lowered.out_cells:
                raise ValueError(f"table {node} does not belong to this plan")
        self._restore(tables)

    def refresh(self, wanted: Iterable[int], threads: int = 1) -> None:
        """Compute the stale tables among ``wanted`` and among the tables that they need."""
        start = time.thread_time()
        self._refresh(self._needed(tuple(wanted)), threads)
        self.seconds += time.thread_time() - start

    @abstractmethod
    def _set_up(self, leaves: Mapping[int, Scaled]) -> None:
        """Make room."""

    @abstractmethod
    def _is_stale(self, position: int) -> bool:
        """Whether a step has to be run again."""

    @abstractmethod
    def _restore(self, tables: Mapping[int, Scaled]) -> None:
        """Take over tables of the right sizes, and call their steps up to date."""

    @abstractmethod
    def _refresh(self, order: Array, threads: int) -> None:
        """Run the stale steps among some steps, given by position."""

    def _step(self, node: int) -> Step:
        return self._steps[self._position[node]]

    def _needed(self, wanted: tuple[int, ...]) -> Array:
        """Return the positions of the steps behind some tables, in execution order."""
        if wanted not in self._needs:
            reached = set(wanted)
            for step in reversed(self._steps):
                if step.node in reached:
                    reached.update(step.inputs)
            order = [k for k, step in enumerate(self._steps) if step.node in reached]
            self._needs[wanted] = np.array(order, np.int64)
        return self._needs[wanted]


def loops_are_loaded() -> bool:
    """Return whether the compiled loops of :mod:`.packed` were used before, and cost nothing to start."""
    return f"{__package__}.packed" in sys.modules


# Kept tables one by one, as NumPy goes: nothing to compile, and nothing to copy.


class Incremental(KeptTables):
    """Keeps each table as the algebra returned it."""

    compiled = False

    def _set_up(self, leaves: Mapping[int, Scaled]) -> None:
        self._readers: dict[int, list[int]] = {}
        for k, step in enumerate(self._steps):
            for i in step.inputs:
                self._readers.setdefault(i, []).append(k)

    def table(self, node: int) -> Scaled:
        """Return a table, up to date if it was refreshed."""
        return self._tables[node]

    def reset(self, leaves: Mapping[int, Scaled]) -> None:
        """Forget every table but the given leaves."""
        self._tables: dict[int, Scaled] = dict(leaves)
        self._stale = set(range(len(self._steps)))

    def set_leaf(self, node: int, table: Scaled) -> None:
        """Replace a leaf table."""
        self._replace(node, table)

    def _is_stale(self, position: int) -> bool:
        return position in self._stale

    def _restore(self, tables: Mapping[int, Scaled]) -> None:
        self._tables.update(tables)
        self._stale.difference_update(self._position[node] for node in tables)

    def _refresh(self, order: Array, threads: int) -> None:
        if not self._stale:
            return
        for k in order.tolist():
            if k in self._stale:
                step = self._steps[k]
                inputs = [self._tables[i] for i in step.inputs]
                self._stale.discard(k)
                self.computed += 1
                self._replace(step.node, self._algebra.step(step, inputs, useful_threads(step, threads)))

    def _replace(self, node: int, table: Scaled) -> None:
        old = self._tables.get(node)
        readers = self._readers.get(node, ())
        if old is None or not readers or not same_ratios(old, table):
            self._tables[node] = table
            self._stale.update(readers)
        elif not _same_scale(old, table):
            # no reader further down sees a factor; only the probability of the evidence does
            self._tables[node] = table
            self._stale.update(k for k in readers if k < self._forward)


def same_ratios(old: Scaled, new: Scaled) -> bool:
    """Whether two tables are multiples of each other, up to rounding."""
    if old.logs or new.logs:
        return old.logs == new.logs and old.values is new.values
    x, y = old.values, new.values
    first, last = x.item(0), x.item(-1)
    if first > 0.0 and last > 0.0:
        # in different tables, the first and the last entries mostly have different ratios; a ratio is exact up to SAME
        one, two = y.item(0) / first, y.item(-1) / last
        if abs(one - two) > 4 * SAME * one:
            return False
    top, other = x.max(), y.max()
    if top == 0.0 or other == 0.0:
        return bool(top == other)
    # block by block: a table that has changed differs early, and no copy grows
    parts = (slice(i, i + BLOCK_CELLS) for i in range(0, x.size, BLOCK_CELLS))
    return all(_agree(x[part], other / top, y[part]) for part in parts)


def _agree(x: Array, ratio: float, y: Array) -> bool:
    """Whether ``x * ratio`` is ``y``; an entry that only underflowed is no zero."""
    gap = np.abs(x * ratio - y)
    return bool((gap <= SAME * y).all() and ((x > 0.0) == (y > 0.0)).all())


def _same_scale(old: Scaled, new: Scaled) -> bool:
    """Whether two multiples of each other are equal; exactly, since the scale of all tables adds up."""
    return bool(old.log_scale == new.log_scale and old.values.max() == new.values.max())
