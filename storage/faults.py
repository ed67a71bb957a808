"""Errors of files and folders: what was wrong, and what to do. The only I/O looks whether a folder exists."""

from __future__ import annotations

import errno
import os


class StorageError(Exception):
    """A run directory that cannot be used."""


class DamagedError(StorageError):
    """A file that is not as it was written."""


class OtherFormatError(StorageError):
    """A file that a version of another format wrote."""


class DiskFullError(StorageError):
    """No space was left for a chunk; finished chunks stay."""


class StoreError(OSError):
    """A request that an object store refused, or did not answer."""


class UnreachableError(StorageError):
    """An object store that failed; what is finished stays, and the run can be resumed once the store answers."""


class ChunkLostError(StorageError):
    """A chunk is missing or differs from its receipt; it has to be computed again."""

    def __init__(self, table: str, chunk: tuple[int, ...], reason: str):
        self.table, self.chunk, self.reason = table, chunk, reason
        super().__init__(f"chunk {chunk} of {table} is lost: {reason}")

    def __reduce__(self) -> tuple[type[ChunkLostError], tuple[str, tuple[int, ...], str]]:
        return ChunkLostError, (self.table, self.chunk, self.reason)


def disk_full(error: OSError, message: str) -> StorageError:
    """Return the error to raise in place of one of the system or a store: ``message`` for a full disk or quota."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message)
    if isinstance(error, StoreError):
        return UnreachableError(f"{error.filename} cannot be reached: {error.strerror}")
    fault = file_fault(error, error.filename or "", "write")
    return StorageError(f"{error.filename or 'a file of the run directory'} cannot be written: {fault}")


def file_fault(error: BaseException, path: str | os.PathLike[str] = "", use: str = "read", noun: str = "file") -> str:
    """Return the reason why a file cannot be used, and what to do if that is clear.

    Parameters
    ----------
    error : BaseException
        Raised by the system, or by decoding the text.
    path : str or PathLike, optional
        The file; if its folder is missing, the reason names the folder.
    use : {"read", "write"}
    noun : {"file", "folder"}

    Examples
    --------
    >>> file_fault(FileNotFoundError(2, "No such file or directory"), "model.uai")
    'no such file'
    >>> file_fault(FileNotFoundError(2, "No such file or directory"), "nowhere/model.uai")
    'there is no folder nowhere'
    >>> file_fault(IsADirectoryError(21, "Is a directory"))
    'this is a folder; give the path of a file'
    >>> file_fault(PermissionError(13, "Permission denied"))
    'you do not have permission to read it'
    >>> file_fault(OSError(28, "No space left on device"))
    'no space left on device'
    """
    if isinstance(error, UnicodeDecodeError):
        return "this is not text in UTF-8; save it as UTF-8"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            return f"{folder} is not a folder" if os.path.exists(folder) else f"there is no folder {folder}"
        return (
            f"no such {noun}" if isinstance(error, FileNotFoundError) else "this is a file; give the path of a folder"
        )
    if isinstance(error, FileExistsError):
        return "this is a file; give the path of a folder"
    if isinstance(error, IsADirectoryError):
        return "this is a folder; give the path of a file"
    if isinstance(error, PermissionError):
        return f"you do not have permission to {use} it"
    said = getattr(error, "strerror", None) or str(error)
    is_system = isinstance(error, OSError) and error.errno is not None and said == os.strerror(error.errno)
    return said[:1].lower() + said[1:] if is_system else said
