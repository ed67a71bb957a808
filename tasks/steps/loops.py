"""Lowering of streaming steps: a loop nest whose innermost loop is a row of cells. Pure: no values.

The nest is ``outer { depth blocks { inner { depth { row }}}}``. The outer axes are those of the largest
input, which is therefore read once; inner axes are the output's others; depth axes are eliminated. A *row* is
a run of cells that is contiguous in the output: each input either lacks it (and contributes one number), or
has it contiguously, or is gathered into a contiguous buffer before it is used. Small inputs are merged, and
spread over the row, before the loops start; so is a large one that would be gathered many times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .axes import Axes
from .blocks import UFUNC_CELLS, Blocks, cut
from .blocks import workspace_bytes as blocks_bytes
from .offsets import Enumeration, enumerate_groups
from .semiring import Semiring

Group = tuple[int, ...]

MERGED_CELLS: Final = 4096
"""Small inputs are merged while their join has at most so many cells: it stays in the first-level cache."""

SPREAD_CELLS: Final = 65536
"""Inputs with a part of the row are spread over all of it up to so many cells."""

COPIED_CELLS: Final = 1 << 22
"""A larger input that loops would gather again and again is copied in the order of the row up to so many cells, and
no more than the largest input has."""

_GATHER_NS, _COPY_NS = 1.2, 5.0
"""Nanoseconds of a cell: gathered by the loops, or copied before them."""

_NEAR_NS, _FAR_NS, _FAR_CELLS = 4.0, 14.0, 1 << 19
_LINE_CELLS, _PAGE_CELLS, _CACHED_LINES = 8, 1 << 12, 1 << 13
"""Nanoseconds more where every cell comes with a cache line that is gone again before its other cells are read: from
the next level of the cache, and from memory where the table has so many cells or more; the less for parts of a row
that lie pages apart in memory."""

_TURN_NS, _TURN_SHARE, _TURN_GAIN = 4.0, 16, 0.75
"""Nanoseconds of a cell of the output that is put in order after the loops, and the least part of the step's cells
that it must be; and what the predicted time of a cell must become."""

_MERGE_CELLS: Final = 1 << 16
"""NumPy starts a merge in the time that it takes for so many cells of one input."""

DEPTH_CELLS: Final = 1024
INNER_CELLS: Final = 4096
OUTER_CELLS: Final = 4096
_SHORTEST_ROW: Final = 8

SUMMED_CELLS: Final = 256
"""Eliminated axes are kept as a row up to so many cells."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Inputs that are joined into one table before the loops; `axes` eliminates nothing."""

    inputs: tuple[int, ...]
    axes: Axes


@dataclass(frozen=True, slots=True)
class Operand:
    """A table that the loops read: an input, or (numbered after the inputs) a merged table.

    Attributes
    ----------
    strides
        As in `Axes`.
    role
        ``number`` (lacks the row), ``row`` (has it contiguously) or ``gather`` (has it in another way).
    """

    table: int
    strides: tuple[int, ...]
    role: str


@dataclass(frozen=True, slots=True)
class Turn:
    """How a small output that the loops make in another order is put in its own.

    Attributes
    ----------
    sizes
        Of its axes, in the order of the loops.
    order
        For each axis of the output its place among those.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loops:
    """A streaming step; groups hold axis numbers.

    Attributes
    ----------
    axes
        The axes with the output of the loops. If `summed` exceeds 1, the last axes are eliminated ones, kept
        as a row of that many cells and summed after the loops.
    turn
        Where the output is small, its axes may be in the order in which the largest input is read.
    """

    axes: Axes
    merges: tuple[Merge, ...]
    operands: tuple[Operand, ...]
    outer_high: Group
    outer_low: Group
    inner: Group
    depth_high: Group
    depth_low: Group
    row: Group
    summed: int
    offsets: Enumeration
    turn: Turn | None = None

    def cells(self, group: Group) -> int:
        """Cells of a group of axes."""
        return math.prod([self.axes.sizes[axis] for axis in group])

    def gathered_inside(self, operand: Operand) -> bool:
        """Whether a gathered operand changes with the inner loop."""
        return any(operand.strides[axis] for axis in self.inner)


def thread_bytes(loops: Loops, itemsize: int) -> int:
    """Bytes of one thread's buffers."""
    gathers = sum(operand.role == "gather" for operand in loops.operands)
    depth = loops.cells(loops.depth_low)
    words = (len(loops.operands) + 1) * (1 + depth)
    return 8 * words + itemsize * depth * (1 + gathers * loops.cells(loops.row))


def workspace_bytes(loops: Loops, blocks: Blocks | None, semiring: Semiring) -> int:
    """Return the bytes of temporaries of one thread's run: merged tables, then offsets and buffers, or NumPy's."""
    itemsize = semiring.itemsize
    merged = sum(merge.axes.cells for merge in loops.merges) * itemsize
    merging = max([blocks_bytes(cut(merge.axes), semiring) for merge in loops.merges], default=0)
    running = 8 * (loops.offsets.cells + len(loops.offsets.code) + 2 * len(loops.operands) + 1)
    running += thread_bytes(loops, itemsize)
    if blocks is not None:
        running = max(running, blocks_bytes(blocks, semiring))
    if loops.summed > 1:
        kept = math.prod([n for n, stride in zip(loops.axes.sizes, loops.axes.out, strict=True) if stride])
        running += (kept + 2 * UFUNC_CELLS) * itemsize
    if loops.turn is not None:
        running += math.prod(loops.turn.sizes) * itemsize
    return merged + max(merging, running)


def merged_blocks(loops: Loops) -> Blocks | None:
    """How NumPy runs what is left once small inputs are merged, or None where reading every input takes less."""
    merging = sum([_MERGE_CELLS + len(merge.inputs) * merge.axes.cells for merge in loops.merges])
    saved = sum([len(merge.inputs) - 1 for merge in loops.merges]) * loops.axes.cells
    if saved <= merging:
        return None
    return cut(Axes(loops.axes.sizes, tuple([operand.strides for operand in loops.operands]), loops.axes.out))


def as_loops(axes: Axes, semiring: Semiring) -> Loops | None:
    """Return the loop nest of a step, or None if it has no row that is worth a loop."""
    if semiring.name == "log_sum":
        return None
    largest = max(range(len(axes.strides)), key=axes.cells_of)
    axes, summed = _keep_last(axes, largest)
    cost, row = _choose_row(axes, largest)
    turned, turn = _turned(axes, largest)
    if turn is not None:
        turned_cost, turned_row = _choose_row(turned, largest)
        if summed == 1 and turned_cost + _TURN_NS * math.prod(turn.sizes) / axes.cells < _TURN_GAIN * cost:
            axes, row = turned, turned_row
        else:
            turn = None
    if row is None:
        return None
    merges, operands = _operands(axes, row, largest)
    kept = range(axes.eliminated, len(axes.sizes))
    mine = axes.strides[largest]
    outer = sorted([a for a in kept if a not in row and mine[a]], key=lambda a: -mine[a])
    others = [a for a in kept if a not in row and not mine[a]]
    inner = _tail(axes, others, INNER_CELLS)
    outer = others[: len(others) - len(inner)] + outer
    low = _tail(axes, outer, min(OUTER_CELLS, math.isqrt(math.prod([axes.sizes[a] for a in outer])) * 2))
    depth = range(axes.eliminated)
    depth_low = _tail(axes, depth, DEPTH_CELLS)
    depth_high = tuple(depth[: len(depth) - len(depth_low)])
    outer_high = tuple(outer[: len(outer) - len(low)])
    tables = [*[operand.strides for operand in operands], axes.out]
    gathered = [operand.strides for operand in operands if operand.role == "gather"]
    groups = [(group, tables) for group in (outer_high, low, inner, depth_high, depth_low)]
    return Loops(
        axes=axes,
        merges=merges,
        operands=operands,
        outer_high=outer_high,
        outer_low=low,
        inner=inner,
        depth_high=depth_high,
        depth_low=depth_low,
        row=row,
        summed=summed,
        offsets=enumerate_groups(axes.sizes, [*groups, (row, gathered)]),
        turn=turn,
    )


def _turned(axes: Axes, largest: int) -> tuple[Axes, Turn | None]:
    """Put the axes of a small output in the order of the largest input, if that is another."""
    first, mine = axes.eliminated, axes.strides[largest]
    kept = range(first, len(axes.sizes))
    order = sorted(kept, key=lambda axis: -mine[axis] if mine[axis] else -math.inf)
    if order == [*kept] or _size(axes, kept) * _TURN_SHARE > axes.cells:
        return axes, None
    sizes = [axes.sizes[axis] for axis in order]
    places = [*range(first), *order]
    turned = Axes(
        sizes=tuple([axes.sizes[axis] for axis in places]),
        strides=tuple([tuple([strides[axis] for axis in places]) for strides in axes.strides]),
        out=(*axes.out[:first], *[math.prod(sizes[i + 1 :]) for i in range(len(sizes))]),
    )
    return turned, Turn(tuple(sizes), tuple([order.index(axis) for axis in kept]))


def _tail(axes: Axes, group: Sequence[int], limit: int) -> Group:
    """Return the last axes of a group, at least one if there is any, with at most `limit` cells."""
    cells = 1
    start = len(group)
    while start and (start == len(group) or cells * axes.sizes[group[start - 1]] <= limit):
        start -= 1
        cells *= axes.sizes[group[start]]
    return tuple(group[start:])


def _keep_last(axes: Axes, largest: int) -> tuple[Axes, int]:
    """Where the largest input ends in eliminated axes and the output is small, sum the last of them later.

    If all inputs are tiny, it is not enough of them for a row, which others then complete.
    """
    mine = axes.strides[largest]
    out_cells = math.prod(axes.sizes[axes.eliminated :])
    kept: list[int] = []
    size = 1
    own = sorted([a for a, stride in enumerate(mine) if stride], key=lambda a: mine[a])
    others = [a for a in reversed(range(axes.eliminated)) if not mine[a]] if out_cells < _SHORTEST_ROW else []
    for k, axis in enumerate((*own, *others)):
        if k >= len(own) and size >= _SHORTEST_ROW:
            break
        if axes.out[axis] and out_cells < _SHORTEST_ROW:
            continue
        wider = size * axes.sizes[axis]
        if axes.out[axis] or out_cells * wider * 16 > axes.cells or (size >= _SHORTEST_ROW and wider > SUMMED_CELLS):
            break
        kept.insert(0, axis)
        size = wider
    if size < _SHORTEST_ROW:
        return axes, 1
    order = [axis for axis in range(len(axes.sizes)) if axis not in kept] + kept
    out = [axes.out[axis] * size for axis in order]
    for i in range(len(order) - len(kept), len(order)):
        out[i] = math.prod([axes.sizes[axis] for axis in order[i + 1 :]])
    return Axes(
        sizes=tuple([axes.sizes[axis] for axis in order]),
        strides=tuple([tuple([strides[axis] for axis in order]) for strides in axes.strides]),
        out=tuple(out),
    ), size


def _choose_row(axes: Axes, largest: int) -> tuple[float, Group | None]:
    """Choose how many trailing axes of the output make the row, by the predicted time of a cell; return both."""
    best, choice = math.inf, None
    count = len(axes.sizes)
    cells = 1
    for start in range(count - 1, axes.eliminated - 1, -1):
        cells *= axes.sizes[start]
        if cells > MERGED_CELLS and start < count - 1:
            break
        row = tuple(range(start, count))
        cost = _cost(axes, row, cells, largest)
        if cells >= _SHORTEST_ROW and cost < best:
            best, choice = cost, row
    return best, choice


def _cost(axes: Axes, row: Group, cells: int, largest: int) -> float:
    """Predict the nanoseconds of a cell: overhead shared by the row, loads, and gathers where not reused."""
    overhead, per_cell = 8.0, 0.1
    for i, strides in enumerate(axes.strides):
        role = _role(axes, strides, row)
        if role == "number":
            overhead += 1
        elif role == "row" or axes.cells_of(i) * cells <= min(SPREAD_CELLS, axes.cells // 16):
            per_cell += 0.06
        else:
            per_cell += 0.06 + min(_gathering(axes, i, row, largest), _copying(axes, i, row, largest))
    return per_cell + overhead / cells


def _gathering(axes: Axes, i: int, row: Group, largest: int) -> float:
    """Nanoseconds for each cell of the step where the loops gather an input."""
    inner = [axis for axis in range(axes.eliminated, row[0]) if not axes.strides[largest][axis]]
    reused = 1 if any(axes.strides[i][axis] for axis in inner) else _size(axes, inner)
    return (_GATHER_NS + _missing(axes, i, row, largest)) / reused


def _missing(axes: Axes, i: int, row: Group, largest: int) -> float:
    """Nanoseconds more for a cell where more lines are read than a cache holds before the next cell of one is."""
    mine, strides, lines = axes.strides[largest], axes.strides[i], 1
    outside = sorted(range(axes.eliminated, row[0]), key=lambda axis: mine[axis] or math.inf)
    for axis in (*reversed(row), *reversed(range(axes.eliminated)), *outside):
        if 0 < strides[axis] < _LINE_CELLS:
            break
        lines *= axes.sizes[axis] if strides[axis] else 1
    if axes.cells_of(i) < _FAR_CELLS:
        return _NEAR_NS if lines > _CACHED_LINES else 0.0
    apart = any(strides[axis] > _PAGE_CELLS for axis in row)
    return _FAR_NS if lines > _CACHED_LINES else _NEAR_NS if apart else 0.0


def _copying(axes: Axes, i: int, row: Group, largest: int) -> float:
    """Nanoseconds for each cell of the step where an input is copied in the order of the row before the loops."""
    cells = _size(axes, {*row, *(axis for axis, stride in enumerate(axes.strides[i]) if stride)})
    if cells > min(COPIED_CELLS, axes.cells_of(largest)):
        return math.inf
    return (_COPY_NS + _missing(axes, i, row, largest) / 2) * cells / axes.cells


def _role(axes: Axes, strides: Sequence[int], row: Group) -> str:
    if not any(strides[axis] for axis in row):
        return "number"
    return "row" if all(strides[axis] == axes.out[axis] for axis in row) else "gather"


def _operands(axes: Axes, row: Group, largest: int) -> tuple[tuple[Merge, ...], tuple[Operand, ...]]:
    """Merge small inputs of one kind, spread those with a part of the row, copy or leave the others."""
    row_cells = math.prod([axes.sizes[axis] for axis in row])
    groups: list[tuple[list[int], set[int]]] = []
    single: list[int] = []
    copied: list[tuple[list[int], set[int]]] = []
    limits: list[bool] = []
    for i in sorted(range(len(axes.strides)), key=axes.cells_of):
        role = _role(axes, axes.strides[i], row)
        has = {axis for axis, stride in enumerate(axes.strides[i]) if stride}
        limit = min(MERGED_CELLS if role == "number" else SPREAD_CELLS, axes.cells // 16)
        scope = has if role == "number" else has.union(row)
        if _size(axes, scope) > limit or (role == "row" and row_cells == axes.cells_of(i) > MERGED_CELLS):
            if role == "gather" and _copying(axes, i, row, largest) < _gathering(axes, i, row, largest):
                copied.append(([i], scope))
            else:
                single.append(i)
            continue
        for g, (members, union) in enumerate(groups):
            if limits[g] == (role == "number") and _size(axes, union | scope) <= limit:
                members.append(i)
                union |= scope
                break
        else:
            groups.append(([i], set(scope)))
            limits.append(role == "number")
    return _finish(axes, row, groups + copied, single)


def _size(axes: Axes, group: Iterable[int]) -> int:
    return math.prod([axes.sizes[axis] for axis in group])


def _finish(
    axes: Axes, row: Group, groups: list[tuple[list[int], set[int]]], single: list[int]
) -> tuple[tuple[Merge, ...], tuple[Operand, ...]]:
    merges: list[Merge] = []
    operands: list[Operand] = []
    for members, union in groups:
        if len(members) == 1 and _role(axes, axes.strides[members[0]], row) != "gather":
            single.append(members[0])
            continue
        merge = _merge(axes, tuple(members), sorted(union))
        strides = [0] * len(axes.sizes)
        for axis, stride in zip(sorted(union), merge.axes.out, strict=True):
            strides[axis] = stride
        operands.append(Operand(len(axes.strides) + len(merges), tuple(strides), _role(axes, strides, row)))
        merges.append(merge)
    operands += [Operand(i, axes.strides[i], _role(axes, axes.strides[i], row)) for i in single]
    roles = ("number", "row", "gather")
    operands.sort(key=lambda operand: roles.index(operand.role))
    return tuple(merges), tuple(operands)


def _merge(axes: Axes, members: tuple[int, ...], scope: Sequence[int]) -> Merge:
    """Join some inputs over the axes in `scope`, in the order of `axes`: the row comes last."""
    sizes = [axes.sizes[axis] for axis in scope]
    strides = [tuple([axes.strides[i][axis] for axis in scope]) for i in members]
    out = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return Merge(members, Axes(tuple(sizes), tuple(strides), tuple(out)))
