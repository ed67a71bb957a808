"""Tables on the device: their allocation, how they are distinguished from host tables, and copies between cards.

If cards of one host reach each other's memory (NVLink, or PCIe with peer access), a copy does not pass through the
host.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.caches import REMEMBERED
from .device_policy import DevicePolicy
from .kernels import ALIGNED, cupy
from .memory import to_device

# Tables from this size on get a block of the pool of their own; smaller ones share blocks.
_OWN_BLOCK_BYTES: Final = 1 << 25

Array = NDArray[Any]

PACKED: Final = 256
"""Alignment of the tables of one copy, in bytes."""
_PADS: Final = np.zeros(PACKED, np.uint8)
# By device the bytes of the block that its pools were freed for last, and the last sizes of blocks that were taken.
_BLOCKS: Final[dict[int, tuple[int, tuple[int, ...]]]] = {}


def empty(cells: int, dtype: str, alone: bool = False) -> Any:
    """Allocate a table; on failure, once more after free blocks are given back.

    Large tables come from the driver's own pool, which can map scattered free memory together. Tables that are
    ``alone`` come from CuPy's pool, which takes exactly their size.
    """
    cp = cupy()
    nbytes = cells * np.dtype(dtype).itemsize

    def allocate() -> Any:
        if alone or nbytes < _OWN_BLOCK_BYTES:
            return cp.empty(cells, dtype)
        return cp.ndarray(cells, dtype, memptr=large_pool().malloc(nbytes))

    try:
        return allocate()
    except cp.cuda.memory.OutOfMemoryError:
        free_pools()
        return allocate()


def block(nbytes: int) -> Any:
    """Allocate what a sweep takes at once, and return where it begins.

    Blocks cached for sweeps of other sizes are freed first, because they would be useless and count against a budget.
    Sweeps of a few alternating sizes share the room of the largest.
    """
    device = cupy().cuda.Device().id
    room, sizes = _BLOCKS.get(device, (0, ()))
    if nbytes > room or nbytes not in sizes:
        free_pools()
        room = nbytes
    _BLOCKS[device] = room, (*[size for size in sizes if size != nbytes], nbytes)[-REMEMBERED:]
    return empty(nbytes, "uint8", alone=True).data


def free_pools() -> None:
    """Give free blocks back to the device, once all that uses them is done."""
    cp = cupy()
    cp.cuda.get_current_stream().synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    large_pool().free_all_blocks()


def large_pool() -> Any:
    """Return the driver's pool of the present device, which maps free memory together."""
    return _large_pool(cupy().cuda.Device().id)


@cache
def _large_pool(device: int) -> Any:
    return cupy().cuda.MemoryAsyncPool()


def is_device(table: Any) -> bool:
    """Whether an array lives on a GPU."""
    return is_device_type(type(table))


def is_device_type(kind: type) -> bool:
    """Whether arrays of a class live on a GPU."""
    return kind.__module__.partition(".")[0] == "cupy"


def on_host(table: Any) -> Array:
    """Return a table as an array of the host."""
    array: Array = table.get() if is_device(table) else table
    return array


def aligned(tables: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """Return tables on the device whose first cells are at aligned places, and these; others are copied."""
    there, addresses = [], []
    for table in tables:
        if isinstance(table, np.ndarray):
            table = cupy().asarray(table).reshape(-1)
        address = table.data.ptr
        if address % ALIGNED:
            table = table.copy()
            address = table.data.ptr
        there.append(table)
        addresses.append(address)
    return there, addresses


def upload(tables: Sequence[Array]) -> list[Any]:
    """Copy host tables to the device as one block; each becomes a flat table that begins at an aligned place."""
    if not tables:
        return []
    cp = cupy()
    new = cp.ndarray
    alike = len({table.dtype for table in tables}) == 1
    flat = tables if alike else [table.reshape(-1).view(np.uint8) for table in tables]
    packing = Packing([table.size for table in flat], flat[0].dtype)
    if packing.nbytes <= DevicePolicy.current().packed_bytes:
        there = cp.asarray(next((block for _, block in packing.pieces(flat)), np.empty(0, np.uint8))).data
    else:
        there = empty(packing.nbytes, "uint8", alone=True).data
        packing.copy(flat, there)
    return [new(t.size, t.dtype, there + place) for t, place in zip(tables, packing.places, strict=True)]


def side_by_side(tables: Sequence[Array]) -> tuple[list[int], Array]:
    """Put tables of any dtypes into one block of bytes; return the aligned places where each begins, and the block."""
    places: list[int] = []
    parts: list[Array] = []
    end = 0
    for table in tables:
        places.append(end)
        nbytes = table.nbytes
        parts.append(table.reshape(-1).view(np.uint8))
        if rest := nbytes % PACKED:
            parts.append(_PADS[rest:])
            nbytes += PACKED - rest
        end += nbytes
    return places, np.concatenate(parts)


class Packing:
    """Where host tables of some sizes lie in one block of a device; small ones are put there all at once.

    The host has a part of the block at a time, and where each cell of small tables goes: a few MB however large tables
    are.

    Parameters
    ----------
    cells : sequence of int
        Of each table.
    dtype : str or dtype
        Of all.
    """

    def __init__(self, cells: Sequence[int], dtype: str | np.dtype[Any]) -> None:
        policy = DevicePolicy.current()
        self.dtype = np.dtype(dtype)
        item = self.dtype.itemsize
        counts = np.array(cells, np.int64)
        taken = -(-counts * item // PACKED) * PACKED
        ends = taken.cumsum()
        self.nbytes = int(ends[-1]) if len(ends) else 0
        starts = (ends - taken) // item
        self.places: list[int] = (starts * item).tolist()
        small = counts <= policy.packed_cells
        small &= np.where(small, counts, 0).cumsum() <= policy.packed_together
        self._small: list[int] = np.flatnonzero(small).tolist()
        each, before = counts[small], counts[small].cumsum() - counts[small]
        self._cells = np.arange(each.sum()) + np.repeat(starts[small] - before, each)
        self._large = [(i, int(starts[i]), int(counts[i])) for i in np.flatnonzero(~small).tolist()]
        self._starts = [at for _, at, _ in self._large]
        self._ends = [at + cells for _, at, cells in self._large]
        self._piece = max(policy.packed_bytes // PACKED, 1) * PACKED // item

    def copy(self, tables: Sequence[Array], place: Any) -> None:
        """Start the copies of all tables to where the block begins.

        Raises
        ------
        TypeError
            If a table has another dtype.
        """
        new = cupy().ndarray
        for start, block in self.pieces(tables):
            to_device(block, new(block.size, block.dtype, place + start * self.dtype.itemsize))

    def pieces(self, tables: Sequence[Array]) -> Iterator[tuple[int, Array]]:
        """Yield the block piece by piece: at which cell each begins, and the cells of all tables where they lie in it.

        Raises
        ------
        TypeError
            If a table has another dtype.
        """
        end, dtype = self.nbytes // self.dtype.itemsize, self.dtype
        for i, _, _ in self._large:
            if tables[i].dtype != dtype:
                raise TypeError(f"a table of {tables[i].dtype} among those of {dtype}")
        some = [tables[i] for i in self._small]
        values = np.concatenate(some, axis=None, dtype=dtype, casting="no") if some else np.empty(0, dtype)
        for start in range(0, end, self._piece):
            stop = min(start + self._piece, end)
            block = np.zeros(stop - start, dtype)
            first, last = np.searchsorted(self._cells, (start, stop))
            places = self._cells[first:last]
            block[places - start if start else places] = values[first:last]
            for i, at, cells in self._large[bisect_right(self._ends, start) : bisect_left(self._starts, stop)]:
                here, until = max(at, start), min(at + cells, stop)
                block[here - start : until - start] = tables[i].reshape(-1)[here - at : until - at]
            yield start, block


_ALREADY: Final = "PeerAccessAlreadyEnabled"


def on_card(card: int) -> AbstractContextManager[Any]:
    """Do what follows in this thread on a card."""
    device: AbstractContextManager[Any] = cupy().cuda.Device(card)
    return device


def present_card() -> int:
    """Return the card that this thread works on."""
    return int(cupy().cuda.runtime.getDevice())


def card_of(table: Any) -> int:
    """Return the card that a device table lies on."""
    return int(table.device.id)


def brought(table: Any) -> Any:
    """Return a table on the present card: the table itself, or a copy of a finished table on another card."""
    if not is_device(table):
        return table
    card = card_of(table)
    if card == present_card():
        return table
    here, found = present_card(), empty(table.size, table.dtype.name, alone=True).reshape(table.shape)
    if table.size:
        reaches(here, card)  # where it does, the copy does not pass through the host
        with on_card(card):
            copy_to(here, cupy().ascontiguousarray(table), found)
            cupy().cuda.get_current_stream().synchronize()
    return found


@cache
def reaches(card: int, other: int) -> bool:
    """Whether a card may read another's memory in place, which it is allowed to at the first call."""
    if card == other:
        return True
    runtime = cupy().cuda.runtime
    if not runtime.deviceCanAccessPeer(card, other):
        return False
    try:
        with on_card(card):
            runtime.deviceEnablePeerAccess(other)
    except runtime.CUDARuntimeError as error:
        return _ALREADY in str(error)
    return True


def copy_to(card: int, source: Any, target: Any) -> None:
    """Start the copy of a contiguous table of the present card into one of a card, on the current stream."""
    cuda, here = cupy().cuda, present_card()
    stream = cuda.get_current_stream().ptr
    cuda.runtime.memcpyPeerAsync(target.data.ptr, card, source.data.ptr, here, source.nbytes, stream)
