"""Sums over one slice, computed repeatedly: the messages forward and backward, and the beliefs inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.sweeps.scaled import LOWEST, Scaled, from_logs, measured
from ..compiled.state import kept_steps
from ..queries.beliefs import posteriors
from .slice_plan import SlicePlan, moved_axes

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SumMessage:
    """The message from the slices on one side to an interface.

    Parameters
    ----------
    table : Scaled
        Over the interface's variables in their order, without a scale.
    log : float
        ln of its divisor.
    """

    table: Scaled
    log: float


class SliceBeliefs(NamedTuple):
    """Beliefs of a slice between two messages.

    Attributes
    ----------
    log : float
        ln of the sum over all slices.
    posteriors : dict of int to ndarray
        Of the variables that are asked for; none where the sum is 0.
    leaving : SumMessage or None
        The message from this slice and the earlier ones to its interface.
    """

    log: float
    posteriors: dict[int, Array]
    leaving: SumMessage | None


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
        tables = plan.leaves.tables(plan.messages.layouts)
        scaled = {leaf: measured(values) for leaf, values in tables.items()}
        if plan.leaves.past:
            scaled[plan.leaves.before] = measured(np.ones(plan.messages.tree.cells[plan.leaves.before]))
        self._ones = dict(scaled)
        self._there = dict(scaled)
        # everything counts with its scale, as messages leave on the way back
        self._tables = kept_steps(plan.steps, len(plan.steps), scaled, plan.leaves.dims, compiled)
        self._apart = {leaf: plan.apart(leaf) for leaf in plan.messages.leaving}
        self._results = tuple(plan.results.values())
        self._wanted = (*plan.messages.tree.roots, *self._results, plan.leaving(plan.leaves.after)[0])

    def enter(self, findings: Sequence[tuple[int, Scaled]]) -> None:
        """Enter what a step observes: a likelihood for each state of some variables, always the same ones."""
        for v, finding in findings:
            self._put(self.leaves.finding(v), finding)

    def forward(self, before: SumMessage | None) -> SumMessage | None:
        """Return the message from this slice and the earlier ones to its interface; None if it is impossible.

        Parameters
        ----------
        before : SumMessage or None
            None in the first slice.
        """
        self._set_before(before)
        return self._leaving(self.leaves.after, self.leaves.interface, before)

    def backward(self, after: SumMessage | None) -> SumMessage | None:
        """Return the message from this slice and the later ones to the previous interface; None if it is impossible.

        Parameters
        ----------
        after : SumMessage or None
            None in the last slice.
        """
        self._set_after(after)
        return self._leaving(self.leaves.before, self.leaves.past, after)

    def beliefs(self, before: SumMessage | None, after: SumMessage | None) -> SliceBeliefs:
        """Return the requested beliefs of this slice, and its forward message."""
        self._set_before(before)
        self._set_after(after)
        tables, roots = self._tables, self.plan.messages.tree.roots
        tables.refresh(self._wanted)
        logs = [tables.table(root).log_value() for root in roots]
        logs += [message.log for message in (before, after) if message is not None]
        total = math.fsum(logs) + self.leaves.log_constant if -math.inf not in logs else -math.inf
        if total == -math.inf:
            return SliceBeliefs(total, {}, None)
        flat = tables.posteriors(self._results)
        if flat is None:
            found = posteriors({(v,): tables.table(n) for v, n in self.plan.results.items()}, self.leaves.dims)
            flat = [found[v,] for v in self.plan.results]
        posterior = dict(zip(self.plan.results, flat, strict=True))
        return SliceBeliefs(total, posterior, self._left(self.leaves.after, self.leaves.interface, before))

    def _set_before(self, message: SumMessage | None) -> None:
        if self.leaves.past:
            self._put_message(self.leaves.before, self.leaves.past, message)

    def _set_after(self, message: SumMessage | None) -> None:
        self._put_message(self.leaves.after, self.leaves.interface, message)

    def _put_message(self, leaf: int, axes: tuple[int, ...], message: SumMessage | None) -> None:
        table = self._ones[leaf] if message is None else message.table
        layout = self.plan.messages.layouts[leaf]
        if layout != axes and message is not None:
            table = table.with_values(moved_axes(table.values, axes, layout, self.leaves.dims))
        self._put(leaf, table)

    def _put(self, leaf: int, table: Scaled) -> None:
        if self._there[leaf] is not table:
            self._there[leaf] = table
            self._tables.set_leaf(leaf, table)

    def _leaving(self, leaf: int, axes: tuple[int, ...], entered: SumMessage | None) -> SumMessage | None:
        """Bring the message to a leaf up to date and return it."""
        self._tables.refresh((self.plan.leaving(leaf)[0], *self._apart[leaf]))
        return self._left(leaf, axes, entered)

    def _left(self, leaf: int, axes: tuple[int, ...], entered: SumMessage | None) -> SumMessage | None:
        """Return the message to a leaf, in some order of axes, and on a scale of its own; None if it is impossible."""
        tables = self._tables
        node, made = self.plan.leaving(leaf)
        table = tables.table(node)
        values = moved_axes(table.values, made, axes, self.leaves.dims)
        found = from_logs(values, table.log_scale, LOWEST) if table.logs else measured(values, table.log_scale)
        logs = [found.log_scale, self.leaves.log_constant]
        logs += [tables.table(root).log_value() for root in self._apart[leaf]]
        if -math.inf in logs or (not found.logs and not found.values.any()):
            return None
        found.log_scale = 0.0
        return SumMessage(found, math.fsum(logs) + (0.0 if entered is None else entered.log))
