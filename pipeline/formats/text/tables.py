"""Tables as functions: the choice between dense and rows, within what the file really contains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.model import Function, dense_function, row_function
from .tokens import Tokens

# One array axis a variable; NumPy stops at 64 (32 before version 2), np.einsum at 52 labels.
MAX_AXES = 60 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_MAX_DIAGONAL_AXES = min(50, MAX_AXES)


def cell_count(scope: Sequence[int], dims: Sequence[int]) -> int:
    """Return the number of assignments of a scope, as an unbounded integer."""
    return math.prod(dims[v] for v in scope)


def full_table(
    scope: Sequence[int],
    dims: Sequence[int],
    values: NDArray[np.generic],
    tokens: Tokens,
    at: int,
    child: int | None = None,
) -> Function:
    """Build a dense function from one value per assignment, the last variable of the scope fastest.

    A scope that NumPy has too few axes for is an error of the token at index ``at``.
    """
    limit = _axes_limit(scope)
    if len(scope) > limit:
        raise tokens.fail(at, f"a full table over at most {limit} variables", f"{len(scope)} variables")
    return dense_function(scope, values.reshape([dims[v] for v in scope]), child=child)


def tuple_table(
    scope: Sequence[int],
    dims: Sequence[int],
    rows: NDArray[np.int32],
    values: NDArray[np.int64],
    default: int,
) -> Function:
    """Build a function from listed tuples: dense when they are at least a quarter of all, else rows."""
    if scope and (4 * len(rows) < cell_count(scope, dims) or len(scope) > _axes_limit(scope)):
        return row_function(scope, rows, values, default)
    table = np.full([dims[v] for v in scope], default, dtype=np.int64)
    if scope:
        table[tuple(rows.T)] = values  # of repeated tuples the last one wins
    elif len(values):
        table[()] = values[-1]
    return dense_function(scope, table)


def first_bad_state(rows: NDArray[np.int64], dims: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return row and column of the first state index outside its domain, or None."""
    bad = (rows < 0) | (rows >= dims)
    if not bad.any():
        return None
    row, column = np.argwhere(bad)[0]
    return int(row), int(column)


def _axes_limit(scope: Sequence[int]) -> int:
    return MAX_AXES if len(set(scope)) == len(scope) else _MAX_DIAGONAL_AXES
