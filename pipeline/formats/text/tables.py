"""Tables as functions: the choice between dense and rows, within what the file really contains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import CELL_BYTES, LARGEST_INT32
from ...errors import ModelError, format_bytes, format_count
from ...models.function import Function, compact, dense_function, row_function, state_dtype
from ..format_policy import ENTRY_BYTES, OBJECT_BYTES
from .source import MAX_TEXT_BYTES
from .tokens import Tokens

# One array axis a variable; NumPy stops at 64 (32 before version 2), np.einsum at 52 labels.
MAX_AXES = 60 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_MAX_DIAGONAL_AXES = min(50, MAX_AXES)
# A number of a written table, and the space behind it.
_LEAST_ENTRY_BYTES = 4


def cell_count(scope: Sequence[int], dims: Sequence[int]) -> int:
    """Return the number of assignments of a scope, as an unbounded integer."""
    return math.prod(dims[v] for v in scope)


def take_variables(tokens: Tokens, count: int) -> None:
    """Count the memory of variables."""
    tokens.allowance.take(count * ENTRY_BYTES, f"{count} variables")


def take_function(tokens: Tokens, arity: int) -> None:
    """Count the memory of one more function, without its values."""
    take_functions(tokens, 1, arity)


def read_domains(tokens: Tokens, at: int, n_vars: int, *, signed: bool = False) -> tuple[int, ...]:
    """Read the domain sizes that stand from an index on, and count the memory of the variables.

    A negative size, if the format has ``signed`` sizes, belongs to an interval, whose states are its numbers from 0.
    """
    take_variables(tokens, n_vars)
    dims = tokens.integers(at, at + n_vars, "a domain size")
    for v, size in enumerate(dims):
        if not 1 <= (abs(size) if signed else size) <= LARGEST_INT32:
            raise tokens.fail(at + v, f"a domain size from 1 to {LARGEST_INT32}")
    return tuple(map(abs, dims))


def take_functions(tokens: Tokens, count: int, arities: int) -> None:
    """Count the memory of ``count`` more functions with ``arities`` scope variables in total, without their values."""
    tokens.allowance.take(count * OBJECT_BYTES + arities * 5 * CELL_BYTES, "its functions")


def take_rows(tokens: Tokens, count: int, scope: Sequence[int], dims: Sequence[int]) -> None:
    """Count the memory of listed tuples and their values, and what is needed while they are read."""
    row_bytes = len(scope) * state_dtype([dims[v] for v in scope]).itemsize + 8
    nbytes = 8 * cell_count(scope, dims) if _is_dense(count, scope, dims) else row_bytes * count
    tokens.allowance.take(nbytes, f"a table of {count} tuples", for_now=20 * (len(scope) + 1) * count)


def full_table(
    scope: Sequence[int],
    dims: Sequence[int],
    values: NDArray[np.generic],
    tokens: Tokens,
    at: int,
    child: int | None = None,
) -> Function:
    """Build a function from one value per assignment, the last variable of the scope fastest.

    Large tables of mostly zeros are kept by rows. A scope that NumPy has too few axes for is an error of the token at
    index ``at``.
    """
    if len(scope) > _MAX_DIAGONAL_AXES and len(scope) > (limit := _axes_limit(scope)):
        raise tokens.fail(at, f"a full table over at most {limit} variables", f"{len(scope)} variables")
    function = dense_function(scope, values.reshape([dims[v] for v in scope]), child=child)
    return compact(function) if values.dtype.kind == "f" else function


def tuple_table(
    scope: Sequence[int],
    dims: Sequence[int],
    rows: NDArray[np.integer[Any]],
    values: NDArray[np.int64],
    default: int,
) -> Function:
    """Build a function from listed tuples: dense when they are at least a quarter of all, else rows."""
    if not _is_dense(len(rows), scope, dims):
        return row_function(scope, rows, values, default)
    table = np.full([dims[v] for v in scope], default, dtype=np.int64)
    if scope:
        table[tuple(rows.T)] = values  # of repeated tuples the last one wins
    elif len(values):
        table[()] = values[-1]
    return dense_function(scope, table)


def every_entry(function: Function, dims: Sequence[int], suffix: str) -> NDArray[np.generic]:
    """Return all entries of a function, for a format that lists every one of a table.

    Raises
    ------
    ModelError
        If these would be more than a file may have.
    """
    shape = [dims[v] for v in function.scope]
    if function.rows is not None and (least := _LEAST_ENTRY_BYTES * math.prod(shape)) > MAX_TEXT_BYTES:
        raise ModelError(
            f"the model cannot be written as {suffix}, which lists every entry of a table: a function of "
            f"{len(function.values):,} rows over {len(shape)} variables has {format_count(math.prod(shape))}, "
            f"{format_bytes(least)} of text, and files of at most {format_bytes(MAX_TEXT_BYTES)} are read"
        )
    return function.dense(dims)


def first_bad_state(rows: NDArray[np.int64], dims: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return row and column of the first state index outside its domain, or None."""
    bad = rows.view(np.uint64) >= dims.view(np.uint64)  # negative numbers are large ones there
    if not bad.any():
        return None
    row, column = np.argwhere(bad)[0]
    return int(row), int(column)


def _is_dense(count: int, scope: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether listed tuples are a quarter of all or more, and over few enough variables for an array."""
    return not scope or (4 * count >= cell_count(scope, dims) and len(scope) <= _axes_limit(scope))


def _axes_limit(scope: Sequence[int]) -> int:
    return MAX_AXES if len(set(scope)) == len(scope) else _MAX_DIAGONAL_AXES
