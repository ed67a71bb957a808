"""Walks along the steps of a dynamic network, which yield the posteriors or the most likely states of each step.

A walk goes forward. The messages from later steps are computed first, from the last step back, and are stored only at
checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import min_plus
from ...tasks.sweeps.scaled import Scaled, measured
from ...tasks.sweeps.sweep import Plain, sweep
from ..errors import ModelError
from ..machine.resources import Resources
from ..models.cases import Cases, cases_of
from ..models.checks import integer
from ..models.model import Model
from ..plans.plan import Plan
from ..plans.problem import Problem
from ..queries.decode import decode
from .slice_plan import SliceBeliefs, SliceLeaves, SliceSums, SumMessage, planner_of_slice, verify_memory

_ENERGIES = min_plus("float64")


@dataclass(frozen=True, eq=False)
class EnergyMessage:
    """The least energy of the slices from one on, for each state of the interface before it.

    Parameters
    ----------
    table : ndarray, float64
        Over the interface's variables, an axis for each; the least is 0.
    energy : float
        What was subtracted.
    """

    table: Array
    energy: float


def optimum_plan(leaves: SliceLeaves, resources: Resources) -> Plan:
    """Plan the optimum of a slice, which keeps the interface before it.

    Raises
    ------
    BudgetError
        If its tables do not fit memory.
    """
    scopes = leaves.scopes[: leaves.after + 1] + tuple([(v,) for v in leaves.past])
    last = frozenset(leaves.past)
    problem = Problem(leaves.dims, scopes, _ENERGIES, 8, last=last, keeps_last=bool(last))
    planner = planner_of_slice(problem, resources)
    plan = planner.of(planner.tree())
    verify_memory(plan.kept_bytes, resources)
    return plan


class SliceOptimum:
    """The leaf tables of a slice, for one walk along the steps.

    Parameters
    ----------
    leaves : SliceLeaves
    plan : Plan
    compiled : bool
        Whether compiled loops run the steps.
    """

    def __init__(self, leaves: SliceLeaves, plan: Plan, compiled: bool) -> None:
        self.leaves, self.plan = leaves, plan
        with np.errstate(divide="ignore"):
            self._leaves = {k: -np.log(table) for k, table in leaves.tables(plan.layouts).items()}
        self._algebra = Plain(_ENERGIES, compiled)
        self._freed = [()] * len(plan.up)
        kept = plan.tree.roots
        self._roots = [root for root in kept if not leaves.after < root < plan.tree.n_leaves]

    def swept(self, findings: Mapping[int, Array], after: EnergyMessage | None) -> dict[int, Array]:
        """Return all tables of a sweep.

        Parameters
        ----------
        findings : mapping of int to ndarray
            An energy for each state of the variables that are observed.
        after : EnergyMessage or None
            None in the last slice.
        """
        leaves = self._leaves | {self.leaves.finding(v): energies for v, energies in findings.items()}
        if after is not None:
            layout, interface = self.plan.layouts[self.leaves.after], self.leaves.interface
            moved = np.transpose(after.table, [interface.index(v) for v in layout])
            leaves[self.leaves.after] = np.ascontiguousarray(moved).reshape(-1)
        return sweep(self.plan.up, leaves, self._algebra, self._freed)

    def message(self, tables: Mapping[int, Array], after: EnergyMessage | None) -> EnergyMessage | None:
        """Return the message to the previous interface from the tables of a sweep, or the total; None if impossible."""
        past, dims = self.leaves.past, self.leaves.dims
        total = np.zeros([dims[v] for v in past])
        for root in self._roots:
            axes = self.plan.layouts[root]
            shaped = tables[root].reshape([dims[v] for v in axes])
            ordered = np.transpose(shaped, sorted(range(len(axes)), key=axes.__getitem__))
            total = total + ordered.reshape([dims[v] if v in axes else 1 for v in past])
        least = float(total.min()) - self.leaves.log_constant
        if least == math.inf:
            return None
        energy = least + (0.0 if after is None else after.energy)
        return EnergyMessage(total - total.min(), energy)

    def decoded(self, tables: Mapping[int, Array], past: Sequence[int]) -> list[int]:
        """Return the best states of the slice's variables, given the states of the previous interface."""
        assignment = dict(zip(self.leaves.past, past, strict=True))
        decode(self.plan.up, tables, self.leaves.dims, _ENERGIES, assignment, self._algebra.compiled)
        return [assignment[v] for v in range(self.leaves.variables)]


def evidence_by_step(model: Model, evidence: Any, steps: int | None) -> Cases:
    """Read the evidence about the variables of a slice: one case for each step.

    Parameters
    ----------
    evidence : mapping, data frame, sequence of mappings, path of a .csv file, or None
        As for ``marginals_batch`` of a compiled model.
    steps : int or None
        Number of steps; steps beyond the evidence observe nothing. If None, one step for each row of evidence.

    Raises
    ------
    ModelError
        If there are no steps, or more rows of evidence than steps.
    """
    found = Cases(0, {}) if evidence is None else _read(model, evidence)
    count = found.count if steps is None else integer(steps, "the number of steps", 1)
    if not count:
        raise ModelError("a dynamic network has at least one step: give steps, or evidence with a row for each")
    if found.count > count:
        raise ModelError(f"there are {count:,} steps, but evidence for {found.count:,}")
    columns = {v: _padded(column, count) for v, column in found.columns.items()}
    seen = {v: column for v, column in columns.items() if column.ndim > 1 or (column >= 0).any()}
    return Cases(count, seen)


def _read(model: Model, evidence: Any) -> Cases:
    if isinstance(evidence, str | PathLike):
        from sys import maxsize

        from ..formats.case_files import read_cases

        return next(read_cases(evidence, model, maxsize))
    return cases_of(model, evidence)


def _padded(column: Array, count: int) -> Array:
    """Return a column with a row for each step; added rows are unobserved."""
    missing = count - len(column)
    if not missing:
        return column
    rest = np.full(missing, -1, np.int32) if column.ndim == 1 else np.ones((missing, column.shape[1]))
    return np.concatenate([column, rest])


class StepFindings:
    """Findings of each step, as likelihoods for sums or energies for optima; equal findings are the same object.

    Parameters
    ----------
    model : Model
    cases : Cases
    """

    def __init__(self, model: Model, cases: Cases) -> None:
        self.count = cases.count
        self._columns = cases.columns
        self._scaled: dict[tuple[int, int], Scaled] = {}
        self._energies: dict[tuple[int, int], Array] = {}
        self._dims = model.dims

    def likelihoods(self, step: int) -> list[tuple[int, Scaled]]:
        """Return a table for each variable that is observed at some step."""
        return [(v, self._scaled_at(v, column, step)) for v, column in self._columns.items()]

    def energies(self, step: int) -> dict[int, Array]:
        """Return the findings of a step as energies, which are -ln of the likelihoods."""
        return {v: self._energies_at(v, column, step) for v, column in self._columns.items()}

    def logs_at(self, start: int, states: Array) -> Array:
        """Return ln of the likelihood of each step from ``start`` on, at given states, shape (steps, variables)."""
        total = np.zeros(len(states))
        stop = start + len(states)
        with np.errstate(divide="ignore"):
            for v, column in self._columns.items():
                own = states[:, v]
                if column.ndim > 1:
                    total += np.log(column[start:stop][np.arange(len(states)), own])
                else:
                    total[(column[start:stop] >= 0) & (column[start:stop] != own)] = -np.inf
        return total

    def _scaled_at(self, v: int, column: Array, step: int) -> Scaled:
        if column.ndim > 1:
            return measured(column[step].copy())
        key = v, int(column[step])
        if key not in self._scaled:
            self._scaled[key] = measured(self._vector(*key))
        return self._scaled[key]

    def _energies_at(self, v: int, column: Array, step: int) -> Array:
        with np.errstate(divide="ignore"):
            if column.ndim > 1:
                return np.asarray(-np.log(column[step]))
            key = v, int(column[step])
            if key not in self._energies:
                self._energies[key] = -np.log(self._vector(*key))
        return self._energies[key]

    def _vector(self, v: int, state: int) -> Array:
        if state < 0:
            return np.ones(self._dims[v])
        return np.where(np.arange(self._dims[v]) == state, 1.0, 0.0)


Array = NDArray[Any]
Message = TypeVar("Message", SumMessage, EnergyMessage)


class ImpossibleError(Exception):
    """The findings are jointly impossible."""


def block_steps(count: int, message_bytes: int, allowed: int) -> int:
    """Return the number of steps between checkpoints: all steps if ``allowed`` bytes hold all messages, otherwise about
    their square root.
    """
    if count * message_bytes <= allowed:
        return count
    return min(isqrt(count - 1) + 1, count)


def from_later(
    count: int, block: int, backward: Callable[[int, Message | None], Message | None]
) -> Iterator[Message | None]:
    """Yield for each step, from the first on, the message from the later steps; None for the last step.

    Memory holds at most ``count / block + block`` messages. Messages between checkpoints are computed twice: on the way
    to the checkpoints, and when they are needed.

    Parameters
    ----------
    count, block : int
        Number of steps, and number of steps between checkpoints.
    backward : callable
        Takes a step and the message from the steps after it; returns the message from this step and the steps after it.

    Raises
    ------
    ImpossibleError
        If a message is None: the findings of the later steps are impossible.
    """

    def made(step: int, after: Message | None) -> Message:
        found = backward(step, after)
        if found is None:
            raise ImpossibleError
        return found

    ends: dict[int, Message | None] = {count - 1: None}
    message: Message | None = None
    for step in range(count - 1, block - 1, -1):
        message = made(step, message)
        if step % block == 0:
            ends[step - 1] = message
    for start in range(0, count, block):
        stop = min(start + block, count)
        inside = [ends.pop(stop - 1)]
        for step in range(stop - 1, start, -1):
            inside.append(made(step, inside[-1]))
        while inside:
            yield inside.pop()


@dataclass(frozen=True, eq=False)
class SumWalk:
    """Posteriors of each step, by sums over the slices.

    Parameters
    ----------
    first, later : SliceSums
        Tables of the first slice, and of all later slices. The walk changes them at each step.
    findings : StepFindings
    """

    first: SliceSums
    later: SliceSums
    findings: StepFindings

    def entered(self, step: int) -> SliceSums:
        """Return the sums of a step's slice with its findings."""
        sums = self.later if step else self.first
        sums.enter(self.findings.likelihoods(step))
        return sums

    def _backward(self, step: int, after: SumMessage | None) -> SumMessage | None:
        return self.entered(step).backward(after)

    def smoothed(self, block: int) -> Iterator[SliceBeliefs]:
        """Yield the posteriors of each step, given the findings of all steps."""
        before: SumMessage | None = None
        for step, after in enumerate(from_later(self.findings.count, block, self._backward)):
            found = self.entered(step).beliefs(before, after)
            if not found.posteriors:
                raise ImpossibleError
            yield found
            before = found.leaving

    def filtered(self, lag: int) -> Iterator[SliceBeliefs]:
        """Yield the posteriors of each step, given the findings up to ``lag`` steps later.

        Raises
        ------
        ImpossibleError
            At the first step for which these findings are impossible.
        """
        before: SumMessage | None = None
        for step in range(self.findings.count):
            after = self._from_next(step, lag)
            found = self.entered(step).beliefs(before, after)
            if not found.posteriors:
                raise ImpossibleError
            yield found
            before = found.leaving

    def _from_next(self, step: int, lag: int) -> SumMessage | None:
        """Return the message from the next ``lag`` steps."""
        message: SumMessage | None = None
        for later in range(min(step + lag, self.findings.count - 1), step, -1):
            message = self._backward(later, message)
            if message is None:
                raise ImpossibleError
        return message

    def impossible_step(self) -> int | None:
        """Return the first step that is impossible given all before it; None if there is none."""
        before: SumMessage | None = None
        for step in range(self.findings.count):
            before = self.entered(step).forward(before)
            if before is None:
                return step
        return None


@dataclass(frozen=True, eq=False)
class OptimumWalk:
    """The most likely states along the steps.

    Parameters
    ----------
    first, later : SliceOptimum
    findings : StepFindings
    """

    first: SliceOptimum
    later: SliceOptimum
    findings: StepFindings

    def _swept(self, step: int, after: EnergyMessage | None) -> tuple[SliceOptimum, dict[int, Array]]:
        optimum = self.later if step else self.first
        return optimum, optimum.swept(self.findings.energies(step), after)

    def _backward(self, step: int, after: EnergyMessage | None) -> EnergyMessage | None:
        optimum, tables = self._swept(step, after)
        return optimum.message(tables, after)

    def path(self, block: int) -> Iterator[tuple[float, list[int]]]:
        """Yield for each step the energy of the best path, which stays the same, and the step's states in this path."""
        past: list[int] = []
        energy = 0.0
        for step, after in enumerate(from_later(self.findings.count, block, self._backward)):
            optimum, tables = self._swept(step, after)
            if not step:
                whole = optimum.message(tables, after)
                if whole is None:
                    raise ImpossibleError
                energy = whole.energy
            states = optimum.decoded(tables, past)
            yield energy, states
            past = [states[v] for v in optimum.leaves.interface]
