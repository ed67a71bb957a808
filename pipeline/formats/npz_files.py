"""Reading ``.npz`` archives within a memory budget: sizes are read and checked before any array."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, format_bytes
from .text.source import JSON_BYTES


@dataclass(frozen=True)
class NpzEntry:
    """An array of an archive, as its header describes it.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    offset : int
        Bytes of the header before the array.
    is_stored : bool
        Whether it is uncompressed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_stored: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def npz_entries(file: str | Path | IO[bytes]) -> dict[str, NpzEntry]:
    """Read the headers of all arrays of an archive, and no array.

    Returns
    -------
    dict of str to NpzEntry
        By name, without ``.npy``.

    Raises
    ------
    ValueError
        If an entry is no array of numbers, or its size is not what its header says.
    """
    with zipfile.ZipFile(file) as archive:
        found = {}
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as stream:
                shape, dtype, offset = _header(stream)
            found[name] = NpzEntry(shape, dtype, offset, entry.compress_type == zipfile.ZIP_STORED)
            if dtype.hasobject or entry.file_size != offset + found[name].nbytes:
                raise ValueError(f"{name} is not the array that its header describes")
        return found


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    # NumPy writes 128 bytes for an array without fields
    shape, _, dtype = read(stream, max_header_size=4096)
    if any(size < 0 for size in shape):
        raise ValueError("a size below 0")
    return shape, dtype, stream.tell()


def verify_memory(path: str, needed: int, memory: int) -> None:
    """Refuse a file that needs more memory than is allowed.

    Raises
    ------
    BudgetError
    """
    if needed > memory:
        raise BudgetError(
            f"{path}: reading it needs at least {format_bytes(needed)} of memory, allowed {format_bytes(memory)}; if "
            "the file is what it should be, give a larger --memory"
        )


def read_npz(
    file: str | Path | IO[bytes], path: str, memory: int, texts: tuple[str, ...] = ("header",)
) -> Mapping[str, NDArray[Any]]:
    """Read all arrays of an archive within a memory budget.

    Parameters
    ----------
    file : path or binary file
    path : str
        The file as the user named it.
    memory : int
        Bytes that all arrays, and what is parsed from ``texts``, may take.
    texts : tuple of str
        Arrays that hold JSON.

    Raises
    ------
    BudgetError
        If the arrays do not fit the budget.
    ValueError
        If the archive is damaged.
    """
    entries = npz_entries(file)
    needed = sum([e.nbytes * (1 + JSON_BYTES * (name in texts)) for name, e in entries.items()])
    verify_memory(path, needed, memory)
    if not isinstance(file, str | Path):
        file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in entries}
