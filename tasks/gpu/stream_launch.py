"""Launches of streaming passes and of sums of rows, and the arguments common to all launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..steps.semiring import Semiring
from .device_policy import DevicePolicy
from .kernels import Launch, kernel
from .tiling.passes import RowsPass, StreamPass
from .tiling.streams import THREADS, Axis

_AXES: Final = 40


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
