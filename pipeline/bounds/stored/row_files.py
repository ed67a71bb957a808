"""Sorted rows on disk, piece by piece: each a table of one chunk that is checked when it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....storage.chunks import damaged, read_rows, write_chunk
from ....storage.errors import ChunkLostError, DiskFullError
from ....storage.spec import Receipt, TableSpec

Numbers = NDArray[np.uint64]

# All pieces are files of this table.
_TABLE = "rows"


@dataclass(frozen=True)
class Piece:
    """Rows in one file, ``(rows, columns) uint64``."""

    spec: TableSpec
    receipt: Receipt

    def __len__(self) -> int:
        return self.spec.shape[0]


@dataclass(frozen=True)
class StoredRows:
    """The rows of a piece, read as they are asked for."""

    folder: Path
    piece: Piece

    def __len__(self) -> int:
        return len(self.piece)

    def __getitem__(self, rows: slice) -> Numbers:
        first, stop, _ = rows.indices(len(self))
        return read_rows(self.folder, self.piece.spec, self.piece.receipt.chunk, first, max(first, stop))

    def all(self) -> Numbers:
        """Return all rows."""
        return self[:]


class RowFiles:
    """Pieces in a folder.

    Parameters
    ----------
    folder : callable
        Makes it, once it is needed.
    disk_bytes : int
        All pieces together take no more.
    """

    def __init__(self, folder: Callable[[], Path], disk_bytes: int) -> None:
        self._make, self._disk_bytes = folder, disk_bytes
        self._folder: Path | None = None
        self._made = 0
        self.nbytes = 0

    @property
    def folder(self) -> Path:
        """Where pieces are."""
        if self._folder is None:
            self._folder = self._make()
            (self._folder / _TABLE).mkdir()
        return self._folder

    def write(self, rows: Numbers) -> Piece:
        """Write rows, of which there is one at least.

        Raises
        ------
        DiskFullError
            If there is no room for them.
        """
        if self.nbytes + rows.nbytes > self._disk_bytes:
            raise DiskFullError(f"rows take more than {self._disk_bytes} bytes of disk")
        spec = TableSpec(_TABLE, (0, 1), ("row", "column"), rows.shape, frozenset(), rows.dtype.str)
        chunk, self._made = (self._made, 0), self._made + 1
        nbytes, checksum = write_chunk(self.folder, spec, chunk, rows)
        self.nbytes += nbytes
        return Piece(spec, Receipt(spec.name, chunk, nbytes, checksum, 0.0, 0, {}))

    def checked(self, piece: Piece) -> StoredRows:
        """Return rows that are read as they are asked for; all of them are checked before.

        Raises
        ------
        ChunkLostError
            If they are not as they were written.
        """
        if damaged(self.folder, {piece.spec.name: piece.spec}, {piece.receipt.key: piece.receipt}):
            raise ChunkLostError(piece.spec.name, piece.receipt.chunk, "its checksum differs")
        return StoredRows(self.folder, piece)

    def delete(self, piece: Piece) -> None:
        """Remove rows."""
        (self.folder / _TABLE / piece.spec.file_name(piece.receipt.chunk)).unlink(missing_ok=True)
        self.nbytes -= piece.receipt.nbytes

    def clear(self) -> None:
        """Remove all rows."""
        if self._folder is not None:
            for path in (self._folder / _TABLE).iterdir():
                path.unlink()
        self.nbytes = 0
