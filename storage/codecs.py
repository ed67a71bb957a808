"""Compressed chunks: Blosc with LZ4 after bit-shuffling, where a measured sample says that it pays.

Tables of costs have few significant bits, which bit-shuffling brings together; LZ4 then runs at about the rate of a
fast disk. Sorted keys repeat their upper bytes: byte-shuffled they take a fiftieth, faster than they are copied. Zarr
calls this the ``blosc`` codec and reads such chunks by itself.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOSC = "blosc"
_LEVEL = 5
_SHUFFLES = {"shuffle": 1, "bitshuffle": 2}
SAMPLE_BYTES = 1 << 22
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
