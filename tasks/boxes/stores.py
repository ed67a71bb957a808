"""Where the tables between stages are: here in chunk files and a ledger, to and from host arrays directly."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import (
    BLOSC,
    SAMPLE_BYTES,
    compressed_share,
    damaged,
    lost_files,
    map_chunk,
    paying,
    read_chunk,
    write_chunk,
)
from ...storage.files import Place
from ...storage.spec import Key as Key
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, delete_table, stored_table
from ..gpu.arrays import on_host
from ..steps.light_dataclass import dataclass

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
