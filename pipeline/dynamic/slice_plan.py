"""The plan of a slice, and sums over it: its factors, its findings, and messages from the slices before and after it.

The plan is made once. The sums are computed for every step: forward and backward messages, and beliefs inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ...tasks.sweeps.scaled import LOWEST, Scaled, from_logs, measured
from ..compiled.state import kept_steps
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
from ..plans.two_way_steps import LeafMessages, leaf_messages
from ..queries.beliefs import posteriors
from .slice_template import Factor

Array = NDArray[Any]
Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SliceLeaves:
    """Which leaf of a slice's tree is what.

    The first leaves are factors. Then come one leaf for the finding of each variable, one for the message from later
    slices (a table over the interface), and, except in the first slice, one for the message from earlier slices.

    Parameters
    ----------
    dims : tuple of int
        Of the variables of the slice and of the interface before it.
    factors : tuple of (tuple of int, ndarray)
        Each over some variable.
    log_constant : float
        ln of the product of factors without variables.
    interface, past : tuple of int
    """

    dims: tuple[int, ...]
    factors: tuple[Factor, ...]
    log_constant: float
    interface: Axes
    past: Axes

    @property
    def variables(self) -> int:
        """How many variables a slice has."""
        return len(self.dims) - len(self.past)

    def finding(self, v: int) -> int:
        """Return the leaf of the finding of a variable."""
        return len(self.factors) + v

    @property
    def after(self) -> int:
        """The leaf of the message from later slices."""
        return len(self.factors) + self.variables

    @property
    def before(self) -> int:
        """The leaf of the message from earlier slices."""
        return self.after + 1

    @cached_property
    def scopes(self) -> tuple[Axes, ...]:
        """The variables of all leaves."""
        factors = (scope for scope, _ in self.factors)
        return (*factors, *((v,) for v in range(self.variables)), self.interface, *([self.past] if self.past else []))

    def tables(self, layouts: Sequence[Axes]) -> dict[int, Array]:
        """Return the flat tables of all leaves except the message from earlier slices, in given orders of axes."""
        found = {}
        for leaf, (scope, values) in enumerate(self.factors):
            moved = np.transpose(values, [scope.index(v) for v in layouts[leaf]])
            found[leaf] = np.array(moved, np.float64, order="C").reshape(-1)
        for leaf in range(len(self.factors), self.after + 1):
            found[leaf] = np.ones(prod(self.dims[v] for v in self.scopes[leaf]))
        return found


def slice_leaves(dims: tuple[int, ...], factors: Sequence[Factor], interface: Axes, past: Axes) -> SliceLeaves:
    """Take the factors of a slice apart from constants."""
    constants = [float(values) for scope, values in factors if not scope]
    log = -math.inf if 0.0 in constants else math.fsum(map(math.log, constants))
    return SliceLeaves(dims, tuple([each for each in factors if each[0]]), log, interface, past)


@dataclass(frozen=True, eq=False)
class SlicePlan:
    """Both sweeps over the tree of a slice, and the messages that leave it.

    Parameters
    ----------
    leaves : SliceLeaves
    messages : LeafMessages
        Messages to the leaves of the later and the earlier slices.
    """

    leaves: SliceLeaves
    messages: LeafMessages

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return self.messages.steps

    @cached_property
    def results(self) -> dict[int, int]:
        """The table of the belief of each variable that is asked for."""
        return {target[0]: table for target, table in self.messages.results.items()}

    def leaving(self, leaf: int) -> tuple[int, Axes]:
        """Return the table of all that the others say of a leaf, and its axes."""
        found = self.messages.leaving[leaf]
        assert found is not None  # each variable has a leaf of its own besides
        return found

    def apart(self, leaf: int) -> tuple[int, ...]:
        """Return the roots of the components that do not contain a leaf; their sums multiply its own."""
        own = self.messages.root(leaf)
        return tuple([root for root in self.messages.tree.roots if root != own])

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes of all its tables."""
        tree = self.messages.tree
        cells = sum(step.lowered.out_cells for step in self.steps) + sum(tree.cells[: tree.n_leaves])
        return 2 * 8 * cells

    @cached_property
    def cells(self) -> int:
        """Cells that both sweeps multiply."""
        return sum(step.lowered.cells for step in self.steps)


def sums_plan(leaves: SliceLeaves, asked: Sequence[int], resources: Resources) -> SlicePlan:
    """Plan the sums of a slice.

    Raises
    ------
    BudgetError
        If its tables do not fit memory.
    """
    problem = Problem(leaves.dims, leaves.scopes, SUM_PRODUCT, 8, targets=tuple([(v,) for v in asked]))
    tree = planner_of_slice(problem, resources).tree()
    verify_memory(2 * 8 * sum(tree.cells), resources)
    ends = [leaves.after, *([leaves.before] if leaves.past else [])]
    found = SlicePlan(leaves, leaf_messages(tree, problem, ends))
    verify_memory(found.kept_bytes, resources)
    return found


def planner_of_slice(problem: Problem, resources: Resources) -> Planner:
    """Return the planner of a slice, as the options ask for it.

    Raises
    ------
    ModelError
        If an order is given by names.
    """
    asked = resources.asked
    if not isinstance(asked.order, str):
        raise ModelError("the order of a dynamic network's slices is a rule, not names")
    options = PlanOptions(
        tree=asked.tree,
        order=asked.order,  # type: ignore[arg-type]
        order_seconds=asked.order_time,
        seed=asked.seed,
        kept=True,
    )
    return Planner(problem, options)


def verify_memory(needed: int, resources: Resources) -> None:
    """Refuse a slice whose tables do not fit.

    Raises
    ------
    BudgetError
    """
    if needed > resources.memory_bytes:
        raise BudgetError(
            f"the tables of a slice need {format_bytes(needed)}, allowed {format_bytes(resources.memory_bytes)}"
        )


def moved_axes(values: Array, axes: Axes, wanted: Axes, dims: Sequence[int]) -> Array:
    """Return a flat table with its axes in another order, a copy."""
    if axes == wanted:
        return values.copy()
    shaped = values.reshape([dims[v] for v in axes])
    return np.array(np.transpose(shaped, [axes.index(v) for v in wanted]), order="C").reshape(-1)


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
