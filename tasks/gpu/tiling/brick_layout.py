"""Where the slices of a brick lie in shared memory, and in which order they are copied there. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...steps.light_dataclass import dataclass
from .brick_cells import MAX_STATES, MAX_THREADS, SHARED_BYTES, BrickAxis, BrickShape, Parts, count, lanes
from .streams import VECTOR_BYTES, Axis, divisor
from .tiling_policy import NOMINAL, TilingPolicy

# Bytes that are copied into shared memory at once from which a vector of neighbours is not stored one by one.
BRICK_WORD_BYTES: Final = 4
# Bricks of a launch, about, below which the elimination is cut into partial sums.
_BRICK_LEAST_BLOCKS: Final = 2 * NOMINAL.processors
# Most bricks that a block takes one after another.
_BRICK_RUN_BRICKS: Final = 16

MAX_OUTER: Final = 19
MAX_PLACES: Final = 16
MAX_COPIES: Final = 16
MAX_FAR: Final = 256
"""Axes between bricks, within a brick and of a copy, and items of a table of copies; as in ``cuda/brick.cu``."""

TABLES_BYTES: Final = 10 << 10
"""Shared memory of a block of bricks in addition to its slices, including the device's reserve."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One axis of a copy into shared memory: items, their distance in the table and in shared memory, in cells."""

    size: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class BrickSlice:
    """A brick's part of one input.

    Attributes
    ----------
    rows, columns, inner
        Whether it differs by a thread's rows, by its columns, and by the inner eliminated states.
    start, cells
        Where it begins in shared memory, and its cells there with gaps.
    row
        Distance of the rows.
    places
        Distance along every axis of threads, of inner and of outer states; 0 where it is the same.
    unit
        Cells that are read at once, neighbours in the table.
    spread
        Distance of these in shared memory if each is stored separately; 0 if they are copied together.
    near, far
        Axes of the copy, fastest first: items of all threads together, and how often.
    """

    rows: bool
    columns: bool
    inner: bool
    start: int
    cells: int
    row: int
    places: tuple[int, ...]
    unit: int
    spread: int
    near: tuple[Copy, ...]
    far: tuple[Copy, ...]

    @property
    def far_items(self) -> int:
        """How often all threads copy."""
        return math.prod([copy.size for copy in self.far])

    @property
    def reach(self) -> int:
        """Distance in the table of its last item from the first."""
        return sum([(copy.size - 1) * copy.source for copy in self.near + self.far])


@dataclass(frozen=True, slots=True)
class Brick:
    """A launch that computes bricks.

    Attributes
    ----------
    rows, columns, threads
        Cells of a thread, and threads of a block.
    places
        Sizes of the axes of threads, of inner and of outer states.
    ends
        Number of the first axis of places after threads, and after inner states.
    out_places, out_rows, out_columns
        Distance in the output along the axes of threads, of every row, and of every column.
    vectors
        Whether the columns of a row are one aligned vector of the output.
    slices
        One for each input.
    bricks, stages
        Axes of whole bricks: of the output, and eliminated.
    run
        Bricks that a block takes one after another; it shares the runs with other blocks.
    blocks
        Blocks of threads that share all bricks.
    ahead
        Whether the next slices are copied while these are computed from.
    """

    rows: int
    columns: int
    threads: int
    places: tuple[int, ...]
    ends: tuple[int, int]
    out_places: tuple[int, ...]
    out_rows: tuple[int, ...]
    out_columns: tuple[int, ...]
    vectors: bool
    slices: tuple[BrickSlice, ...]
    bricks: tuple[Axis, ...]
    stages: tuple[Axis, ...]
    run: int
    blocks: int
    ahead: bool = False

    @property
    def shared_cells(self) -> int:
        """Cells of all slices."""
        return sum(piece.cells for piece in self.slices)

    @property
    def states(self) -> tuple[int, int]:
        """Inner and outer eliminated states of a brick."""
        threads, inner = self.ends
        return math.prod(self.places[threads:inner]), math.prod(self.places[inner:])


def with_partial(axes: Sequence[Axis], shape: BrickShape, out_cells: int) -> tuple[list[Axis], int]:
    """Keep some eliminated cells in partial sums where bricks are too few; return the axes and copies of the output.

    Kept parts become additional axes at the end.
    """
    taken = taken_cells(axes, shape)
    bricks = math.prod([a.size // n for a, n in zip(axes, taken, strict=True) if a.out])
    result, copies = list(axes), 1
    for i, axis in enumerate(axes):
        wanted, left = -(-_BRICK_LEAST_BLOCKS // (bricks * copies)), axis.size // taken[i]
        part = 1 if axis.out else divisor(left, wanted)
        if part > 1:
            inside = axis.size // part
            result[i] = replace(axis, size=inside)
            result.append(Axis(part, tuple(s * inside for s in axis.strides), out_cells * copies))
            copies *= part
    return result, copies


def kind(axes: Sequence[Axis], shape: BrickShape, t: int) -> tuple[bool, bool, bool]:
    """Whether an input differs by rows, by columns and by inner states."""

    def holds(parts: Parts) -> bool:
        return any(axes[part.axis].strides[t] for part in parts)

    return holds(shape.rows), holds(shape.columns), count(shape.inner) == 1 or holds(shape.inner)


def lay_out(axes: Sequence[Axis], shape: BrickShape, itemsize: int, *, along_output: bool = False) -> Brick | None:
    """Lay out a brick: slices in shared memory, their copies, and the order of bricks.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    shape : BrickShape
        The role of each axis of a brick.
    itemsize : int
        Bytes of a cell.
    along_output : bool
        Whether bricks that are neighbours in the output must follow each other, at any other cost.

    Returns
    -------
    Brick or None
        None where the kernel, or its shared memory, has no place for it.
    """
    taken = taken_cells(axes, shape)
    outer = [
        Axis(a.size // n, tuple(s * n for s in a.strides), a.out * n)
        for a, n in zip(axes, taken, strict=True)
        if n < a.size
    ]
    stages = tuple(a for a in outer if not a.out)
    places = shape.threads + shape.inner + shape.outer
    threads = count(shape.threads)
    slices, start = [], 0
    for t in range(len(axes[0].strides)):
        piece = _slice(axes, shape, outer, t, start, itemsize)
        slices.append(piece)
        start += piece.cells
    bricks, run = _in_order([a for a in outer if a.out], [piece.cells for piece in slices], along_output)
    far = sum(piece.far_items for piece in slices)
    copies = max(len(piece.near) + len(piece.far) for piece in slices)
    if threads < NOMINAL.warp or start * itemsize > SHARED_BYTES or far > MAX_FAR or copies > MAX_COPIES:
        return None
    if len(outer) > MAX_OUTER or len(places) > MAX_PLACES or max(count(shape.inner), count(shape.outer)) > MAX_STATES:
        return None
    rows, columns = (_places(axes, parts) for parts in (shape.rows, shape.columns))
    # vector stores need every thread at a multiple of the vector
    steps = [a.out for a in outer if a.out] + [axes[p.axis].out * p.unit for p in (*shape.threads, *shape.rows)]
    together = len(columns) == lanes(len(columns)) and columns == [*range(len(columns))]
    return Brick(
        rows=len(rows),
        columns=len(columns),
        threads=threads,
        places=tuple([part.size for part in places]),
        ends=(len(shape.threads), len(shape.threads) + len(shape.inner)),
        out_places=tuple([axes[part.axis].out * part.unit for part in shape.threads]),
        out_rows=tuple(rows),
        out_columns=tuple(columns),
        vectors=together and all(step % len(columns) == 0 for step in steps),
        slices=tuple(slices),
        bricks=bricks,
        stages=stages,
        run=run,
        blocks=min(math.prod([a.size for a in bricks]) // run, TilingPolicy.current().brick_most_blocks),
    )


def residents(brick: Brick, itemsize: int) -> int:
    """Return for how many blocks of `MAX_THREADS` on a multiprocessor a thread's registers are limited.

    Three where 80 registers hold the sums and what each input needs.
    """
    held = 1 if all(s.inner for s in brick.slices) else 2
    sums = brick.rows * lanes(brick.columns) * itemsize // 4 * held
    return 3 if sums + 6 * len(brick.slices) <= 60 else 2


def held_blocks(brick: Brick, itemsize: int, copies: int = 1) -> int:
    """Return how many blocks a multiprocessor holds at a time, with ``copies`` copies of each block's slices."""
    warps = -(-brick.threads // NOMINAL.warp)
    registers = residents(brick, itemsize) * (MAX_THREADS // NOMINAL.warp) // warps
    room = copies * brick.shared_cells * itemsize + TABLES_BYTES
    return max(1, min(registers, NOMINAL.processor_shared_bytes // room))


def _places(axes: Sequence[Axis], parts: Parts) -> list[int]:
    """Return the positions of the cells of some parts in the output; cells of the first part are contiguous."""
    places = [0]
    for part in parts:
        step = axes[part.axis].out * part.unit
        places = [at + i * step for i in range(part.size) for at in places]
    return places


def _in_order(outer: Sequence[Axis], cells: Sequence[int], along_output: bool) -> tuple[tuple[Axis, ...], int]:
    """Order the axes of bricks, slowest first; return them, and how many bricks a block takes one after another.

    Axes that large input slices lack vary fastest. A brick then finds in shared memory the slices that the brick before
    it read, and concurrent blocks find them in the device's cache. With ``along_output``, the axis with the least
    stride in the output is the fastest.
    """

    policy = TilingPolicy.current()

    def same(axis: Axis) -> int:
        return sum([n for stride, n in zip(axis.strides, cells, strict=True) if not stride])

    first = min([axis.out for axis in outer], default=0) if along_output else 0
    bricks = tuple(sorted(outer, key=lambda a: (a.out == first, same(a), -a.out)))
    count = math.prod([a.size for a in bricks])
    run, lacking = 1, set(range(len(cells)))
    for axis in reversed(bricks):
        lacking &= {t for t, stride in enumerate(axis.strides) if not stride}
        part = divisor(axis.size, max(1, min(_BRICK_RUN_BRICKS // run, count // (run * policy.brick_most_blocks))))
        if not lacking or part <= 1:
            break
        run *= part
        if part < axis.size:
            break
    return bricks, run


def taken_cells(axes: Sequence[Axis], shape: BrickShape) -> list[int]:
    """Cells of each axis in a brick."""
    cells = [1] * len(axes)
    for part in shape.parts:
        cells[part.axis] *= part.size
    return cells


def _slice(
    axes: Sequence[Axis], shape: BrickShape, outer: Sequence[Axis], t: int, start: int, itemsize: int
) -> BrickSlice:
    """Lay out the slice of one input in shared memory: the columns of a thread together, then neighboring threads.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    shape : BrickShape
    outer : sequence of Axis
        The axes between bricks.
    t : int
        Number of the input.
    start : int
        First cell of the slice in shared memory.
    itemsize : int
        Bytes of a cell.
    """
    rows, columns, inner = kind(axes, shape, t)
    first = (shape.columns if columns else ()) + (shape.rows if rows and not columns else ())
    last = shape.rows if rows and columns else ()
    copies, distance, cells = list[Copy](), dict[BrickAxis, int](), 1
    for part in (*first, *shape.threads, *shape.inner, *shape.outer, *last):
        stride = axes[part.axis].strides[t] * part.unit
        if not stride and part not in first and part not in last:
            continue
        distance[part] = cells
        copies.append(Copy(part.size, stride, cells))
        cells *= part.size
        if columns and cells == count(shape.columns) and part == shape.columns[-1]:
            cells = lanes(cells)
        # a stride of whole bank rows would let all threads hit one bank
        if cells * itemsize % NOMINAL.bank_row_bytes == 0 and part not in last:
            cells += VECTOR_BYTES // itemsize
    cells += -cells % (VECTOR_BYTES // itemsize)
    unit, spread, copies = _units(copies, [a.strides[t] for a in outer], itemsize)
    near, far = _near_and_far(copies, count(shape.threads))
    places = shape.threads + shape.inner + shape.outer
    return BrickSlice(
        rows=rows,
        columns=columns,
        inner=inner,
        start=start,
        cells=cells,
        row=distance[last[0]] if last else 0,
        places=tuple([distance.get(part, 0) for part in places]),
        unit=unit,
        spread=spread,
        near=near,
        far=far,
    )


def _units(copies: Sequence[Copy], outer: Sequence[int], itemsize: int) -> tuple[int, int, list[Copy]]:
    """Fuse the axes of a copy in the table's order, and read as many cells at once as are together there, aligned.

    Returns these, their distance in shared memory, and the axes of the items. Where they would not be together there,
    each is stored alone: that is worth it for cells that are no word, which nothing copies but loads and stores.
    """
    fused: list[Copy] = []
    for copy in sorted(copies, key=lambda c: (c.source == 0, c.source, c.target)):
        last = fused[-1] if fused else None
        if last and copy.source == last.size * last.source and copy.target == last.size * last.target:
            fused[-1] = Copy(last.size * copy.size, last.source, last.target)
        else:
            fused.append(copy)
    if not fused or fused[0].source != 1:
        return 1, 0, fused
    first, *others = fused
    aligned = math.gcd(VECTOR_BYTES // itemsize, *outer, *[c.source for c in others], first.size)
    together = math.gcd(aligned, *[c.target for c in others]) if first.target == 1 else 1
    spread = together < aligned and together * itemsize < BRICK_WORD_BYTES
    unit = aligned if spread else together
    rest = [Copy(first.size // unit, unit, unit * first.target)] if first.size > unit else []
    return unit, first.target if spread else 0, [*rest, *others]


def _near_and_far(copies: Sequence[Copy], threads: int) -> tuple[tuple[Copy, ...], tuple[Copy, ...]]:
    """Share out a copy: as many items to the threads as there are threads, the first axes first."""
    near: list[Copy] = []
    far: list[Copy] = []
    room = threads
    for copy in copies:
        part = divisor(copy.size, room)
        if part > 1:
            near.append(Copy(part, copy.source, copy.target))
            room //= part
        if part < copy.size:
            far.append(Copy(copy.size // part, copy.source * part, copy.target * part))
    return tuple(near), tuple(far)
