"""Functions of a model: dense arrays over a scope, or rows with a default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys

# A stored cost of at least this is forbidden whatever the top.
FORBIDDEN = 1 << 62
# A dense table of so many cells is kept by rows if these take no more than this part (1 / 4) of its memory.
_LARGE_CELLS, _ROWS_PART = 1 << 16, 4
# So many rows are compared sooner one by one than sorted.
_FEW_ROWS = 64


@dataclass(frozen=True, eq=False)
class Function:
    """A function over a scope of distinct variables: dense, or explicit rows plus a default.

    Parameters
    ----------
    scope : tuple of int
        Variable indices; may be empty (a constant).
    values : ndarray
        Dense: one value per assignment, shape = domain sizes in scope order.
        Rows: shape ``(rows,)``. dtype int64 for costs, float64 for probabilities.
    rows : ndarray, shape (rows, arity), integer, optional
        State indices of each listed assignment, without repetition.
    default : int or float
        The value of every assignment that ``rows`` does not list.
    child : int, optional
        The variable whose conditional distribution this is (Bayesian networks).
    """

    scope: tuple[int, ...]
    values: NDArray[Any]
    rows: NDArray[Any] | None = None
    default: int | float = 0
    child: int | None = None

    def __repr__(self) -> str:
        listed = "" if self.rows is None else f", rows={len(self.rows)}, default={self.default}"
        child = "" if self.child is None else f", child={self.child}"
        return f"Function(scope={self.scope}, shape={np.shape(self.values)}{listed}{child})"

    @cached_property
    def positive(self) -> tuple[float, float]:
        """Least and greatest of the values above 0, of probabilities; 1 and 1 if all are 0."""
        values = np.append(self.values, self.default) if self.rows is not None else self.values
        values = values[values > 0]
        return (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)

    @cached_property
    def allowed(self) -> NDArray[np.bool_] | None:
        """Which values are not 0, of probabilities; None if all are, or if the function lists what it excludes."""
        if self.rows is not None and self.default != 0:
            return None
        nonzero = np.asarray(self.values != 0)
        return None if self.rows is None and nonzero.all() else nonzero

    @cached_property
    def supported(self) -> bool:
        """Whether every state of every variable of a dense scope has a value other than 0, of probabilities."""
        if self.rows is not None or self.allowed is None or not self.scope:
            return self.allowed is None
        axes = range(self.values.ndim)
        return all(self.allowed.any(axis=tuple(a for a in axes if a != axis)).all() for axis in axes)

    @cached_property
    def distinct(self) -> bool:
        """Whether no row is listed twice."""
        return self.rows is None or _are_distinct(self.rows)

    def changed(self, **changes: Any) -> Function:
        """Return a copy over another scope or in another order of it, or with other values at the same rows."""
        function = replace(self, **changes)
        if self.rows is not None and "distinct" in vars(self):
            vars(function)["distinct"] = self.distinct
        return function

    def highest(self, limit: int, least: int = 0) -> int:
        """Return the greatest of the costs below a limit; ``least`` if none is greater."""
        found = int(self.values[self.values < limit].max(initial=least))
        return max(found, int(self.default)) if self.rows is not None and self.default < limit else found

    def dense(self, dims: Sequence[int]) -> NDArray[Any]:
        """Return all values, an axis for each variable of the scope; ``dims`` are the model's domain sizes."""
        if self.rows is None:
            return self.values
        table = np.full([dims[v] for v in self.scope], self.default, self.values.dtype)
        table[tuple(self.rows.T)] = self.values
        return table

    def at(self, states: Sequence[int]) -> int | float:
        """Return the value at one assignment of the scope (state indices in scope order)."""
        if self.rows is None:
            value: int | float = self.values[tuple(states)].item()
            return value
        hits = np.flatnonzero((self.rows == np.asarray(states, dtype=self.rows.dtype)).all(axis=1))
        return self.values[hits[0]].item() if hits.size else self.default


def dense_function(scope: Sequence[int], values: NDArray[Any], child: int | None = None) -> Function:
    """Build a dense function; a variable named twice in the scope keeps only its diagonal."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        # The diagonal of equal axes is a view whose stride is the sum of theirs.
        size = dict(zip(scope, values.shape, strict=True))
        stride = dict.fromkeys(distinct, 0)
        for v, step in zip(scope, values.strides, strict=True):
            stride[v] += step
        shape, strides = [size[v] for v in distinct], [stride[v] for v in distinct]
        values = np.ascontiguousarray(np.lib.stride_tricks.as_strided(values, shape, strides))
    return Function(distinct, values, child=child)


def compact(function: Function) -> Function:
    """Return a large dense function of probabilities by its entries above 0, if these take far less memory."""
    values = function.values
    dtype = state_dtype(values.shape)
    row_bytes = values.ndim * dtype.itemsize + 8
    if values.size < _LARGE_CELLS or _ROWS_PART * row_bytes * np.count_nonzero(values) > values.nbytes:
        return function
    flat = np.flatnonzero(values)
    rows = np.empty((len(flat), values.ndim), dtype)
    rest = flat
    for axis in reversed(range(values.ndim)):
        rest, rows[:, axis] = np.divmod(rest, values.shape[axis])
    return Function(function.scope, values.reshape(-1)[flat], rows, child=function.child)


def state_dtype(sizes: Sequence[int]) -> np.dtype[Any]:
    """Return the narrowest integers that number the states of domains of these sizes."""
    largest = max(sizes, default=1)
    return np.dtype(np.uint8 if largest <= 1 << 8 else np.uint16 if largest <= 1 << 16 else np.int32)


def row_function(scope: Sequence[int], rows: NDArray[Any], values: NDArray[Any], default: int | float) -> Function:
    """Build a function from listed rows; later duplicates win, a repeated variable keeps consistent rows."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        first = [list(scope).index(v) for v in scope]
        keep = (rows == rows[:, first]).all(axis=1)
        columns = [list(scope).index(v) for v in distinct]
        rows, values = rows[keep][:, columns], values[keep]
    last = _last_places(rows)
    if len(last) < len(rows):
        rows, values = rows[last], values[last]
    function = Function(distinct, values, rows=rows, default=default)
    vars(function)["distinct"] = True
    return function


def _are_distinct(rows: NDArray[Any]) -> bool:
    if len(rows) <= _FEW_ROWS:
        return len(set(map(tuple, rows.tolist()))) == len(rows)
    keys = _packed(rows)
    if keys.shape[1] == 1:
        ordered = np.sort(keys, axis=0)
    else:
        ordered = keys[np.lexsort(keys.T[::-1])]
    return bool((ordered[1:] != ordered[:-1]).any(axis=1).all())


def _last_places(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Return where each different row occurs last, ascending."""
    if _are_distinct(rows):
        return np.arange(len(rows))
    keys = _packed(rows)
    order = np.lexsort(keys.T[::-1])  # stable: the last of equal rows stays last
    ordered = keys[order]
    return np.sort(order[np.append((ordered[1:] != ordered[:-1]).any(axis=1), True)])


def _packed(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a key for each row, equal where rows are; states are not negative."""
    dims = tuple([int(state) + 1 for state in rows.max(axis=0)])
    return Keys(tuple(range(len(dims))), dims).pack(rows.T)
