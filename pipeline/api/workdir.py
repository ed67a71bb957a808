"""Run directories as the user sees them: opened for one run, taken up again only by the same run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...storage.errors import DiskFullError, StorageError
from ...storage.files import file_bytes, free_bytes
from ...storage.folders.rundir import RunDir
from ...tasks.gpu.memory import is_short
from ..errors import BudgetError, IncompatibleRunError, StoppedError
from ..models.model import Model
from ..plans.plan import Plan
from ..text import format_bytes


def fingerprint(model: Model) -> str:
    """Return a hash of everything in a model that an answer can depend on."""
    digest = hashlib.sha256(repr((model.kind, model.names, model.dims, model.states, model.top)).encode())
    digest.update(repr((model.decimals, model.maximize)).encode())
    for f in model.functions:
        digest.update(repr((f.scope, f.default, f.child, f.values.shape, f.values.dtype.str)).encode())
        digest.update(np.ascontiguousarray(f.values).tobytes())
        if f.rows is not None:
            digest.update(np.ascontiguousarray(f.rows).tobytes())
    return digest.hexdigest()


def identity(model: Model, query: str, evidence: Mapping[int, int]) -> dict[str, Any]:
    """Return what must be the same for a run to be continued."""
    observed = {model.names[v]: int(s) for v, s in sorted(evidence.items())}
    return {"version": __version__, "model": fingerprint(model), "query": query, "evidence": observed}


def check_identity(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a directory that belongs to another run.

    Raises
    ------
    IncompatibleRunError
        Naming what differs.
    """
    found = stored.get("identity", {})
    for name, value in wanted.items():
        if found.get(name) != value:
            raise IncompatibleRunError(
                f"{path} belongs to another run: its {name} is {_short(found.get(name))}, this one's is "
                f"{_short(value)}; use another --workdir"
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def check_space(path: Path, plan: Plan, done_bytes: int) -> None:
    """Refuse a plan whose tables do not fit the file system.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    assert plan.spill is not None
    check_room(path, plan.spill.disk_bytes - done_bytes)


def check_room(path: Path, needed: int) -> None:
    """Refuse to need more bytes than a file system has left.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    free = free_bytes(path)
    if needed > free:
        raise BudgetError(
            f"the tables of the plan need {format_bytes(needed)} more in {path}, which has {format_bytes(free)} "
            "left; try a larger --memory, another --workdir, or --fit slice"
        )


def used_bytes(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    return file_bytes(path, "*")


@contextmanager
def opened(path: Path) -> Iterator[RunDir]:
    """Open a run directory and lock it; storage failures become errors that end as one sentence.

    Raises
    ------
    IncompatibleRunError
        If the folder cannot be used.
    StoppedError
        If the disk is full.
    """
    try:
        rundir = RunDir(path)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    try:
        yield rundir
    except DiskFullError as error:
        raise _out_of_space(error, path) from None
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    finally:
        rundir.close()


@contextmanager
def resumable(path: Path | None) -> Iterator[None]:
    """Turn what stops a run into an error that says how to go on; ``path`` is its run directory, if it has one."""
    try:
        yield
    except DiskFullError as error:
        raise _out_of_space(error, path) from None
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    except MemoryError as error:
        if path is None or not is_short(error):
            raise
        raise StoppedError(
            f"the device ran out of memory ({error}); continue without it: bucketflow resume {path}"
        ) from None
    except KeyboardInterrupt:
        if path is None:
            raise
        raise StoppedError(f"stopped; continue with: bucketflow resume {path}") from None


def _out_of_space(error: DiskFullError, path: Path | None) -> StoppedError:
    """Say what to do next; a run can be resumed once its plan was kept."""
    if path is None:
        return StoppedError(f"{error}; free some space; with a --workdir, finished chunks are kept")
    if (path / "plan.json").exists():
        return StoppedError(f"{error}; finished chunks are kept: free some space and resume {path}")
    return StoppedError(f"{error}; free some space and ask the same again")
