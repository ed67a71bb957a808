"""Where the tables between stages are while boxes run on a device: in page-locked host memory, or in chunk files.

Both hand out chunks as host arrays from which the device copies at the link's rate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import map_chunk, read_chunk, write_chunk
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, delete_table, stored_table
from ..gpu.memory import Pinned
from .boxes import _place, finished

Array = NDArray[Any]
Chunk = tuple[int, ...]

BUFFERS = Pinned()
"""What chunks of files pass through in this process."""


class Store(Protocol):
    """Chunks of tables."""

    def create(self, spec: TableSpec) -> None:
        """Make room for a table."""
        ...

    def delete(self, spec: TableSpec) -> None:
        """Remove a table."""
        ...

    def finished(self, spec: TableSpec, wanted: Collection[Chunk]) -> list[Receipt]:
        """Return the receipts of chunks that are all there already, or nothing."""
        ...

    def reading(self, spec: TableSpec, receipt: Receipt) -> AbstractContextManager[Array]:
        """Give a chunk, in its shape, for as long as the context lasts."""
        ...

    def room(self, spec: TableSpec) -> Array:
        """Return page-locked memory for a chunk, in its shape."""
        ...

    def put(self, spec: TableSpec, chunk: Chunk, values: Array) -> tuple[int, int]:
        """Store what was written into a `room`; return bytes and checksum."""
        ...

    def discard(self, values: Array) -> None:
        """Take a `room` back without storing it."""
        ...

    def record(self, receipts: list[Receipt]) -> None:
        """Make receipts count."""
        ...

    def cells(self, spec: TableSpec, chunk: Chunk) -> Array:
        """Return a chunk to pick a few cells from."""
        ...


@dataclass(frozen=True)
class ChunkFiles:
    """Chunk files and a ledger in a folder, as on a CPU."""

    folder: Path

    def create(self, spec: TableSpec) -> None:
        """Write the metadata."""
        create_table(self.folder, spec)

    def delete(self, spec: TableSpec) -> None:
        """Remove the files."""
        delete_table(self.folder, spec)

    def finished(self, spec: TableSpec, wanted: Collection[Chunk]) -> list[Receipt]:
        """Look into the ledger: a lost worker may have finished the box."""
        return finished(self.folder, spec, wanted)

    @contextmanager
    def reading(self, spec: TableSpec, receipt: Receipt) -> Iterator[Array]:
        """Read a chunk's file and check it."""
        values, block = _shaped(BUFFERS, spec)
        try:
            read_chunk(self.folder, stored_table(self.folder, spec), receipt, values)
            yield values
        finally:
            BUFFERS.give(block)

    def room(self, spec: TableSpec) -> Array:
        """Return a buffer."""
        return _shaped(BUFFERS, spec)[0]

    def put(self, spec: TableSpec, chunk: Chunk, values: Array) -> tuple[int, int]:
        """Write a chunk's file."""
        try:
            return write_chunk(self.folder, stored_table(self.folder, spec), chunk, values)
        finally:
            BUFFERS.give(_block(values))

    def discard(self, values: Array) -> None:
        """Give a buffer back."""
        BUFFERS.give(_block(values))

    def record(self, receipts: list[Receipt]) -> None:
        """Append to the ledger."""
        ledger.append(self.folder, receipts)

    def cells(self, spec: TableSpec, chunk: Chunk) -> Array:
        """Map the file."""
        return map_chunk(self.folder, spec, chunk)


class HostTables:
    """Chunks in page-locked memory of this process; nothing is copied but to and from the device."""

    def __init__(self, memory: Pinned):
        self._memory = memory
        self._chunks: dict[tuple[str, Chunk], Array] = {}

    def create(self, spec: TableSpec) -> None:
        """Nothing to do: chunks take their memory as they come."""

    def delete(self, spec: TableSpec) -> None:
        """Give back the memory of a table."""
        for key in [key for key in self._chunks if key[0] == spec.name]:
            self._memory.give(_block(self._chunks.pop(key)))

    def close(self) -> None:
        """Free everything."""
        for values in self._chunks.values():
            self._memory.give(_block(values))
        self._chunks.clear()
        self._memory.release()

    def finished(self, spec: TableSpec, wanted: Collection[Chunk]) -> list[Receipt]:
        """Nothing outlives the process, so nothing was finished before."""
        return []

    @contextmanager
    def reading(self, spec: TableSpec, receipt: Receipt) -> Iterator[Array]:
        """Give the chunk itself."""
        yield self._chunks[spec.name, receipt.chunk]

    def room(self, spec: TableSpec) -> Array:
        """Return memory for a chunk."""
        return _shaped(self._memory, spec)[0]

    def put(self, spec: TableSpec, chunk: Chunk, values: Array) -> tuple[int, int]:
        """Keep a chunk."""
        self._chunks[spec.name, chunk] = values
        return values.nbytes, 0

    def discard(self, values: Array) -> None:
        """Give the memory back."""
        self._memory.give(_block(values))

    def record(self, receipts: list[Receipt]) -> None:
        """Nothing to do: receipts go to the caller."""

    def cells(self, spec: TableSpec, chunk: Chunk) -> Array:
        """Return the chunk itself."""
        return self._chunks[spec.name, chunk]


def _shaped(memory: Pinned, spec: TableSpec) -> tuple[Array, Array]:
    """Take memory for a chunk; return it in the chunk's shape, and the block to give back."""
    nbytes = prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize
    block = memory.take(nbytes)
    return block[:nbytes].view(spec.dtype).reshape(spec.chunk_shape), block


def _block(values: Array) -> Array:
    """Return the block that a shaped chunk lies in."""
    base = values
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base


def picked(store: Store, spec: TableSpec, states: Mapping[int, int]) -> Array:
    """Return the cells of a table that agree with ``states``: flat, with one state for each fixed variable."""
    values = np.empty([1 if v in states else n for v, n in zip(spec.variables, spec.shape, strict=True)], spec.dtype)
    for chunk in spec.chunks_at(states):
        inside = tuple(states[v] if v in states and v not in spec.chunked else slice(None) for v in spec.variables)
        view = values[_place(spec, chunk, states)]
        view[...] = store.cells(spec, chunk)[inside].reshape(view.shape)
    return values.reshape(-1)
