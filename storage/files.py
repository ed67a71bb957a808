"""Files of a run directory: opened without following links, written whole or not at all.

A run directory may have come from someone else. A symbolic link in it would make reading or writing it touch a file
somewhere else, so none is ever followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from threading import get_ident

from .spec import StorageError

PARTIAL = ".partial"


def opened(path: str | Path, flags: int = os.O_RDONLY) -> FileIO:
    """Open a file that is not a link, unbuffered, with flags of ``os.open``; a pipe is not waited for."""
    mode = "r+" if flags & os.O_RDWR else "w" if flags & os.O_WRONLY else "r"
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    return FileIO(handle, mode + "b")


def free_bytes(path: Path) -> int:
    """Return what the file system has left that a path, there or not yet, is in."""
    place = next((one for one in (path, *path.absolute().parents) if os.path.exists(one)), path)
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def own_name(name: str) -> str:
    """Return the name of what this thread makes of a file, a folder or part of one before it counts.

    Threads that are gone may have had its numbers: what they left is nobody's.
    """
    return f"{name}.{os.uname().nodename}.{os.getpid()}.{get_ident()}{PARTIAL}"


def _created(path: str) -> FileIO:
    """Create a file; one that is there is removed before."""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return opened(path, new)
    except FileExistsError:
        os.unlink(path)
        return opened(path, new)


@contextmanager
def written_whole(path: str | Path) -> Iterator[FileIO]:
    """Open a file that takes the place of ``path`` at the end; if anything fails nothing of it remains."""
    partial = own_name(str(path))
    try:
        with _created(partial) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def write_all(file: FileIO, data: memoryview) -> None:
    """Write every byte: the system may take fewer at a time."""
    while data:
        data = data[file.write(data) :]


def read_whole(path: str | Path) -> bytes:
    """Read a file that is not a link."""
    with opened(path) as file:
        return file.readall()


def refuse_links(folder: Path) -> None:
    """Refuse a folder that has a symbolic link among its files and folders, or among those of its folders.

    Raises
    ------
    StorageError
        Naming the link.
    """
    for path in (*folder.iterdir(), *folder.glob("*/*")):
        if path.is_symlink():
            raise StorageError(f"{path} is a symbolic link, and a run directory holds none")


def file_bytes(folder: Path, pattern: str) -> int:
    """Return the length of all files below a folder whose names fit a pattern; a run may delete some meanwhile."""
    total = 0
    for path in folder.rglob(pattern):
        with suppress(OSError):
            status = path.lstat()
            total += status.st_size if S_ISREG(status.st_mode) else 0
    return total


# Where this machine keeps what is made once: measured rates, machine code of compiled loops.


def cache_folder() -> Path:
    """Return ``BUCKETFLOW_CACHE``, or a folder of the user's cache directory. It may not be there yet."""
    return _folder(*map(os.environ.get, ("BUCKETFLOW_CACHE", "XDG_CACHE_HOME", "HOME")))


@lru_cache(maxsize=8)
def _folder(given: str | None, cache: str | None, _home: str | None) -> Path:
    """Find the folder once for what the environment says: every question asks for measured rates."""
    if given:
        return Path(given)
    return Path(cache or Path("~/.cache").expanduser()) / "bucketflow"


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file that readers see whole or not at all; return False where that is not possible.

    Whatever the process leaves to others by default, they may not write to it, nor to folders that are made for it.
    """
    try:
        for folder in reversed([one for one in (path.parent, *path.parent.parents) if not one.exists()]):
            folder.mkdir(mode=0o755, exist_ok=True)
        with written_whole(path) as file:
            os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o755)
            write_all(file, memoryview(content))
    except OSError:
        return False
    return True
