"""Cases of evidence as columns, and their answers as arrays with an axis of cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from ctypes import c_ssize_t
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingNameError, ModelError, meant
from ..public_names import public
from .findings import is_missing
from .frames import imported_pandas
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


@public
@dataclass(frozen=True, eq=False)
class CaseMarginals(Mapping[str, Array]):
    """Posteriors of several cases.

    The posteriors of a variable are a :class:`.LabelledArray` with an axis ``case`` and an axis of its states:
    ``found["Storm"][3]`` is the distribution in case 3, and ``found["Storm"][:, "yes"]`` one probability for each case.

    Parameters
    ----------
    model : Model
    tables : dict of str to ndarray, shape (cases, states)
        All zeros for a case whose evidence is impossible.
    log10_evidence : ndarray, shape (cases,)
        -inf where the evidence is impossible.

    Examples
    --------
    >>> import bucketflow
    >>> compiled = bucketflow.compile("diagnosis")
    >>> found = compiled.marginals_batch({"Storm": ["yes", "no"]})
    >>> found["Flow"].shape
    (2, 3)
    """

    model: Model
    tables: dict[str, Array]
    log10_evidence: Array
    _ROW: ClassVar[str] = "case"

    @property
    def possible(self) -> Array:
        """Which cases have evidence that is possible, shape (cases,)."""
        return np.asarray(np.isfinite(self.log10_evidence))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the caller, one sentence each: the notes of the model."""
        return self.model.notes

    def __getitem__(self, name: str) -> Array:
        if name not in self.tables:
            raise MissingNameError(f"no posteriors of {name!r}{meant(name, self.tables)}")
        from ..results.labelled_array import LabelledArray

        table = self.tables[name]
        return LabelledArray(table, (self._ROW, name), (range(len(table)), self.model.state_labels(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def to_frame(self) -> Any:
        """Return a pandas data frame: a row for each case, a column for each state of each variable.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        pandas = imported_pandas()
        sizes = [(name, table.shape[1]) for name, table in self.tables.items()]
        labels = [(name, self.model.label(self.model.index[name], k)) for name, size in sizes for k in range(size)]
        columns = pandas.MultiIndex.from_tuples(labels, names=["variable", "state"])
        whole = np.hstack([*self.tables.values(), np.empty((len(self.log10_evidence), 0))])
        return pandas.DataFrame(whole, columns=columns, index=pandas.RangeIndex(len(whole), name="case"))

    def _repr_html_(self) -> str:
        from ..drawings.html import shown_rows

        told, *notes = repr(self).splitlines()
        return shown_rows([("cases", told), *(("note", note.removeprefix("note: ")) for note in notes)])

    def __repr__(self) -> str:
        impossible = len(self.log10_evidence) - int(self.possible.sum())
        found = (
            f"posteriors of {len(self.tables)} variables in {len(self.log10_evidence)} cases, {impossible} impossible"
        )
        return "\n".join([found, *(f"note: {text}" for text in self.notes)])


def unanswered(model: Model, variables: Sequence[int], cases: int) -> CaseMarginals:
    """Return empty arrays for the posteriors of some variables, adjacent in memory; the caller fills them."""
    sizes = [model.dims[v] for v in variables]
    ends = np.cumsum([0, *sizes]) * cases
    cells = np.empty(ends[-1])
    tables = {
        model.names[v]: cells[start:end].reshape(cases, size)
        for v, size, (start, end) in zip(variables, sizes, pairwise(ends.tolist()), strict=True)
    }
    return CaseMarginals(model, tables, np.empty(cases))
