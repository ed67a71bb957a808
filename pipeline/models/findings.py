"""Findings of compiled models, as vectors by variable; evidence is never more than certain."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import SAME_SHARE
from ..errors import InternalError, ModelError
from .function import Function
from .model import Model


def check_log10(model: Model, log10: float | None, likelihoods: Iterable[NDArray[Any]] = ()) -> None:
    """Refuse to answer that evidence of a Bayesian network is more than certain.

    Of networks that were taken as they are, though their rows do not sum to 1, that is what these sums allow.

    Parameters
    ----------
    log10 : float or None
        Of the probability of the evidence.
    likelihoods : iterable of ndarray
        Soft evidence, which may be more than 1.

    Raises
    ------
    InternalError
        If the logarithm is above 0 by more than rows sum to more than 1, and rounding.
    """
    if model.kind != "bayes" or log10 is None or log10 <= SAME_SHARE:
        return
    most = most_log10(model, likelihoods)
    if most is not None and log10 > max(most, 0.0) + SAME_SHARE:
        raise InternalError(f"evidence has the probability 10^{log10:.9g}, which is more than 1")


def most_log10(
    model: Model, likelihoods: Iterable[NDArray[Any]] = (), fixed: Container[int | None] = ()
) -> float | None:
    """Return the maximum possible log10 of a sum of a Bayesian network; None for other models.

    Children are summed out before their parents: each leaves at most the largest sum of its rows, whether that is 1 or
    not, or the largest entry where it has one state.

    Parameters
    ----------
    likelihoods : iterable of ndarray
        Soft evidence.
    fixed : container of int
        Variables that have one state each in the sum.
    """
    functions, names, dims = model.functions, model.names, model.dims
    if model.kind != "bayes":
        return None
    from .bayesian_networks import children_fault, cycle_fault

    if children_fault(functions, names) or cycle_fault(functions, names):
        return None
    factors = [f.positive[1] if f.child in fixed else _most_of_rows(f, dims) for f in functions]
    factors += [float(np.max(weights)) for weights in likelihoods]
    return math.fsum([math.log10(factor) for factor in factors if factor > 0])


def _most_of_rows(function: Function, dims: Sequence[int]) -> float:
    if function.rows is None:
        return function.most_of_rows
    from .bayesian_networks import row_sums

    return float(row_sums(function, dims).max())


Array = NDArray[Any]
Finding = Any
"""A state's label or index, or one likelihood a state."""


def named_findings(evidence: Any) -> Any:
    """Return a pandas Series of findings as a mapping without what is missing; anything else as it is."""
    if isinstance(evidence, Mapping) or not hasattr(evidence, "to_dict"):
        return evidence
    return {name: finding for name, finding in evidence.to_dict().items() if not is_missing(finding)}


def is_missing(cell: Any) -> bool:
    """Whether a cell of a table says that nothing is observed: None, an empty string, NaN or pandas' NA."""
    if isinstance(cell, float | np.floating):
        return bool(np.isnan(cell))
    return cell is None or (isinstance(cell, str) and not cell) or type(cell).__name__ in ("NAType", "NaTType")


def findings_of(model: Model, evidence: Mapping[str, Finding]) -> dict[int, Array]:
    """Turn named findings into likelihood vectors by variable index."""
    return {
        v: finding_vector(model, v, f)
        for v, f in ((variable_index(model, n), f) for n, f in named_findings(evidence).items())
    }


def finding_vector(model: Model, variable: int, finding: Finding) -> Array:
    """Turn a state into its indicator; check a likelihood vector."""
    if is_state(model, variable, finding):
        return state_vector(model, variable, model.state_index(variable, finding))
    return likelihood(model, variable, finding)


def is_state(model: Model, variable: int, finding: Finding) -> bool:
    """Whether a finding is one state, by label or by index, and no list of likelihoods."""
    if isinstance(finding, str | Real | Enum) or not isinstance(finding, Iterable):
        return True
    if isinstance(finding, np.ndarray) and not finding.ndim:
        return True
    return model.state_names(variable).is_label(finding)


def state_vector(model: Model, variable: int, state: int) -> Array:
    """Return the indicator of a state, by its index; everyone gets the same read-only array."""
    return _indicator(model.dims[variable], state)


def likelihood(model: Model, variable: int, values: Any) -> Array:
    """Check a likelihood vector, and copy it, as callers may use theirs again."""
    name, size = model.names[variable], model.dims[variable]
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"the likelihood of {name!r} is {values!r}; expected {size} numbers") from None
    if vector.shape != (size,):
        raise ModelError(f"the likelihood of {name!r} has {vector.size} values for {size} states")
    if not (np.isfinite(vector).all() and (vector >= 0.0).all()):
        raise ModelError(f"the likelihood of {name!r} has a value that is negative or not finite")
    return vector


def variable_index(model: Model, name: str) -> int:
    """Return the index of a variable that evidence names."""
    return model.variable(name, "evidence names")


@lru_cache(maxsize=1 << 12)
def _indicator(size: int, state: int) -> Array:
    """Return 1 at a state and 0 elsewhere; everyone gets the same array."""
    vector = np.zeros(size)
    vector[state] = 1.0
    vector.flags.writeable = False
    return vector


def same_finding(old: Array | None, new: Array | None) -> bool:
    """Whether two findings are equal; None stands for no finding."""
    return old is new or (old is not None and new is not None and np.array_equal(old, new))


# Findings of cases as factors: likelihoods of the states that are left, scaled so that they cannot overflow.


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The likelihoods of one variable in many cases.

    Parameters
    ----------
    values : ndarray, shape (states, cases)
        Scaled to maximum 1 in every case that allows a state. After scaling, values below the range of float64 are 0.
    log_scale : ndarray, shape (cases,)
        Natural logarithm of the divisor of each case.
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
