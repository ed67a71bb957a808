"""Dense steps on an NVIDIA GPU, as launches of the kernels of ``cuda/*.cu``.

The array module follows from the array: `bucketflow.tasks.dense.run` comes here with CuPy arrays. Integers are
bit-equal to the CPU; sums of floats are in an order that depends on sizes only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np

from ..steps.lowering import Lowered
from ..steps.semiring import Semiring
from .kernels import cupy as cupy
from .kernels import kernel
from .tiling.lowering import device_step
from .tiling.passes import BrickPass, BucketPass, DeviceStep, JoinPass, Pass, RowsPass, StreamPass
from .tiling.streams import THREADS, Axis

_AXES: Final = 40
_ALIGNED: Final = 16
_BLOCK_ALIGNED: Final = 256
# Arguments are written into records that all threads share, and copied when a kernel is launched.
_LAUNCHING: Final = threading.RLock()
_LARGE_BYTES: Final = 1 << 25


class DeviceRun:
    """A step with its kernels and their arguments, ready to run on any tables of its scopes."""

    def __init__(self, step: DeviceStep, semiring: Semiring, cells: int) -> None:
        self.semiring = semiring
        self.cells = cells
        itemsize = semiring.itemsize
        ends = accumulate(-(-n * itemsize // _BLOCK_ALIGNED) * _BLOCK_ALIGNED for n in step.temporaries)
        self._places = [0, *ends]
        self._temporaries = step.temporaries
        self._launches = [_launch_of(each, semiring) for each in step.passes]

    def __call__(self, tables: Sequence[Any], out: Any = None) -> Any:
        """Run on device tables; returns ``out`` or a new table of shape ``(cells,)``."""
        dtype = self.semiring.dtype
        arrays = [_aligned(table) for table in tables]
        if self._temporaries:
            block = empty(self._places[-1], "uint8").data
            new = cupy().ndarray
            arrays += [new(n, dtype, block + at) for n, at in zip(self._temporaries, self._places, strict=False)]
        result = empty(self.cells, dtype) if out is None else out.reshape(-1)
        arrays.append(result)
        with _LAUNCHING:
            for launch in self._launches:
                launch(arrays)
        return result if out is None else out


def run(lowered: Lowered, tables: Sequence[Any], out: Any = None) -> Any:
    """Run a lowered step on device tables; tables that are still on the host are copied first."""
    return prepare(lowered)(tables, out)


@lru_cache(maxsize=4096)
def prepare(lowered: Lowered) -> DeviceRun:
    """Choose the launches of a step, once for all that look alike."""
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells)


def empty(cells: int, dtype: str) -> Any:
    """Allocate a table; on failure, once more after free blocks are given back.

    Large tables come from the driver's own pool, which maps free memory together where CuPy's cannot.
    """
    cp = cupy()
    nbytes = cells * np.dtype(dtype).itemsize

    def allocate() -> Any:
        if nbytes < _LARGE_BYTES:
            return cp.empty(cells, dtype)
        return cp.ndarray(cells, dtype, memptr=_large_pool(cp.cuda.Device().id).malloc(nbytes))

    try:
        return allocate()
    except cp.cuda.memory.OutOfMemoryError:
        free_pools()
        return allocate()


def free_pools() -> None:
    """Give free blocks back to the device, once all that uses them is done."""
    cp = cupy()
    cp.cuda.get_current_stream().synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    _large_pool(cp.cuda.Device().id).free_all_blocks()


@cache
def _large_pool(device: int) -> Any:
    return cupy().cuda.MemoryAsyncPool()


def is_device(table: Any) -> bool:
    """Whether an array lives on a GPU."""
    return type(table).__module__.partition(".")[0] == "cupy"


def _aligned(table: Any) -> Any:
    if isinstance(table, np.ndarray):
        return cupy().asarray(table).reshape(-1)
    return table if table.data.ptr % _ALIGNED == 0 else table.copy()


def _launch_of(each: Pass, semiring: Semiring) -> Any:
    if isinstance(each, StreamPass):
        return _StreamLaunch(each, semiring)
    if isinstance(each, BrickPass):
        from .brick_launch import BrickLaunch

        return BrickLaunch(each, semiring)
    if isinstance(each, RowsPass):
        return _RowsLaunch(each, semiring)
    if isinstance(each, BucketPass | JoinPass):
        from . import bucket_launch as gpu_joins

        return gpu_joins.launch(each, semiring)
    from .product_launch import product_launch

    return product_launch(each, semiring)


def bound_of(semiring: Semiring) -> int:
    """Return the integer parameter of the laws: the saturating infinity or the modulus."""
    return int(semiring.zero) if semiring.saturates else semiring.modulus


def step_dtype(inputs: int) -> np.dtype[Any]:
    """Return the layout of ``Step`` in ``cuda/stream.cu``."""
    fields = [
        ("inputs", "u8", inputs),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i8", (inputs + 1, _AXES)),
        ("shift", "i8", (inputs, 4)),
        ("lane", "i8", inputs),
        ("size", "u4", _AXES),
        ("mode", "i4", inputs),
        ("segment", "i4", 5),
        ("tiles", "u4", 2),
        ("cut", "u4", 3),
        ("deep_blocks", "u4"),
        ("deep", "u4", 3),
    ]
    return np.dtype([(name, kind, shape[0] if shape else ()) for name, kind, *shape in fields], align=True)


def fill_axes(record: Any, segments: Sequence[Sequence[Axis]], tables: int) -> None:
    """Write groups of axes into a kernel's argument."""
    axes = [axis for segment in segments for axis in segment]
    if len(axes) > _AXES:
        raise ValueError(f"a step with {len(axes)} separate axes, the kernels take {_AXES}")
    starts = [0]
    for segment in segments:
        starts.append(starts[-1] + len(segment))
    record["segment"] = starts
    for i, axis in enumerate(axes):
        record["size"][i] = axis.size
        record["stride"][:tables, i] = (*axis.strides, axis.out)


class _StreamLaunch:
    def __init__(self, each: StreamPass, semiring: Semiring) -> None:
        stream, inputs = each.stream, len(each.inputs)
        self._tables, self._output = each.inputs, each.output
        self._grid = (-(-stream.tiles // stream.tiles_per_block),)
        clamp = semiring.saturates and semiring.dtype != "int16" and inputs > semiring.max_inputs
        constants = {
            "INPUTS": inputs,
            "WIDTH": stream.width,
            "UNROLLED": stream.unrolled,
            "POSITIONS": stream.positions,
        }
        flags = {"CLAMP": clamp, "NARROW": semiring.dtype == "int16"}
        constants |= {flag: 1 for flag, wanted in flags.items() if wanted}
        self._kernel = kernel("stream", semiring.name, semiring.dtype, **constants)
        self._record = record = np.zeros((), step_dtype(inputs))
        fill_axes(record, stream.segments, inputs + 1)
        record["bound"] = bound_of(semiring)
        for i, shifts in enumerate(stream.shifts):
            record["shift"][i, : len(shifts)] = shifts
        record["lane"] = stream.lanes
        record["mode"] = [
            1 if v else 0 if lane == 0 else 2 for v, lane in zip(stream.vectors, stream.lanes, strict=True)
        ]
        record["tiles"] = (stream.tiles, stream.tiles_per_block)
        record["cut"] = stream.cut
        record["deep_blocks"] = stream.deep_blocks
        record["deep"] = stream.deep

    def __call__(self, arrays: Sequence[Any]) -> None:
        self._record["inputs"] = [arrays[i].data.ptr for i in self._tables]
        self._record["out"] = arrays[self._output].data.ptr
        self._kernel(self._grid, (THREADS,), (self._record,))


class _RowsLaunch:
    def __init__(self, each: RowsPass, semiring: Semiring) -> None:
        self._input, self._output = each.input, each.output
        self._grid = (each.rows,)
        self._record = np.array((0, 0, each.length, bound_of(semiring)), _ROWS)
        self._kernel = kernel("rows", semiring.name, semiring.dtype)

    def __call__(self, arrays: Sequence[Any]) -> None:
        self._record["in"] = arrays[self._input].data.ptr
        self._record["out"] = arrays[self._output].data.ptr
        self._kernel(self._grid, (THREADS,), (self._record,))


_ROWS: Final = np.dtype([("in", "u8"), ("out", "u8"), ("length", "i8"), ("bound", "i8")])
"""The layout of ``Step`` in ``cuda/rows.cu``."""
