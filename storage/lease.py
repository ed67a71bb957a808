"""Locks of folders in object stores: an object that its holder renews, because a store frees nothing of dead processes.

The holder creates the object if it is absent, and replaces it every few seconds. Another process that wants the folder
watches the object. If the object changes, its holder lives. If it stays the same for a whole lease, its holder is dead,
and the watcher replaces that version of the object. Only one watcher can do so, and no two clocks are compared. A dead
holder on the same machine is recognized immediately, by its process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from .locks import is_gone, this_process
from .object_store import ObjectPath, StaleObjectError

# A holder that does not renew its lock for this long counts as dead. A shorter lease frees a folder earlier, and costs
# more requests and a risk for holders that are suspended.
LEASE_SECONDS: Final = 15.0
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
    seconds, token = LEASE_SECONDS, uuid4().hex
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
    return age < 2 * LEASE_SECONDS and not is_gone(holder)


def _content(token: str) -> bytes:
    return json.dumps({"token": token, "renewed": time.time(), **this_process()}).encode()


def _read(content: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {}
