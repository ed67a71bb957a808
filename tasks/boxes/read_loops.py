"""Chunk files read, checked and unpacked by compiled code: one call for the files of a box, in threads of its own.

In Python, reading a file gives up the interpreter's lock seven times, and waits for it as often. A thread that launches
kernels meanwhile waits, too. One call gives it up once, however many files there are.

Compiled code reports only whether a file is right. A file that is not is read once more in Python, which raises the
error.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from ...storage.chunks import lockless_crc32c, lockless_decompress
from ...storage.files import PLAIN_FILE
from ...storage.spec import Receipt, TableSpec
from ..compiler.jit import njit
from ..compiler.pthreads import address_of, blocks, fetch_add, together
from ..compiler.vectors import intrinsic, put_word, word

Array = NDArray[Any]
File = tuple[TableSpec, Receipt, Array]
"""A table, the receipt of one of its chunks, and the contiguous array that the chunk fills."""

_open: Any = types.ExternalFunction("open", types.int32(types.int64, types.int32))
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.int64, types.int64))
_close: Any = types.ExternalFunction("close", types.int32(types.int32))

# Words that describe all files, then the words of each file. The first word counts the files that a thread has taken.
_TAKEN, _COUNT, _FLAGS, _CHECKSUM, _UNPACK, _ALL_WORDS = range(6)
_PATH, _OUT, _OUT_BYTES, _STORED, _STORED_BYTES, _EXPECTED, _RIGHT, _FILE_WORDS = range(8)


def _called(result: ir.Type, *given: ir.Type) -> Any:
    """Return code that calls the C function at an address; all values are int64 in the loops."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        callee = builder.inttoptr(values[0], ir.FunctionType(result, given).as_pointer())
        narrowed = [
            value if value.type == kind else builder.trunc(value, kind)
            for value, kind in zip(values[1:], given, strict=True)
        ]
        return builder.sext(builder.call(callee, narrowed), ir.IntType(64))

    return emit


@intrinsic
def _checksum_of(typing: Any, function: Any, value: Any, data: Any, nbytes: Any) -> Any:
    """Extend a checksum by bytes: ``uint32_t crc32c_extend(uint32_t, const uint8_t *, size_t)``."""
    emit = _called(ir.IntType(32), ir.IntType(32), ir.IntType(64), ir.IntType(64))
    return types.int64(types.int64, types.int64, types.int64, types.int64), emit


@intrinsic
def _unpacked(typing: Any, function: Any, source: Any, target: Any, nbytes: Any, threads: Any) -> Any:
    """Unpack a frame: ``int blosc_decompress_ctx(const void *, void *, size_t, int)``."""
    emit = _called(ir.IntType(32), ir.IntType(64), ir.IntType(64), ir.IntType(64), ir.IntType(32))
    return types.int64(types.int64, types.int64, types.int64, types.int64, types.int64), emit


@njit(nogil=True)
def _filled(path: int, flags: int, target: int, nbytes: int) -> bool:
    """Read the first bytes of a file; whether there are as many."""
    handle = _open(path, np.int32(flags))
    if handle < 0:
        return False
    got = np.int64(0)
    while got < nbytes:
        count = _read(handle, target + got, nbytes - got)
        if count <= 0:
            break
        got += count
    _close(handle)
    whole: bool = got == nbytes
    return whole


@njit(nogil=True, cache=True)
def read_in_thread(given: int, number: int) -> None:
    """Read files until all are taken; their words follow the words for all, at an address."""
    count, flags = word(given, _COUNT), word(given, _FLAGS)
    while True:
        file = fetch_add(given, _TAKEN, 1)
        if file >= count:
            return
        here = given + 8 * (_ALL_WORDS + _FILE_WORDS * file)
        out, out_bytes = word(here, _OUT), word(here, _OUT_BYTES)
        stored, stored_bytes = word(here, _STORED), word(here, _STORED_BYTES)
        packed = stored != 0
        source = stored if packed else out
        right = _filled(word(here, _PATH), flags, source, stored_bytes)
        if right:
            found = _checksum_of(word(given, _CHECKSUM), 0, source, stored_bytes)
            right = found & 0xFFFFFFFF == word(here, _EXPECTED)
        if right and packed:
            right = _unpacked(word(given, _UNPACK), stored, out, out_bytes, 1) == out_bytes
        put_word(here, _RIGHT, np.int64(right))


def read_together(folder: Path, files: Sequence[File], threads: int) -> list[bool]:
    """Read, check and unpack chunk files in several threads of compiled code.

    Parameters
    ----------
    folder : Path
    files : sequence of (TableSpec, Receipt, ndarray)
    threads : int
        At most; a file is read by one thread.

    Returns
    -------
    list of bool
        Whether each file has the receipt's length and checksum, and is in its array now. All False if the libraries
        have no functions that compiled code can call.
    """
    checksum, unpack = lockless_crc32c(), lockless_decompress()
    if checksum is None or unpack is None:
        return [False] * len(files)
    paths = [os.fsencode(os.path.join(folder, spec.name, spec.file_name(receipt.chunk))) for spec, receipt, _ in files]
    text = np.frombuffer(b"\0".join([*paths, b""]), np.uint8)
    packed = [receipt.nbytes if spec.compression else 0 for spec, receipt, _ in files]
    stored = np.empty(sum(packed), np.uint8)
    words = [0, len(files), PLAIN_FILE, _address(checksum), _address(unpack)]
    path, at = text.ctypes.data, stored.ctypes.data
    for (_, receipt, out), name, nbytes in zip(files, paths, packed, strict=True):
        words += [path, out.ctypes.data, out.nbytes, at * (nbytes > 0), nbytes or out.nbytes, receipt.checksum, 0]
        path, at = path + len(name) + 1, at + nbytes
    shared = np.array(words, np.int64)
    given = blocks(max(1, min(threads, len(files))), reading_code(), shared.ctypes.data)
    together(given.ctypes.data)
    return [bool(right) for right in shared[_ALL_WORDS + _RIGHT :: _FILE_WORDS].tolist()]


def _address(function: Any) -> int:
    """Return where the code of a C function is."""
    found: int = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


@cache
def reading_code() -> int:
    """Return where the code of :func:`read_in_thread` is, compiled on the first call."""
    return address_of(read_in_thread, 0, 0)
