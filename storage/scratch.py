"""Temporary folders for tables: removed at the end of their run, or by the next run where a run was killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from .files import opened
from .locks import LOCK, UNSUPPORTED
from .spec import disk_full

# Held by the process that uses the folder, for as long as it lives.


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
