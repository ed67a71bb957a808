"""Sums over one slice, again and again: what leaves it forward and backward, and the beliefs inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.sweeps.scaled import LOWEST, Scaled, from_logs, measured
from ..compiled.state import kept_steps
from ..queries.beliefs import posteriors
from .slice_plan import SlicePlan, moved_axes

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SumMessage:
    """What the slices on one side say of an interface.

    Parameters
    ----------
    table : Scaled
        Over the interface's variables in their order, without a scale.
    log : float
        ln of what it was divided by.
    """

    table: Scaled
    log: float


class SliceSums:
    """The kept tables of a slice, for one walk along the steps.

    Parameters
    ----------
    plan : SlicePlan
    compiled : bool
        Whether compiled loops run the steps.
    """

    def __init__(self, plan: SlicePlan, compiled: bool) -> None:
        self.plan, self.leaves = plan, plan.leaves
        tables = plan.leaves.tables(plan.layouts)
        scaled = {leaf: measured(values) for leaf, values in tables.items()}
        if plan.leaves.past:
            scaled[plan.leaves.before] = measured(np.ones(plan.tree.cells[plan.leaves.before]))
        self._ones = dict(scaled)
        self._there = dict(scaled)
        # everything counts with its scale, as messages leave on the way back
        self._tables = kept_steps(plan.steps, len(plan.steps), scaled, plan.leaves.dims, compiled)
        self._apart = {leaf: plan.apart(leaf) for leaf in plan.leaving}
        self._results = tuple(plan.results.values())

    def enter(self, findings: Sequence[tuple[int, Scaled]]) -> None:
        """Enter what a step observes: a likelihood for each state of some variables, always the same ones."""
        for v, finding in findings:
            self._put(self.leaves.finding(v), finding)

    def forward(self, before: SumMessage | None) -> SumMessage | None:
        """Return what this slice and those before it say of its interface; None if that is impossible.

        Parameters
        ----------
        before : SumMessage or None
            None in the first slice.
        """
        self._set_before(before)
        return self._leaving(self.leaves.after, self.leaves.interface, before)

    def backward(self, after: SumMessage | None) -> SumMessage | None:
        """Return what this slice and those after it say of the interface before it; None if that is impossible.

        Parameters
        ----------
        after : SumMessage or None
            None in the last slice.
        """
        self._set_after(after)
        return self._leaving(self.leaves.before, self.leaves.past, after)

    def beliefs(self, before: SumMessage | None, after: SumMessage | None) -> tuple[float, dict[int, Array]]:
        """Return ln of the sum over all slices, and the posteriors of what is asked, none where that is 0."""
        self._set_before(before)
        self._set_after(after)
        tables, roots = self._tables, self.plan.tree.roots
        tables.refresh(roots)
        logs = [tables.table(root).log_value() for root in roots]
        logs += [message.log for message in (before, after) if message is not None]
        total = math.fsum(logs) + self.leaves.log_constant if -math.inf not in logs else -math.inf
        if total == -math.inf:
            return total, {}
        tables.refresh(self._results)
        flat = tables.posteriors(self._results)
        if flat is None:
            found = posteriors({(v,): tables.table(n) for v, n in self.plan.results.items()}, self.leaves.dims)
            flat = [found[v,] for v in self.plan.results]
        return total, dict(zip(self.plan.results, flat, strict=True))

    def _set_before(self, message: SumMessage | None) -> None:
        if self.leaves.past:
            self._put_message(self.leaves.before, self.leaves.past, message)

    def _set_after(self, message: SumMessage | None) -> None:
        self._put_message(self.leaves.after, self.leaves.interface, message)

    def _put_message(self, leaf: int, axes: tuple[int, ...], message: SumMessage | None) -> None:
        table = self._ones[leaf] if message is None else message.table
        layout = self.plan.layouts[leaf]
        if layout != axes and message is not None:
            table = table.with_values(moved_axes(table.values, axes, layout, self.leaves.dims))
        self._put(leaf, table)

    def _put(self, leaf: int, table: Scaled) -> None:
        if self._there[leaf] is not table:
            self._there[leaf] = table
            self._tables.set_leaf(leaf, table)

    def _leaving(self, leaf: int, axes: tuple[int, ...], entered: SumMessage | None) -> SumMessage | None:
        """Return the message to a leaf, in some order of axes, and on a scale of its own."""
        tables, apart = self._tables, self._apart[leaf]
        node, made = self.plan.leaving[leaf]
        tables.refresh((node, *apart))
        table = tables.table(node)
        values = moved_axes(table.values, made, axes, self.leaves.dims)
        found = from_logs(values, table.log_scale, LOWEST) if table.logs else measured(values, table.log_scale)
        logs = [found.log_scale, self.leaves.log_constant, *(tables.table(root).log_value() for root in apart)]
        if -math.inf in logs or (not found.logs and float(found.values.max()) == 0.0):
            return None
        found.log_scale = 0.0
        return SumMessage(found, math.fsum(logs) + (0.0 if entered is None else entered.log))
