"""Tables on the device: where they come from, and how they are told from those of the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .device_policy import DevicePolicy
from .kernels import cupy

Array = NDArray[Any]

ALIGNED: Final = 16
"""Bytes at multiples of which kernels want tables to begin."""
PACKED: Final = 256
"""Bytes at multiples of which the tables of one copy begin."""
_PADS: Final = np.zeros(PACKED, np.uint8)
# Bytes of the last block that was taken, by device.
_LAST_BLOCK: Final[dict[int, int]] = {}


def empty(cells: int, dtype: str, alone: bool = False) -> Any:
    """Allocate a table; on failure, once more after free blocks are given back.

    Large tables come from the driver's own pool, which maps free memory together where CuPy's cannot; those that are
    ``alone`` from CuPy's, which takes no more than they need.
    """
    policy = DevicePolicy.current()
    cp = cupy()
    nbytes = cells * np.dtype(dtype).itemsize

    def allocate() -> Any:
        if alone or nbytes < policy.own_block_bytes:
            return cp.empty(cells, dtype)
        return cp.ndarray(cells, dtype, memptr=large_pool().malloc(nbytes))

    try:
        return allocate()
    except cp.cuda.memory.OutOfMemoryError:
        free_pools()
        return allocate()


def block(nbytes: int) -> Any:
    """Allocate what a sweep takes at once, and return where it begins.

    What pools keep of sweeps of other sizes is given back first: it would serve nothing, and count against a budget.
    """
    device = cupy().cuda.Device().id
    if _LAST_BLOCK.get(device) != nbytes:
        free_pools()
        _LAST_BLOCK[device] = nbytes
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
    kinds = {table.dtype for table in tables}
    if len(kinds) == 1:
        packing = Packing([table.size for table in tables], kinds.pop())
        places, block = packing.places, packing.packed(tables).view(np.uint8)
    else:
        places, block = side_by_side(tables)
    there = cp.asarray(block).data
    return [new(t.size, t.dtype, there + place) for t, place in zip(tables, places, strict=True)]


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
    """Where host tables of some sizes lie in one block; small ones are put there all at once.

    Parameters
    ----------
    cells : sequence of int
        Of each table.
    dtype : str or dtype
        Of all.
    """

    def __init__(self, cells: Sequence[int], dtype: str | np.dtype[Any]) -> None:
        self.dtype = np.dtype(dtype)
        item = self.dtype.itemsize
        counts = np.array(cells, np.int64)
        taken = -(-counts * item // PACKED) * PACKED
        ends = taken.cumsum()
        self.nbytes = int(ends[-1]) if len(ends) else 0
        starts = (ends - taken) // item
        self.places: list[int] = (starts * item).tolist()
        small = counts <= DevicePolicy.current().packed_cells
        self._small: list[int] = np.flatnonzero(small).tolist()
        each, before = counts[small], counts[small].cumsum() - counts[small]
        self._cells = np.arange(each.sum()) + np.repeat(starts[small] - before, each)
        self._large = [(i, int(starts[i]), int(counts[i])) for i in np.flatnonzero(~small).tolist()]

    def packed(self, tables: Sequence[Array]) -> Array:
        """Return the cells of all tables where they lie in the block.

        Raises
        ------
        TypeError
            If a table has another dtype.
        """
        block = np.zeros(self.nbytes // self.dtype.itemsize, self.dtype)
        if self._small:
            some = [tables[i] for i in self._small]
            block[self._cells] = np.concatenate(some, axis=None, dtype=self.dtype, casting="no")
        for i, start, cells in self._large:
            if tables[i].dtype != self.dtype:
                raise TypeError(f"a table of {tables[i].dtype} among those of {self.dtype}")
            block[start : start + cells] = tables[i].reshape(-1)
        return block
