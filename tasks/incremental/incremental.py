"""Both sweeps with all their tables kept: after a change only what depends on it is computed again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.step import Step
from ..sweeps.scaled import Scaled, SumProduct
from ..sweeps.sweep import useful_threads

Array = NDArray[Any]

# Two tables are the same if no entry differs by more than this, relative to itself: what rounding does to a
# message that new evidence cannot change (one below which nothing is observed, say). A table that is kept for
# this reason has every entry right up to so much, however often its inputs change: sums of products add errors
# up, and magnify none.
SAME = 1e-14
_BLOCK = 1 << 13


class Incremental:
    """The tables of a propagation, brought up to date on demand.

    Parameters
    ----------
    steps : sequence of Step
        Forward, then backward.
    n_forward : int
        Number of forward steps; what they make keeps its scale, of other tables only ratios matter.
    leaves : mapping of int to Scaled
    algebra : SumProduct

    Attributes
    ----------
    computed : int
        Steps that were run so far.
    seconds : float
        Time that they took.
    """

    def __init__(
        self, steps: Sequence[Step], n_forward: int, leaves: Mapping[int, Scaled], algebra: SumProduct
    ) -> None:
        self.seconds = 0.0
        self._tables: dict[int, Scaled] = dict(leaves)
        self._stale = {step.node for step in steps}
        self.computed = 0
        self._steps = {step.node: step for step in steps}
        self._order = [step.node for step in steps]
        self._forward = {step.node for step in steps[:n_forward]}
        self._algebra = algebra
        self._readers: dict[int, list[int]] = {}
        for step in steps:
            for i in step.inputs:
                self._readers.setdefault(i, []).append(step.node)
        self._needs: dict[tuple[int, ...], list[int]] = {}

    def table(self, node: int) -> Scaled:
        """Return a table, up to date if it was refreshed."""
        return self._tables[node]

    def current(self) -> dict[int, Scaled]:
        """Return what the steps made and nothing has changed since."""
        return {i: t for i, t in self._tables.items() if i in self._steps and i not in self._stale}

    def copies(self, nodes: Iterable[int]) -> dict[int, Scaled]:
        """Return tables that stay as they are."""
        return {node: self._tables[node] for node in nodes}

    def reset(self, leaves: Mapping[int, Scaled]) -> None:
        """Forget every table but the given leaves."""
        self._tables = dict(leaves)
        self._stale = set(self._steps)

    def set_leaf(self, node: int, table: Scaled) -> None:
        """Replace a leaf table."""
        self._replace(node, table)

    def restore(self, tables: Mapping[int, Scaled]) -> None:
        """Take over tables that were computed from the present leaves.

        Raises
        ------
        ValueError
            If a table has no step, or another size.
        """
        for node, table in tables.items():
            if node not in self._steps or table.values.size != self._steps[node].lowered.out_cells:
                raise ValueError(f"table {node} does not belong to this plan")
            self._tables[node] = table
            self._stale.discard(node)

    def refresh(self, wanted: Iterable[int], threads: int = 1) -> None:
        """Compute what is stale of the tables in ``wanted`` and of those that they need."""
        if not self._stale:
            return
        start = time.perf_counter()
        for node in self._needed(tuple(wanted)):
            if node in self._stale:
                step = self._steps[node]
                inputs = [self._tables[i] for i in step.inputs]
                self._stale.discard(node)
                self.computed += 1
                self._replace(node, self._algebra.step(step, inputs, useful_threads(step, threads)))
        self.seconds += time.perf_counter() - start

    def _needed(self, wanted: tuple[int, ...]) -> list[int]:
        """Return the steps behind some tables, in execution order."""
        if wanted not in self._needs:
            reached = set(wanted)
            for node in reversed(self._order):
                if node in reached:
                    reached.update(self._steps[node].inputs)
            self._needs[wanted] = [node for node in self._order if node in reached]
        return self._needs[wanted]

    def _replace(self, node: int, table: Scaled) -> None:
        old = self._tables.get(node)
        readers = self._readers.get(node, ())
        if old is None or not readers or not same_ratios(old, table):
            self._tables[node] = table
            self._stale.update(readers)
        elif not _same_scale(old, table):
            # nobody below sees a factor; only the probability of the evidence does
            self._tables[node] = table
            self._stale.update(n for n in readers if n in self._forward)


def same_ratios(old: Scaled, new: Scaled) -> bool:
    """Whether two tables are multiples of each other, up to rounding."""
    if old.logs or new.logs:
        return old.logs == new.logs and old.values is new.values
    x, y = old.values, new.values
    top, other = x.max(), y.max()
    if top == 0.0 or other == 0.0:
        return bool(top == other)
    # block by block: a table that has changed differs early, and no copy grows
    parts = (slice(i, i + _BLOCK) for i in range(0, x.size, _BLOCK))
    return all(_agree(x[part], other / top, y[part]) for part in parts)


def _agree(x: Array, ratio: float, y: Array) -> bool:
    """Whether ``x * ratio`` is ``y``; an entry that only underflowed is no zero."""
    gap = np.abs(x * ratio - y)
    return bool((gap <= SAME * y).all() and ((x > 0.0) == (y > 0.0)).all())


def _same_scale(old: Scaled, new: Scaled) -> bool:
    """Whether two multiples of each other are equal; exactly, since the scale of all tables adds up."""
    return bool(old.log_scale == new.log_scale and old.values.max() == new.values.max())


def loops_are_loaded() -> bool:
    """Return whether the compiled loops of :mod:`.packed` were used before, and cost nothing to start."""
    return f"{__package__}.packed" in sys.modules
