"""Cases of evidence as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from ctypes import c_ssize_t
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .findings import is_missing
from .model import Model
from .state_names import plain

Array = NDArray[Any]


@dataclass(frozen=True)
class Cases:
    """Findings of several cases.

    Parameters
    ----------
    count : int
    columns : mapping of int to ndarray
        For each variable that some case observes: a state for each case, -1 where nothing is observed, shape
        ``(count,)``; or a likelihood vector for each case, shape ``(count, states)``.
    first : int
        Number of the first case, if the cases are a part of more cases.
    """

    count: int
    columns: Mapping[int, Array]
    first: int = 0

    def part(self, start: int, stop: int) -> Cases:
        """Return some of the cases."""
        columns = {v: column[start:stop] for v, column in self.columns.items()}
        return Cases(stop - start, columns, self.first + start)

    def findings(self, case: int) -> dict[int, int | Array]:
        """Return the findings of one case."""
        return {
            v: int(c[case]) if c.ndim == 1 else c[case] for v, c in self.columns.items() if c.ndim > 1 or c[case] >= 0
        }


def cases_of(model: Model, cases: Any) -> Cases:
    """Read cases given as columns or as records.

    Parameters
    ----------
    cases : mapping, data frame, or sequence of mappings
        Name → one state label or index for each case, or → likelihoods, shape ``(cases, states)``. None and NaN are
        unobserved; in an array of integers, -1 is too; or for each case a mapping of name to state.

    Raises
    ------
    ModelError
        If a name or state is unknown, or columns differ in length.
    """
    if hasattr(cases, "columns") and hasattr(cases, "to_dict"):
        columns = {name: cases[name].tolist() for name in cases.columns}
        count = len(cases)
    elif isinstance(cases, Mapping):
        columns = dict(cases)
        lengths = {_length(name, column) for name, column in columns.items()}
        if len(lengths) > 1:
            raise ModelError(f"columns of cases have different lengths: {sorted(lengths)}")
        count = lengths.pop() if lengths else 0
    else:
        records = _records(cases)
        names = dict.fromkeys(name for case in records for name in case)
        columns = {name: [case.get(name) for case in records] for name in names}
        count = len(records)
    return Cases(
        count, {model.variable(name, "cases name"): _column(model, name, column) for name, column in columns.items()}
    )


def joined_cases(chunks: Sequence[Cases]) -> Cases:
    """Return several chunks of cases as one. A column that is soft in one chunk becomes soft in all."""
    columns = {}
    for v in dict.fromkeys(v for chunk in chunks for v in chunk.columns):
        parts = [chunk.columns[v] if v in chunk.columns else np.full(chunk.count, -1) for chunk in chunks]
        size = max((part.shape[1] for part in parts if part.ndim > 1), default=0)
        columns[v] = np.concatenate([_soft(part, size) if size and part.ndim == 1 else part for part in parts])
    return Cases(sum(chunk.count for chunk in chunks), columns)


def _soft(column: Array, size: int) -> Array:
    """Turn states into likelihoods."""
    return np.where((column < 0)[:, None], 1.0, column[:, None] == np.arange(size)).astype(np.float64)


def _length(name: str, column: Any) -> int:
    if isinstance(column, Sized) and not isinstance(column, str) and getattr(column, "shape", None) != ():
        return len(column)
    raise ModelError(f"cases need a list of states of {name!r}, one state for each case; found {type(column).__name__}")


def _records(cases: Any) -> list[Mapping[str, Any]]:
    records = list(cases) if isinstance(cases, Iterable) and not isinstance(cases, str) else [cases]
    for case in records:
        if not isinstance(case, Mapping):
            found = type(case).__name__
            raise ModelError(f"cases are columns by name, a data frame, or a mapping for each case; found {found}")
    return records


def _column(model: Model, name: str, column: Any) -> Array:
    """Turn a column into states, or check its likelihoods."""
    v = model.index[name]
    if isinstance(column, np.ndarray) and column.ndim == 2:
        weights = column.astype(np.float64)
        if weights.shape[1] != model.dims[v] or not (np.isfinite(weights).all() and (weights >= 0.0).all()):
            raise ModelError(f"likelihoods of {name!r} must be {model.dims[v]} finite numbers >= 0 for each case")
        return weights
    names = model.state_names(v)
    if isinstance(column, np.ndarray) and np.issubdtype(column.dtype, np.integer):
        if names.are_values:
            known = {*names.typed, *names.numbers}
            different, places = np.unique(column, return_inverse=True)
            states = [-1 if cell == -1 and -1 not in known else names.index(cell) for cell in different.tolist()]
            return np.array(states, np.int32)[places.reshape(column.shape)]
        if column.size and not (column.min() >= -1 and column.max() < model.dims[v]):
            wrong = column.min() if column.min() < -1 else column.max()
            raise ModelError(f"cases observe {name!r} in state {wrong}; it has {model.dims[v]} states")
        return column
    return states_of(model, v, column)


def states_of(model: Model, variable: int, cells: Sequence[Any] | Array) -> Array:
    """Turn labels or indices into states; None, NaN and the empty string are unobserved."""
    if isinstance(cells, np.ndarray) and cells.dtype == object and cells.ndim == 1:
        objects, places = _objects(cells)
        return states_of(model, variable, objects)[places]
    cells = list(cells)  # an array gives another NaN each time, and none equals another
    types = {*map(type, cells)}
    if np.ndarray in types:
        cells = list(map(plain, cells))
    # True equals 1, but may be another state: in a mixed column the type is part of the key.
    mixed = len(types) > 1 and bool(types & {bool, np.bool_})
    keys = [(type(cell), cell) for cell in cells] if mixed else cells
    try:
        different = dict(zip(keys, cells, strict=True))
    except TypeError:
        name = model.names[variable]
        raise ModelError(
            f"a case observes a state of {name!r}; likelihoods are an array, a row for each case"
        ) from None
    known = {key: -1 if is_missing(cell) else model.state_index(variable, cell) for key, cell in different.items()}
    return np.fromiter(map(known.__getitem__, keys), dtype=np.int32, count=len(cells))


def _objects(cells: Array) -> tuple[list[Any], Array]:
    """Return the different objects of an array, and which of them each cell is: labels are few, and compared slowly.

    An array of objects holds their addresses, which are sorted here.
    """
    held = np.ascontiguousarray(cells)
    addresses = np.ctypeslib.as_array((c_ssize_t * held.size).from_address(held.ctypes.data))
    _, first, places = np.unique(addresses, return_index=True, return_inverse=True)
    return held[first].tolist(), places
