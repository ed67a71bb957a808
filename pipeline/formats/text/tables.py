"""Tables as functions: the choice between dense and rows, within what the file really contains.

Tables of listed tuples are built together: tables of one arity and one number of tuples are parts of one array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import CELL_BYTES, LARGEST_INT32
from ...errors import ModelError, format_bytes, format_count
from ...models.function import Function, compact, dense_function, many_functions, row_function, state_dtype
from ..format_policy import ENTRY_BYTES, OBJECT_BYTES, FormatPolicy
from .source import MAX_TEXT_BYTES, Allowance
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


# Cells are numbered by 64 bits.
_MOST_CELLS: Final = float(1 << 62)
# Domain sizes from which on states need more bytes.
_STATE_LIMITS: Final = (1 << 8, 1 << 16)


@dataclass(frozen=True, eq=False)
class Headers:
    """Where functions start in the numbers of a file, and how long they are.

    Parameters
    ----------
    starts : ndarray of int
        The index of each function's arity.
    arities, counts : ndarray of int
        Variables and listed tuples of each function.
    """

    starts: NDArray[np.int64]
    arities: NDArray[np.int64]
    counts: NDArray[np.int64]

    def groups(self) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
        """Yield arity, number of tuples, and the functions of both, not too many at a time."""
        if not len(self.starts):
            return
        order = np.lexsort((self.counts, self.arities))
        arities, counts = self.arities[order], self.counts[order]
        changes = np.flatnonzero((np.diff(arities) != 0) | (np.diff(counts) != 0)) + 1
        most = FormatPolicy.current().token_block_bytes
        for which in np.split(order, changes):
            arity, count = int(self.arities[which[0]]), int(self.counts[which[0]])
            step = max(1, most // ((count + 1) * (arity + 1)))
            for first in range(0, len(which), step):
                yield arity, count, which[first : first + step]


@dataclass(frozen=True, eq=False)
class TupleTables:
    """Tables of one arity and one number of listed tuples.

    Parameters
    ----------
    allowance : Allowance
        Counts memory.
    scopes, sizes : ndarray of int64, shape (tables, arity)
        The variables of each table, which are distinct, and their domain sizes.
    states : ndarray of int64, shape (tables, tuples, arity)
        The listed tuples.
    costs : ndarray of int64, shape (tables, tuples)
    defaults : ndarray of int64, shape (tables,)
        The costs of tuples that are not listed.
    """

    allowance: Allowance
    scopes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    states: NDArray[np.int64]
    costs: NDArray[np.int64]
    defaults: NDArray[np.int64]

    def functions(self, bad: NDArray[np.bool_], unique: bool = False) -> list[Function | None]:
        """Return the function of each table; None for a bad or irregular table.

        Parameters
        ----------
        bad : ndarray of bool, shape (tables,)
            Tables that are known to be bad.
        unique : bool
            Whether dense tables that list a tuple twice are irregular. Otherwise the last cost of the tuple holds.
        """
        found: list[Function | None] = [None] * len(self.scopes)
        sizes, (count, arity) = self.sizes, self.states.shape[1:]
        cells = sizes.prod(axis=1, dtype=np.float64)
        bad = bad | (self.states.view(np.uint64) >= sizes[:, None].view(np.uint64)).any(axis=(1, 2))
        bad |= cells >= _MOST_CELLS
        steps = np.ones_like(sizes)
        steps[:, :-1] = sizes[:, :0:-1].cumprod(axis=1)[:, ::-1]
        places = (self.states * steps[:, None]).sum(axis=2)
        dense = (4 * count >= cells) & (arity <= MAX_AXES)
        checked = np.flatnonzero(~dense | unique)
        ordered = np.sort(places[checked], axis=1)
        bad[checked] |= (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)

        full = np.flatnonzero(dense & ~bad)
        if full.size:
            put(found, full, self._dense(full, places))
        kinds = np.searchsorted(_STATE_LIMITS, sizes.max(axis=1))
        for kind in sorted(set(kinds[~dense].tolist())):
            some = ~dense & ~bad & (kinds == kind)
            rows = self.states[some].astype(state_dtype([int(sizes[kinds == kind].max())]))
            values = self.costs[some]
            self._take(rows.nbytes + values.nbytes, values.size)
            rows.flags.writeable = values.flags.writeable = False
            defaults = self.defaults[some].tolist()
            put(found, np.flatnonzero(some), many_functions(self._scopes(some), values, rows, defaults))
        return found

    def _scopes(self, which: NDArray[Any]) -> Iterator[tuple[int, ...]]:
        return map(tuple, self.scopes[which].tolist())

    def _take(self, nbytes: int, count: int) -> None:
        self.allowance.take(nbytes, f"tables of {count} tuples")

    def _dense(self, which: NDArray[np.intp], places: NDArray[np.int64]) -> list[Function]:
        """Return dense functions, whose arrays are parts of one."""
        sizes = self.sizes[which]
        cells = sizes.prod(axis=1)
        self._take(8 * int(cells.sum()), self.costs[which].size)
        ends = cells.cumsum()
        table = np.repeat(self.defaults[which], cells)
        table[places[which] + (ends - cells)[:, None]] = self.costs[which]  # of repeated tuples the last one wins
        table.flags.writeable = False
        if (sizes == sizes[0]).all():
            return many_functions(self._scopes(which), table.reshape(len(sizes), *sizes[0].tolist()))
        parts = zip((ends - cells).tolist(), ends.tolist(), sizes.tolist(), strict=True)
        return many_functions(self._scopes(which), (table[start:stop].reshape(shape) for start, stop, shape in parts))


def put(found: list[Function | None], places: NDArray[np.intp], functions: Sequence[Function | None]) -> None:
    """Put functions at their places in a list."""
    for place, function in zip(places.tolist(), functions, strict=True):
        found[place] = function
