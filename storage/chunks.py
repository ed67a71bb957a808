"""Chunk files: written whole or not at all, read straight into arrays, checked against their receipts.

An uncompressed Zarr v3 array is a folder of raw chunk files, so the hot path needs no Zarr: it writes and
reads them directly, and any Zarr reader can open the result. A chunk that lies scattered in a larger table is
written and read in small pieces, its checksum computed while each is in the processor's cache.

Chunks are compressed by Blosc with LZ4 after bit-shuffling if a measured sample says that it pays. Tables of costs have
few significant bits, which bit-shuffling brings together; LZ4 then runs at about the rate of a fast disk. Sorted keys
repeat their upper bytes: byte-shuffled they take a fiftieth, faster than they are copied. Zarr calls this the ``blosc``
codec and reads such chunks by itself.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from io import FileIO
from stat import S_ISREG
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import ChunkLostError, StoreError, disk_full
from .files import SAMPLE_BYTES, Place, opened, write_all, written_whole
from .object_store import ObjectPath, ObjectReader, each
from .spec import Receipt, TableSpec

Array = NDArray[Any]

BLOSC = "blosc"
_LEVEL = 5
_SHUFFLES = {"shuffle": 1, "bitshuffle": 2}
# Compression has to save this share of the time, since it takes a processor that computing could use.
_GAIN = 0.2


def configuration(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return how arrays of a dtype are compressed; unsigned words are packed keys."""
    shuffle = "shuffle" if dtype == np.uint64 else "bitshuffle"
    return {"cname": "lz4", "clevel": _LEVEL, "shuffle": shuffle, "blocksize": 0}


def compress(values: Array) -> bytes:
    """Return the values of a contiguous array as one Blosc frame."""
    from numcodecs import blosc

    # the same bytes whenever a chunk is made again: its receipts are compared with the file
    blosc.use_threads = False
    found: bytes = blosc.compress(values, b"lz4", _LEVEL, _SHUFFLES[configuration(values.dtype)["shuffle"]], 0)
    return found


def decompress(data: Any, out: Array) -> None:
    """Fill a contiguous array from a Blosc frame.

    Raises
    ------
    ValueError
        If the frame is damaged or of another length.
    """
    from numcodecs import blosc

    try:
        blosc.decompress(data, out)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


@cache
def lockless_decompress() -> Callable[[int, int, int, int], int] | None:
    """Return the library's own function, which compiled loops can call: bytes from and to addresses, by some threads.

    None where the library does not offer it.
    """
    from numcodecs import blosc

    try:
        function = ctypes.CDLL(blosc.__file__).blosc_decompress_ctx
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_int
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    probe = np.arange(1 << 10, dtype=np.uint64)
    found, packed = np.zeros_like(probe), np.frombuffer(compress(probe), np.uint8)
    count = function(packed.ctypes.data, found.ctypes.data, found.nbytes, 1)
    return function if count == probe.nbytes and np.array_equal(found, probe) else None


def paying(values: Array, disk_rate: float) -> str:
    """Choose how to store a table like a sample of its values: ``"blosc"`` or ``""``.

    Writing and reading a byte once are weighed against compressing it, writing and reading what is left of it,
    and decompressing it.

    Parameters
    ----------
    disk_rate : float
        Bytes per second, written and read.
    """
    sample = _sample(values)
    if not sample.size:
        return ""
    start = time.perf_counter()
    packed = compress(sample)
    decompress(packed, np.empty_like(sample))
    processing = time.perf_counter() - start
    raw, left = (2 * size / disk_rate for size in (sample.nbytes, len(packed)))
    return BLOSC if left + processing < (1 - _GAIN) * raw else ""


def compressed_share(values: Array) -> float:
    """Return which part of its bytes an array takes compressed, by a sample; 1 where it takes no less."""
    sample = _sample(values)
    return min(1.0, len(compress(sample)) / sample.nbytes) if sample.size else 1.0


def _sample(values: Array) -> Array:
    return np.ascontiguousarray(values.reshape(-1)[: SAMPLE_BYTES // values.itemsize])


# Bytes of a piece of scattered data. Pieces of this size stay in a processor's cache.
_PIECE = 1 << 18
# Bytes of a piece of contiguous data. Between two pieces a thread waits for the interpreter, up to milliseconds if
# other threads read too.
LARGE_PIECE = 1 << 24


def path_of(folder: Place, spec: TableSpec, chunk: tuple[int, ...]) -> str | ObjectPath:
    """Return the name of a chunk's file; as text, which is made in a tenth of a path's time."""
    if isinstance(folder, ObjectPath):
        return folder / spec.name / spec.file_name(chunk)
    return os.path.join(folder, spec.name, spec.file_name(chunk))


def write_chunk(
    folder: Place, spec: TableSpec, chunk: tuple[int, ...], values: Array, *, flushed: bool = False
) -> tuple[int, int]:
    """Write a chunk's file and return its length and checksum.

    Parameters
    ----------
    values : ndarray
        The chunk, which may be a view of a larger table.
    flushed : bool
        Whether the kernel is to begin at once to bring the data to the disk, not only when it needs the memory.

    Raises
    ------
    DiskFullError
        If no space is left; nothing of the chunk remains.
    """
    if spec.compression:
        values = np.frombuffer(compress(np.ascontiguousarray(values)), np.uint8)
    length = value = 0
    try:
        with written_whole(path_of(folder, spec, chunk)) as file:
            for piece in _pieces(values):
                data = _bytes_of(np.ascontiguousarray(piece))
                write_all(file, data.data)
                length, value = length + len(data), _extended(value, data)
            if flushed and isinstance(file, FileIO):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for {values.nbytes} bytes of table {spec.name}") from None
    return length, value


def _pieces(values: Array) -> Iterator[Array]:
    """Cut an array into small parts that follow each other in C order."""
    if values.nbytes <= _PIECE:
        yield values
    elif values.flags.c_contiguous:
        flat = values.reshape(-1)
        size = max(1, LARGE_PIECE // values.itemsize)
        yield from (flat[i : i + size] for i in range(0, flat.size, size))
    else:
        for part in values:
            yield from _pieces(part)


def _bytes_of(values: Array) -> NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8)


def _extended(value: int, data: NDArray[np.uint8]) -> int:
    """Return the checksum of earlier bytes, given by ``value``, extended by more bytes.

    Only the library's fallback copies the data.
    """
    import google_crc32c

    if (alone := lockless_crc32c()) is not None:
        return int(alone(value, data.__array_interface__["data"][0], data.nbytes))
    found: int = google_crc32c.extend(value, data if google_crc32c.implementation == "c" else data.tobytes())
    return found


@cache
def lockless_crc32c() -> Callable[[int, int, int], int] | None:
    """Return the library's own function, called without the interpreter's lock, which its module keeps: others read on.

    None where the library is not there in C, or has no such function.
    """
    import google_crc32c

    try:
        from google_crc32c import _crc32c

        function = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):
        return None
    function.restype, function.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    probe = np.arange(1 << 10, dtype=np.uint8)
    same = function(7, probe.ctypes.data, probe.nbytes) == google_crc32c.extend(7, probe)
    return function if same else None


def read_chunk(folder: Place, spec: TableSpec, receipt: Receipt, out: Array) -> None:
    """Read a chunk's file into an array, which may be a view of a larger table.

    Raises
    ------
    ChunkLostError
        If the file cannot be read, has another length, or its checksum is not the receipt's.
    """
    try:
        with opened(path_of(folder, spec, receipt.chunk)) as file:
            if spec.compression:
                _read_compressed(file, spec, receipt, out)
            else:
                _read_raw(file, spec, receipt, out)
    except FileNotFoundError:
        raise ChunkLostError(spec.name, receipt.chunk, "its file is missing") from None
    except StoreError as error:
        raise disk_full(error, "") from None
    except OSError as error:
        raise ChunkLostError(spec.name, receipt.chunk, f"its file cannot be read: {error.strerror}") from None


def _read_raw(file: FileIO | ObjectReader, spec: TableSpec, receipt: Receipt, out: Array) -> None:
    value = 0
    for piece in _pieces(out):
        target = piece if piece.flags.c_contiguous else np.empty(piece.shape, piece.dtype)
        data = _bytes_of(target)
        _read(file, spec, receipt, data.data)
        value = _extended(value, data)
        if target is not piece:
            piece[...] = target
    _check(spec, receipt, value)


def _read_compressed(file: FileIO | ObjectReader, spec: TableSpec, receipt: Receipt, out: Array) -> None:
    """Check a whole file before it is unpacked: no decoder is safe from every damage."""
    stored = np.empty(receipt.nbytes, np.uint8)
    _read_raw(file, spec, receipt, stored)
    target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    try:
        decompress(stored, target)
    except ValueError as error:
        raise ChunkLostError(spec.name, receipt.chunk, str(error)) from None
    if target is not out:
        out[...] = target


def _read(file: FileIO | ObjectReader, spec: TableSpec, receipt: Receipt, data: memoryview) -> None:
    while data:
        count = file.readinto(data)
        if not count:
            raise ChunkLostError(spec.name, receipt.chunk, f"its file ends after {file.tell()} bytes")
        data = data[count:]


def _check(spec: TableSpec, receipt: Receipt, value: int) -> None:
    if value != receipt.checksum:
        raise ChunkLostError(spec.name, receipt.chunk, "its checksum differs")


def map_chunk(folder: Place, spec: TableSpec, chunk: tuple[int, ...]) -> Array:
    """Return an uncompressed chunk as a read-only memory map, of which only what is used is read.

    Raises
    ------
    ChunkLostError
        If the file cannot be read or has another length.
    """
    path = path_of(folder, spec, chunk)
    try:
        with opened(path) as file:
            if isinstance(file, ObjectReader):
                mapped = np.frombuffer(file.content(), spec.dtype)
            else:
                mapped = np.memmap(file, dtype=spec.dtype, mode="r")
    except StoreError as error:
        raise disk_full(error, "") from None
    except (OSError, ValueError) as error:
        raise ChunkLostError(spec.name, chunk, str(error)) from None
    if mapped.size != int(np.prod(spec.chunk_shape, dtype=np.int64)):
        raise ChunkLostError(spec.name, chunk, f"it has {mapped.nbytes} bytes")
    return mapped.reshape(spec.chunk_shape)


def read_rows(folder: Place, spec: TableSpec, chunk: tuple[int, ...], first: int, stop: int) -> Array:
    """Return some rows of an uncompressed chunk, which are not checked; of a map, pages would count as memory in use.

    Raises
    ------
    ChunkLostError
        If the file cannot be read, or ends before.
    """
    rows = np.empty((stop - first, *spec.chunk_shape[1:]), spec.dtype)
    try:
        with opened(path_of(folder, spec, chunk)) as file:
            file.seek(first * (rows.nbytes // max(1, len(rows))))
            data = _bytes_of(rows).data
            while data and (count := file.readinto(data)):
                data = data[count:]
    except OSError as error:
        raise ChunkLostError(spec.name, chunk, f"its file cannot be read: {error.strerror}") from None
    if data:
        raise ChunkLostError(spec.name, chunk, f"its file ends {len(data)} bytes before row {stop}")
    return rows


def damaged(folder: Place, specs: Mapping[str, TableSpec], receipts: Mapping[Any, Receipt]) -> list[Receipt]:
    """Return the receipts that their chunk files do not match; reads every file once."""
    found = lost_files(folder, specs, receipts)
    lost = {receipt.key for receipt in found}
    there = [receipt for receipt in receipts.values() if receipt.table in specs and receipt.key not in lost]
    paths = (path_of(folder, specs[receipt.table], receipt.chunk) for receipt in there)
    checksums = each(_checksum, paths) if isinstance(folder, ObjectPath) else map(_checksum, paths)
    return found + [receipt for receipt, value in zip(there, checksums, strict=True) if value != receipt.checksum]


def _checksum(path: str | ObjectPath) -> int | None:
    """Return the checksum of a file; None if it cannot be read."""
    value, buffer = 0, np.empty(_PIECE, np.uint8)
    try:
        with opened(path) as file:
            while count := file.readinto(buffer.data):
                value = _extended(value, buffer[:count])
    except StoreError as error:
        raise disk_full(error, "") from None
    except OSError:
        return None
    return value


def lost_files(folder: Place, specs: Mapping[str, TableSpec], receipts: Mapping[Any, Receipt]) -> list[Receipt]:
    """Return the receipts whose chunk is not a file of the right length (a cheap check on resuming)."""
    if isinstance(folder, ObjectPath):
        return _lost_objects(folder, specs, receipts)
    lost = []
    for receipt in receipts.values():
        spec = specs.get(receipt.table)
        if spec is None:
            continue
        try:
            status = os.lstat(os.path.join(folder, spec.name, spec.file_name(receipt.chunk)))
        except OSError:
            lost.append(receipt)
            continue
        if not S_ISREG(status.st_mode) or status.st_size != receipt.nbytes:
            lost.append(receipt)
    return lost


def _lost_objects(folder: ObjectPath, specs: Mapping[str, TableSpec], receipts: Mapping[Any, Receipt]) -> list[Receipt]:
    """Return the receipts whose chunk is not an object of the right length, from one listing."""
    found = [receipt for receipt in receipts.values() if receipt.table in specs]
    try:
        sizes = folder.sizes() if found else {}
    except OSError as error:
        raise disk_full(error, "") from None
    names = (f"{receipt.table}/{specs[receipt.table].file_name(receipt.chunk)}" for receipt in found)
    return [receipt for receipt, name in zip(found, names, strict=True) if sizes.get(name) != receipt.nbytes]
