"""Locks that go away with the process that holds them, and folders that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from ..errors import StorageError
from ..files import opened, refuse_links

_LOCK = "lock"


def try_lock(file: FileIO) -> bool:
    """Take the lock of an open file, if nobody else holds it; closing the file releases it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def open_lock(folder: Path) -> FileIO:
    """Open the file in a folder that is locked, made if it is not there."""
    return opened(folder / _LOCK, os.O_RDWR | os.O_CREAT)


@dataclass(frozen=True)
class FolderKind:
    """What a folder is for, in the words of the sentences about it.

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


def locked_folder(path: Path, kind: FolderKind, comes_before: Callable[[Path], bool]) -> FileIO:
    """Create a folder if it does not exist, and take its lock.

    Parameters
    ----------
    path : Path
    kind : FolderKind
    comes_before : callable
        Whether something may be there before the file that marks the folder.

    Raises
    ------
    StorageError
        If the folder cannot be written, is something else, or is in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in path.iterdir() if p.name != _LOCK and not comes_before(p)]
        if foreign and not os.path.lexists(path / kind.mark):
            raise StorageError(f"{path} is not {kind.name}: it holds {foreign[0]!r} and no {kind.mark}")
        refuse_links(path)
        lock = open_lock(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be used {kind.use}: {error.strerror}") from None
    if not try_lock(lock):
        lock.close()
        raise StorageError(f"{path} is {kind.busy}")
    return lock
