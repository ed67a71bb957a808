"""The job of a run directory, in its folder ``job``: the query and its cluster, the state, and the events.

The record is written atomically and has a checksum. The pulse holds the progress of the run; it is replaced often and
never forced to disk. The process that drives the run holds a lock. The lock disappears with the process, so that
readers can detect a dead driver.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from .files import LineLog, Place, is_there, logged_lines, read_whole, remove_folder, write_all, written_whole
from .lease import is_held, take_lease
from .locks import LOCK, open_lock, try_lock
from .object_store import ObjectPath
from .run_folder import JOB, read_json, write_json
from .spec import StorageError, disk_full

_RECORD, _PULSE, _LOG = "job.json", "pulse.json", "log.jsonl"
_PAUSE_SECONDS = 0.05


class JobDir:
    """The job of a run directory.

    Parameters
    ----------
    run : Place
        The run directory.
    """

    def __init__(self, run: Place):
        self.run = run
        self._folder = run / JOB

    def read(self) -> dict[str, Any]:
        """Return the record.

        Raises
        ------
        StorageError
            If there is none, or it is damaged.
        """
        record = read_json(self._folder / _RECORD)
        if record is None:
            raise StorageError(f"{self.run} holds no job")
        return record

    def holds_job(self) -> bool:
        """Whether there is a record."""
        return is_there(self._folder / _RECORD)

    def write(self, record: dict[str, Any]) -> None:
        """Replace the record.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise disk_full(error, f"no space left for {self._folder}") from None
        write_json(self._folder / _RECORD, record)

    def read_pulse(self) -> dict[str, Any]:
        """Return the latest progress of the run, or {} if none was written."""
        with suppress(OSError, ValueError):
            found = json.loads(read_whole(self._folder / _PULSE))
            if isinstance(found, dict):
                return found
        return {}

    def write_pulse(self, pulse: dict[str, Any]) -> None:
        """Say how far the run is; where that cannot be written nothing is lost."""
        with suppress(OSError), written_whole(self._folder / _PULSE) as file:
            write_all(file, memoryview(json.dumps(pulse).encode()))

    def note(self, event: str, **facts: Any) -> None:
        """Append a line to the log; where that cannot be written nothing is lost."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        with suppress(OSError), closing(LineLog(self._folder / _LOG)) as log:
            log.append(json.dumps(line).encode() + b"\n")

    def notes(self) -> list[dict[str, Any]]:
        """Return the lines of the log, without truncated lines."""
        try:
            lines = logged_lines(self._folder / _LOG)
        except OSError:
            return []
        found = []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    @contextmanager
    def claimed(self, patience_seconds: float) -> Iterator[None]:
        """Hold the driver's lock of a run. Wait for a driver that is about to end.

        Raises
        ------
        StorageError
            If another process keeps it.
        """
        if isinstance(self._folder, ObjectPath):
            lease = take_lease(self._folder / LOCK, patience_seconds)
            if lease is None:
                raise StorageError(f"{self.run} is driven by another process")
            with lease:
                yield
            return
        end = time.monotonic() + patience_seconds
        with open_lock(self._folder) as lock:
            while not try_lock(lock):
                if time.monotonic() > end:
                    raise StorageError(f"{self.run} is driven by another process")
                time.sleep(_PAUSE_SECONDS)
            yield

    def remove(self) -> None:
        """Remove the record, the pulse and the log; plan, tables and answer of the run stay."""
        remove_folder(self._folder)

    def is_claimed(self) -> bool:
        """Whether some process drives the run at this moment."""
        if isinstance(self._folder, ObjectPath):
            return is_held(self._folder / LOCK)
        try:
            with open_lock(self._folder) as lock:
                return not try_lock(lock)
        except (OSError, StorageError):
            return False


def job_folders(place: Place) -> list[Place]:
    """Return the run directories with a job: a folder itself, or those in it.

    Raises
    ------
    OSError
        If it is no folder that can be read.
    """
    inside: list[Any] = sorted(place.iterdir())
    return [path for path in (place, *inside) if path.is_dir() and JobDir(path).holds_job()]
