"""The folder of a fit: its settings, its finished iterations, and what they tell."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ...cluster.version import __version__
from ...storage.files import Place
from ...storage.object_store import ObjectPath
from ...storage.run_folder import RunDir, stored_bounds
from ..answering.question import fingerprint
from ..answering.run_folder import check_identity, opened, run_plan
from ..errors import StoppedError
from ..local_paths import folder_path
from ..models.model import Model
from .data_rows import DataRows
from .parameters import Parameters

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
