"""How fast a disk is: sampled, or as a calibration kept it."""

from __future__ import annotations

import os
import platform
import time
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from ...storage.files import PARTIAL, SAMPLE_BYTES, Place, write_all
from ...storage.object_store import ObjectPath
from ...storage.spec import disk_full
from ..budget.budget_policy import DISK_RATE
from . import cpu as rate_files

# Rounds of a sample. The fastest round counts: other processes delay some of the rounds.
_SAMPLE_ROUNDS = 8


def measured_disk_rate(path: Place | None) -> float:
    """Return bytes per second of writing and reading back a sample, forced to disk; a guess if that fails.

    Taken from the calibration where there is one for the file system.
    """
    if isinstance(path, ObjectPath):
        return sampled_store_rate(path)
    folder = path if path is not None and path.is_dir() else _temporary_folder()
    stored = rate_files.read(rate_files.machine()).get(_disk_key(folder))
    if isinstance(stored, float) and stored > 0:
        return stored
    try:
        return sampled_rate(folder)
    except OSError:
        return DISK_RATE  # the disk is full, or cannot be written


def keep_disk_rate(path: Path | None) -> float:
    """Measure the disk of a folder, of that for temporary files by default, and keep its rate for later plans."""
    folder = path or _temporary_folder()
    try:
        rate = sampled_rate(folder)
    except OSError:
        return DISK_RATE  # the disk is full, or cannot be written
    rate_files.write(rate_files.machine(), {_disk_key(folder): rate})
    return rate


def _temporary_folder() -> Path:
    from tempfile import gettempdir

    return Path(gettempdir())


def _disk_key(folder: Path) -> str:
    return f"disk {platform.node()} {folder.stat().st_dev}"


@lru_cache(maxsize=16)
def sampled_rate(folder: Path) -> float:
    """Measure the disk of a folder, once in a process: that takes longer than planning what is small."""
    content = os.urandom(SAMPLE_BYTES)
    return 2 * len(content) / min(sample_seconds(folder, content) for _ in range(_SAMPLE_ROUNDS))


def sample_seconds(folder: Path, content: bytes) -> float:
    """Return the seconds of writing a file, forced to disk, and reading it back."""
    from tempfile import TemporaryFile

    with TemporaryFile(dir=folder, buffering=0) as file:
        start = time.perf_counter()
        write_all(file, memoryview(content))
        os.fsync(file.fileno())
        file.seek(0)
        while file.read(len(content)):
            pass
        return time.perf_counter() - start


@lru_cache(maxsize=16)
def sampled_store_rate(folder: ObjectPath) -> float:
    """Measure an object store, once in a process: bytes per second of putting and getting an object.

    Raises
    ------
    UnreachableError
        If the store does not answer.
    """
    path = folder / f"sample-{uuid4().hex}{PARTIAL}"
    content = os.urandom(SAMPLE_BYTES)
    try:
        start = time.perf_counter()
        path.put(content)
        path.read_bytes()
        seconds = time.perf_counter() - start
        path.unlink()
    except OSError as error:
        raise disk_full(error, "") from None
    return 2 * len(content) / seconds
