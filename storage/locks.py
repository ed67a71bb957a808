"""Locks of folders, which end with the process that holds them.

The lock is ``flock`` of a file. Some file systems of networks and clouds have no ``flock``. There a lease replaces the
lock: a file ``lease-N``, which its owner renews. A lease is free if its process on this machine is gone, or if it was
not renewed for a minute of the file system's own clock. The first process that creates ``lease-(N+1)`` takes it over.

In an object store the lock is an object that its holder renews, because a store frees nothing of dead processes. The
holder creates the object if it is absent, and replaces it every few seconds. Another process that wants the folder
watches the object. If the object changes, its holder lives. If it stays the same for a whole lease, its holder is dead,
and the watcher replaces that version of the object. Only one watcher can do so, and no two clocks are compared. A dead
holder on the same machine is recognized immediately, by its process.

Temporary folders for tables are locked too. They are removed at the end of their run, or by the next run if their run
was killed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from .faults import StorageError, disk_full
from .files import Place, opened, read_whole
from .object_store import ObjectPath, StaleObjectError


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a process ran where this one does, and is gone.

    Parameters
    ----------
    holder : mapping
        The record that :func:`this_process` made in that process. Other mappings and processes elsewhere are not gone.
    """
    place, pid = holder.get("place"), holder.get("pid")
    if not isinstance(place, str) or not isinstance(pid, int) or place != this_process()["place"]:
        return False
    return _start_of(pid) != holder.get("start")


def this_process() -> dict[str, Any]:
    """Return what tells this process from all others."""
    return {"place": _place(), "pid": os.getpid(), "start": _start_of(os.getpid()), "host": os.uname().nodename}


@cache
def _place() -> str | None:
    """Return what processes that see each other's numbers have in common: the boot and the namespace."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start_of(pid: int) -> str | None:
    """Return when a process of this machine began, since its number is used again; None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


LOCK: Final = "lock"
_LEASE: Final = "lease-"
#: Errors of file systems without ``flock``.
UNSUPPORTED: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
_HELD: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
# Pause between two looks at a file that another process is about to write or release.
PAUSE_SECONDS: Final = 0.05
# A lease that was not renewed for this long is free. The owner renews it six times as often.
LEASE_SECONDS: Final = 60.0


class LockFile(FileIO):
    """The open file of a lock; closing it releases the lock.

    Parameters
    ----------
    handle : int
        Of the file.
    mode : str
    path : Path
    """

    def __init__(self, handle: int, mode: str, path: Path):
        super().__init__(handle, mode)
        self.path = path
        self.lease: FileLease | None = None

    def close(self) -> None:
        """Release the lock."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None
        super().close()


def is_lock(path: Place) -> bool:
    """Whether a file belongs to a lock."""
    return path.name == LOCK or path.name.startswith(_LEASE)


def open_lock(folder: Path) -> LockFile:
    """Open the file in a folder that is locked, made if it is not there."""
    return _lock_file(folder, os.O_RDWR | os.O_CREAT)


def open_lock_to_read(folder: Path) -> LockFile:
    """Open the file in a folder that cannot be written."""
    return _lock_file(folder, os.O_RDONLY)


def _lock_file(folder: Path, flags: int) -> LockFile:
    with opened(folder / LOCK, flags) as file:
        return LockFile(os.dup(file.fileno()), file.mode, folder / LOCK)


def try_lock(file: LockFile) -> bool:
    """Take the lock of an open file, unless another process holds it; closing the file releases it.

    Raises
    ------
    StorageError
        If the file system has neither locks nor leases; with its error.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno not in UNSUPPORTED:
            raise StorageError(f"{file.path.parent} cannot be locked: {error.strerror or error}") from None
        if not file.writable():
            return True  # nothing is written
        try:
            file.lease = take_file_lease(file.path.parent)
        except OSError as refused:
            why = f"flock: {error.strerror}; a lease file: {refused.strerror or refused}"
            raise StorageError(f"{file.path.parent} cannot be locked ({why})") from None
        return file.lease is not None
    return True


class FileLease:
    """A file that stands for a lock while it is renewed.

    Parameters
    ----------
    path : Path
        Made by the caller, who alone has it.
    """

    def __init__(self, path: Path):
        self._path = path
        self._ended = threading.Event()
        threading.Thread(target=self._renew, name="bucketflow renews a lease", daemon=True).start()

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / 6):
            with suppress(OSError):
                os.utime(self._path)

    def release(self) -> None:
        """Let others take it."""
        self._ended.set()
        with suppress(OSError):
            self._path.unlink()


def take_file_lease(folder: Path) -> FileLease | None:
    """Take the lease of a folder; None if another process has it.

    Raises
    ------
    OSError
        If no file can be made there.
    """
    there = sorted(int(name) for path in folder.glob(f"{_LEASE}*") if (name := path.name[len(_LEASE) :]).isdigit())
    number = there[-1] if there else 0
    last = folder / f"{_LEASE}{number}"
    if there and not _is_free(last):
        return None
    path = folder / f"{_LEASE}{number + 1}"
    try:
        with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            file.write(json.dumps(this_process()).encode())
    except FileExistsError:
        return None
    for old in there:
        with suppress(OSError):
            (folder / f"{_LEASE}{old}").unlink()
    return FileLease(path)


def _is_free(lease: Path) -> bool:
    """Whether the owner of a lease is gone."""
    try:
        written, found = lease.stat().st_mtime, json.loads(read_whole(lease) or b"{}")
    except FileNotFoundError:
        return True
    except ValueError:
        found = {}
    gone = isinstance(found, dict) and is_gone(found)
    return gone or _now(lease.parent) - written > LEASE_SECONDS


def _now(folder: Path) -> float:
    """Return the time by the clock of the folder's file system, which machines share."""
    path = folder / f"{_LEASE}clock.{os.uname().nodename}.{os.getpid()}"
    try:
        path.touch()
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder that is removed at the end, after removing the folders of dead processes.

    Parameters
    ----------
    parent : Path, optional
        Where to make it; by default where temporary files go.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    import shutil
    import tempfile

    place = parent or Path(tempfile.gettempdir())
    remove_abandoned(place)
    try:
        folder, lock = _made(place)
    except OSError as error:
        raise disk_full(error, f"no space left in {place}") from None
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders below ``parent`` that processes of this user and machine left when they were killed."""
    import shutil

    for folder in parent.glob(f"{_prefix()}*"):
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
                continue
            with opened(folder / LOCK, os.O_RDWR) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


def _made(parent: Path) -> tuple[Path, FileIO]:
    """Make a folder and hold its lock."""
    import tempfile

    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))
        lock = opened(folder / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                return folder, lock  # nobody else can lock it, so nobody takes it for abandoned
            if os.fstat(lock.fileno()).st_nlink:
                return folder, lock
        except BaseException:
            lock.close()
            raise
        lock.close()  # another process took the folder for abandoned before it was locked


def _prefix() -> str:
    """Temporary folders may be shared by machines, which do not all see each other's locks."""
    return f"bucketflow-{os.uname().nodename}-"


# Locks of folders in object stores.

# A holder that does not renew its lock for this long counts as dead. A shorter lease frees a folder earlier, and costs
# more requests and a risk for holders that are suspended.
OBJECT_LEASE_SECONDS: Final = 15.0
_RENEWALS_A_LEASE = 3
_LOOKS_A_LEASE = 10 * _RENEWALS_A_LEASE


class Lease:
    """A lock that this process holds until it is closed.

    Parameters
    ----------
    path : ObjectPath
        The object.
    version : mapping
        The version that this process wrote.
    token : str
        What distinguishes this lock from others of the process.
    seconds : float
        How long the lock outlives its last renewal.
    """

    def __init__(self, path: ObjectPath, version: Mapping[str, str], token: str, seconds: float):
        self._path, self._version, self._token, self._seconds = path, version, token, seconds
        self._renewed, self._lost = time.monotonic(), False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="bucketflow-lease", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        """Whether no other process can hold the lock now."""
        return not self._lost and time.monotonic() - self._renewed < self._seconds

    def _renew(self) -> None:
        while not self._closed.wait(self._seconds / _RENEWALS_A_LEASE) and not self._lost:
            began = time.monotonic()
            try:
                self._version = self._path.replace(_content(self._token), self._version)
                self._renewed = began
            except StaleObjectError:  # of another process, or of a request of ours whose answer was lost
                self._find_own(began)
            except OSError:
                continue

    def _find_own(self, began: float) -> None:
        try:
            content, version = self._path.read_version()
        except OSError:
            return
        if _read(content).get("token") == self._token:
            self._version, self._renewed = version, began
        else:
            self._lost = True

    def close(self) -> None:
        """Release the lock."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        if self.writable():
            with suppress(OSError):
                self._path.unlink()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take_lease(path: ObjectPath, patience_seconds: float | None = None) -> Lease | None:
    """Return the lock of a folder, or None if another process holds it.

    Parameters
    ----------
    path : ObjectPath
        The object that stands for the lock.
    patience_seconds : float, optional
        How long to wait for a holder that lives; by default not at all. A dead holder takes at most one lease.

    Raises
    ------
    OSError
        If the store cannot be reached or written.
    """
    seconds, token = OBJECT_LEASE_SECONDS, uuid4().hex
    end = None if patience_seconds is None else time.monotonic() + patience_seconds
    seen, since = None, time.monotonic()
    while True:
        before = time.monotonic()
        try:
            return Lease(path, path.create(_content(token)), token, seconds)
        except StaleObjectError:
            pass
        try:
            content, version = path.read_version()
        except FileNotFoundError:
            continue
        holder = _read(content)
        if holder.get("token") == token:  # of a request of ours whose answer was lost
            return Lease(path, version, token, seconds)
        if seen is not None and version != seen and end is None:
            return None  # it was renewed
        if version != seen:
            seen, since = version, before
        if is_gone(holder) or before - since > seconds:
            try:
                return Lease(path, path.replace(_content(token), version), token, seconds)
            except StaleObjectError:
                continue
        if end is not None and before > end:
            return None
        time.sleep(seconds / _LOOKS_A_LEASE)


def is_held(path: ObjectPath) -> bool:
    """Whether a process holds a lock, as far as one look and this machine's clock say."""
    try:
        holder = _read(path.read_bytes())
    except OSError:
        return False
    age = time.time() - holder.get("renewed", 0.0)
    return age < 2 * OBJECT_LEASE_SECONDS and not is_gone(holder)


def _content(token: str) -> bytes:
    return json.dumps({"token": token, "renewed": time.time(), **this_process()}).encode()


def _read(content: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {}
