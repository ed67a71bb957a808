"""Slices of device tables: copied on the device, or many of them together to the host; extremes of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.views import TableSlice, slice_of
from . import arrays
from .device_policy import DevicePolicy
from .kernels import ALIGNED, Kernel, cupy, kernel, processors
from .tiling.streams import AXES, THREADS
from .tiling.tiling_policy import NOMINAL

# Maximum blocks per multiprocessor; the copy is the same for any number.
_GATHER_BLOCKS: Final = 16
# Tables up to this size are copied whole, in 2 to some 30 microseconds; a slice of one takes a launch and a wait.
_FETCHED_TABLE_BYTES: Final = 1 << 20
# Maximum bytes in page-locked memory, of these copies together or of the results of a sweep: as on the way to a device.
FETCHED_BYTES: Final = DevicePolicy().packed_bytes

Array = NDArray[Any]

_SLICES: Final = 4
"""Slices of a launch; as in ``cuda/gather.cu``."""

_RECORD: Final = np.dtype(
    [
        ("in", "u8", _SLICES),
        ("out", "u8", _SLICES),
        ("cells", "i8", _SLICES),
        ("stride", "i8", (_SLICES, AXES)),
        ("size", "u4", (_SLICES, AXES)),
        ("axes", "i4", _SLICES),
    ],
    align=True,
)
"""The layout of ``Slices`` in ``cuda/gather.cu``."""


def restrict(array: Any, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Any:
    """Fix some variables of a C-ordered device table; see `bucketflow.tasks.sweeps.sweep.restrict`."""
    return packed(slice_of(array, axes, sizes, states))


def packed(s: TableSlice) -> Any:
    """Return the cells of a slice of a device table in C order: a copy, unless they are the whole table."""
    if s.cells == s.table.size:
        return s.table.reshape(-1)
    out = arrays.empty(s.cells, s.table.dtype.name)
    gather_slices([s], [out.data.ptr])
    return out


def fetched(slices: Sequence[TableSlice]) -> list[TableSlice]:
    """Copy slices of device tables to the host, all at once; each becomes a table of its own."""
    tables = pinned([(s.cells, s.table.dtype) for s in slices])
    gather_slices(slices, [table.ctypes.data for table in tables])
    cupy().cuda.get_current_stream().synchronize()
    return [s.of(table) for s, table in zip(slices, tables, strict=True)]


def near(tables: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the same arrays, with small ones of a device on the host."""
    small, room = [], FETCHED_BYTES
    for node, table in tables.items():
        if type(table) is not np.ndarray and table.nbytes <= min(_FETCHED_TABLE_BYTES, room):
            small.append(node)
            room -= table.nbytes
    copies = pinned([(tables[node].size, tables[node].dtype) for node in small])
    cp = cupy()
    runtime, stream = cp.cuda.runtime, cp.cuda.get_current_stream()
    for node, copy in zip(small, copies, strict=True):
        source = tables[node].data.ptr
        runtime.memcpyAsync(copy.ctypes.data, source, copy.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    stream.synchronize()
    return {**tables, **dict(zip(small, copies, strict=True))}


def gather_kernel(itemsize: int) -> Kernel:
    """Return the kernel that copies slices of values with this item size."""
    return kernel("gather", "min_plus", f"int{8 * itemsize}")


def pinned(shapes: Sequence[tuple[int, Any]]) -> list[Array]:
    """Allocate flat arrays of given cells and dtypes in one block of the host's memory that the device may write."""
    places, end = [], 0
    for cells, dtype in shapes:
        places.append(end)
        end += -(-cells * dtype.itemsize // ALIGNED) * ALIGNED
    block = cupy().cuda.alloc_pinned_memory(max(end, 1))
    return [np.frombuffer(block, dtype, cells, at) for (cells, dtype), at in zip(shapes, places, strict=True)]


def gather_slices(slices: Sequence[TableSlice], targets: Sequence[int]) -> None:
    """Copy the cells of slices, in C order, to given addresses."""
    for start in range(0, len(slices), _SLICES):
        some = slices[start : start + _SLICES]
        record = np.zeros((), _RECORD)
        for i, s in enumerate(some):
            axes = _fused(s)
            if len(axes) > AXES:
                raise ValueError(f"a slice with {len(axes)} separate axes, the kernel takes {AXES}")
            record["in"][i] = s.table.data.ptr + s.offset * s.table.dtype.itemsize
            record["out"][i] = targets[start + i]
            record["cells"][i] = s.cells
            record["axes"][i] = len(axes)
            record["size"][i, : len(axes)] = [n for n, _ in axes]
            record["stride"][i, : len(axes)] = [stride for _, stride in axes]
        blocks = min(_GATHER_BLOCKS * processors(), -(-max(s.cells for s in some) // THREADS))
        gather_kernel(some[0].table.dtype.itemsize)((blocks, len(some)), (THREADS,), (record,))


def _fused(s: TableSlice) -> list[tuple[int, int]]:
    """Sizes and strides of a slice's axes, merged where one goes on where the next ends."""
    axes: list[tuple[int, int]] = []
    for n, stride in zip(s.shape, s.strides, strict=True):
        if axes and axes[-1][1] == n * stride:
            axes[-1] = (axes[-1][0] * n, stride)
        elif n > 1:
            axes.append((n, stride))
    return axes


_BLOCKS: Final = NOMINAL.resident_threads // THREADS * NOMINAL.processors
"""Blocks at most, as many as a device holds at a time."""


def lowest_positive(values: Any, none: float) -> float:
    """Return the least positive entry; ``none`` if there is none."""
    return min(none, extremes_above(values, 0.0)[0])


def lowest_finite(logs: Any, none: float) -> float:
    """Return the least entry above -inf; ``none`` if there is none."""
    return min(none, extremes_above(logs, -math.inf)[0])


def extremes_above(values: Any, limit: float) -> tuple[float, float]:
    """Return the least and the greatest entry above a limit; infinity and minus infinity if there is none."""
    blocks = min(_BLOCKS, -(-values.size // THREADS))
    parts = arrays.empty(2 * blocks, "float64")
    function = kernel("least", "min_plus", "float64", entry="extremes_above")
    function((blocks,), (THREADS,), (values.reshape(-1), parts, np.int64(values.size), np.float64(limit)))
    least, greatest = parts.get().reshape(2, blocks)
    return float(least.min()), float(greatest.max())
