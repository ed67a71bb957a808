"""Dense steps on an NVIDIA GPU, as launches of the kernels of ``cuda/*.cu``.

The array module follows from the array: `bucketflow.tasks.cpu.dense.run` comes here with CuPy arrays. Integers are
bit-equal to the CPU; sums of floats are in an order that depends on sizes only.

Three kinds of launches are here: bricks (``cuda/brick.cu``); steps with many small inputs (``cuda/bucket.cu``,
``cuda/join.cu``); and products of matrices, as a register-tiled tropical product or by cuBLAS. Streaming passes are in
:mod:`.stream_launch`.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..steps.lowering import Lowered
from ..steps.semiring import Semiring
from . import arrays
from .device_policy import DevicePolicy
from .kernels import Kernel, Launch, block_shared_bytes, cupy, kernel
from .memory import LongStepError
from .stream_launch import bound_of, fill_axes, reorder_launch, rows_launch, stream_launch
from .tiling.brick_cells import MAX_ROWS, SHARED_BYTES
from .tiling.brick_layout import MAX_COPIES, MAX_OUTER, MAX_PLACES, TABLES_BYTES, Brick, residents
from .tiling.buckets import ALL_JOIN_AXES, AXES, ENTRIES, GROUPS, JOINS, TABLES, Bucket
from .tiling.device_lowering import device_step
from .tiling.pass_axes import row_major
from .tiling.passes import (
    BrickPass,
    BucketPass,
    DeviceStep,
    JoinPass,
    Pass,
    ProductPass,
    ReorderPass,
    RowsPass,
    StreamPass,
)
from .tiling.product_tiles import (
    DEPTH,
    PAD,
    cells_of,
    factor_loads,
    product_tiles,
    step_depth,
    whole_chunks,
)
from .tiling.streams import AXES as STREAM_AXES
from .tiling.streams import THREADS, VECTOR_BYTES, Axis
from .tiling.tiling_policy import NOMINAL

# Rows, columns and depth from which cuBLAS pays.
_CUBLAS_LEAST_CELLS: Final = 64
# Bytes of a stage of both factors up to which four stages are in shared memory, not three.
_PRODUCT_SMALL_STAGE_BYTES: Final = 12 << 10

_THREADS: Final = NOMINAL.registers // 128
"""Threads of a multiprocessor: each then has 128 registers, enough for its share of a tile."""


def product_launch(each: ProductPass, semiring: Semiring) -> Callable[[Sequence[int]], None]:
    """Choose cuBLAS or the tiled kernel, which takes tables of any layout."""
    least = min(cells_of(group) for group in each.groups[1:])
    if semiring.name == "sum_product" and least >= _CUBLAS_LEAST_CELLS:
        matmul = _MatmulLaunch(each, semiring)
        if matmul.direct:
            return matmul
    return _tiled_launch(each, semiring)


def _tiled_launch(each: ProductPass, semiring: Semiring) -> Launch:
    """Prepare a matrix product of tiles in shared memory.

    Parameters
    ----------
    each : ProductPass
        Tables and groups of axes: batch, rows, columns, depth.
    semiring : Semiring
    """
    itemsize = semiring.itemsize
    tensor = semiring.name == "sum_product" and semiring.dtype == "float64"
    tiling = product_tiles(each.groups, itemsize)
    tile = tiling.tile
    deep = DEPTH if tensor else step_depth(cells_of(each.groups[3]))
    stage = deep * (tile.rows + tile.columns + 2 * PAD) * max(itemsize, 4)
    constants = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "TALL": tile.tall,
        "BROAD": tile.broad,
        "DEPTH": deep,
        "RESIDENT": _THREADS // tile.threads,
    }
    if tensor:
        constants |= {"TENSOR": 1, "WARP_ROWS": tile.warp_rows}
    stages = 4 if stage <= _PRODUCT_SMALL_STAGE_BYTES else 3
    for side, name in enumerate(("LEFT", "RIGHT")):
        loads = factor_loads(tiling, side, itemsize, deep)
        constants |= {f"{name}_VECTOR": loads.width, f"{name}_DEEP": int(loads.deep)}
        constants[f"{name}_STAGED"] = int(loads.staged)
        # a factor that goes through registers needs no more than two buffers
        stages = 2 if loads.staged else stages
    shared = stage * stages
    compiled = kernel("product", semiring.name, semiring.dtype, STAGES=stages, **constants)
    compiled.max_dynamic_shared_size_bytes = shared
    record = np.zeros((), _PRODUCT)
    fill_axes(record, tiling.groups, 3)
    record["bound"] = bound_of(semiring)
    counts = (tiling.batches, *(cells_of(group) for group in tiling.groups[1:]))
    record["counts"] = (*counts, tiling.row_tiles, tiling.column_tiles, tiling.span)
    record["whole"] = whole_chunks(tiling.groups, VECTOR_BYTES // itemsize)
    record["order"][: len(tiling.order)] = tiling.order
    return Launch(compiled, record, (each.reads, each.writes), tiling.blocks, tile.threads, shared)


_PRODUCT: Final = np.dtype(
    [
        ("inputs", "u8", 2),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i8", (3, STREAM_AXES)),
        ("size", "u4", STREAM_AXES),
        ("segment", "i4", 5),
        ("counts", "u4", 7),
        ("whole", "i4"),
        ("order", "u2", 512),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/product.cu``."""


class _MatmulLaunch:
    """cuBLAS on ``(batch, rows, depth)`` and ``(batch, depth, columns)``, where the tables are laid out for it."""

    def __init__(self, each: ProductPass, semiring: Semiring) -> None:
        batch, rows, columns, depth = each.groups
        self._inputs, self._output, self._dtype = each.inputs, each.output, np.dtype(semiring.dtype)
        out = [tuple(replace(a, strides=(a.out,)) for a in group) for group in (batch, rows, columns)]
        self._left, self._right = _matrices((batch, rows, depth), 0), _matrices((batch, depth, columns), 1)
        self._out = _matrices((out[0], out[1], out[2]), 0)
        self.direct = None not in (self._left, self._right, self._out)

    def __call__(self, addresses: Sequence[int]) -> None:
        left = self._view(self._left, addresses[self._inputs[0]])
        right = self._view(self._right, addresses[self._inputs[1]])
        out = self._view(self._out, addresses[self._output])
        if out.strides[2] == out.itemsize:
            cupy().matmul(left, right, out=out)
        else:
            cupy().matmul(_transposed(right), _transposed(left), out=_transposed(out))

    def _view(self, matrices: tuple[tuple[int, ...], tuple[int, ...]] | None, address: int) -> Any:
        """See a table that its owner holds as a stack of matrices."""
        assert matrices is not None
        shape, strides = matrices
        step = self._dtype.itemsize
        nbytes = step * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        cuda = cupy().cuda
        there = cuda.MemoryPointer(cuda.UnownedMemory(address, nbytes, None), 0)
        return cupy().ndarray(shape, self._dtype, there, tuple(s * step for s in strides))


def _matrices(groups: Sequence[tuple[Axis, ...]], table: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return shape and strides of a table as a stack of matrices, None where it cannot be seen as one."""
    strides = [_single(group, table) for group in groups]
    found = tuple(s for s in strides if s is not None)
    if len(found) < len(groups) or 1 not in found[1:]:
        return None
    return tuple(cells_of(group) for group in groups), found


def _transposed(matrices: Any) -> Any:
    return matrices.transpose(0, 2, 1)


def _single(group: Sequence[Axis], table: int) -> int | None:
    """Return the stride of a group as one axis, None if it has none."""
    for outer, inner in pairwise(group):
        if outer.strides[table] != inner.size * inner.strides[table]:
            return None
    return group[-1].strides[table] if group else 0


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


_NARROW: Final = "int16"
_MAX_COLUMNS: Final = VECTOR_BYTES // np.dtype(np.int16).itemsize
"""Cells of a vector of the narrowest type; as in ``cuda/brick.cu``."""


def brick_launch(each: BrickPass, semiring: Semiring) -> Launch:
    """Prepare a launch of bricks.

    Parameters
    ----------
    each : BrickPass
        Reads, writes and the brick.
    semiring : Semiring

    Returns
    -------
    Launch
        The compiled kernel, its record, and its grid.
    """
    brick = each.brick
    constants = {
        "STEP": step_dtype(len(brick.slices)).itemsize,
        "INPUTS": len(brick.slices),
        "ROWS": brick.rows,
        "COLUMNS": brick.columns,
        "KINDS": sum((s.rows + 2 * s.columns + 4 * s.inner) << 3 * i for i, s in enumerate(brick.slices)),
        "UNITS": sum((s.unit * semiring.itemsize).bit_length() - 1 << 3 * i for i, s in enumerate(brick.slices)),
        "SPREADS": sum((s.spread > 0) << i for i, s in enumerate(brick.slices)),
        "ONCE": sum((s.far_items == 1) << i for i, s in enumerate(brick.slices)),
    }
    narrow = semiring.dtype == _NARROW and brick.columns > 1
    constants["RESIDENT"] = residents(brick, semiring.itemsize)
    shared = brick.shared_cells * semiring.itemsize
    # copying the next slices ahead takes a second set of buffers
    ahead = brick.ahead and 2 * shared <= block_shared_bytes() - TABLES_BYTES
    shared *= 1 + ahead
    flags = {
        "CLAMP": semiring.saturates and not narrow and len(brick.slices) > semiring.max_inputs,
        "NARROW": narrow,
        "SCATTERED": not brick.vectors,
        "FAR_APART": max(piece.reach for piece in brick.slices) >= DevicePolicy.current().far_cells,
        "AHEAD": ahead,
    }
    constants |= {flag: 1 for flag, wanted in flags.items() if wanted}
    compiled = kernel("brick", semiring.name, semiring.dtype, **constants)
    compiled.max_dynamic_shared_size_bytes = max(SHARED_BYTES, shared)
    return Launch(compiled, _record(brick, semiring), (each.reads, each.writes), brick.blocks, brick.threads, shared)


@cache
def step_dtype(inputs: int) -> np.dtype[Any]:
    """Return the memory layout of ``Step`` in ``cuda/brick.cu`` for a number of inputs.

    Parameters
    ----------
    inputs : int
        Number of input tables.
    """
    # wide fields come first, so that C++ and NumPy align them equally
    fields = [
        ("inputs", "u8", inputs),
        ("out", "u8"),
        ("bound", "i8"),
        ("outer_stride", "i8", (inputs + 1, MAX_OUTER)),
        ("out_place", "i8", MAX_PLACES),
        ("out_row", "i8", MAX_ROWS),
        ("out_column", "i8", _MAX_COLUMNS),
        ("source", "i8", (inputs, MAX_COPIES)),
        ("start", "i4", inputs),
        ("row", "i4", inputs),
        ("outer_size", "u4", MAX_OUTER),
        ("place_size", "u2", MAX_PLACES),
        ("target", "u2", (inputs, MAX_COPIES)),
        ("place", "u2", (inputs, MAX_PLACES)),
        ("copy_size", "u2", (inputs, MAX_COPIES)),
        ("near", "u2", inputs),
        ("copies", "u2", inputs),
        ("first", "u2", inputs + 1),
        ("spread", "u2", inputs),
        ("outer_axes", "u4", 2),
        ("place_axes", "u4", 3),
        ("counts", "u4", 3),
        ("shared", "i4"),
    ]
    return np.dtype([(name, kind, shape[0] if shape else ()) for name, kind, *shape in fields], align=True)


def _record(brick: Brick, semiring: Semiring) -> Any:
    """Fill the record that the kernel reads for a brick.

    Parameters
    ----------
    brick : Brick
    semiring : Semiring

    Returns
    -------
    structured scalar of ``step_dtype``
        Strides of device tables in cells; places in shared memory in bytes.
    """
    inputs, size = len(brick.slices), semiring.itemsize
    record = np.zeros((), step_dtype(inputs))
    record["bound"] = bound_of(semiring)
    for i, axis in enumerate((*brick.bricks, *brick.stages)):
        record["outer_size"][i] = axis.size
        record["outer_stride"][:, i] = (*axis.strides, axis.out)
    record["out_place"][: len(brick.out_places)] = brick.out_places
    record["out_row"][: brick.rows] = brick.out_rows
    record["out_column"][: brick.columns] = brick.out_columns
    record["place_size"][: len(brick.places)] = brick.places
    for i, piece in enumerate(brick.slices):
        copies = piece.near + piece.far
        for name in ("source", "target", "size"):
            # targets are offsets in shared memory, which the kernel addresses in bytes
            scale = size if name == "target" else 1
            record["copy_size" if name == "size" else name][i, : len(copies)] = [
                getattr(copy, name) * scale for copy in copies
            ]
        record["place"][i, : len(brick.places)] = [at * size for at in piece.places]
        record["start"][i] = piece.start * size
        record["row"][i] = piece.row * size
        record["near"][i], record["copies"][i] = len(piece.near), len(copies)
        record["spread"][i] = piece.spread * size
    record["outer_axes"] = (len(brick.bricks), len(brick.bricks) + len(brick.stages))
    record["place_axes"] = (*brick.ends, len(brick.places))
    record["first"][1:] = np.cumsum([piece.far_items for piece in brick.slices])
    record["counts"] = (*[math.prod(a.size for a in group) for group in (brick.bricks, brick.stages)], brick.run)
    record["shared"] = brick.shared_cells * size
    return record


# Arguments are written into records that all threads share, and copied when a kernel is launched.
_LAUNCHING: Final = threading.RLock()


class DeviceRun:
    """A step with its kernels and their arguments, ready to run on any tables of its scopes."""

    def __init__(self, step: DeviceStep, semiring: Semiring, cells: int) -> None:
        self.semiring = semiring
        self.cells = cells
        self.out_bytes = cells * semiring.itemsize
        self.workspace_bytes = step.workspace_cells * semiring.itemsize
        self.waits = step.waits
        self._temporaries = [place * semiring.itemsize for place in step.places]
        try:
            self.launches = [_LAUNCHES[type(each)](each, semiring) for each in step.passes]
        except OverflowError:
            raise LongStepError(
                "a step has more parts than a launch on a GPU counts (2^32); leave out --gpus, or eliminate in another "
                "order"
            ) from None

    def __call__(self, tables: Sequence[Any], out: Any = None, workspace: Any = None) -> Any:
        """Run on device tables; returns ``out`` or a new table of shape ``(cells,)``.

        A workspace is a place in device memory with `workspace_bytes` behind it; without one it is allocated.
        """
        held, addresses = arrays.aligned(tables)
        if self._temporaries:
            block = arrays.empty(self.workspace_bytes, "uint8").data if workspace is None else workspace
            first = block.ptr
            addresses += [first + at for at in self._temporaries]
        result = arrays.empty(self.cells, self.semiring.dtype) if out is None else out.reshape(-1)
        addresses.append(result.data.ptr)
        with _LAUNCHING:
            for launch in self.launches:
                launch(addresses)
        del held  # launches are in order with later uses of the memory
        return result if out is None else out

    def bound(self, inputs: Sequence[int], out: int, workspace: int) -> list[tuple[Launch, list[int]]]:
        """Return its launches, each with where the step's tables lie, for `bound_launches`; only where it `repeats`."""
        addresses = [*inputs, *[workspace + at for at in self._temporaries], out]
        return [(launch, addresses) for launch in self.launches if isinstance(launch, Launch)]

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of its launches; cuBLAS has its own."""
        return [launch.kernel for launch in self.launches if isinstance(launch, Launch)]

    @property
    def repeats(self) -> bool:
        """Whether its launches can be bound to tables."""
        return all(isinstance(launch, Launch) for launch in self.launches)


def run(lowered: Lowered, tables: Sequence[Any], out: Any = None) -> Any:
    """Run a lowered step on device tables; tables that are still on the host are copied first."""
    return prepare(lowered)(tables, out)


@lru_cache(maxsize=4096)
def prepare(lowered: Lowered) -> DeviceRun:
    """Choose the launches of a step, once for all that look alike."""
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells)


def step_kernels(lowered: Lowered) -> Sequence[Kernel]:
    """Return the kernels of a step. Before CuPy is loaded, these are the kernels of the nominal device."""
    return prepare(lowered).kernels if "cupy" in sys.modules else _nominal_kernels(lowered)


@lru_cache(maxsize=4096)
def _nominal_kernels(lowered: Lowered) -> Sequence[Kernel]:
    # not a prepared launch: the device may have less shared memory than the nominal one
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells).kernels


# How each kind of pass is launched; a new kind is a class of passes, and a row here.
_LAUNCHES: Final[Mapping[type[Pass], Callable[[Any, Semiring], Callable[[Sequence[int]], None]]]] = {
    StreamPass: stream_launch,
    ReorderPass: reorder_launch,
    BrickPass: brick_launch,
    RowsPass: rows_launch,
    BucketPass: bucket_launch,
    JoinPass: join_launch,
    ProductPass: product_launch,
}
