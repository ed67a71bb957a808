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

_ALIGNED: Final = 16
# Bytes at multiples of which the tables of one copy begin.
_PACKED: Final = 256
_PADS: Final = np.zeros(_PACKED, np.uint8)
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
    return type(table).__module__.partition(".")[0] == "cupy"


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
        if address % _ALIGNED:
            table = table.copy()
            address = table.data.ptr
        there.append(table)
        addresses.append(address)
    return there, addresses


def upload(tables: Sequence[Array]) -> list[Any]:
    """Copy host tables to the device as one block; each becomes a flat table that begins at an aligned place."""
    if not tables:
        return []
    places: list[int] = []
    parts: list[Array] = []
    end = 0
    for table in tables:
        places.append(end)
        nbytes = table.nbytes
        parts.append(table.reshape(-1).view(np.uint8))
        if rest := nbytes % _PACKED:
            parts.append(_PADS[rest:])
            nbytes += _PACKED - rest
        end += nbytes
    cp = cupy()
    there = cp.asarray(np.concatenate(parts)).data
    new = cp.ndarray
    return [new(t.size, t.dtype, there + place) for t, place in zip(tables, places, strict=True)]
