"""Tables of rows between steps: sorted runs, each two arrays of chunks, its keys and its values.

The arrays are stored like those of any table, with the number of the chunk as first axis; the last chunk is filled up
with ones. The receipts hold all facts for readers: the rows of a chunk, its first key, and some of its keys.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...storage.chunks import BLOSC
from ...storage.spec import Receipt, TableSpec
from ..gpu import arrays
from ..rows.keys import Keys, Words
from ..rows.numpy_rows import comparable
from ..rows.ordering import KeysWithin, Ranges, chosen_rows, concatenated, next_inside
from ..rows.relation import Dense, Relation, from_dense
from ..rows.row_backend import backend_of
from ..steps.light_dataclass import dataclass
from ..steps.policy import BoxPolicy
from ..steps.semiring import Semiring
from ..steps.streaming import BLOCK_CELLS
from .box import new_receipt
from .device_stores import BufferedFiles
from .stores import ChunkFiles, Key, Store

# About this many keys of a table in memory, and of each chunk, are sampled to decide how a box is cut.
_CHUNK_SAMPLES: Final = 8
# Chunks of keys of fewer bytes stay as they are: a file takes as much.
_LEAST_COMPRESSED_BYTES: Final = 1 << 12

Array = NDArray[Any]


@dataclass(frozen=True)
class RowRun:
    """Rows in ascending order of their keys, on disk.

    Parameters
    ----------
    name : str
        Name of its arrays without their suffixes.
    keys : Keys
    rows, chunk_rows : int
        Of the run, and of each chunk but the last.
    dtype : str
        Of the values.
    kept : mapping
        Facts of the values.
    receipts : sequence of (Receipt, Receipt)
        Of the keys and the values of each chunk.
    ranges : mapping
        Ranges of the box that wrote it: all rows are within them.
    """

    name: str
    keys: Keys
    rows: int
    chunk_rows: int
    dtype: str
    kept: Mapping[str, Any]
    receipts: Sequence[tuple[Receipt, Receipt]] = ()
    ranges: Ranges = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.rows // self.chunk_rows) if self.rows else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return 8 * self.keys.n_words + np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes on disk, uncompressed."""
        return self.chunks * self.chunk_rows * self.row_bytes

    @cached_property
    def specs(self) -> tuple[TableSpec, TableSpec]:
        """The arrays of keys and of values."""
        labels, cut = tuple(f"{self.name}_{axis}" for axis in ("chunk", "row", "word")), frozenset((0,))
        shape = (self.chunks, self.chunk_rows, self.keys.n_words)
        least = _LEAST_COMPRESSED_BYTES
        compression = BLOSC if 8 * self.chunk_rows * self.keys.n_words >= least else ""
        return (
            TableSpec(keys_name(self.name), (0, 1, 2), labels, shape, cut, "uint64", compression, self._attributes),
            TableSpec(values_name(self.name), (0, 1), labels[:2], shape[:2], cut, self.dtype, "", self._attributes),
        )

    @property
    def _attributes(self) -> dict[str, Any]:
        """Return the attributes of both arrays; a variable's state is ``word >> shift & (2**bits - 1)`` of a key."""
        fields = [[v, *self.keys.fields[v]] for v in self.keys.variables if v in self.keys.fields]
        told = {"kind": "sorted rows, filled up with ones", "step": int(self.name.split("_")[1]), "rows": self.rows}
        return {**told, **self.kept, "variable_word_shift_bits": fields}

    def keys_of(self, chunk: int) -> tuple[Key, Key]:
        """Return the keys of the receipts of a chunk."""
        ours, values = self.specs
        return (ours.name, (chunk, 0, 0)), (values.name, (chunk, 0))

    @cached_property
    def firsts(self) -> Words:
        """The first key of each chunk, ``(chunks, words)``."""
        listed = [ours.value["first"] for ours, _ in self.receipts]
        return np.array(listed, np.uint64).reshape(-1, self.keys.n_words)

    @cached_property
    def samples(self) -> tuple[Words, Array]:
        """Some keys, and how many rows each of them stands for."""
        found = [ours.value for ours, _ in self.receipts]
        samples = [np.frombuffer(b64decode(value["sample"]), "<u8") for value in found]
        words = np.concatenate([np.zeros(0, np.uint64), *samples]).reshape(-1, self.keys.n_words).astype(np.uint64)
        counts = [len(sample) // self.keys.n_words for sample in samples]
        return words, np.repeat([value["rows"] / n for value, n in zip(found, counts, strict=True)], counts)

    def with_receipts(self, receipts: Mapping[Key, Receipt]) -> RowRun | None:
        """Return the run with the receipts of its chunks; None if some are missing."""
        found = [[receipts.get(key) for key in self.keys_of(chunk)] for chunk in range(self.chunks)]
        pairs = [(ours, theirs) for ours, theirs in found if ours is not None and theirs is not None]
        return replace(self, receipts=tuple(pairs)) if len(pairs) == self.chunks else None

    @cached_property
    def lasts(self) -> Words:
        """Keys that no row of each chunk is behind, ``(chunks, words)``: the last ones, where samples end with them."""
        width = 8 * self.keys.n_words
        told = [(b64decode(ours.value["sample"]), ours.value["rows"]) for ours, _ in self.receipts]
        last = [sample[-width:] if len(sample) > width or rows == 1 else b"\xff" * width for sample, rows in told]
        return np.frombuffer(b"".join(last), "<u8").astype(np.uint64).reshape(-1, self.keys.n_words)

    def wanted(self, ranges: Ranges) -> KeysWithin | None:
        """Return which of the keys are within ranges; None if none can be, as the box had other states."""
        known, left = self.ranges, {}
        for v, (first, stop) in ranges.items():
            own_first, own_stop = known.get(v, (first, stop))
            if own_stop <= first or stop <= own_first:
                return None
            if v not in known or not first <= own_first < own_stop <= stop:
                left[v] = first, stop
        return KeysWithin(self.keys, left)

    def between(self, wanted: KeysWithin) -> list[int]:
        """Return the chunks that may have rows within ranges: chunks with such a key between their ends."""
        ranges, firsts = wanted.ranges, comparable(self.firsts)
        start, stop = (int(np.searchsorted(firsts, comparable(end), side="right")[0]) for end in wanted.ends)
        start = max(start - 1, 0)
        if wanted.follow:
            found, there = wanted.ends[0], np.ones(stop - start, bool)
        else:
            found, there = next_inside(self.keys, self.firsts[start:stop], ranges)
        there &= comparable(found) <= comparable(self.lasts[start:stop])
        return [*map(int, np.flatnonzero(there) + start)]

    def chunks_within(self, ranges: Ranges) -> list[int]:
        """Return the chunks that may have rows within ranges."""
        wanted = self.wanted(ranges)
        return [] if wanted is None or not self.chunks else self.between(wanted)

    def read(self, store: ChunkFiles, ranges: Ranges, *, there: bool = False, together: int = 1) -> Iterator[Relation]:
        """Yield the rows within ranges, some chunks at a time, on the device that is in use or on the host.

        Parameters
        ----------
        together : int
            Chunks that are read at a time, at most.

        Raises
        ------
        ChunkLostError
            If a chunk is missing or damaged.
        """
        wanted = self.wanted(ranges)
        if wanted is None or not self.chunks:
            return
        words, values = self.specs
        for group in _neighbours(self.between(wanted), together):
            receipts = [self.receipts[chunk] for chunk in group]
            if there:
                part = self._read_there(store, receipts, wanted)
                if len(part):
                    yield part
                continue
            rows = sum(int(ours.value["rows"]) for ours, _ in receipts)
            found = _room(words, len(group))
            store.load(words, found, [ours for ours, _ in receipts], {}, group[0])
            found = found.reshape(-1, self.keys.n_words)[:rows]
            chosen = wanted.where(found)
            if chosen.start < chosen.stop if isinstance(chosen, slice) else chosen.any():
                entries = _room(values, len(group))
                store.load(values, entries, [theirs for _, theirs in receipts], {}, group[0])
                yield chosen_rows(Relation(self.keys, found, entries.reshape(-1)[:rows]), chosen)

    def _read_there(
        self, store: ChunkFiles, receipts: Sequence[tuple[Receipt, Receipt]], wanted: KeysWithin
    ) -> Relation:
        """Return the rows of some chunks that are within ranges, on the device.

        Where the rows follow each other in a chunk, the host finds their ends, and copies nothing else. A search on
        the device would wait for it. The files of values are read in any case: waiting once for all files takes less.
        """
        counts = [int(ours.value["rows"]) for ours, _ in receipts]

        def part_of(chunk: int, found: Array) -> slice:
            whole = slice(0, counts[chunk])
            if not wanted.follow or 0 < chunk < len(counts) - 1:
                return whole
            part: slice = wanted.where(found.reshape(-1, self.keys.n_words)[whole])
            return part

        assert isinstance(store, BufferedFiles)
        words, values = store.load_rows(
            [(spec, [pair[which] for pair in receipts]) for which, spec in enumerate(self.specs)], part_of
        )
        found = Relation(self.keys, words.reshape(-1, self.keys.n_words), values)
        return found if wanted.follow else chosen_rows(found, wanted.where(found.words))

    def write(self, store: Store, blocks: Iterable[Relation], there: Mapping[Key, Receipt]) -> Iterator[Receipt]:
        """Write the rows of blocks that follow each other; yield receipts.

        Parameters
        ----------
        there : mapping of Key to Receipt
            Of chunks that are there, undamaged; if there are none, nothing is.
        """
        if not there:
            for spec in self.specs:
                store.delete(spec)
        for chunk, part in enumerate(_chunks(blocks, self.chunk_rows)):
            whole = [(part.words, np.iinfo(np.uint64).max), (part.values, part.values.dtype.type(0))]
            for key, spec, (array, filler) in zip(self.keys_of(chunk), self.specs, whole, strict=True):
                if key in there:
                    yield there[key]
                    continue
                start, stored = time.perf_counter(), array[None]
                if stored.shape != spec.chunk_shape:
                    stored = backend_of(array).arrays.full(spec.chunk_shape, filler, array.dtype)
                    stored[0, : len(array)] = array
                ((_, nbytes, checksum),) = store.save(spec, stored, [key[1]], {0: chunk})
                yield new_receipt(*key, nbytes, checksum, start, _told(part) if spec is self.specs[0] else {})


def _neighbours(chunks: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Cut ascending chunks into groups that follow each other."""
    start = 0
    for end in range(1, len(chunks) + 1):
        if end == len(chunks) or end - start == most or chunks[end] > chunks[end - 1] + 1:
            yield chunks[start:end]
            start = end


def _room(spec: TableSpec, chunks: int) -> Array:
    """Return an array for some chunks."""
    return np.empty((chunks, *spec.chunk_shape[1:]), spec.dtype)


def keys_name(run: str) -> str:
    """Return the name of the array of a run's keys."""
    return f"{run}_keys"


def values_name(run: str) -> str:
    """Return the name of the array of a run's values."""
    return f"{run}_values"


def _told(part: Relation) -> dict[str, Any]:
    """Return the facts of a chunk that are known without reading it."""
    chosen = _spread(len(part), _CHUNK_SAMPLES)
    # many lists of numbers take far more memory than texts
    words = arrays.on_host(part.words[chosen])
    sample = b64encode(words.astype("<u8").tobytes()).decode()
    return {"rows": len(part), "first": words[0].tolist(), "sample": sample}


@lru_cache(1 << 6)
def _spread(rows: int, samples: int) -> NDArray[np.int64]:
    """Return rows of a chunk that lie about as far from each other; most chunks have as many rows."""
    return np.unique(np.linspace(0, rows - 1, min(samples, rows)).astype(np.int64))


def _chunks(blocks: Iterable[Relation], rows: int) -> Iterator[Relation]:
    """Cut consecutive blocks into parts of ``rows`` rows; the last part may be shorter."""
    waiting: list[Relation] = []
    count = 0
    for block in blocks:
        start = 0
        while start < len(block):
            part = block.rows(slice(start, start + rows - count))
            waiting.append(part)
            start, count = start + len(part), count + len(part)
            if count == rows:
                yield concatenated(waiting)
                waiting, count = [], 0
    if waiting:
        yield concatenated(waiting)


def blocks_of(table: Dense | Relation, semiring: Semiring) -> Iterator[Relation]:
    """Yield the rows of a table in order; a dense array block by block."""
    if isinstance(table, Relation):
        yield table
        return
    block = BoxPolicy.current().device_block_cells if arrays.is_device(table.values) else BLOCK_CELLS
    for start in range(0, len(table), block):
        yield from_dense(table, semiring, slice(start, start + block))
