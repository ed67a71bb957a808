"""Tiles of a copy of a table in another order of axes: long runs of both tables, by way of shared memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from ...steps.light_dataclass import dataclass
from .pass_axes import fused, row_major
from .streams import THREADS, VECTOR_BYTES, Axis, divisor
from .tiling_policy import NOMINAL

MOST_ITEMS: Final = 16
"""Items of a thread in a tile, at most."""
_HELD_BYTES: Final = 1 << 15
"""Shared memory of a tile, without what keeps its rows in different banks; of the widest items half of it."""
# Blocks of a launch, about: of more tiles a block takes several, because each block first computes where its items lie.
_REORDER_BLOCKS: Final = 8 * NOMINAL.processors
_RUN_BYTES: Final = 256, 128, 64, 32
"""Neighbouring bytes of both tables that a tile has, about, in the order of preference."""


Group = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Reorder:
    """A launch that copies a table in another order of axes.

    Attributes
    ----------
    width
        Cells of an item, neighbours in both tables; all distances are in items.
    items
        Of a tile.
    segments
        Five groups of axes: the tiles; the slow and the fast axes of a tile's items in reading order; the slow and the
        fast axes in writing order. None has more than `THREADS` items. For the reading order the "output" stride is the
        item's number in writing order.
    tiles, tiles_per_block
    """

    width: int
    items: int
    segments: tuple[Group, Group, Group, Group, Group]
    tiles: int
    tiles_per_block: int

    @property
    def items_of_thread(self) -> int:
        """Items of a thread, as the kernel is compiled for: a power of two."""
        return 1 << (-(-self.items // THREADS) - 1).bit_length()


def reorder_tiles(axes: Sequence[Axis], itemsize: int) -> Reorder | None:
    """Choose the tiles of a copy.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, and strides in cells of the one table that is read and of the one table that is written; none is 0.
    itemsize : int
        Bytes of a cell.

    Returns
    -------
    Reorder or None
        None where no tile of whole parts of axes has long runs of both tables.
    """
    axes = fused(sorted(axes, key=lambda a: -a.out))
    if not axes or any(not a.out or not a.strides[0] for a in axes):
        return None
    width = _width(axes, itemsize)
    axes = _in_items(axes, width)
    nbytes = itemsize * width
    most = min(MOST_ITEMS * THREADS, _HELD_BYTES // nbytes // (1 + (nbytes == VECTOR_BYTES)))
    for run in _RUN_BYTES:
        parts = [1] * len(axes)
        for stride in (_to, _from):
            _take(axes, parts, max(1, run // nbytes), stride)
        if math.prod(parts) <= most:
            _take(axes, parts, most // 2, _to, most)
            return _laid_out(axes, parts, width)
    return None


def _to(axis: Axis) -> int:
    return axis.out


def _from(axis: Axis) -> int:
    return axis.strides[0]


def _width(axes: Sequence[Axis], itemsize: int) -> int:
    """Cells that are neighbours in both tables, aligned there: a power of two."""
    last = axes[-1]
    if last.out != 1 or last.strides[0] != 1:
        return 1
    return math.gcd(VECTOR_BYTES // itemsize, last.size, *[n for a in axes[:-1] for n in (a.out, a.strides[0])])


def _in_items(axes: Sequence[Axis], width: int) -> list[Axis]:
    """Count distances in items."""
    if width == 1:
        return list(axes)
    last = axes[-1]
    shorter = [Axis(a.size, (a.strides[0] // width,), a.out // width) for a in axes[:-1]]
    return [*shorter, *([Axis(last.size // width, (1,), 1)] if last.size > width else [])]


def _take(
    axes: Sequence[Axis], parts: list[int], wanted: int, stride: Callable[[Axis], int], most: int | None = None
) -> None:
    """Take parts of axes, of at most ``most`` items, until ``wanted`` neighbours of a table are together."""
    run = 1
    for i in sorted(range(len(axes)), key=lambda i: stride(axes[i])):
        if run >= wanted:
            return
        size, others = axes[i].size, math.prod(parts) // parts[i]
        least = min(size, max(parts[i], -(-wanted // run)))
        fits = [d for d in range(least, size + 1) if size % d == 0 and d % parts[i] == 0]
        if most is not None:
            fits = [d for d in range(parts[i], size + 1) if size % d == 0 and d % parts[i] == 0 and d * others <= most]
            fits = [d for d in fits if d >= least][:1] or fits[-1:]
        parts[i] = fits[0]
        run *= parts[i]
        if parts[i] < size:
            return


def _laid_out(axes: Sequence[Axis], parts: Sequence[int], width: int) -> Reorder | None:
    tiles = [Axis(a.size // n, (a.strides[0] * n,), a.out * n) for a, n in zip(axes, parts, strict=True) if n < a.size]
    written = [Axis(n, a.strides, a.out) for a, n in zip(axes, parts, strict=True) if n > 1]
    places = row_major(written)
    read = [Axis(a.size, a.strides, place) for a, place in zip(written, places, strict=True)]
    halves = _halves(sorted(read, key=lambda a: -a.strides[0])), _halves(written)
    if halves[0] is None or halves[1] is None:
        return None
    count = math.prod([a.size for a in tiles])
    return Reorder(
        width=width,
        items=math.prod([a.size for a in written]),
        segments=(tuple(tiles), *halves[0], *halves[1]),
        tiles=count,
        tiles_per_block=max(1, min(THREADS, count // _REORDER_BLOCKS)),
    )


def _halves(axes: Sequence[Axis]) -> tuple[Group, Group] | None:
    """Cut axes in slow and fast ones, about as many items of either; None where one has too many."""
    wanted = math.isqrt(math.prod([a.size for a in axes]))
    while wanted <= THREADS:
        slow, fast = _cut(axes, wanted)
        if all(math.prod([a.size for a in half]) <= THREADS for half in (slow, fast)):
            return slow, fast
        wanted *= 2
    return None


def _cut(axes: Sequence[Axis], wanted: int) -> tuple[Group, Group]:
    """Take the last axes and a part of the axis before them, of at most ``wanted`` items."""
    slow, fast = list(axes), list[Axis]()
    while slow and wanted > 1:
        axis = slow.pop()
        part = divisor(axis.size, wanted)
        if part < axis.size:
            slow.append(Axis(axis.size // part, (axis.strides[0] * part,), axis.out * part))
        if part > 1:
            fast.insert(0, Axis(part, axis.strides, axis.out))
        if part < axis.size:
            break
        wanted //= part
    return tuple(slow), tuple(fast)
