"""Tiles of a bucket launch: the cells that a block of threads joins in shared memory and sums up. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ...steps.axes import Sizes
from ...steps.light_dataclass import dataclass
from ...steps.number_limits import LARGEST_INT32
from ...steps.row_order import SMALL_SHARE
from .pass_axes import Group, axis_masks, fused, merge_smallest, row_major
from .streams import LINE_CELLS, THREADS, VECTOR_BYTES, Axis, divisor
from .tiling_policy import NOMINAL, TilingPolicy

# Most values of a vector along eliminated states.
_BUCKET_MOST_LANES: Final = 4
# Rounds of eliminated states up to which one block takes all of them, without partial sums.
_BUCKET_FEW_STEPS: Final = 4

TABLES: Final = 96
ENTRIES: Final = 288
GROUPS: Final = 8
AXES: Final = 36
"""Inputs, their strides that are not zero, shared tables, and axes; as in ``cuda/bucket.cu``."""

TURNS: Final = 64
STATES: Final = 128
"""Outputs and vectors of eliminated states that a thread takes one after another, at most; as there."""

TABLE_BYTES: Final = NOMINAL.usual_shared_bytes // 2
"""Shared memory for tables of a block: with the rest, two blocks or more on any multiprocessor."""

Axes = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket launch.

    Attributes
    ----------
    segments
        Axes of: blocks of outputs, partial sums, steps of a block; and, local: outputs of a thread and its vectors
        of eliminated states, one after another; outputs and states across threads; states of a vector. Strides in
        the output count partial sums, which come last there.
    groups
        Inputs that are joined into each shared table.
    inner
        For each shared table, its strides along the local axes.
    first, cells
        Where each shared table begins, and its cells.
    wide
        For each shared table, whether it has the states of a vector.
    deep_first
        Whether neighbouring threads take neighbouring states.
    """

    segments: tuple[Axes, ...]
    groups: tuple[tuple[int, ...], ...]
    inner: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    cells: tuple[int, ...]
    wide: tuple[bool, ...]
    deep_first: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Cells of each segment."""
        return tuple([_cells(segment) for segment in self.segments])

    @property
    def parts(self) -> int:
        """Partial sums of each output."""
        return _cells(self.segments[1])

    @property
    def share(self) -> float:
        """Values that a block reads, by the cells of its join."""
        reads = sum([len(group) * cells for group, cells in zip(self.groups, self.cells, strict=True)])
        return reads / math.prod(self.counts[3:])


def bucket_tiles(axes: Sequence[Axis], inputs: int, itemsize: int) -> Bucket | None:
    """Choose the tiles of a bucket launch; None where its kernel cannot take the step.

    Local are the axes that few inputs have, so that the shared tables are small; where an input is large, those
    along which it is contiguous.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    inputs : int
    itemsize : int
        Bytes of a cell.
    """
    policy = TilingPolicy.current()
    if not policy.uses_buckets:
        return None
    sizes = [_cells(a for a in axes if a.strides[t]) for t in range(inputs)]
    kept, gone = _cells(a for a in axes if a.out), _cells(a for a in axes if not a.out)
    if inputs > TABLES or max(sizes) > LARGEST_INT32 or kept > LARGEST_INT32:
        return None
    whole = gone <= policy.bucket_whole_states or kept * 4 >= policy.bucket_blocks
    room = min(
        policy.bucket_most_cells,
        max(policy.bucket_least_cells, kept * gone // policy.bucket_blocks, gone if whole else 1),
    )
    # a smaller room may make the shared tables fit
    while True:
        grid, local = _cut(axes, sizes, room, itemsize)
        groups = _groups([axis for part in local[:-1] for axis in part], local[-1], inputs, itemsize, room)
        if groups is not None:
            break
        room //= 2
    flat = [axis for part in (*grid, *local) for axis in part]
    turns, states = map(_cells, local[:2])
    thin = _cells(grid[0]) * _cells(grid[1]) * _cells(grid[2]) > 1 and _cells(
        axis for part in local for axis in part
    ) < min(room, policy.bucket_least_cells // 16)
    if thin or turns > TURNS or states > STATES or len(flat) > AXES:
        return None
    if sum(stride > 0 for axis in flat for stride in axis.strides) > ENTRIES:
        return None
    return _laid_out(grid, local, *groups)


def _laid_out(
    grid: tuple[Axes, ...], local: tuple[Axes, ...], groups: tuple[tuple[int, ...], ...], wide: tuple[bool, ...]
) -> Bucket:
    """Lay the shared tables out: neighbouring threads read neighbouring cells, or the same."""
    turns, states, across, along, vector = local
    deep_first = _cells(across) < LINE_CELLS <= _cells(along)
    order = (*turns, *states, *(across + along if deep_first else along + across))
    inner, sizes, first = [], [], [0]
    lanes = _cells(vector)
    for group, vectors in zip(groups, wide, strict=True):
        held = [a for a in order if any(a.strides[t] for t in group)] + [*(vector if vectors else ())]
        places = {id(a): place for a, place in zip(held, row_major(held), strict=True)}
        inner.append(tuple([places.get(id(a), 0) for part in local for a in part]))
        sizes.append(_cells(held))
        first.append(first[-1] + -(-sizes[-1] // lanes) * lanes)
    return Bucket((*grid, *local), groups, tuple(inner), tuple(first[:-1]), tuple(sizes), wide, deep_first)


def _cells(axes: Iterable[Axis]) -> int:
    return math.prod([axis.size for axis in axes])


def _cut(
    axes: Sequence[Axis], sizes: Sequence[int], room: int, itemsize: int
) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """Cut the axes into grid axes, the steps of a block, and local axes of about ``room`` cells.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    sizes : sequence of int
        Cells of each input.
    room : int
        Cells of the local axes.
    itemsize : int
        Bytes of a cell.

    Returns
    -------
    grid, local
        (blocks, parts, steps) and (turns, states, across, along, vector), each a group of axes.
    """
    policy = TilingPolicy.current()
    kept = sorted((a for a in axes if a.out), key=lambda a: a.out)
    gone = [a for a in axes if not a.out]
    whole = _cells(axes)
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    large = sizes[largest] * SMALL_SHARE >= whole
    gone.sort(key=lambda a: ((a.strides[largest] or whole) if large else 0, sum(map(bool, a.strides))))
    reserved = _contiguous(axes, largest, room) if large else 1
    deep, more = _taken(gone, room // reserved)
    vector, deep = _vector(deep, min(_BUCKET_MOST_LANES, VECTOR_BYTES // itemsize))
    room = max(1, room // _cells((*deep, *vector)))
    outputs, blocks = _taken(kept, min(room, THREADS) if more else room)
    across, turns = _taken(outputs, THREADS)
    along, states = _taken(deep, 1 if turns else THREADS // _cells(across))
    few = _cells(more) <= _BUCKET_FEW_STEPS or _cells(blocks) * 2 >= policy.bucket_blocks
    # if few blocks would leave processors idle, the sum is cut into parts, which are added later
    parts, more = _taken(more, 1 if few else 2 * policy.bucket_blocks // _cells(blocks))
    if parts:
        count = _cells(parts)
        blocks, across, turns = ([replace(a, out=a.out * count) for a in part] for part in (blocks, across, turns))
        parts = [replace(a, out=place) for a, place in zip(parts, row_major(parts), strict=True)]
    grid = (tuple(blocks[::-1]), tuple(parts), tuple(more))
    return grid, (tuple(turns[::-1]), tuple(states[::-1]), tuple(across[::-1]), tuple(along[::-1]), tuple(vector))


def _contiguous(axes: Sequence[Axis], largest: int, room: int) -> int:
    """Cells of the output along which the largest input is contiguous, up to a line of them."""
    along = min((a for a in axes if a.strides[largest]), key=lambda a: a.strides[largest], default=None)
    return min(along.size, LINE_CELLS, room) if along is not None and along.out else 1


def _taken(axes: Iterable[Axis], room: int) -> tuple[list[Axis], list[Axis]]:
    """Take axes, or exact parts of them, up to ``room`` cells; return them and what is left."""
    taken, left = [], []
    for axis in axes:
        part = divisor(axis.size, room)
        room //= part
        if part > 1:
            taken.append(replace(axis, size=part))
        if part < axis.size:
            left.append(Axis(axis.size // part, tuple([s * part for s in axis.strides]), axis.out * part))
    return taken, left


def _vector(deep: Sequence[Axis], lanes: int) -> tuple[list[Axis], list[Axis]]:
    """Take up to ``lanes`` states, a power of two, from the first axes that have them."""
    vector, left = [], []
    for axis in deep:
        part = math.gcd(axis.size, lanes)
        lanes //= part
        taken, rest = _taken([axis], part)
        vector += taken
        left += rest
    return vector, left


def _groups(
    axes: Sequence[Axis], vector: Sequence[Axis], inputs: int, itemsize: int, room: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[bool, ...]] | None:
    """Group inputs by their local axes: the smallest group joins its cheapest partner while this pays.

    Parameters
    ----------
    axes : sequence of Axis
        Local axes.
    vector : sequence of Axis
        Axes of a thread's vector.
    inputs : int
    itemsize : int
        Bytes of a cell.
    room : int
        Cells of the local axes.

    Returns
    -------
    groups, vectors or None
        Inputs of each group, and whether the group has the vector's axes: all of them or none. None if a few tables of
        ``room`` cells would not fit.
    """
    sizes = [*(a.size for a in axes), math.prod([a.size for a in vector])]
    lanes = 1 << len(axes)
    by_mask: dict[int, list[int]] = {}
    for t, mask in enumerate(axis_masks(axes, inputs)):
        by_mask.setdefault(mask | (lanes if any(axis.strides[t] for axis in vector) else 0), []).append(t)
    # a join pays if it reads few values in comparison with the cells of the launch, which then read less shared memory
    worth = math.prod(sizes) // SMALL_SHARE
    cells = Sizes(sizes).__getitem__

    def dearer(a: Group, b: Group) -> int:
        """How many more values are read to join two groups than to join each."""
        joint = cells(a[0] | b[0])
        return (joint - cells(a[0])) * len(a[1]) + (joint - cells(b[0])) * len(b[1])

    def shared(groups: Iterable[Group]) -> int:
        return sum([cells(mask) for mask, _ in groups])

    limit = TABLE_BYTES // itemsize - GROUPS * sizes[-1]
    halve = room > limit

    def partner(smallest: Group, others: Sequence[Group]) -> Group | None:
        found = min(others, key=lambda g: dearer(smallest, g))
        fits = len(others) < GROUPS and (halve or shared([smallest, *others]) <= limit)
        return None if fits and dearer(smallest, found) > worth else found

    groups = merge_smallest(by_mask.items(), cells, partner)
    if halve and shared(groups) > limit:
        return None
    return tuple([tuple(sorted(m)) for _, m in groups]), tuple([mask & lanes > 0 for mask, _ in groups])


# Joins of small tables, several in a launch. Pure: no values.

JOINS: Final = 8
JOIN_AXES: Final = 24
ALL_JOIN_AXES: Final = 96
"""Joins of a launch, axes of each and of all together; as in ``cuda/join.cu``, and `TABLES` and `ENTRIES`."""

Table = tuple[int, list[int]]
"""A table's number and its strides by axis."""


@dataclass(frozen=True, slots=True)
class BucketJoin:
    """A product of small tables over the axes of any of them, in row-major order."""

    inputs: tuple[int, ...]
    output: int
    axes: tuple[Axis, ...]


def joint(
    axes: Sequence[Axis], members: Sequence[Table], order: Sequence[int] | None = None
) -> tuple[tuple[Axis, ...], list[int]]:
    """Return the axes of a join, in an order or laid out like the first table; and its strides by axis."""
    held = [i for i in order or range(len(axes)) if any(strides[i] for _, strides in members)]
    if order is None:
        held.sort(key=lambda i: -members[0][1][i])
    places = dict(zip(held, row_major([axes[i] for i in held]), strict=True))
    ours = fused(Axis(axes[i].size, tuple([s[i] for _, s in members]), places[i]) for i in held)
    return tuple(ours), [places.get(i, 0) for i in range(len(axes))]


def one_launch(joins: Sequence[BucketJoin]) -> bool:
    """Whether one launch takes some joins."""
    axes = [len(join.axes) for join in joins]
    entries = sum(stride > 0 for join in joins for axis in join.axes for stride in axis.strides)
    tables = sum(len(join.inputs) for join in joins)
    return (
        len(joins) <= JOINS
        and max(axes) <= JOIN_AXES
        and sum(axes) <= ALL_JOIN_AXES
        and tables <= TABLES
        and entries <= ENTRIES
    )
