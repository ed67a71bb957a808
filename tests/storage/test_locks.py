"""Locks of folders, and leases on file systems without ``flock``."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.storage import locks
from bucketflow.storage.faults import StorageError
from bucketflow.storage.locks import open_lock, this_process, try_lock
from bucketflow.storage.run_folder import RunDir
from tests.models import grid


def without_flock(monkeypatch: pytest.MonkeyPatch, code: int = errno.EOPNOTSUPP) -> None:
    """Let the file system refuse all locks."""

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_lease_replaces_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    without_flock(monkeypatch, code)
    model, folder = grid(3, 3, 2), tmp_path / "run"
    found = bucketflow.solve(model, workdir=folder)
    assert bucketflow.solve(model, workdir=folder).value == found.value
    assert not list(folder.glob("lease-*"))
    with open_lock(folder) as lock:
        assert try_lock(lock)
        with pytest.raises(StorageError, match="is in use by another run"):
            RunDir(folder)
    RunDir(folder).lock.close()


def test_a_lease_of_a_dead_process_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_flock(monkeypatch)
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    lease = tmp_path / "lease-7"
    lease.write_text(json.dumps({**this_process(), "pid": process.pid}))
    with open_lock(tmp_path) as lock:
        assert try_lock(lock)
        assert [path.name for path in tmp_path.glob("lease-*")] == ["lease-8"]
    assert not list(tmp_path.glob("lease-*"))


def test_a_lease_of_another_machine_is_free_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_flock(monkeypatch)
    lease = tmp_path / "lease-1"
    lease.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with open_lock(tmp_path) as lock:
        assert not try_lock(lock)
    old = lease.stat().st_mtime - locks.LEASE_SECONDS - 5
    os.utime(lease, (old, old))
    with open_lock(tmp_path) as lock:
        assert try_lock(lock)
        with open_lock(tmp_path) as other:
            assert not try_lock(other)


def test_an_owner_renews_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_flock(monkeypatch)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.006)
    with open_lock(tmp_path) as lock:
        assert try_lock(lock)
        (lease,) = tmp_path.glob("lease-*")
        os.utime(lease, (1, 1))
        while lease.stat().st_mtime == 1:
            pass


def test_errors_of_locks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_flock(monkeypatch, errno.EIO)
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"run cannot be locked: Input/output error$"):
        bucketflow.solve(grid(2, 2, 2), workdir=tmp_path / "run")
    without_flock(monkeypatch)

    def refused(_: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(locks, "take_file_lease", refused)
    match = r"cannot be locked \(flock: Operation not supported; a lease file: Read-only file system\)$"
    with pytest.raises(bucketflow.IncompatibleRunError, match=match):
        bucketflow.solve(grid(2, 2, 2), workdir=tmp_path / "other")


def test_scratch_folders_need_no_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder of its own: other tests, which have locks, remove unlocked folders as abandoned."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    without_flock(monkeypatch)
    model = grid(4, 4, 2)
    assert bucketflow.solve(model, fit="spill", method="dense").value == bucketflow.solve(model).value
