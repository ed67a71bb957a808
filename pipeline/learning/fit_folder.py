"""The folder of a fit: its settings, its finished iterations and their log-likelihoods.

The rows of a data set are weighted cases: equal rows are propagated once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...cluster.version import __version__
from ...storage.files import Place
from ...storage.object_store import ObjectPath
from ...storage.run_folder import RunDir, stored_bounds
from ..answering.question import fingerprint
from ..answering.run_folder import check_identity, opened, run_plan
from ..errors import BudgetError, FormatError, ModelError, StoppedError, format_bytes
from ..examples import file_or_example
from ..formats.case_files import line_of_case, read_cases
from ..local_paths import folder_path
from ..models.cases import Cases, cases_of, joined_cases
from ..models.findings import named_findings
from ..models.model import Model
from .parameters import Parameters

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


# Where a fit runs is said anew when it is continued.
_PLACES: Final = ("workers", "scheduler", "client", "threads", "gpus", "gpu_memory", "dashboard", "dask_report")


def stored_fit(folder: Place) -> dict[str, Any] | None:
    """Return the stored plan of a folder of a fit; None if the folder belongs to a query.

    Raises
    ------
    IncompatibleRunError
        If it is not a run directory.
    """
    stored = run_plan(folder)
    return stored if stored["identity"]["query"] == "fit" else None


def fit_facts(folder: Place, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a fit, and the finished iterations of each start, as plain types."""
    known = stored_bounds(folder) or {}
    ended = known.get("ended", [])
    starts = [{"iterations": len(each["logs"]), "log_likelihoods": each["logs"]} for each in known.get("starts", [])]
    return {
        "model": stored["source"],
        "query": "fit",
        "status": "finished" if ended else "unfinished",
        "ended": ended,
        "starts": starts,
        "settings": {**stored.get("fit", {}), "seed": stored["identity"]["seed"]},
    }


@contextmanager
def fit_folder(
    path: str | os.PathLike[str] | ObjectPath | None,
    model: Model,
    identity: Mapping[str, Any],
    data: str,
    settings: Mapping[str, Any],
) -> Iterator[RunDir | None]:
    """Open the folder that keeps the iterations, if one is given.

    Parameters
    ----------
    path : path, optional
    model : Model
    identity : mapping
        As :func:`fit_identity` returns it.
    data : str
        The file of the rows; empty for rows in memory.
    settings : mapping
        Keywords of the call, which :func:`bucketflow.resume` repeats.

    Raises
    ------
    IncompatibleRunError
        If the folder belongs to another run.
    StoppedError
        On Ctrl-C.
    """
    if path is None:
        yield None
        return
    place = folder_path(path)
    with opened(place) as rundir:
        stored = rundir.read_plan()
        if stored is not None:
            check_identity(place, stored, identity)
        plain = {name: _plain_setting(value) for name, value in settings.items() if name not in _PLACES}
        files = {name: path and os.path.abspath(path) for name, path in (("data", data), ("out", settings["out"]))}
        kept = {**plain, **files}
        found = {"identity": identity, "source": model.source, "plan": None, "fit": kept}
        if stored is None or any(stored.get(name) != value for name, value in found.items()):
            rundir.write_plan(found, __version__)
        try:
            yield rundir
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; continue with: bucketflow resume {place}") from None


def _plain_setting(value: Any) -> Any:
    """Return a keyword of a fit as plain types."""
    if isinstance(value, Mapping):
        return {name: np.asarray(each).tolist() for name, each in value.items()}
    return np.asarray(value).item() if isinstance(value, np.generic | np.ndarray) else value


def fit_identity(parameters: Parameters, rows: DataRows, start: str, seed: int) -> dict[str, Any]:
    """Return the facts that must be equal for a run to be continued; limits may differ."""
    data = hashlib.sha256(repr((rows.total, sorted(rows.cases.columns))).encode())
    for _, column in sorted(rows.cases.columns.items()):
        data.update(np.ascontiguousarray(column).tobytes())
    data.update(rows.weights.tobytes())
    groups = hashlib.sha256(repr([group.functions for group in parameters.groups]).encode())
    for group in parameters.groups:
        groups.update(group.prior.tobytes())
    return {
        "model": fingerprint(parameters.model),
        "query": "fit",
        "evidence": {},
        "data": data.hexdigest(),
        "tables": groups.hexdigest(),
        "start": start,
        "seed": seed,
    }
