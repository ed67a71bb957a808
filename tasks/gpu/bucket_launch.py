"""Launches for steps with many small inputs on a GPU: ``cuda/bucket.cu``, ``cuda/join.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..steps.semiring import Semiring
from .kernels import Launch, kernel
from .stream_launch import bound_of
from .tiling.buckets import ALL_JOIN_AXES, AXES, ENTRIES, GROUPS, JOINS, TABLES, Bucket
from .tiling.pass_axes import row_major
from .tiling.passes import BucketPass, JoinPass
from .tiling.streams import THREADS, VECTOR_BYTES, Axis

_AXIS: Final = np.dtype(
    [("place", "i8"), ("inner", "u2", GROUPS), ("size", "u4"), ("inverse", "u4")],
    align=True,
)
_BUCKET: Final = np.dtype(
    [
        ("axes", _AXIS, AXES),
        ("inputs", "u8", TABLES),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i4", ENTRIES),
        ("counts", "u4", 3),
        ("threads", "i4", 2),
        ("first", "u2", GROUPS),
        ("cells", "u2", GROUPS),
        ("entry", "u2", TABLES + 1),
        ("room", "u2"),
        ("axis", "u1", ENTRIES),
        ("top", "u1", ENTRIES),
        ("outer", "u1", TABLES),
        ("member", "u1", GROUPS + 1),
        ("segment", "u1", 9),
        ("flags", "u1", 5),
        ("padding", "u1", 1),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/bucket.cu``."""

_JOIN: Final = np.dtype(
    [
        ("inputs", "u8", TABLES),
        ("out", "u8", JOINS),
        ("bound", "i8"),
        ("stride", "i4", ENTRIES),
        ("size", "u4", ALL_JOIN_AXES),
        ("cells", "u4", JOINS),
        ("block", "u4", JOINS + 1),
        ("entry", "u2", TABLES + 1),
        ("axis", "u1", ENTRIES),
        ("member", "u1", JOINS + 1),
        ("first", "u1", JOINS + 1),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/join.cu``."""


def bucket_launch(each: BucketPass, semiring: Semiring) -> Launch:
    """Prepare a launch that joins small inputs and eliminates."""
    bucket = each.bucket
    blocks, parts, steps, turns, states, across, along, vector = bucket.counts
    inputs = [each.inputs[t] for group in bucket.groups for t in group]
    record = np.zeros((), _BUCKET)
    record["bound"] = bound_of(semiring)
    record["counts"] = (steps, turns, states)
    record["threads"] = (across, along)
    entries = _fill_axes(record, bucket)
    tables = len(bucket.groups)
    record["first"][:tables] = bucket.first
    record["cells"][:tables] = bucket.cells
    cells = max(first + size for first, size in zip(bucket.first, bucket.cells, strict=True))
    room = -(-cells * semiring.itemsize // VECTOR_BYTES) * VECTOR_BYTES
    record["room"] = room
    changing = [any(a.strides[t] for a in bucket.segments[2] for t in group) for group in bucket.groups]
    alone = zip(bucket.groups, bucket.wide, strict=True)
    copied = [wide and len(group) == 1 and _vectors(bucket, group[0]) for group, wide in alone]
    record["flags"] = (tables, _bits(bucket.wide), _bits(changing), _bits(copied), bucket.deep_first)
    compiled = kernel("bucket", semiring.name, semiring.dtype, WIDTH=vector, STEP=_BUCKET.itemsize, **_clamp(semiring))
    shared = room + entries * VECTOR_BYTES
    return Launch(compiled, record, (inputs, each.writes), blocks * parts, THREADS, shared)


def _vectors(bucket: Bucket, table: int) -> bool:
    """Whether an input has the states of a vector side by side, aligned."""
    *others, vector = bucket.segments
    lanes = bucket.counts[-1]
    beside = all(a.strides[table] == place for a, place in zip(vector, row_major(vector), strict=True))
    return beside and all(a.strides[table] % lanes == 0 for part in others for a in part)


def _clamp(semiring: Semiring) -> dict[str, int]:
    """Every product of costs is clamped: a bucket has enough inputs for an overflow."""
    return {"CLAMP": 1} if semiring.saturates else {}


def _bits(flags: Sequence[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def _fill_axes(record: Any, bucket: Bucket) -> int:
    """Write axes and strides; return the number of strides of inputs."""
    axes, flat = record["axes"], [axis for segment in bucket.segments for axis in segment]
    axes["size"][: len(flat)] = [axis.size for axis in flat]
    axes["place"][: len(flat)] = [axis.out for axis in flat]
    ends = np.cumsum([0, *map(len, bucket.segments)])
    record["segment"] = ends
    local = ends[3]
    below = [*row_major(flat[: ends[2]]), *row_major(flat[ends[2] : local])]
    axes["inverse"][:local] = below
    axes["inverse"][local : len(flat)] = [(1 << 31) // axis.size + 1 for axis in flat[local:]]
    for group, places in enumerate(bucket.inner):
        axes["inner"][local : len(flat), group] = places
    members = np.cumsum([len(group) for group in bucket.groups])
    record["member"][1 : 1 + len(members)] = members
    record["member"][1 + len(members) :] = members[-1]
    held = [
        [*((i, i, a.strides[t]) for i, a in enumerate(flat[:local]) if a.strides[t]), *_runs(flat, local, places, t)]
        for group, places in zip(bucket.groups, bucket.inner, strict=True)
        for t in group
    ]
    record["outer"][: len(held)] = [sum(i < local for i, *_ in entries) for entries in held]
    tops = [top for entries in held for _, top, _ in entries]
    record["top"][: len(tops)] = tops
    return _fill_entries(record, [[(i, stride) for i, _, stride in entries] for entries in held])


def _runs(flat: Sequence[Axis], local: int, places: Sequence[int], table: int) -> list[tuple[int, int, int]]:
    """Return the runs of local axes that follow each other both in an input and in its shared table.

    Each as its last axis, its first axis, and the stride of the last.
    """
    runs: list[tuple[int, int, int]] = []
    held = (i for i in range(local, len(flat)) if flat[i].strides[table])
    for i in sorted(held, key=lambda i: places[i - local]):
        axis, place = flat[i], places[i - local]
        if runs:
            last, top, stride = runs[-1]
            follows = place == places[top - local] * flat[top].size
            if follows and axis.strides[table] == flat[top].strides[table] * flat[top].size:
                runs[-1] = (last, i, stride)
                continue
        runs.append((i, i, axis.strides[table]))
    return runs


def join_launch(each: JoinPass, semiring: Semiring) -> Launch:
    """Prepare a launch of some joins."""
    joins = each.joins
    record = np.zeros((), _JOIN)
    record["bound"] = bound_of(semiring)
    cells = [math.prod(a.size for a in join.axes) for join in joins]
    record["cells"][: len(joins)] = cells
    blocks = np.cumsum([-(-n // THREADS) for n in cells])
    record["block"][1 : 1 + len(joins)] = blocks
    record["member"][1 : 1 + len(joins)] = np.cumsum([len(join.inputs) for join in joins])
    record["first"][1 : 1 + len(joins)] = np.cumsum([len(join.axes) for join in joins])
    sizes = [axis.size for join in joins for axis in join.axes]
    record["size"][: len(sizes)] = sizes
    held = [
        [(i, axis.strides[t]) for i, axis in enumerate(join.axes) if axis.strides[t]]
        for join in joins
        for t in range(len(join.inputs))
    ]
    _fill_entries(record, held)
    compiled = kernel("join", semiring.name, semiring.dtype, STEP=_JOIN.itemsize, **_clamp(semiring))
    return Launch(compiled, record, (each.reads, each.writes), int(blocks[-1]), THREADS)


def _fill_entries(record: Any, held: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Write the axes of each input with their strides; return how many they are."""
    flat = [entry for entries in held for entry in entries]
    record["axis"][: len(flat)] = [axis for axis, _ in flat]
    record["stride"][: len(flat)] = [stride for _, stride in flat]
    record["entry"][1 : 1 + len(held)] = np.cumsum([len(entries) for entries in held])
    return len(flat)
