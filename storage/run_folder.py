"""Folders with a lock, used by one process at a time: run directories, and the files of batches and jobs.

A run directory holds one run's plan, tables and ledger. Plan and answer are JSON objects that say which format they
have and end with a checksum of everything else in them. The folder of a batch holds the answers so far, each on a
checked line of its own, and the runs under way.

A run directory can hold a job: its record, its log and its pulse. The record is written atomically and has a checksum.
The pulse holds the progress of the run; it is replaced often and never forced to disk. The process that drives the run
holds a lock. The lock disappears with the process, so that readers can detect a dead driver.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from . import ledger
from .faults import DamagedError, OtherFormatError, StorageError, StoreError, disk_full, file_fault
from .files import (
    PARTIAL,
    LineLog,
    Place,
    force,
    is_there,
    logged_lines,
    read_whole,
    refuse_links,
    remove_folder,
    write_all,
    written_whole,
)
from .ledger import SYNC_SECONDS, read_lines, to_line
from .locks import (
    LOCK,
    PAUSE_SECONDS,
    Lease,
    LockFile,
    is_held,
    is_lock,
    open_lock,
    open_lock_to_read,
    take_lease,
    try_lock,
)
from .object_store import ObjectPath

Lock: TypeAlias = LockFile | Lease
"""What is held until it is closed; ``writable()`` says whether this process may write."""
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True)
class FolderKind:
    """The purpose of a folder, and the words for messages about it.

    Parameters
    ----------
    name, use, busy : str
        As in "is not a run directory", "cannot be used as a run directory", "is in use by another run".
    mark : str
        The file without which other content is foreign.
    """

    name: str
    use: str
    busy: str
    mark: str


def locked_folder(
    path: Place, kind: FolderKind, comes_before: Callable[[Place], bool], enough: str | None = None
) -> Lock:
    """Create a folder if it does not exist, and take its lock.

    Parameters
    ----------
    path : Place
    kind : FolderKind
    comes_before : callable
        Whether something may be there before the file that marks the folder.
    enough : str, optional
        With this file in it a folder that cannot be written is opened to be read: the lock is not ``writable()``.

    Raises
    ------
    StorageError
        If the folder cannot be written, is something else, or is in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in path.iterdir() if not is_lock(p) and not comes_before(p)]
        if foreign and not is_there(path / kind.mark):
            raise StorageError(f"{path} is not {kind.name}: it holds {foreign[0]!r} and no {kind.mark}")
        if isinstance(path, ObjectPath):
            return _leased(path, kind)
        refuse_links(path)
        try:
            lock = open_lock(path)
        except OSError as error:
            # a finished run can be read where nothing can be written
            if error.errno not in _NOT_WRITABLE or enough is None or not os.path.lexists(path / enough):
                raise
            lock = open_lock_to_read(path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be used {kind.use}: {file_fault(error, use='write', noun='folder')}"
        ) from None
    try:
        if not try_lock(lock):
            raise StorageError(f"{path} is {kind.busy}")
    except BaseException:
        lock.close()
        raise
    return lock


def _leased(path: ObjectPath, kind: FolderKind) -> Lease:
    """Take the lock of a folder in an object store."""
    lease = take_lease(path / LOCK)
    if lease is None:
        raise StorageError(f"{path} is {kind.busy}")
    return lease


_PLAN, _RESULT, _BOUNDS = "plan.json", "result.json", "bounds.json"
_KIND = FolderKind("a run directory", "as a run directory", "in use by another run", _PLAN)
#: The folder of a run that a cluster drives.
JOB = "job"
#: The folder of layers that a search goes on with while there is no answer.
LAYERS = "layers"
#: The folder of messages of mini-buckets, which bounds are read from.
MESSAGES = "messages"
#: Version of the format of folders of runs, jobs and batches. Other versions are not read. Raise it with every change
#: after which an older folder could not be resumed: other entries or meanings in plans, records, receipts and answers;
#: other files, codecs or numbers in chunks; other leaf tables, scales or orders of functions and axes for the same
#: model and query; or another answer to the same query. Other plans for new queries do not count, and releases do not
#: count either.
FORMAT = 6


class RunDir:
    """A locked run directory. The directory of a finished run may also be read if it is read-only.

    Parameters
    ----------
    path : Place
        Created if it does not exist. A folder with other content is refused.

    Attributes
    ----------
    lock : Lock
        Held until it is closed.

    Raises
    ------
    StorageError
        If the folder cannot be written, is not a run directory, or is in use.
    """

    def __init__(self, path: Place):
        self.path = path
        self.lock: Lock = locked_folder(path, _KIND, lambda p: p.name == JOB or _is_partial(p), _RESULT)
        try:
            for left in filter(_is_partial, path.iterdir()) if self.lock.writable() else ():
                left.unlink()
        except BaseException:
            self.lock.close()
            raise

    def read_plan(self) -> dict[str, Any] | None:
        """Return the stored plan; None in a new directory, and where it is damaged and nothing was done after it.

        Raises
        ------
        StorageError
            If the plan is damaged or of another format and finished work depends on it.
        """
        try:
            return read_json(self.path / _PLAN)
        except DamagedError as error:
            if not self._has_work():
                return None
            raise StorageError(
                f"{error}, and finished work depends on it; remove {self.path} to begin again, or use another --workdir"
            ) from None

    def _has_work(self) -> bool:
        kept = any(is_there(self.path / name) for name in (_RESULT, _BOUNDS))
        return kept or any(self.path.glob("*/*/*"))

    def _verify_writable(self) -> None:
        """Refuse to write where the folder was opened to be read.

        Raises
        ------
        StorageError
        """
        if not self.lock.writable():
            if isinstance(self.lock, Lease):
                raise StorageError(f"{self.path} was taken over by another run while this one could not renew its lock")
            raise StorageError(
                f"{self.path} cannot be used {_KIND.use}: it cannot be written, and its stored answer does not answer "
                "this query"
            )

    def write_plan(self, plan: dict[str, Any], version: str) -> None:
        """Store the plan, whole or not at all, with the version of the program that made it."""
        self._verify_writable()
        write_json(self.path / _PLAN, {**plan, "bucketflow": version})

    def remove_tables(self) -> None:
        """Remove the tables of the stored plan, and first the receipts for their chunks."""
        import shutil

        self._verify_writable()
        for folder in (self.path / ledger.FOLDER, *self.path.glob("tables*")):
            shutil.rmtree(folder, ignore_errors=True)

    def read_result(self) -> dict[str, Any] | None:
        """Return the stored answer if the run is finished. A damaged answer counts as missing."""
        return stored_result(self.path)

    def write_result(self, result: dict[str, Any]) -> None:
        """Store the answer beside the plan, and remove the state that a search would have resumed from."""
        self._verify_writable()
        write_json(self.path / _RESULT, result)
        remove_folder(self.path / LAYERS)

    def read_bounds(self) -> dict[str, Any] | None:
        """Return the stored bounds of an answer that is not proved yet, or None."""
        return stored_bounds(self.path)

    def write_bounds(self, bounds: dict[str, Any]) -> None:
        """Store what is known before the answer is."""
        self._verify_writable()
        write_json(self.path / _BOUNDS, bounds)


def _is_partial(path: Place) -> bool:
    """Whether a plan or an answer was left half written, or an object that a store was measured with."""
    return path.name.startswith((f"{_PLAN}.", f"{_RESULT}.", f"{_BOUNDS}.", "sample-")) and path.name.endswith(PARTIAL)


def read_json(path: Place) -> dict[str, Any] | None:
    """Read a JSON object as :func:`write_json` left it; None if there is none.

    Raises
    ------
    DamagedError
        If anything in it was changed.
    StorageError
        If it is of another format or cannot be read.
    """
    try:
        data = read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise (
            disk_full(error, "")
            if isinstance(error, StoreError)
            else StorageError(f"{path} cannot be read: {file_fault(error, str(path))}")
        ) from None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} is damaged: it is not JSON") from None
    if not isinstance(found, dict):
        raise DamagedError(f"{path} is damaged: it is not a JSON object")
    checksum = found.pop("checksum", None)
    check_format(path, found.get("format", 1))
    if checksum != _checksum(found):
        raise DamagedError(f"{path} is damaged: its checksum differs")
    del found["format"]
    return found


def check_format(path: Place, found: object) -> None:
    """Refuse a file of another format.

    Raises
    ------
    OtherFormatError
    """
    if found != FORMAT:
        raise OtherFormatError(
            f"{path} has format {found}, this version of bucketflow reads format {FORMAT}: go on with the version that "
            "wrote it, or begin again in another folder"
        )


def _checksum(content: Mapping[str, Any]) -> str:
    """Return a hash of a JSON object that does not depend on how it is written."""
    from hashlib import sha256

    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def write_json(path: Place, content: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    plain = {**json.loads(json.dumps(content)), "format": FORMAT}
    stored = {**plain, "checksum": _checksum(plain)}
    try:
        with written_whole(path) as file:
            write_all(file, memoryview(json.dumps(stored, indent=1).encode()))
            force(file)
    except OSError as error:
        raise disk_full(error, f"no space left for {path}") from None


def stored_plan(path: Place) -> dict[str, Any]:
    """Return the plan of a run directory without locking it.

    Raises
    ------
    StorageError
        If the folder is not a run directory, or its plan is damaged.
    """
    plan = read_json(path / _PLAN)
    if plan is None:
        if not is_there(path):
            raise StorageError(f"{path}: no such folder")
        raise StorageError(f"{path} is not a run directory: it has no {_PLAN}")
    return plan


def stored_result(path: Place) -> dict[str, Any] | None:
    """Return the answer of a finished run, or None; one that is damaged is as good as none."""
    return _undamaged(path / _RESULT)


def stored_bounds(path: Place) -> dict[str, Any] | None:
    """Return what a run without an answer knows already, or None; what is damaged is as good as none."""
    return _undamaged(path / _BOUNDS)


def _undamaged(path: Place) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except (DamagedError, OtherFormatError):  # nothing is written beside a plan of another format
        return None


def sweep_partial_files(folder: Place) -> None:
    """Remove what killed tasks left half written, in a folder of tables and beside it; no object is half written."""
    import shutil

    if isinstance(folder, ObjectPath):
        return
    for path in (*folder.glob(f"*{PARTIAL}"), *folder.glob(f"*/*{PARTIAL}")):
        path.unlink(missing_ok=True)
    for path in folder.parent.glob(f".{folder.name}.*{PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)


_RECORD, _PULSE, _LOG = "job.json", "pulse.json", "log.jsonl"


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
                time.sleep(PAUSE_SECONDS)
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


_ANSWERS, _PRICES, _RUNS = "answers.jsonl", "prices.jsonl", "runs"
_BATCH_KIND = FolderKind("the folder of a batch", "for a batch", "in use: the batch is running", _ANSWERS)


class BatchDir:
    """A locked folder of a batch.

    Parameters
    ----------
    path : Place
        Created if it does not exist. A folder with other content is refused.

    Raises
    ------
    StorageError
        If the folder cannot be written, is something else, or is in use.
    """

    def __init__(self, path: Place):
        self.path = path
        self._lock = locked_folder(path, _BATCH_KIND, lambda p: p.name.endswith(PARTIAL))
        try:
            self._file, self._prices = (LineLog(path / name) for name in (_ANSWERS, _PRICES))
        except OSError as error:
            self._lock.close()
            raise disk_full(error, f"no space left in {path}") from None
        self._synced = 0.0

    def close(self) -> None:
        """Release the lock."""
        self._file.close()
        self._prices.close()
        self._lock.close()

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return the latest answer of every key; damaged lines are ignored.

        Raises
        ------
        OtherFormatError
        """
        return self._latest(_ANSWERS)

    def prices(self) -> dict[str, dict[str, Any]]:
        """Return the latest price of every key; damaged lines are ignored."""
        return self._latest(_PRICES)

    def _latest(self, name: str) -> dict[str, dict[str, Any]]:
        found = {}
        for line in read_lines(self.path / name):
            if line is not None and "key" in line:
                check_format(self.path / name, line.pop("format", 1))
                found[str(line["key"])] = line
        return found

    def append(self, answer: dict[str, Any]) -> None:
        """Keep an answer, forced to disk unless that was done a moment ago.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        self._write_line(self._file, answer, time.monotonic() - self._synced >= SYNC_SECONDS)

    def append_price(self, price: dict[str, Any]) -> None:
        """Keep a price, which is found again if it is lost.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        self._write_line(self._prices, price, False)

    def _write_line(self, log: LineLog, record: dict[str, Any], forced: bool) -> None:
        line = to_line({**record, "format": FORMAT})
        try:
            log.append(line, forced=forced)
            if forced:
                self._synced = time.monotonic()
        except OSError as error:
            raise disk_full(error, f"no space left in {self.path}") from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        try:
            with written_whole(self.path / name) as file:
                write_all(file, memoryview(content))
        except OSError as error:
            raise disk_full(error, f"no space left in {self.path}") from None

    def run_folder(self, key: str) -> Place:
        """Return the run directory of a question that is worth one."""
        folder = self.path / _RUNS
        folder.mkdir(exist_ok=True)
        return folder / key[:32]

    def drop_run(self, key: str) -> None:
        """Remove the run directory of a question that is answered."""
        folder = self.path / _RUNS / key[:32]
        if folder.exists():
            remove_folder(folder)
