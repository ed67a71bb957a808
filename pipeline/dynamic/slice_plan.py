"""The plan of a slice, made once: its factors, its findings, and the messages from the slices before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..plans.leaf_messages import LeafMessages, leaf_messages
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
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
