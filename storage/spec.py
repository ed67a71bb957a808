"""The description of a table on disk: its axes, its chunk grid, and the receipt of each finished chunk. No I/O."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

Key = tuple[str, tuple[int, ...]]
"""A table and a chunk of it."""


@dataclass(frozen=True)
class TableSpec:
    """A dense table as a Zarr array, one axis for each variable with several states.

    Parameters
    ----------
    name : str
        Folder of the array inside the run directory.
    variables : tuple of int
        Variable of each axis, in the order of the axes.
    labels : tuple of str
        Their names, which become the dimension names.
    shape : tuple of int
    chunked : frozenset of int
        Variables along which a chunk has one state; along the others it has all.
    dtype : str
    compression : str
        How the chunk files are stored: ``""`` for raw values, or ``"blosc"``.
    attributes : mapping
        Attributes of the array for its readers, in plain types.
    """

    name: str
    variables: tuple[int, ...]
    labels: tuple[str, ...]
    shape: tuple[int, ...]
    chunked: frozenset[int]
    dtype: str
    compression: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk."""
        return tuple(1 if v in self.chunked else n for v, n in zip(self.variables, self.shape, strict=True))

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(n if v in self.chunked else 1 for v, n in zip(self.variables, self.shape, strict=True))

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return prod(self.grid)

    def chunks_at(self, states: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
        """Yield the coordinates of the chunks that agree with some states, in C order."""
        return product(
            *(
                ((states[v],) if v in states else range(n)) if v in self.chunked else (0,)
                for v, n in zip(self.variables, self.shape, strict=True)
            )
        )

    def file_name(self, chunk: tuple[int, ...]) -> str:
        """Name of a chunk's file: Zarr's default key encoding with dots."""
        return ".".join(["c", *map(str, chunk)])


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a task finished: the chunk that it wrote, and the task's numbers.

    Parameters
    ----------
    table : str
        Name of the table, or of the result for the last stage.
    chunk : tuple of int
        Coordinates in the table's chunk grid, or the number of the box for a result.
    nbytes, checksum : int
        Length and CRC-32C of the chunk's file; 0 for a result.
    seconds : float
        Wall time of the task that wrote it.
    peak_bytes : int
        Largest resident size of the process that wrote it.
    value : dict
        Scale and bounds of a chunk of probabilities; the value of a result.
    ended : float
        Seconds since 1970; 0 where that was not written down.
    steps : mapping of str to (float, int)
        Seconds of the task's steps and the number of runs of each step, by table. If a task has several receipts, only
        one holds them.
    """

    table: str
    chunk: tuple[int, ...]
    nbytes: int
    checksum: int
    seconds: float
    peak_bytes: int
    value: dict[str, Any]
    ended: float = 0.0
    steps: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Table and chunk."""
        return self.table, self.chunk

    def to_record(self) -> dict[str, Any]:
        """Return the receipt as plain types for the ledger, its table and chunk first."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Receipt:
        """Rebuild a receipt from its ledger record."""
        steps = {step: tuple(took) for step, took in record.get("steps", {}).items()}
        return cls(**{**record, "chunk": tuple(record["chunk"]), "steps": steps})


# Errors of tables on disk.


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
