"""What can go wrong with tables on disk."""

from __future__ import annotations

import errno


class StorageError(Exception):
    """A run directory that cannot be used."""


class DamagedError(StorageError):
    """A file that is not as it was written."""


class DiskFullError(StorageError):
    """No space was left for a chunk; finished chunks stay."""


class ChunkLostError(StorageError):
    """A chunk is missing or differs from its receipt; it has to be computed again."""

    def __init__(self, table: str, chunk: tuple[int, ...], reason: str):
        self.table, self.chunk, self.reason = table, chunk, reason
        super().__init__(f"chunk {chunk} of {table} is lost: {reason}")

    def __reduce__(self) -> tuple[type[ChunkLostError], tuple[str, tuple[int, ...], str]]:
        return ChunkLostError, (self.table, self.chunk, self.reason)


def disk_full(error: OSError, message: str) -> StorageError:
    """Return the error to raise instead of an operating system's: ``message`` for a full disk or quota."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message)
    return StorageError(f"{error.filename or 'a file of the run directory'} cannot be written: {error.strerror}")
