"""Tables beside a device: in page-locked host memory, or in chunk files that pass through it.

Both hand out host arrays from which and to which the device copies at the link's rate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...storage.chunks import LARGE_PIECE, read_chunk, write_chunk
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, stored_table
from ..compiler.code_cache import is_compiled
from ..compiler.numba_parts import unknown_numba
from ..gpu import arrays
from ..gpu.arrays import is_device
from ..gpu.kernels import cupy
from ..gpu.memory import Pinned, copy_there, to_device, to_host
from ..steps.light_dataclass import dataclass
from ..steps.policy import BoxPolicy
from .stores import Chunk, ChunkFiles, Key, Loaded, ProcessStore, Written, place, within

Array = NDArray[Any]


BUFFERS = Pinned()
"""Page-locked buffers for chunks of files in this process."""


@cache
def _readers(threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process that read chunk files for all boxes."""
    return ThreadPoolExecutor(threads, "bucketflow-reader")


class BufferedFiles(ChunkFiles):
    """Chunk files whose chunks pass through page-locked buffers, to and from a device."""

    def load(
        self, spec: TableSpec, values: Any, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Read all files, and check them, while those before are on their way."""
        self.load_together([(spec, values, receipts)], states, first)

    def load_together(self, tables: Sequence[Loaded], states: Mapping[int, int], first: int = 0) -> None:
        """Read the files of several tables in parallel; see :meth:`load`."""
        files: list[_File] = []
        outs: list[Any] = []
        try:
            for asked, values, receipts in tables:
                spec = stored_table(self.folder, asked)
                for receipt in receipts:
                    outs.append(values[place(spec, receipt.chunk, states, first)])
                    files.append(self._file(spec, receipt))
            for file, out in zip(self._read(files), outs, strict=True):
                _send(file.buffer[within(file.spec, states)], out)
        finally:
            _wait()
            _give_back(files)

    def load_rows(
        self, tables: Sequence[tuple[TableSpec, Sequence[Receipt]]], part_of: Callable[[int, Array], slice]
    ) -> list[Any]:
        """Bring rows of chunks to the device, one chunk after the other, and nothing else of them.

        Parameters
        ----------
        tables : sequence of (TableSpec, sequence of Receipt)
            Each cut into chunks of the same rows; chunk i of the first table has the rows of chunk i of every other.
        part_of : callable
            Returns the rows of a chunk that are wanted, given its number in the sequence and its cells in the first
            table, on the host.

        Returns
        -------
        list of array
            Of each table the rows, flat.
        """
        files: list[list[_File]] = []
        try:
            for asked, receipts in tables:
                spec = stored_table(self.folder, asked)
                files.append([])  # filled one by one, so that buffers are given back after an error
                for receipt in receipts:
                    files[-1].append(self._file(spec, receipt))
            for _ in self._read([file for own in files for file in own]):
                pass
            parts = [part_of(number, file.buffer) for number, file in enumerate(files[0])]
            return [_rows_there([file.buffer[0, part] for file, part in zip(own, parts, strict=True)]) for own in files]
        finally:
            _wait()
            _give_back([file for own in files for file in own])

    def _file(self, spec: TableSpec, receipt: Receipt) -> _File:
        """Return a file that is to be read."""
        return _File(spec, receipt, _room(BUFFERS, spec, rounded=True))

    def _read(self, files: Sequence[_File]) -> Iterator[_File]:
        """Read and check files, large ones several at a time; yield each as soon as those before are there."""
        if sum(file.buffer.nbytes for file in files[1:]) >= BoxPolicy.current().least_shared_read_bytes:
            self._begin(files)
        for file in files:
            if file.reading is None:
                read_chunk(self.folder, file.spec, file.receipt, file.buffer)
            else:
                file.reading.result()
            yield file

    def _begin(self, files: Iterable[_File]) -> None:
        """Let threads read files; small ones all by one call of compiled code."""
        threads = BoxPolicy.current().reading_threads
        readers, waiting = _readers(threads), [file for file in files if file.reading is None]
        if isinstance(self.folder, Path) and _READS.are_compiled(waiting):
            together = readers.submit(_read_compiled, self.folder, waiting, threads)
            for file in waiting:
                file.reading = together
            return
        for file in waiting:
            file.reading = readers.submit(read_chunk, self.folder, file.spec, file.receipt, file.buffer)

    def begun(self, tables: Iterable[tuple[TableSpec, Sequence[Receipt]]]) -> BegunFiles:
        """Begin to read files, large ones in threads; :meth:`load` of the returned object takes them over."""
        found = BegunFiles(self.folder)
        for asked, receipts in tables:
            spec = stored_table(self.folder, asked)
            for receipt in receipts:
                found.files[receipt.key] = self._file(spec, receipt)
        if sum(file.buffer.nbytes for file in found.files.values()) >= BoxPolicy.current().least_shared_read_bytes:
            self._begin(found.files.values())
        return found

    def save(
        self, spec: TableSpec, values: Any, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Fetch all chunks, then write their files; as rows of keys, which are compressed faster than they are written.

        Compressed keys need less than half of the disk at about the same speed.
        """
        if not is_device(values):
            yield from super().save(spec, values, chunks, states)
            return
        buffers = _fetched(BUFFERS, spec, values, chunks, states, rounded=True)
        try:
            first = next(iter(buffers.values()), np.empty(0, spec.dtype))
            spec = create_table(self.folder, spec, lambda: self._compression(spec, first))
            for chunk, buffer in buffers.items():
                yield chunk, *write_chunk(self.folder, spec, chunk, buffer)
        finally:
            for buffer in buffers.values():
                BUFFERS.give(_block(buffer))

    def close(self) -> None:
        """Free the buffers."""
        BUFFERS.release()


@dataclass(eq=False)
class _File:
    """A chunk file, the buffer that it is read into, and the thread's work once one has begun with it."""

    spec: TableSpec
    receipt: Receipt
    buffer: Array
    reading: Future[None] | None = None


class _Reads:
    """Whether compiled code reads files: once Python has read as many as pay for loading it."""

    def __init__(self) -> None:
        self._read_bytes = 0

    def are_compiled(self, files: Sequence[_File]) -> bool:
        """Whether compiled code reads some files; the cells of large ones are read in Python as fast."""
        nbytes = sum([file.buffer.nbytes for file in files])
        self._read_bytes += nbytes
        if nbytes > len(files) * LARGE_PIECE:
            return False
        pays = BoxPolicy.current().compiled_read_bytes
        # compiling takes seconds, loading compiled code some tenths of one
        enough = self._read_bytes >= pays and (self._read_bytes >= 8 * pays or _there_is_code())
        return enough and not unknown_numba()


_READS: Final = _Reads()


@cache
def _there_is_code() -> bool:
    """Whether loops that read files were compiled on this machine before; a look takes 0.2 ms."""
    return is_compiled("tasks.boxes.read_loops", "read_in_thread")


def _read_compiled(folder: Path, files: Sequence[_File], threads: int) -> None:
    """Read files by compiled code; a file that is not right is read again in Python, which says why.

    Raises
    ------
    ChunkLostError
        If a file is missing or damaged.
    """
    from .read_loops import read_together

    given = [(file.spec, file.receipt, file.buffer) for file in files]
    for file, right in zip(files, read_together(folder, given, threads), strict=True):
        if not right:
            read_chunk(folder, file.spec, file.receipt, file.buffer)


def _give_back(files: Sequence[_File]) -> None:
    """Give the buffers of files back, once no thread fills them any more."""
    wait([file.reading for file in files if file.reading is not None])
    for file in files:
        BUFFERS.give(_block(file.buffer))


@dataclass(frozen=True)
class BegunFiles(BufferedFiles):
    """Chunk files, some of them being read; each is handed out once.

    Parameters
    ----------
    files : dict of Key to file
        Files that were not taken yet.
    """

    files: dict[Key, _File] = field(default_factory=dict)

    def _file(self, spec: TableSpec, receipt: Receipt) -> _File:
        return self.files.pop(receipt.key, None) or super()._file(spec, receipt)

    def close(self) -> None:
        """Give back the buffers of files that were not taken; buffers in use stay."""
        _give_back([self.files.pop(key) for key in [*self.files]])


class HostTables(ProcessStore):
    """Chunks in page-locked memory of this process; nothing is copied but to and from the device."""

    def __init__(self, memory: Pinned):
        self.memory = memory
        self._chunks: dict[Key, Array] = {}

    def delete(self, spec: TableSpec) -> None:
        """Give back the memory of a table."""
        for key in [key for key in self._chunks if key[0] == spec.name]:
            self.memory.give(_block(self._chunks.pop(key)))

    def load(
        self, spec: TableSpec, values: Any, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Copy from the chunks themselves."""
        for receipt in receipts:
            cells = self._chunks[receipt.key][within(spec, states)]
            _send(cells, values[place(spec, receipt.chunk, states, first)])
        _wait()

    def save(
        self, spec: TableSpec, values: Any, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Store the chunks, and replace chunks of a task that did not finish."""
        for chunk, cells in _fetched(self.memory, spec, values, chunks, states).items():
            before = self._chunks.pop((spec.name, chunk), None)
            if before is not None:
                self.memory.give(_block(before))
            self._chunks[spec.name, chunk] = cells
            yield chunk, cells.nbytes, 0

    def chunk(self, spec: TableSpec, receipt: Receipt) -> Array:
        """Return the chunk itself."""
        return self._chunks[receipt.key]

    def close(self) -> None:
        """Free everything."""
        for values in self._chunks.values():
            self.memory.give(_block(values))
        self._chunks.clear()
        self.memory.release()


def _fetched(
    memory: Pinned,
    spec: TableSpec,
    values: Any,
    chunks: Collection[Chunk],
    states: Mapping[int, int],
    *,
    rounded: bool = False,
) -> dict[Chunk, Array]:
    """Copy chunks of a table to page-locked memory."""
    rooms: dict[Chunk, Array] = {}
    try:
        for chunk in chunks:
            rooms[chunk] = _room(memory, spec, rounded=rounded)
            _fetch(values[place(spec, chunk, states)], rooms[chunk])
        _wait()
    except BaseException:
        for room in rooms.values():
            memory.give(_block(room))
        raise
    return rooms


def _room(memory: Pinned, spec: TableSpec, *, rounded: bool = False) -> Array:
    """Take memory for a chunk, in the chunk's shape; rounded up it serves chunks of other lengths later."""
    nbytes = prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize
    step = 1 << max(
        nbytes.bit_length() - 4, 0
    )  # lengths are rounded to four significant bits, so at most an eighth is unused
    taken = -(-nbytes // step) * step if rounded else nbytes
    return memory.take(taken)[:nbytes].view(spec.dtype).reshape(spec.chunk_shape)


def _block(values: Array) -> Array:
    """Return the block that a shaped chunk lies in."""
    base = values
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base


def _wait() -> None:
    """Wait for the copies of this thread."""
    cupy().cuda.get_current_stream().synchronize()


def _send(source: Array, target: Any) -> None:
    """Copy host values to a table on either side."""
    if not is_device(target):
        target[...] = source.reshape(target.shape)
        return
    source = np.ascontiguousarray(source)
    if target.flags.c_contiguous:
        to_device(source, target)
        return
    there = arrays.empty(target.size, target.dtype.name)
    to_device(source, there)
    target[...] = there.reshape(target.shape)


def _rows_there(parts: Sequence[Array]) -> Any:
    """Start the copies of contiguous host arrays to the device, where they follow each other."""
    found = arrays.empty(sum([part.size for part in parts]), parts[0].dtype.name)
    place = found.data.ptr
    for part in parts:
        if part.size:
            copy_there(part, place)
            place += part.nbytes
    return found


def _fetch(source: Any, target: Array) -> None:
    """Copy values of either side to a place in page-locked memory."""
    if is_device(source):
        to_host(cupy().ascontiguousarray(source), target)
    else:
        target[...] = source.reshape(target.shape)
