"""Files of a run directory: opened without following links, written whole or not at all.

Here, and only here, files and objects of a store meet: a path of either kind is read, written, appended to and listed
by the same functions.

A run directory may have come from someone else. A symbolic link in it would make reading or writing it touch a file
somewhere else, so none is ever followed. The content of a file may be executed only if all users who can write it
could run code as this user (:func:`read_trusted`).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from threading import get_ident
from typing import TypeAlias, overload
from uuid import uuid4

from .faults import StorageError
from .object_store import ObjectPath, ObjectReader, ObjectWriter, each

Place: TypeAlias = Path | ObjectPath
"""A path in a file system or in an object store."""


# Bytes of a sample of a table, and of a sample that measures a disk. The requests of an object store take longer than
# the bytes of anything smaller.
SAMPLE_BYTES = 1 << 22
PARTIAL = ".partial"
#: Flags of ``os.open`` for every file: a link is not followed, a pipe not waited for.
PLAIN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@overload
def opened(path: str | Path, flags: int = os.O_RDONLY) -> FileIO: ...


@overload
def opened(path: str | Place) -> FileIO | ObjectReader: ...


def opened(path: str | Place, flags: int = os.O_RDONLY) -> FileIO | ObjectReader:
    """Open a file that is not a link, unbuffered, with flags of ``os.open``; a pipe is not waited for.

    Objects are only read so.
    """
    if isinstance(path, ObjectPath):
        return ObjectReader(path)
    mode = "r+" if flags & os.O_RDWR else "w" if flags & os.O_WRONLY else "r"
    try:
        handle = os.open(path, flags | PLAIN_FILE, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    return FileIO(handle, mode + "b")


def free_bytes(path: Place) -> int:
    """Return what the file system has left that a path, there or not yet, is in."""
    if isinstance(path, ObjectPath):
        return sys.maxsize
    place = next((one for one in (path, *path.absolute().parents) if os.path.exists(one)), path)
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def own_name(name: str) -> str:
    """Return the temporary name of a file or folder that this thread is writing.

    A dead thread may have had the same numbers. Its remaining files belong to no one.
    """
    return f"{name}.{_node()}.{os.getpid()}.{get_ident()}{PARTIAL}"


@cache
def _node() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def _created(path: str) -> FileIO:
    """Create a file. An existing file is removed first."""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return opened(path, new)
    except FileExistsError:
        os.unlink(path)
        return opened(path, new)


@contextmanager
def written_whole(path: str | Place) -> Iterator[FileIO | ObjectWriter]:
    """Open a file that takes the place of ``path`` at the end; if anything fails nothing of it remains."""
    if isinstance(path, ObjectPath):
        writer = ObjectWriter()
        yield writer
        path.put(writer.content())
        return
    partial = own_name(str(path))
    try:
        with _created(partial) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def write_all(file: FileIO | ObjectWriter, data: memoryview) -> None:
    """Write every byte: the system may take fewer at a time."""
    while data:
        data = data[file.write(data) :]


def force(file: FileIO | ObjectWriter) -> None:
    """Force a file to disk; an object is stored once it is put."""
    if isinstance(file, FileIO):
        os.fsync(file.fileno())


def read_whole(path: str | Place) -> bytes:
    """Read a file that is not a link."""
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    with opened(path) as file:
        return file.readall()


def is_there(path: Place) -> bool:
    """Whether there is a file or a folder, or a link, which counts as one."""
    return path.exists() if isinstance(path, ObjectPath) else os.path.lexists(path)


def remove_folder(path: Place) -> None:
    """Remove a folder with all that is in it, as far as that is possible."""
    import shutil

    if isinstance(path, ObjectPath):
        with suppress(OSError):
            path.remove_all()
    else:
        shutil.rmtree(path, ignore_errors=True)


def ends_a_line(file: FileIO) -> bool:
    """Whether a file is empty or ends with a whole line; a crashed process may not have finished its own."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


class LineLog:
    """A file that lines are appended to; in an object store, a folder with an object for each line.

    Parameters
    ----------
    path : Place
    """

    def __init__(self, path: Place):
        self._path = path
        self._file = None if isinstance(path, ObjectPath) else opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def append(self, line: bytes, *, forced: bool = False) -> None:
        """Append a line, and force it to disk if asked.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        if self._file is None:
            assert isinstance(self._path, ObjectPath)
            (self._path / f"{time.time_ns():020}-{uuid4().hex}").put(line)
            return
        write_all(self._file, memoryview(line if ends_a_line(self._file) else b"\n" + line))
        if forced:
            force(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def logged_lines(path: Place) -> list[bytes]:
    """Return the lines of a :class:`LineLog`.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    if isinstance(path, ObjectPath):
        return [line.removesuffix(b"\n") for line in each(ObjectPath.read_bytes, path.iterdir())]
    return read_whole(path).split(b"\n")


def refuse_links(folder: Place) -> None:
    """Refuse a folder that has a symbolic link among its files and folders, or among those of its folders.

    Raises
    ------
    StorageError
        Naming the link.
    """
    if isinstance(folder, ObjectPath):
        return
    for path in (*folder.iterdir(), *folder.glob("*/*")):
        if path.is_symlink():
            raise StorageError(f"{path} is a symbolic link, and a run directory must not hold any")


def file_bytes(folder: Place, pattern: str) -> int:
    """Return the length of all files below a folder whose names fit a pattern; a run may delete some meanwhile."""
    if isinstance(folder, ObjectPath):
        with suppress(OSError):
            sizes = folder.sizes().items()
            return sum(size for path, size in sizes if fnmatchcase(path.rpartition("/")[2], pattern))
        return 0
    total = 0
    for path in folder.rglob(pattern):
        with suppress(OSError):
            status = path.lstat()
            total += status.st_size if S_ISREG(status.st_mode) else 0
    return total


# Where this machine keeps what is made once: measured rates, machine code of compiled loops.


def cache_folder() -> Path:
    """Return ``BUCKETFLOW_CACHE``, or a folder of the user's cache directory. It may not be there yet.

    Raises
    ------
    StorageError
        If it is a URL.
    """
    return _folder(*map(os.environ.get, ("BUCKETFLOW_CACHE", "XDG_CACHE_HOME", "HOME")))


@lru_cache(maxsize=8)
def _folder(given: str | None, cache: str | None, _home: str | None) -> Path:
    """Return the cache folder for these environment values.

    The result is cached, because every query needs measured rates.
    """
    if given and "://" in given:
        raise StorageError(f"BUCKETFLOW_CACHE is the URL {given}; give the path of a local or mounted folder")
    if given:
        return Path(given)
    return Path(cache or Path("~/.cache").expanduser()) / "bucketflow"


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file that readers see whole or not at all; return False where that is not possible.

    Other users may not write to the file or to its new folders, whatever the process's default permissions.
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


_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(OSError):
    """A file or folder that others may change; says which, and why."""


def check_folder(folder: Path, owners: Collection[int]) -> Path:
    """Return the real path of a folder if only the given users can change its contents.

    The folder and all its parents belong to one of these users, and only the owner may write to them. A parent may also
    be a sticky folder such as ``/tmp``, where users cannot remove each other's files. Missing folders are no danger.

    Raises
    ------
    UntrustedError
    """
    place = Path(os.path.realpath(folder))
    for path in (*reversed(place.parents), place):
        try:
            status = os.lstat(path)
        except OSError:  # the folder is missing or not accessible
            break
        if path == place or not status.st_mode & stat.S_ISVTX:
            _check_mode(path, status)
        _check_owner(path, status, owners)
    return place


def check_entry(path: Path, owners: Collection[int]) -> None:
    """Refuse what is in a folder that :func:`check_folder` returned if others than some users can change it.

    Raises
    ------
    UntrustedError
    """
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise UntrustedError(f"{path} is a symbolic link")
    _check_owner(path, status, owners)
    _check_mode(path, status)


def read_trusted(path: Path, owners: Collection[int]) -> bytes:
    """Read a file of a folder that :func:`check_folder` returned, if only the given users can have written it.

    Raises
    ------
    UntrustedError
    OSError
        If it cannot be read.
    """
    with opened(path) as file:
        status = os.fstat(file.fileno())
        _check_owner(path, status, owners)
        _check_mode(path, status)
        return file.readall()


def _check_owner(path: Path, status: os.stat_result, owners: Collection[int]) -> None:
    if status.st_uid not in owners:
        raise UntrustedError(f"{path} belongs to {_user_name(status.st_uid)}")


def _check_mode(path: Path, status: os.stat_result) -> None:
    writers = status.st_mode & _OTHERS
    if writers & stat.S_IWOTH or (writers and not _is_private(status)):
        who = "everybody" if writers & stat.S_IWOTH else f"the group {_group_name(status.st_gid)}"
        raise UntrustedError(f"{who} may write to {path}")


def _is_private(status: os.stat_result) -> bool:
    """Whether a group is its owner's alone: many systems give each user one, of the same name and number."""
    import grp

    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    name = _user_name(status.st_uid)
    return group.gr_name == name and {*group.gr_mem} <= {name} and status.st_gid == status.st_uid


def _user_name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
