"""Chunks of tables in an object store: compressed, and several on their way at the same time.

A request takes longer than compression, so every chunk is a Blosc frame and no metadata have to be read to know it. The
chunks of one call travel together as long as they take little memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import BLOSC, read_chunk, write_chunk
from ...storage.files import Place
from ...storage.object_store import ObjectPath, each
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, delete_table
from ..steps.number_limits import LARGEST_INT32
from .box_policy import MOST_CHUNK_BYTES
from .stores import Chunk, ChunkFiles, Written, place, within

Array = NDArray[Any]

# Maximum bytes of an array in one Blosc frame. The frame, with its header, has at most 2 GiB.
_LONGEST_FRAME: Final = LARGEST_INT32 - 16

_created = set[ObjectPath]()
"""Tables whose metadata this process put."""


class ChunkObjects(ChunkFiles):
    """Chunks and receipts that are objects below a URL, which all workers reach."""

    def create(self, spec: TableSpec) -> None:
        """Put the metadata."""
        create_table(self.folder, spec, lambda: stored(spec).compression)
        _created.add(self._table(spec))

    def delete(self, spec: TableSpec) -> None:
        """Remove the objects of a table."""
        _created.discard(self._table(spec))
        delete_table(self.folder, spec)

    def _table(self, spec: TableSpec) -> ObjectPath:
        assert isinstance(self.folder, ObjectPath)
        return self.folder / spec.name

    def finished(self, spec: TableSpec, chunks: Collection[Chunk], in_files: bool) -> list[Receipt]:
        """Ask for the receipts."""
        return ledger.finished(self.folder, spec, chunks)

    def load(
        self, spec: TableSpec, values: Array, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Read chunks, several at a time; of larger ones the part that is asked for."""
        spec = stored(spec)

        def read(receipt: Receipt) -> None:
            out = values[place(spec, receipt.chunk, states, first)]
            whole = out.size == prod(spec.chunk_shape)
            cells = out if whole else np.empty(spec.chunk_shape, spec.dtype)
            read_chunk(self.folder, spec, receipt, cells)
            if not whole:
                out[...] = cells[within(spec, states)]

        for group in _together(spec, receipts):
            each(read, group)

    def save(
        self, spec: TableSpec, values: Array, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Write chunks, several at a time."""
        if self._table(spec) not in _created:
            self.create(spec)
        spec = stored(spec)

        def write(chunk: Chunk) -> Written:
            return chunk, *write_chunk(self.folder, spec, chunk, values[place(spec, chunk, states)])

        for group in _together(spec, chunks):
            yield from each(write, group)

    def chunk(self, spec: TableSpec, receipt: Receipt) -> Array:
        """Read the object."""
        spec = stored(spec)
        cells = np.empty(spec.chunk_shape, spec.dtype)
        read_chunk(self.folder, spec, receipt, cells)
        return cells


def chunk_store(folder: Place, disk_rate: float | None = None, compact: bool = False) -> ChunkFiles:
    """Return the store of a folder, in a file system or in an object store; see ``ChunkFiles``."""
    kind = ChunkObjects if isinstance(folder, ObjectPath) else ChunkFiles
    return kind(folder, disk_rate, compact)


def stored(spec: TableSpec) -> TableSpec:
    """Return a table as an object store has it: compressed, unless a chunk is too large for a frame."""
    nbytes = prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize
    return replace(spec, compression=BLOSC if nbytes <= _LONGEST_FRAME else "")


def _together(spec: TableSpec, parts: Collection[Any]) -> Iterator[list[Any]]:
    """Cut what is read or written into groups that travel together."""
    listed = list(parts)
    count = max(1, MOST_CHUNK_BYTES // max(1, prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize))
    yield from (listed[start : start + count] for start in range(0, len(listed), count))
