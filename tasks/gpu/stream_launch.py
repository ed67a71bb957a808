"""Launches of streaming passes, of sums of rows and of reordered copies, and the arguments common to all launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..steps.semiring import Semiring
from .device_policy import DevicePolicy
from .kernels import Launch, kernel
from .tiling.passes import ReorderPass, RowsPass, StreamPass
from .tiling.product_tiles import cells_of
from .tiling.streams import AXES, THREADS, Axis


def bound_of(semiring: Semiring) -> int:
    """Return the integer parameter of the laws: the saturating infinity or the modulus."""
    return int(semiring.zero) if semiring.saturates else semiring.modulus


def step_dtype(inputs: int) -> np.dtype[Any]:
    """Return the layout of ``Step`` in ``cuda/stream.cu``."""
    fields = [
        ("inputs", "u8", inputs),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i8", (inputs + 1, AXES)),
        ("shift", "i8", (inputs, 4)),
        ("lane", "i8", inputs),
        ("size", "u4", AXES),
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
    if len(axes) > AXES:
        raise ValueError(f"a step with {len(axes)} separate axes, the kernels take {AXES}")
    starts = [0]
    for segment in segments:
        starts.append(starts[-1] + len(segment))
    record["segment"] = starts
    for i, axis in enumerate(axes):
        record["size"][i] = axis.size
        record["stride"][:tables, i] = (*axis.strides, axis.out)


def stream_launch(each: StreamPass, semiring: Semiring) -> Launch:
    """Prepare the launch of a pass that streams over its inputs.

    Parameters
    ----------
    each : StreamPass
        Reads, writes and the stream.
    semiring : Semiring
    """
    policy = DevicePolicy.current()
    stream, inputs = each.stream, len(each.inputs)
    clamp = semiring.saturates and semiring.dtype != "int16" and inputs > semiring.max_inputs
    constants = {
        "INPUTS": inputs,
        "WIDTH": stream.width,
        "UNROLLED": stream.unrolled,
        "POSITIONS": stream.positions,
    }
    far = any(sum((a.size - 1) * a.strides[t] for a in stream.segments[3]) >= policy.far_cells for t in range(inputs))
    flags = {"CLAMP": clamp, "NARROW": semiring.dtype == "int16", "FAR": far}
    constants |= {flag: 1 for flag, wanted in flags.items() if wanted}
    record = np.zeros((), step_dtype(inputs))
    fill_axes(record, stream.segments, inputs + 1)
    record["bound"] = bound_of(semiring)
    for i, shifts in enumerate(stream.shifts):
        record["shift"][i, : len(shifts)] = shifts
    record["lane"] = stream.lanes
    # per input: 1 reads vectors, 0 one value for all lanes, 2 one value for each lane
    record["mode"] = [1 if v else 0 if lane == 0 else 2 for v, lane in zip(stream.vectors, stream.lanes, strict=True)]
    record["tiles"] = (stream.tiles, stream.tiles_per_block)
    record["cut"] = stream.cut
    record["deep_blocks"] = stream.deep_blocks
    record["deep"] = stream.deep
    blocks = -(-stream.tiles // stream.tiles_per_block)
    compiled = kernel("stream", semiring.name, semiring.dtype, **constants)
    return Launch(compiled, record, (each.reads, each.writes), blocks, THREADS)


def rows_launch(each: RowsPass, semiring: Semiring) -> Launch:
    """Prepare a pass that sums rows."""
    record = np.array((0, 0, each.length, bound_of(semiring)), _ROWS)
    compiled = kernel("rows", semiring.name, semiring.dtype)
    return Launch(compiled, record, (each.reads, each.writes), each.rows, THREADS)


_ROWS: Final = np.dtype([("inputs", "u8"), ("out", "u8"), ("length", "i8"), ("bound", "i8")])
"""The layout of ``Step`` in ``cuda/rows.cu``."""


def reorder_launch(each: ReorderPass, semiring: Semiring) -> Launch:
    """Prepare a copy; the kernel knows bytes only, so that all types of values share it."""
    reorder = each.reorder
    constants = {"BYTES": reorder.width * semiring.itemsize, "ITEMS": reorder.items_of_thread}
    _, slow, fast, *written = reorder.segments
    read = sum((a.size - 1) * a.strides[0] for a in (*slow, *fast))
    reach = max(read, sum((a.size - 1) * a.out for half in written for a in half))
    if reach >= DevicePolicy.current().far_cells:
        constants["FAR"] = 1
    record = np.zeros((), _REORDER)
    fill_axes(record, reorder.segments, 2)
    record["counts"] = (reorder.items, reorder.tiles, reorder.tiles_per_block)
    record["parts"] = [cells_of(segment) for segment in reorder.segments]
    blocks = -(-reorder.tiles // reorder.tiles_per_block)
    compiled = kernel("reorder", "min_plus", "int16", **constants)
    return Launch(compiled, record, (each.reads, each.writes), blocks, THREADS)


_REORDER: Final = np.dtype(
    [
        ("inputs", "u8", 1),
        ("out", "u8"),
        ("stride", "i8", (2, AXES)),
        ("size", "u4", AXES),
        ("segment", "i4", 6),
        ("counts", "u4", 3),
        ("parts", "u4", 5),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/reorder.cu``."""
