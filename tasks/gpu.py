"""Dense steps on an NVIDIA GPU: kernels of ``cuda/*.cu`` compiled once by CuPy and kept on disk by it.

The array module follows from the array: `bucketflow.tasks.dense.run` comes here with CuPy arrays. Integers are
bit-equal to the CPU; sums of floats are in an order that depends on sizes only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from .gpu_lowering import (
    BucketPass,
    DeviceStep,
    JoinPass,
    Pass,
    RowsPass,
    StreamPass,
    device_step,
)
from .gpu_tiles import THREADS, Axis
from .lowering import Lowered
from .semiring import Semiring

COMPILE_OPTIONS: Final = ("-std=c++17",)
_AXES: Final = 40
_ALIGNED: Final = 16
# Arguments are written into records that all threads share, and copied when a kernel is launched.
_LAUNCHING: Final = threading.RLock()
_LARGE_BYTES: Final = 1 << 25
_LAWS: Final = {"min_plus": 0, "sum_product": 1, "log_sum": 2, "mod_sum_product": 3}
_C_TYPES: Final = {"int16": "short", "int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


def cupy() -> Any:
    """Return CuPy; importing it takes a second, so it waits until an array asks for it."""
    import cupy

    return cupy


@cache
def kernel(name: str, law: str, dtype: str, entry: str = "", **constants: int) -> Any:
    """Compile (or take from CuPy's cache on disk) one kernel with its constants fixed."""
    code = kernel_source(name, law, dtype, **constants)
    return cupy().RawModule(code=code, options=COMPILE_OPTIONS).get_function(entry or name)


def kernel_source(name: str, law: str, dtype: str, **constants: int) -> str:
    """Return the CUDA C++ of one kernel with its constants fixed."""
    folder = files(__package__) / "cuda"
    define = {"LAW": _LAWS[law], "T": _C_TYPES[dtype], **constants}
    source = [f"#define {key} {value}" for key, value in define.items()]
    source += [(folder / file).read_text() for file in ("laws.cuh", f"{name}.cu")]
    return "\n".join(source)


class DeviceRun:
    """A step with its kernels and their arguments, ready to run on any tables of its scopes."""

    def __init__(self, step: DeviceStep, semiring: Semiring, cells: int) -> None:
        self.semiring = semiring
        self.cells = cells
        self._temporaries = step.temporaries
        self._launches = [_launch_of(each, semiring) for each in step.passes]

    def __call__(self, tables: Sequence[Any], out: Any = None) -> Any:
        """Run on device tables; returns ``out`` or a new table of shape ``(cells,)``."""
        arrays = [_aligned(table) for table in tables]
        arrays += [empty(cells, self.semiring.dtype) for cells in self._temporaries]
        result = empty(self.cells, self.semiring.dtype) if out is None else out.reshape(-1)
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
    """Return the driver's pool, told to keep what is free: by default each wait for the device gives it back.

    To map a table's pages anew takes longer than to fill it.
    """
    pool = cupy().cuda.MemoryAsyncPool()
    pool.set_limit(fraction=1.0)
    return pool


def is_device(table: Any) -> bool:
    """Whether an array lives on a GPU."""
    return type(table).__module__.partition(".")[0] == "cupy"


def _aligned(table: Any) -> Any:
    if not is_device(table):
        return cupy().asarray(table).reshape(-1)
    return table if table.data.ptr % _ALIGNED == 0 else table.copy()


def _launch_of(each: Pass, semiring: Semiring) -> Any:
    if isinstance(each, StreamPass):
        return _StreamLaunch(each, semiring)
    if isinstance(each, RowsPass):
        return _RowsLaunch(each, semiring)
    if isinstance(each, BucketPass | JoinPass):
        from . import gpu_joins

        return gpu_joins.launch(each, semiring)
    from .gpu_product import product_launch

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
        self._numbers = (np.int64(each.length), np.int64(bound_of(semiring)))
        self._kernel = kernel("rows", semiring.name, semiring.dtype)

    def __call__(self, arrays: Sequence[Any]) -> None:
        self._kernel(self._grid, (THREADS,), (arrays[self._input], arrays[self._output], *self._numbers))
