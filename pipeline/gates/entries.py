"""The entries of a function that a circuit has parameters for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, format_bytes
from ..models.function import Function
from ..preprocessing.preprocess import Network

Array = NDArray[Any]


def is_constraint(function: Function) -> bool:
    """Whether all entries of a function are 0 or 1."""
    listed = function.values if function.rows is None else np.append(function.values, function.default)
    return bool(np.isin(listed, (0.0, 1.0)).all())


def entries_left(network: Network, f: int) -> tuple[tuple[int, ...], Array, Array, Array]:
    """Return the entries of a function that are above 0 on the remaining states.

    Parameters
    ----------
    network : Network
        The model under hard evidence, with the remaining states of each variable.
    f : int
        Number of the function.

    Raises
    ------
    BudgetError
        If the function has too many entries.
    """
    model = network.model
    function, dims = model.functions[f], [model.dims[v] for v in model.functions[f].scope]
    if function.rows is not None and function.default == 0:
        at, values = function.rows.astype(np.int64), function.values
    else:
        if math.prod(dims) > (most := 1 << 28):
            raise BudgetError(
                f"function {f} has {math.prod(dims):,} entries that are or may be above 0; a circuit allows "
                f"{most:,} entries of one function, in {format_bytes(8 * most)}"
            )
        table = function.dense(model.dims)
        at = np.argwhere(table > 0)
        values = table[tuple(at.T)] if dims else table.reshape(-1)[: len(at)]
    # entries are numbered by 64-bit integers
    if math.prod(dims) >= 1 << 62:
        raise BudgetError(f"function {f} has {math.prod(dims):.3g} entries, more than a circuit has numbers for")
    places = (
        np.stack([network.places[v][at[:, k]] for k, v in enumerate(function.scope)], axis=1, dtype=np.int32)
        if function.scope
        else np.zeros((len(at), 0), np.int32)
    )
    inside = (places >= 0).all(axis=1) & (values > 0)
    wide = [k for k, v in enumerate(function.scope) if len(network.domains[v]) > 1]
    steps = np.array([math.prod(dims[k + 1 :]) for k in range(len(dims))], np.int64)
    scope = tuple([network.local[function.scope[k]] for k in wide])
    return scope, places[inside][:, wide], (at @ steps)[inside], values[inside]
