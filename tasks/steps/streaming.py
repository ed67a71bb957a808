"""Lowering of streaming steps: a loop nest whose innermost loop is a row of cells. Pure: no values.

The nest is ``outer { depth blocks { inner { depth { row }}}}``. The outer axes are those of the largest
input, which is therefore read once; inner axes are the output's others; depth axes are eliminated. A *row* is
a run of cells that is contiguous in the output: each input either lacks it (and contributes one number), or
has it contiguously, or is gathered into a contiguous buffer before it is used. Small inputs are merged, and
spread over the row, before the loops start; so is a large one that would be gathered many times.

For NumPy a step is cut into blocks: boxes of the join that stay in the cache; the join itself is never stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from .axes import RUN_CELLS, Axes, Enumeration, enumerate_groups
from .light_dataclass import dataclass
from .row_order import SMALL_SHARE, SPREAD_CELLS, SUMMED_CELLS, Group, OutputTurn, RowReading, ordered, role_of, size_of
from .semiring import Semiring

BLOCK_CELLS: Final = 32768
"""Cells of the joined block: 256 KiB of float64, which stays in the second-level cache."""

UFUNC_CELLS: Final = 8192
"""NumPy's universal functions copy up to two strided operands through buffers of this many cells."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a step is cut into blocks.

    Attributes
    ----------
    extents
        Cells of one block along each axis (the last block of an axis may be smaller).
    joined_cells, partial_cells
        Cells of the buffers for the joined block and for a reduced block that is not the first of its cell.
    """

    axes: Axes
    extents: tuple[int, ...]
    joined_cells: int
    partial_cells: int

    @property
    def single(self) -> bool:
        """Whether one block is the whole step."""
        return self.extents == self.axes.sizes


def cut(axes: Axes, block_cells: int = BLOCK_CELLS) -> Blocks:
    """Choose the block of a step: a row of the output, then eliminated axes, then the rest of the output."""
    if (cells := axes.cells) <= block_cells:
        return Blocks(axes, axes.sizes, cells, 0)
    eliminated = axes.eliminated
    extents = _extents(axes, eliminated, block_cells)
    joined = math.prod(extents)
    split = extents[:eliminated] != axes.sizes[:eliminated]
    return Blocks(axes, extents, joined, math.prod(extents[eliminated:]) if split else 0)


def _extents(axes: Axes, eliminated: int, block_cells: int) -> tuple[int, ...]:
    extents = [1] * len(axes.sizes)

    def grow(candidates: Iterator[int], limit: int) -> None:
        for axis in candidates:
            room = limit // (math.prod(extents) // extents[axis])
            extents[axis] = max(extents[axis], min(axes.sizes[axis], room))
            if extents[axis] < axes.sizes[axis]:
                return

    kept = range(eliminated, len(extents))
    grow(iter(reversed(kept)), SUMMED_CELLS)
    grow(iter(reversed(range(eliminated))), block_cells)
    grow(iter(reversed(kept)), block_cells)
    return tuple(extents)


def blocks_bytes(blocks: Blocks, semiring: Semiring) -> int:
    """Return the bytes of temporaries that `run_blocks` allocates."""
    joined = blocks.joined_cells if needs_buffer(blocks, semiring) else 0
    rows = 0
    if semiring.name == "log_sum" and (eliminated := blocks.axes.eliminated):
        out_cells = math.prod(blocks.extents[eliminated:])
        rows = 2 * out_cells + out_cells // 8
    buffers = 2 * min(UFUNC_CELLS, blocks.joined_cells)
    return (joined + blocks.partial_cells + rows + buffers) * semiring.itemsize


def least_bytes(cells: int, inputs: int, itemsize: int) -> int:
    """Return the least bytes of a step with this number of cells and inputs, before it is cut: a block is half full."""
    block = cells if cells <= BLOCK_CELLS else BLOCK_CELLS // 2
    return ((block if inputs > 1 else 0) + 2 * min(UFUNC_CELLS, block)) * itemsize


def needs_buffer(blocks: Blocks, semiring: Semiring) -> bool:
    # The log-domain sum exponentiates in place, so it needs a copy even of a single input.
    return len(blocks.axes.strides) > 1 or (semiring.name == "log_sum" and blocks.axes.eliminated > 0)


_MERGE_CELLS: Final = 1 << 16
"""NumPy starts a merge in the time that it takes for this many cells of one input."""

DEPTH_CELLS: Final = 1024
"""Maximum offsets of the depth loop. The other loops have at most ``RUN_CELLS`` offsets. All stay in the first-level
cache."""


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
        ``number`` (lacks the row), ``row`` (has it contiguously) or ``gather`` (has it in another layout).
    """

    table: int
    strides: tuple[int, ...]
    role: str


@dataclass(frozen=True, slots=True)
class StreamLoops:
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
    turn: OutputTurn | None = None

    def cells(self, group: Group) -> int:
        """Cells of a group of axes."""
        return math.prod([self.axes.sizes[axis] for axis in group])

    def gathered_inside(self, operand: Operand) -> bool:
        """Whether a gathered operand changes with the inner loop."""
        return any(operand.strides[axis] for axis in self.inner)


def thread_bytes(loops: StreamLoops, itemsize: int) -> int:
    """Bytes of one thread's buffers."""
    gathers = sum(operand.role == "gather" for operand in loops.operands)
    depth = loops.cells(loops.depth_low)
    words = (len(loops.operands) + 1) * (1 + depth)
    return 8 * words + itemsize * depth * (1 + gathers * loops.cells(loops.row))


def workspace_bytes(loops: StreamLoops, blocks: Blocks | None, semiring: Semiring) -> int:
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


def merged_blocks(loops: StreamLoops) -> Blocks | None:
    """How NumPy runs what is left once small inputs are merged, or None where reading every input takes less."""
    merging = sum([_MERGE_CELLS + len(merge.inputs) * merge.axes.cells for merge in loops.merges])
    saved = sum([len(merge.inputs) - 1 for merge in loops.merges]) * loops.axes.cells
    if saved <= merging:
        return None
    return cut(Axes(loops.axes.sizes, tuple([operand.strides for operand in loops.operands]), loops.axes.out))


def as_loops(axes: Axes, semiring: Semiring) -> StreamLoops | None:
    """Return the loop nest of a step, or None if it has no row that is worth a loop.

    Parameters
    ----------
    axes : Axes
        Sizes, strides of inputs and output in cells; eliminated axes first.
    semiring : Semiring

    Returns
    -------
    StreamLoops or None
        Groups of axes of each loop, and what each input is to the row: a number, a row, or gathered.
    """
    if semiring.name == "log_sum":
        return None
    largest = max(range(len(axes.strides)), key=axes.cells_of)
    axes, summed, turn, row = ordered(axes, largest)
    if row is None:
        return None
    merges, operands = _operands(axes, row, largest)
    kept = range(axes.eliminated, len(axes.sizes))
    mine = axes.strides[largest]
    # the largest input is read in its own order, once
    outer = sorted([a for a in kept if a not in row and mine[a]], key=lambda a: -mine[a])
    others = [a for a in kept if a not in row and not mine[a]]
    inner = _tail(axes, others, RUN_CELLS)
    outer = others[: len(others) - len(inner)] + outer
    low = _tail(axes, outer, min(RUN_CELLS, math.isqrt(math.prod([axes.sizes[a] for a in outer])) * 2))
    depth = range(axes.eliminated)
    depth_low = _tail(axes, depth, DEPTH_CELLS)
    depth_high = tuple(depth[: len(depth) - len(depth_low)])
    outer_high = tuple(outer[: len(outer) - len(low)])
    tables = [*[operand.strides for operand in operands], axes.out]
    gathered = [operand.strides for operand in operands if operand.role == "gather"]
    groups = [(group, tables) for group in (outer_high, low, inner, depth_high, depth_low)]
    return StreamLoops(
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


def _tail(axes: Axes, group: Sequence[int], limit: int) -> Group:
    """Return the last axes of a group, at least one if there is any, with at most `limit` cells."""
    cells = 1
    start = len(group)
    while start and (start == len(group) or cells * axes.sizes[group[start - 1]] <= limit):
        start -= 1
        cells *= axes.sizes[group[start]]
    return tuple(group[start:])


def _operands(axes: Axes, row: Group, largest: int) -> tuple[tuple[Merge, ...], tuple[Operand, ...]]:
    """Prepare the inputs of a loop nest: merge small inputs of one role, spread inputs with a part of the row over it,
    and copy or keep the others.

    Parameters
    ----------
    axes : Axes
    row : group of axes
        The axes of the innermost loop.
    largest : int
        Index of the largest input.

    Returns
    -------
    tuple of Merge, tuple of Operand
        Inputs that are combined before the loop, and the roles of the remaining tables.
    """
    reading, row_cells = RowReading(axes, largest), math.prod([axes.sizes[axis] for axis in row])
    groups: list[tuple[list[int], set[int]]] = []
    single: list[int] = []
    copied: list[tuple[list[int], set[int]]] = []
    limits: list[bool] = []
    for i in sorted(range(len(axes.strides)), key=reading.cells.__getitem__):
        role = role_of(axes, axes.strides[i], row)
        has = {axis for axis, stride in enumerate(axes.strides[i]) if stride}
        limit = min(RUN_CELLS if role == "number" else SPREAD_CELLS, reading.all_cells // SMALL_SHARE)
        scope = has if role == "number" else has.union(row)
        if size_of(axes, scope) > limit or (role == "row" and row_cells == reading.cells[i] > RUN_CELLS):
            gathering, copying = reading.gathering_and_copying(i, row[0]) if role == "gather" else (0.0, 0.0)
            # an input in another order is copied once if reading it cell by cell would take longer
            if copying < gathering:
                copied.append(([i], scope))
            else:
                single.append(i)
            continue
        for g, (members, union) in enumerate(groups):
            if limits[g] == (role == "number") and size_of(axes, union | scope) <= limit:
                members.append(i)
                union |= scope
                break
        else:
            groups.append(([i], set(scope)))
            limits.append(role == "number")
    return _finish(axes, row, groups + copied, single)


def _finish(
    axes: Axes, row: Group, groups: list[tuple[list[int], set[int]]], single: list[int]
) -> tuple[tuple[Merge, ...], tuple[Operand, ...]]:
    merges: list[Merge] = []
    operands: list[Operand] = []
    for members, union in groups:
        if len(members) == 1 and role_of(axes, axes.strides[members[0]], row) != "gather":
            single.append(members[0])
            continue
        merge = _merge(axes, tuple(members), sorted(union))
        strides = [0] * len(axes.sizes)
        for axis, stride in zip(sorted(union), merge.axes.out, strict=True):
            strides[axis] = stride
        operands.append(Operand(len(axes.strides) + len(merges), tuple(strides), role_of(axes, strides, row)))
        merges.append(merge)
    operands += [Operand(i, axes.strides[i], role_of(axes, axes.strides[i], row)) for i in single]
    roles = ("number", "row", "gather")
    operands.sort(key=lambda operand: roles.index(operand.role))
    return tuple(merges), tuple(operands)


def _merge(axes: Axes, members: tuple[int, ...], scope: Sequence[int]) -> Merge:
    """Join some inputs over the axes in `scope`, in the order of `axes`: the row comes last."""
    sizes = [axes.sizes[axis] for axis in scope]
    strides = [tuple([axes.strides[i][axis] for axis in scope]) for i in members]
    out = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return Merge(members, Axes(tuple(sizes), tuple(strides), tuple(out)))
