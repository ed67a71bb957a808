"""Run directories: one run's plan, tables and ledger, used by one run at a time."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from .chunks import PARTIAL
from .errors import StorageError, disk_full

_PLAN, _LOCK, _RESULT = "plan.json", "lock", "result.json"


class RunDir:
    """A locked run directory.

    Parameters
    ----------
    path : Path
        Created if it does not exist. A folder with other content is refused.

    Raises
    ------
    StorageError
        If the folder cannot be written, is not a run directory, or is in use.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            foreign = [p.name for p in path.iterdir() if p.name not in (_PLAN, _LOCK)]
            if foreign and not (path / _PLAN).exists():
                raise StorageError(f"{path} is not a run directory: it holds {foreign[0]!r} and no {_PLAN}")
            lock = open(path / _LOCK, "a+")  # noqa: SIM115 - held until close()
        except OSError as error:
            raise StorageError(f"{path} cannot be used as a run directory: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise StorageError(f"{path} is in use by another run") from None
        self._lock = lock

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def read_plan(self) -> dict[str, Any] | None:
        """Return the stored plan, or None in a new directory."""
        return read_json(self.path / _PLAN)

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Store the plan, whole or not at all."""
        write_json(self.path / _PLAN, plan)

    def read_result(self) -> dict[str, Any] | None:
        """Return the stored answer, if the run is finished."""
        return read_json(self.path / _RESULT)

    def write_result(self, result: dict[str, Any]) -> None:
        """Store the answer beside the plan."""
        write_json(self.path / _RESULT, result)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is none.

    Raises
    ------
    StorageError
        If the file is not JSON.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise StorageError(f"{path} is damaged: it is not JSON") from None
    return found


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(partial, "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise disk_full(error, f"no space left for {path}") from None


def stored_plan(path: Path) -> dict[str, Any]:
    """Return the plan of a run directory without locking it.

    Raises
    ------
    StorageError
        If the folder is not a run directory.
    """
    plan = read_json(path / _PLAN)
    if plan is None:
        raise StorageError(f"{path} is not a run directory: it has no {_PLAN}")
    return plan


def stored_result(path: Path) -> dict[str, Any] | None:
    """Return the answer of a finished run, or None."""
    return read_json(path / _RESULT)


def sweep_partial_files(folder: Path) -> None:
    """Remove what killed tasks left half written."""
    for path in (*folder.glob(f"*{PARTIAL}"), *folder.glob(f"*/*{PARTIAL}")):
        path.unlink(missing_ok=True)
