"""Findings of cases as factors: likelihoods of the states that are left, scaled so that they cannot overflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The likelihoods of one variable in many cases.

    Parameters
    ----------
    values : ndarray, shape (states, cases)
        With maximum 1 in every case that allows a state; what is below the range of float64 then is 0.
    log_scale : ndarray, shape (cases,)
        ln of what they were divided by.
    low : ndarray, shape (cases,)
        ln of the least positive one after that.
    """

    values: Array
    log_scale: Array
    low: Array

    @property
    def log_means(self) -> Array:
        """ln of the mean over the states, shape (cases,); -inf where no state is allowed."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.values.sum(axis=0)) + self.log_scale - np.log(len(self.values)))

    @property
    def shares(self) -> Array:
        """The likelihoods divided by their sum; zeros where no state is allowed."""
        total = self.values.sum(axis=0)
        return np.asarray(self.values / np.where(total > 0.0, total, 1.0))


def case_likelihoods(column: Array, states: Array) -> Likelihoods:
    """Read a column of cases for the states of its variable that are left.

    Parameters
    ----------
    column : ndarray
        A state of the model for each case, -1 where nothing is observed; or likelihoods, shape (cases, states).
    states : ndarray of int
        The states that are left.
    """
    if column.ndim == 1:
        hit = (column[None, :] == states[:, None]) | (column < 0)[None, :]
        return Likelihoods(hit.astype(np.float64), np.zeros(len(column)), np.zeros(len(column)))
    values = np.ascontiguousarray(column[:, states].T, dtype=np.float64)
    top = values.max(axis=0)
    top = np.where(top > 0.0, top, 1.0)
    least = np.min(values, axis=0, where=values > 0.0, initial=np.inf)
    scale = np.log(top)
    return Likelihoods(values / top, scale, np.where(least < np.inf, np.log(np.minimum(least, top)) - scale, 0.0))


def likelihoods(finding: Array, states: Array) -> Likelihoods:
    """Read one finding, a likelihood for each state of the model, as a single case."""
    return case_likelihoods(finding[None, :], states)
