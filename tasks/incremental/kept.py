"""Both sweeps with all their tables kept: what the engines that keep them have in common."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.step import Step
from ..sweeps.scaled import Scaled, SumProduct

Array = NDArray[Any]

# Two tables are the same if no entry differs by more than this, relative to itself: what rounding does to a
# message that new evidence cannot change (one below which nothing is observed, say). A table that is kept for
# this reason has every entry right up to so much, however often its inputs change: sums of products add errors
# up, and magnify none.
SAME = 1e-14


class KeptTables(ABC):
    """The tables of a propagation, brought up to date on demand: after a change only what depends on it.

    Parameters
    ----------
    steps : sequence of Step
        Forward, then backward.
    n_forward : int
        Number of forward steps; what they make keeps its scale, of other tables only ratios matter.
    leaves : mapping of int to Scaled
    algebra : SumProduct
    threads : int
        As many as ever compute at once.

    Attributes
    ----------
    computed : int
        Steps that were run so far.
    seconds : float
        Time that they took.
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
        self.seconds = 0.0
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
        """Return what the steps made and nothing has changed since."""
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
        """Compute what is stale of the tables in ``wanted`` and of those that they need."""
        start = time.perf_counter()
        self._refresh(self._needed(tuple(wanted)), threads)
        self.seconds += time.perf_counter() - start

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
        """Run those of some steps, given by position, that are stale."""

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
