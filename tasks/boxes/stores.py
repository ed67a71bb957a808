"""Where the tables between stages are: in chunk files, in an object store, or in this process; and their receipts.

A request to an object store takes longer than compression, so every chunk there is a Blosc frame, and no metadata have
to be read to know it. The chunks of one call travel together as long as they take little memory.

A receipt records that a chunk was written. A store reports whether the chunk still exists. Runners of dense, sparse and
mini-bucket boxes handle lost chunks in different forms; all recompute them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import (
    BLOSC,
    compressed_share,
    damaged,
    lost_files,
    map_chunk,
    paying,
    read_chunk,
    write_chunk,
)
from ...storage.faults import ChunkLostError, StorageError
from ...storage.files import SAMPLE_BYTES, Place
from ...storage.object_store import ObjectPath, each
from ...storage.spec import Key as Key
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, delete_table, stored_table
from ..gpu.arrays import on_host
from ..steps.light_dataclass import dataclass
from ..steps.number_limits import LARGEST_INT32
from ..steps.policy import MOST_CHUNK_BYTES

Array = NDArray[Any]
Chunk = tuple[int, ...]
#: Sampled cells of arrays that may be on a device.
SAMPLED_CELLS: Final = SAMPLE_BYTES // 4
Written = tuple[Chunk, int, int]
"""A chunk, the bytes it takes where it is stored, and their checksum."""
Loaded = tuple[TableSpec, Any, Sequence[Receipt]]
"""A table, the array to fill, and the receipts of its chunks."""


class Store(Protocol):
    """Chunks of tables, and the receipts that make them count."""

    @property
    def folder(self) -> Place | None:
        """Where others find the tables; None where nothing outlives this process."""
        ...

    def known(self, specs: Mapping[str, TableSpec]) -> dict[Key, Receipt]:
        """Return the receipts of an earlier run whose chunks seem to be there."""
        ...

    def damaged(self, specs: Mapping[str, TableSpec], receipts: Mapping[Key, Receipt]) -> list[Key]:
        """Verify every chunk; return the keys of chunks that differ from their receipt."""
        ...

    def create(self, spec: TableSpec) -> None:
        """Make room for a table."""
        ...

    def delete(self, spec: TableSpec) -> None:
        """Remove a table."""
        ...

    def finished(self, spec: TableSpec, chunks: Collection[Chunk], in_files: bool) -> list[Receipt]:
        """Return the receipts of chunks that are all there already, or nothing; some results are in no files."""
        ...

    def load(
        self, spec: TableSpec, values: Any, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Fill the part of a table that agrees with ``states``, shaped, on the host or on a device.

        Parameters
        ----------
        first : int
            Values begin at that state of the first variable, along which the table is cut.
        """
        ...

    def save(
        self, spec: TableSpec, values: Any, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Store some of the chunks that make up the part of a table that agrees with ``states``."""
        ...

    def record(self, receipts: list[Receipt]) -> None:
        """Make receipts count."""
        ...

    def sync(self) -> None:
        """Make sure that what counts survives."""
        ...

    def chunk(self, spec: TableSpec, receipt: Receipt) -> Array:
        """Return a chunk to pick a few cells from."""
        ...

    def close(self) -> None:
        """Give back what only this process has."""
        ...


@dataclass(frozen=True)
class ChunkFiles:
    """Chunk files and a ledger in a folder that all workers see.

    Parameters
    ----------
    folder : Place
    disk_rate : float, optional
        Bytes per second of a disk that has to be waited for, so that compression may pay and chunks go there at once;
        None where the tables stay in the page cache.
    compact : bool
        Whether all is compressed that takes less so: there may be no room for it as it is.
    """

    folder: Place
    disk_rate: float | None = None
    compact: bool = False

    def known(self, specs: Mapping[str, TableSpec]) -> dict[Key, Receipt]:
        """Return the receipts whose chunk files are there in full length."""
        receipts = ledger.load(self.folder)
        for lost in lost_files(self.folder, specs, receipts):
            del receipts[lost.key]
        return receipts

    def damaged(self, specs: Mapping[str, TableSpec], receipts: Mapping[Key, Receipt]) -> list[Key]:
        """Verify the checksum of every chunk file."""
        return [receipt.key for receipt in damaged(self.folder, specs, receipts)]

    def create(self, spec: TableSpec) -> None:
        """Write the metadata; the first box does where it chooses how to store the table."""
        if self.disk_rate is None:
            create_table(self.folder, spec)

    def delete(self, spec: TableSpec) -> None:
        """Remove the files."""
        delete_table(self.folder, spec)

    def finished(self, spec: TableSpec, chunks: Collection[Chunk], in_files: bool) -> list[Receipt]:
        """Look into the ledger, unless a file is missing."""
        paths = (self.folder / spec.name / spec.file_name(chunk) for chunk in chunks)
        if in_files and not all(path.exists() for path in paths):
            return []
        return ledger.finished(self.folder, spec, chunks)

    def load(
        self, spec: TableSpec, values: Array, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Read chunk files, straight into their places; of larger ones the part that is asked for."""
        spec = stored_table(self.folder, spec)
        for receipt in receipts:
            out = values[place(spec, receipt.chunk, states, first)]
            whole = out.size == math.prod(spec.chunk_shape)
            cells = out if whole else np.empty(spec.chunk_shape, spec.dtype)
            read_chunk(self.folder, spec, receipt, cells)
            if not whole:
                out[...] = cells[within(spec, states)]

    def load_together(self, tables: Sequence[Loaded], states: Mapping[int, int], first: int = 0) -> None:
        """Read the chunk files of several tables; see :meth:`load`."""
        for spec, values, receipts in tables:
            self.load(spec, values, receipts, states, first)

    def save(
        self, spec: TableSpec, values: Array, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Write chunk files."""
        spec = create_table(self.folder, spec, lambda: self._compression(spec, values))
        for chunk in chunks:
            view = values[place(spec, chunk, states)]
            yield chunk, *write_chunk(self.folder, spec, chunk, view, flushed=self.disk_rate is not None)

    def _compression(self, spec: TableSpec, values: Array) -> str:
        """Choose how the chunks of a new table are stored, some of whose values are given."""
        if self.disk_rate is not None:
            return paying(values, self.disk_rate)
        return spec.compression or (BLOSC if self.share(values) < 1.0 else "")

    def share(self, values: Any) -> float:
        """Return which part of their bytes values are expected to take in files, of a table that says nothing else."""
        return compressed_share(on_host(values.reshape(-1)[:SAMPLED_CELLS])) if self.compact else 1.0

    def record(self, receipts: list[Receipt]) -> None:
        """Append to the ledger."""
        ledger.append(self.folder, receipts)

    def sync(self) -> None:
        """Force the ledger to disk."""
        ledger.sync(self.folder)

    def chunk(self, spec: TableSpec, receipt: Receipt) -> Array:
        """Map the file; read it whole if it is compressed."""
        spec = stored_table(self.folder, spec)
        if not spec.compression:
            return map_chunk(self.folder, spec, receipt.chunk)
        cells = np.empty(spec.chunk_shape, spec.dtype)
        read_chunk(self.folder, spec, receipt, cells)
        return cells

    def close(self) -> None:
        """Nothing to do: the files stay."""


class ProcessStore:
    """Common behaviour of stores whose chunks end with this process."""

    folder: Place | None = None

    def known(self, specs: Mapping[str, TableSpec]) -> dict[Key, Receipt]:
        """Nothing was finished before."""
        return {}

    def damaged(self, specs: Mapping[str, TableSpec], receipts: Mapping[Key, Receipt]) -> list[Key]:
        """Nothing can be."""
        return []

    def create(self, spec: TableSpec) -> None:
        """Nothing to do: chunks take their memory as they come."""

    def finished(self, spec: TableSpec, chunks: Collection[Chunk], in_files: bool) -> list[Receipt]:
        """Every task runs once."""
        return []

    def record(self, receipts: list[Receipt]) -> None:
        """Nothing to do: receipts go to the caller."""

    def sync(self) -> None:
        """Nothing to do."""


def box_shape(spec: TableSpec, states: Mapping[int, int]) -> list[int]:
    """Shape of the part of a table that agrees with ``states``: one state for each fixed variable."""
    return [1 if v in states else n for v, n in zip(spec.variables, spec.shape, strict=True)]


def place(spec: TableSpec, chunk: Chunk, states: Mapping[int, int], first: int = 0) -> tuple[slice, ...]:
    """Where a chunk lies in the part of a table that agrees with ``states``, from a first chunk on."""
    skipped = (first, *(0 for _ in chunk))[: len(chunk)]
    return tuple(
        slice(c - s, c - s + 1) if v in spec.chunked and v not in states else slice(None)
        for v, c, s in zip(spec.variables, chunk, skipped, strict=True)
    )


def within(spec: TableSpec, states: Mapping[int, int]) -> tuple[slice, ...]:
    """Where the cells that agree with ``states`` lie in a chunk; all of it if the table is cut along them."""
    return tuple(
        slice(states[v], states[v] + 1) if v in states and v not in spec.chunked else slice(None)
        for v in spec.variables
    )


def picked(store: Store, spec: TableSpec, receipts: Sequence[Receipt], states: Mapping[int, int]) -> Array:
    """Return only the cells of a table that agree with ``states``, flat, with one state for each fixed variable."""
    values = np.empty(box_shape(spec, states), spec.dtype)
    for receipt in receipts:
        values[place(spec, receipt.chunk, states)] = store.chunk(spec, receipt)[within(spec, states)]
    return values.reshape(-1)


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


R = TypeVar("R")

# A chunk that is lost again and again is a broken disk.
_ATTEMPTS: Final = 5


class Receipts(dict[Key, Receipt]):
    """The receipts of the chunks in a store, by table and chunk.

    Parameters
    ----------
    store : Store
    tables : callable
        Returns the tables that are in files by now, by name.

    Attributes
    ----------
    nbytes : int
        Bytes of all chunks.
    """

    def __init__(self, store: Store, tables: Callable[[], Mapping[str, TableSpec]]) -> None:
        super().__init__()
        self.store, self.tables = store, tables
        self.nbytes = 0
        self._unverified: set[Key] = set()

    def resume(self) -> None:
        """Take over what an earlier run finished and is still there in full length; contents are verified later."""
        tables = self.tables()
        known = self.store.known(tables).values()
        self.clear()
        self.nbytes = 0
        self.take(receipt for receipt in known if receipt.table in tables or not receipt.nbytes)
        self._unverified = {*self}

    def take(self, receipts: Iterable[Receipt]) -> None:
        """Keep receipts without the seconds of steps, which take most of the memory and are read from the ledger."""
        for receipt in receipts:
            self.forget([receipt.key])
            self[receipt.key] = replace(receipt, steps={}) if receipt.steps else receipt
            self.nbytes += receipt.nbytes

    def record(self, receipts: list[Receipt]) -> None:
        """Make receipts count, and keep them."""
        self.store.record(receipts)
        self.take(receipts)

    def forget(self, lost: Iterable[Key]) -> None:
        """Drop the receipts of lost chunks."""
        for key in lost:
            receipt = self.pop(key, None)
            self.nbytes -= receipt.nbytes if receipt else 0

    def at(self, spec: TableSpec, states: Mapping[int, int]) -> list[Receipt]:
        """Return the receipts of the chunks of a table that agree with some states.

        Raises
        ------
        ChunkLostError
            If one is not there.
        """
        keys = [(spec.name, chunk) for chunk in spec.chunks_at(states)]
        for key in keys:
            if key not in self:
                raise ChunkLostError(*key, "it was not written")
        return [self[key] for key in keys]

    def verify(self) -> list[Key]:
        """Read every chunk, and forget lost chunks; return their keys."""
        lost = self.store.damaged(self.tables(), self)
        self._unverified.clear()
        self.forget(lost)
        return lost

    def lost_of_earlier(self, tables: Mapping[str, TableSpec]) -> list[Key]:
        """Read the chunks of some tables from an earlier run, once; return the keys of lost chunks."""
        found = {key: self[key] for key in self._unverified if key in self and key[0] in tables}
        lost = self.store.damaged(tables, found)
        self._unverified.clear()
        return lost

    def delete(self, specs: Collection[TableSpec]) -> None:
        """Delete tables; first, force the receipts of their dependents to disk."""
        self.store.sync()
        for spec in specs:
            self.store.delete(spec)
        names = {spec.name for spec in specs}
        self.forget([key for key in self if key[0] in names])

    def until_whole(
        self,
        attempt: Callable[[], R],
        repair: Callable[[], object] = lambda: None,
        is_right: Callable[[R], bool] = lambda _: True,
    ) -> R:
        """Attempt something until no chunk that it needs is lost; once one is, all others are verified too.

        Parameters
        ----------
        attempt : callable
            Reads chunks, and may make missing ones.
        repair : callable
            Makes the chunks that were lost, before the next attempt.
        is_right : callable
            Whether the result can be correct. If not, chunks are verified, because partial reads have no checksum.

        Raises
        ------
        StorageError
            If chunks are lost again and again.
        """
        for _ in range(_ATTEMPTS):
            try:
                found = attempt()
            except ChunkLostError as error:
                self.forget([(error.table, error.chunk)])
                self.verify()
            else:
                if is_right(found) or not self.verify():
                    return found
            repair()
        raise StorageError(f"chunks of {self.store.folder} are lost as fast as they are written")
