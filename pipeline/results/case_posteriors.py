"""Posteriors of several cases, as arrays with an axis of cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingNameError, meant, public
from ..models.frames import imported_pandas
from ..models.model import Model
from .labeled_array import LabeledArray

Array = NDArray[Any]


@public
@dataclass(frozen=True, eq=False)
class CaseMarginals(Mapping[str, Array]):
    """Posteriors of several cases.

    The posteriors of a variable are a :class:`.LabeledArray` with an axis ``case`` and an axis of its states:
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
        table = self.tables[name]
        return LabeledArray(table, (self._ROW, name), (range(len(table)), self.model.state_labels(name)))

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


def adjacent(model: Model, variables: Sequence[int], cases: int) -> dict[tuple[int, ...], Array]:
    """Return empty arrays for the posteriors of some variables, adjacent in memory; the caller fills them.

    Returns
    -------
    dict of tuple of int to ndarray
        For variables with equally many states, in the given order, one array of shape (variables, cases, states).
    """
    ordered = sorted(variables, key=lambda v: model.dims[v])
    groups = [tuple(group) for _, group in groupby(ordered, key=lambda v: model.dims[v])]
    shapes = [(len(group), cases, model.dims[group[0]]) for group in groups]
    ends = [*accumulate((prod(shape) for shape in shapes), initial=0)]
    cells = np.empty(ends[-1])
    parts = [cells[start:end].reshape(shape) for shape, (start, end) in zip(shapes, pairwise(ends), strict=True)]
    return dict(zip(groups, parts, strict=True))


def unanswered(
    model: Model, variables: Sequence[int], cases: int, arrays: Mapping[tuple[int, ...], Array]
) -> CaseMarginals:
    """Return the posteriors that lie in the arrays of :func:`adjacent`."""
    tables = {v: table for group, array in arrays.items() for v, table in zip(group, array, strict=True)}
    return CaseMarginals(model, {model.names[v]: tables[v] for v in variables}, np.empty(cases))
