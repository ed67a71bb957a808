"""Findings of compiled models: states and likelihoods by name, as vectors by variable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..models.model import Model

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
    if isinstance(finding, str | int | float | np.integer | np.floating | np.bool_):
        state = model.state_index(variable, finding)
        return _indicator(model.dims[variable], state)
    return likelihood(model, variable, finding)


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
    if name not in model.index:
        raise ModelError(f"evidence names {name!r}, which is not a variable of the model")
    return model.index[name]


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
