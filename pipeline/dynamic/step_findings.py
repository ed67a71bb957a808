"""The findings at each step, as tables for slices."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.sweeps.scaled import Scaled, measured
from ..errors import ModelError
from ..models.cases import Cases, cases_of
from ..models.checks import integer
from ..models.model import Model

Array = NDArray[Any]


def evidence_by_step(model: Model, evidence: Any, steps: int | None) -> Cases:
    """Read what is observed of a slice's variables, a case for each step.

    Parameters
    ----------
    evidence : mapping, data frame, sequence of mappings, path of a .csv file, or None
        As for ``marginals_batch`` of a compiled model.
    steps : int or None
        How many steps there are; those beyond the evidence observe nothing.

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
    """Return a column with a row for each step: unobserved where there was none."""
    missing = count - len(column)
    if not missing:
        return column
    rest = np.full(missing, -1, np.int32) if column.ndim == 1 else np.ones((missing, column.shape[1]))
    return np.concatenate([column, rest])


class StepFindings:
    """Findings of each step: likelihoods for sums, energies for optima; equal ones are the same object.

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
        """Return the same as energies, -ln of likelihoods."""
        return {v: self._energies_at(v, column, step) for v, column in self._columns.items()}

    def logs_at(self, start: int, states: Array) -> Array:
        """Return ln of the likelihoods of some steps at the states of a slice, shape (steps, variables)."""
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
