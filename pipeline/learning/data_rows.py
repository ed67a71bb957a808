"""Rows of a data set as weighted cases: equal rows are propagated once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, FormatError, ModelError, format_bytes
from ..examples import file_or_example
from ..formats.case_files import line_of_case, read_cases
from ..models.cases import Cases, cases_of, joined_cases
from ..models.findings import named_findings
from ..models.model import Model

Array = NDArray[Any]
_LARGEST_SHORT = int(np.iinfo(np.int16).max)


@dataclass(frozen=True, eq=False)
class DataRows:
    """The different rows of a data set.

    Parameters
    ----------
    cases : Cases
        One case for each different row. -1 is a missing cell.
    weights : ndarray, shape (cases,)
        Number of equal rows.
    first : ndarray of int, shape (cases,)
        Number of the first of these rows in the data, from 0.
    total : int
        Number of rows of the data.
    source : str
        The file that holds them; empty for data in memory.
    """

    cases: Cases
    weights: Array
    first: Array
    total: int
    source: str = ""

    def some(self, chosen: Array) -> DataRows:
        """Return the chosen cases, a mask or indices."""
        columns = {v: column[chosen] for v, column in self.cases.columns.items()}
        weights = self.weights[chosen]
        return DataRows(Cases(len(weights), columns), weights, self.first[chosen], self.total, self.source)

    def impossible(self, case: int, why: str) -> Exception:
        """Return the error about a row that has probability 0."""
        row = int(self.first[case])
        if self.source:
            return FormatError(self.source, line_of_case(self.source, row), "a row that the tables allow", why)
        return ModelError(f"row {row} of the data is impossible: {why}")


def rows_of(model: Model, data: Any, memory_bytes: int) -> DataRows:
    """Read a data set, and group equal rows.

    Parameters
    ----------
    model : Model
    data : path, mapping, data frame, or sequence of mappings
        A CSV file as for ``bucketflow marginals --cases``, also an example's; or cases as
        :meth:`.Compiled.marginals_batch` takes them.
    memory_bytes : int
        Budget for the cells.

    Raises
    ------
    FormatError
        If the file cannot be read, or a name, state or row of it does not fit the model.
    ModelError
        If the data do not fit the model, or there are no rows.
    BudgetError
        If the cells of the file exceed the budget.
    """
    source = ""
    if isinstance(data, Cases):
        cases = data
    elif isinstance(data, str | os.PathLike):
        source = os.fspath(file_or_example(data))
        cases = joined_cases(list(_within(read_cases(source, model), memory_bytes)))
    else:
        cases = cases_of(model, named_findings(data) if hasattr(data, "name") else data)
    if not cases.count:
        if source:
            raise FormatError(source, None, "a header and rows of states", "no rows")
        raise ModelError("the data have no rows")
    return group_rows(cases, source)


def _within(chunks: Iterable[Cases], memory_bytes: int) -> Iterator[Cases]:
    """Yield the chunks of a file as long as their cells fit the budget."""
    used = 0
    for chunk in chunks:
        # the cells, and copies of them while equal rows are grouped
        used += 4 * sum(column.nbytes for column in chunk.columns.values())
        if used > memory_bytes:
            raise BudgetError(
                f"the rows need more than {format_bytes(used)}, allowed {format_bytes(memory_bytes)}; give a larger "
                "--memory, or fewer rows"
            )
        yield chunk


def group_rows(cases: Cases, source: str = "") -> DataRows:
    """Group equal rows by their bytes, in the order of their first appearance."""
    if not cases.columns:
        return DataRows(Cases(1, {}), np.array([float(cases.count)]), np.zeros(1, np.intp), cases.count, source)
    parts = [np.ascontiguousarray(column).reshape(cases.count, -1) for column in cases.columns.values()]
    hard = all(part.dtype.kind == "i" and part.max(initial=0) <= _LARGEST_SHORT for part in parts)
    words = np.concatenate([part.astype(np.int16 if hard else np.float64) for part in parts], axis=1)
    keys = words.view(np.dtype((np.void, words.shape[1] * words.itemsize))).ravel()
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    whole = DataRows(cases, np.ones(cases.count), np.arange(cases.count), cases.count, source)
    found = whole.some(first[order])
    return DataRows(found.cases, counts[order].astype(np.float64), found.first, cases.count, source)
