"""Between host and device: page-locked memory, and copies on a stream of each thread's own.

Threads that each take a box from its inputs to its output overlap by themselves: while one computes, another's
inputs go to the device and a third's output comes back, each on its own stream (Bistaffa et al. 2016 §V-B).

The errors of work that a device cannot do are here too, so that callers can catch them without loading launches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.policy import BoxPolicy
from .kernels import cupy

# A block that was given back serves a request that fills at least this share of it.
_REUSED_BLOCK_SHARE: Final = 0.875

Array = NDArray[Any]

_own = threading.local()


@contextmanager
def own_stream() -> Iterator[Any]:
    """Do what follows in this thread on the thread's own stream; wait for it at the end."""
    stream = getattr(_own, "stream", None)
    if stream is None:
        stream = _own.stream = cupy().cuda.Stream(non_blocking=True)
    with stream:
        try:
            yield stream
        finally:
            stream.synchronize()


def to_device(source: Array, target: Any) -> None:
    """Start the copy of a host table into a device table; both C-contiguous, of equal length."""
    _copy(target.data.ptr, source.ctypes.data, source.nbytes, to_host=False)


def copy_there(source: Array, place: int) -> None:
    """Start the copy of a contiguous host array to an address of the device."""
    _copy(place, source.ctypes.data, source.nbytes, to_host=False)


def to_host(source: Any, target: Array) -> None:
    """Start the copy of a device table into a host table; both C-contiguous, of equal length."""
    _copy(target.ctypes.data, source.data.ptr, source.nbytes, to_host=True)


def _copy(target: int, source: int, nbytes: int, *, to_host: bool) -> None:
    runtime, stream = cupy().cuda.runtime, cupy().cuda.get_current_stream()
    kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
    runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device has no memory left."""
    return isinstance(error, MemoryError) and type(error).__module__.partition(".")[0] == "cupy"


class LongStepError(Exception):
    """A step has more parts than the record of a launch can count. No device would end it within hours."""


class DeviceMemoryError(MemoryError):
    """A task needed more device memory than is left; unlike CuPy's own error it travels between processes."""


@contextmanager
def portable_errors() -> Iterator[None]:
    """Turn CuPy's error into an error that can be pickled."""
    try:
        yield
    except MemoryError as error:
        if out_of_memory(error):
            raise DeviceMemoryError(str(error)) from None
        raise


def is_short(error: BaseException) -> bool:
    """Whether an error, of this process or another, is about a device's memory."""
    return isinstance(error, DeviceMemoryError) or out_of_memory(error)


class Pinned:
    """Page-locked blocks: locking pages takes longer than filling them, so blocks are used again.

    Parameters
    ----------
    limit_bytes : int, optional
        Blocks that are not in use are freed before more than this is held.
    """

    def __init__(self, limit_bytes: int = 1 << 62):
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._free: list[Array] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Array:
        """Return a block of at least ``nbytes``."""
        with self._lock:
            fitting = [i for i, b in enumerate(self._free) if _REUSED_BLOCK_SHARE * b.nbytes <= nbytes <= b.nbytes]
            if fitting:
                return self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
            if self.held_bytes + nbytes > self.limit_bytes:
                self._drop()
            self.held_bytes += nbytes
        try:
            return _page_locked(nbytes)
        except BaseException:
            with self._lock:
                self.held_bytes -= nbytes
            raise

    def give(self, block: Array) -> None:
        """Take a block back."""
        with self._lock:
            self._free.append(block)

    def release(self) -> None:
        """Free the blocks that are not in use."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self.held_bytes -= sum(block.nbytes for block in self._free)
        self._free.clear()


def _page_locked(nbytes: int) -> Array:
    """Lock fresh pages: large ones if the system has them, and touched by several threads first, which is faster."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    pages = mmap.mmap(-1, nbytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(pages, np.uint8)
    count = BoxPolicy.current().reading_threads
    piece = max(-(-nbytes // count), mmap.PAGESIZE)
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda start: block[start : start + piece : mmap.PAGESIZE].fill(0), range(0, nbytes, piece)))
    runtime = cupy().cuda.runtime
    runtime.hostRegister(block.ctypes.data, nbytes, 1)  # portable: for all devices
    weakref.finalize(block, runtime.hostUnregister, block.ctypes.data).atexit = False
    return block
