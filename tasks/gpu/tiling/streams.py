"""Tiles of a streaming launch: which cells of the output a block of threads computes together. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ...steps.light_dataclass import dataclass
from .tiling_policy import NOMINAL

THREADS: Final = 256
"""Threads of a block; as in ``cuda/*.cu`` but for propagations."""

DEEP_STATES: Final = 256
"""Eliminated states of one shared offset table; as in ``cuda/stream.cu``."""

VECTOR_BYTES: Final = NOMINAL.vector_bytes
"""Bytes of a vector: the bytes that a thread reads or writes at once."""

UNROLLED_STATES: Final = 4
"""Eliminated states that a kernel is compiled for, at most."""

AXES: Final = 40
"""Axes of a step; as in ``cuda/stream.cu``, ``reorder.cu``, ``product.cu`` and ``gather.cu``."""

LINE_CELLS: Final = NOMINAL.line_bytes // 4
"""Cells side by side of a tile that make up a cache line of 4-byte values."""

# Blocks that keep a large device busy to the end: several for each place on a multiprocessor.
_BLOCKS: Final = 16 * NOMINAL.processors


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a step: cells, its stride in each input, and in the output (0: eliminated)."""

    size: int
    strides: tuple[int, ...]
    out: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming launch.

    Attributes
    ----------
    width
        Cells of a vector.
    unrolled
        Eliminated states if they are few, otherwise 0.
    positions
        Vectors of one thread in a tile.
    lanes
        For each input, the stride of the cells of a vector: 1, or 0 where they are all the same.
    vectors
        For each input, whether a vector is one aligned load.
    segments
        Axes of: tiles, positions in a tile, blocks of eliminated states, states of a block.
    shifts
        For each input, where the unrolled states lie.
    tiles, tiles_per_block
    cut
        Cells in a tile of the first axis of positions, all its cells, and positions of each.
    deep_blocks
    deep
        The same for the eliminated states of a block.
    """

    width: int
    unrolled: int
    positions: int
    lanes: tuple[int, ...]
    vectors: tuple[bool, ...]
    segments: tuple[tuple[Axis, ...], ...]
    shifts: tuple[tuple[int, ...], ...]
    tiles: int
    tiles_per_block: int
    cut: tuple[int, int, int]
    deep_blocks: int
    deep: tuple[int, int, int]


def divisor(n: int, limit: int) -> int:
    """Return the largest divisor of ``n`` up to ``limit``."""
    if n <= limit:
        return n
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return max(d for s in small for d in (s, n // s) if d <= limit)


def stream_tiles(axes: Sequence[Axis], inputs: int, itemsize: int) -> Stream:
    """Choose vectors, tiles and the order of threads for a streaming launch.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    inputs : int
    itemsize : int
        Bytes of a cell.

    Returns
    -------
    Stream
        Threads are next to each other along the output, or along the largest input where that is read in lines.
    """
    kept = sorted((a for a in axes if a.out), key=lambda a: -a.out)
    gone = [a for a in axes if not a.out]
    depth = math.prod(a.size for a in gone)
    largest = _leading(axes, kept, inputs)
    width = _width(kept, gone, largest, itemsize)
    lanes = kept[-1].strides if kept else (0,) * inputs
    vectors = tuple(lanes[t] == 1 and _aligned([*kept[:-1], *gone], t, width) for t in range(inputs))
    if width > 1:
        inner = kept[-1]
        scaled = Axis(inner.size // width, tuple(s * width for s in inner.strides), width)
        kept = [*kept[:-1], *([scaled] if scaled.size > 1 else [])]
    kept = _by_reader(kept, gone, largest, width)
    # few eliminated states are unrolled in the kernel, which saves the loop and its offsets
    unrolled = depth if depth <= UNROLLED_STATES else 0
    # a thread takes several vectors if the device is busy without them too
    busy = math.prod(a.size for a in kept) >= _BLOCKS * THREADS * 4
    positions = {1: 4, 2: 2, 3: 2}.get(unrolled, 1) if busy else 1
    tiles, low, cut = _cut(kept, THREADS * positions, _coalescing(kept, largest, width))
    gone.sort(key=lambda a: -a.strides[largest])
    blocks, states, deep = _cut([] if unrolled else gone, DEEP_STATES, [])
    count = math.prod(a.size for a in tiles)
    return Stream(
        width=width,
        unrolled=unrolled,
        positions=positions,
        lanes=tuple(lanes),
        vectors=vectors,
        segments=(tuple(tiles), tuple(low), tuple(blocks), tuple(states)),
        shifts=tuple(_offsets(gone, t) if unrolled else () for t in range(inputs)),
        tiles=count,
        tiles_per_block=max(1, min(THREADS, count // _BLOCKS)),
        cut=cut,
        deep_blocks=math.prod(a.size for a in blocks),
        deep=deep,
    )


def _leading(axes: Sequence[Axis], kept: Sequence[Axis], inputs: int) -> int:
    """Choose the largest input; among several, an input that is contiguous along the output's last axis."""
    contiguous = kept[-1].strides if kept else (0,) * inputs
    return max(range(inputs), key=lambda t: (math.prod(a.size for a in axes if a.strides[t]), contiguous[t] == 1))


def _width(kept: Sequence[Axis], gone: Sequence[Axis], largest: int, itemsize: int) -> int:
    """Cells of a vector: as many as keep every access to the output and to the largest input aligned."""
    if not kept or kept[-1].out != 1:
        return 1
    inner = kept[-1]
    width = VECTOR_BYTES // itemsize
    if inner.strides[largest] > 1 or (inner.strides[largest] == 0 and any(a.strides[largest] == 1 for a in gone)):
        return 1
    while width > 1:
        aligned = inner.strides[largest] == 0 or _aligned([*kept[:-1], *gone], largest, width)
        if inner.size % width == 0 and aligned and all(a.out % width == 0 for a in kept[:-1]):
            break
        width //= 2
    return width


def _aligned(axes: Sequence[Axis], table: int, width: int) -> bool:
    return all(a.strides[table] % width == 0 for a in axes)


def _by_reader(kept: list[Axis], gone: Sequence[Axis], largest: int, width: int) -> list[Axis]:
    """Order the output's axes as threads take them: as the largest input has them where that matters more."""
    out_cells = math.prod(a.size for a in kept)
    read = math.prod(a.size for a in (*kept, *gone) if a.strides[largest])
    if width > 1 or read <= out_cells:
        return kept
    return sorted(kept, key=lambda a: -a.strides[largest] if a.strides[largest] else -(1 << 62))


def _coalescing(kept: Sequence[Axis], largest: int, width: int) -> list[int]:
    """Axes that a tile should have besides the last, so that both sides of a transposition use whole lines."""
    if width > 1 or len(kept) < 2:
        return []
    by_out = min(range(len(kept)), key=lambda i: kept[i].out)
    read = [i for i in range(len(kept)) if kept[i].strides[largest]]
    by_input = min(read, key=lambda i: kept[i].strides[largest], default=by_out)
    inner = (by_out, by_input)
    return [i for i in dict.fromkeys(inner) if i != len(kept) - 1]


def _cut(axes: Sequence[Axis], limit: int, also: Sequence[int]) -> tuple[list[Axis], list[Axis], tuple[int, int, int]]:
    """Cut axes into blocks of at most ``limit`` cells, most of them from the last axes.

    Parameters
    ----------
    axes : sequence of Axis
    limit : int
        Most cells of a block.
    also : sequence of int
        Axes of which a block needs some cells, so that reads stay in lines.

    Returns
    -------
    outer, inner, cut
        The axes of the blocks; the axes within a block; how the first inner axis is cut: its cells in a block, all of
        its cells, and the block's cells of each.
    """
    outer: list[Axis] = list(axes)
    inner: list[Axis] = []
    reserved = {id(axes[i]): divisor(axes[i].size, LINE_CELLS * 2) for i in also}
    room = limit
    if reserved:
        room = max(1, limit // math.prod(reserved.values()))
    while outer and id(outer[-1]) not in reserved and outer[-1].size <= room:
        inner.insert(0, outer.pop())
        room //= inner[0].size
    cut_axis: Axis | None = None
    if outer and room > 1 and id(outer[-1]) not in reserved:
        cut_axis = outer.pop()
    for axis in axes:
        part = reserved.get(id(axis), 0)
        if part > 1:
            at = outer.index(axis)
            outer[at : at + 1] = [_times(axis, axis.size // part, part)] if part < axis.size else []
            inner.insert(0, Axis(part, axis.strides, axis.out))
    each = math.prod(a.size for a in inner)
    if cut_axis is None:
        return outer, inner, (1, 1, each)
    # equal parts: a last block that is nearly empty would waste threads
    blocks = -(-cut_axis.size // room)
    part = -(-cut_axis.size // blocks)
    blocks = -(-cut_axis.size // part)
    outer.append(_times(cut_axis, blocks, part))
    inner.insert(0, Axis(part, cut_axis.strides, cut_axis.out))
    return outer, inner, (part, cut_axis.size, each)


def _times(axis: Axis, size: int, factor: int) -> Axis:
    return Axis(size, tuple(s * factor for s in axis.strides), axis.out * factor)


def _offsets(axes: Sequence[Axis], table: int) -> tuple[int, ...]:
    offsets = [0]
    for axis in axes:
        offsets = [at + i * axis.strides[table] for at in offsets for i in range(axis.size)]
    return tuple(offsets)
