"""Which inputs of a step are joined, or copied into another order, before its bricks read them. Pure: no values.

The reads of a brick depend on the tables that are joined before it, and the best joins depend on the brick. Therefore
a step of many inputs is cut in several ways, which are compared by price: bricks are found for some groups of inputs,
then groups for these bricks, then bricks for these groups again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations, islice
from typing import Final

from ...steps.axes import Sizes
from ...steps.light_dataclass import dataclass
from ...steps.row_order import SMALL_SHARE
from .brick_cells import BrickShape, Parts, count
from .brick_layout import Brick, kind, lay_out, taken_cells, with_partial
from .brick_shapes import brick_shapes
from .buckets import joint
from .pass_axes import (
    MAX_INPUTS,
    Group,
    axis_masks,
    join_cells,
    join_groups,
    merge_smallest,
    output_order,
)
from .pass_prices import brick_seconds, ragged, resident
from .streams import Axis
from .tiling_policy import BRICK_JOIN_LOADS, LAUNCH_SECONDS, NOMINAL

# Inputs whose join has more cells are not joined before bricks read them.
_BRICK_JOIN_MOST_CELLS: Final = 1 << 28
# Work of a cell of a slice, in loads from shared memory.
_BRICK_COPY_LOADS: Final = 4.0
# An input is copied into another order first where bricks then read at least this many cells less for each cell
# copied.
_BRICK_REORDER_SAVED_READS: Final = 16.0
# The number of reads that pays for the launch of a reordered copy.
_BRICK_REORDER_LAUNCH_READS: Final = 1 << 25


def brick_order(axes: Sequence[Axis], shape: BrickShape) -> list[int]:
    """Order axes, outermost first, so that a table's part in a brick is together and in the order of its slice."""
    taken = taken_cells(axes, shape)
    rank: dict[int, int] = {}
    for k, part in enumerate((*shape.columns, *shape.threads, *shape.inner, *shape.outer, *shape.rows)):
        rank.setdefault(part.axis, k)
    return sorted(range(len(axes)), key=lambda i: (taken[i] == axes[i].size, taken[i] > 1, -rank.get(i, 0)))


def worth_a_copy(axes: Sequence[Axis], shape: BrickShape, t: int, itemsize: int) -> bool:
    """Whether to copy an input into the order of `brick_order` first, as bricks read whole sectors for single cells."""
    taken = taken_cells(axes, shape)
    run = part = 1
    broken = False
    for i in sorted((i for i, a in enumerate(axes) if a.strides[t]), key=lambda i: axes[i].strides[t]):
        part *= taken[i]
        run *= 1 if broken else taken[i]
        broken = broken or taken[i] < axes[i].size
    wasted = (
        part
        * (NOMINAL.sector_bytes / (itemsize * run) - 1)
        * math.prod([axis.size for axis in axes])
        / math.prod(taken)
    )
    cells = join_cells(axes, (t,))
    if wasted <= _BRICK_REORDER_LAUNCH_READS + _BRICK_REORDER_SAVED_READS * cells:
        return False
    others = sum([join_cells(axes, (u,)) for u in range(len(axes[0].strides))])
    written = math.prod([a.size for a in axes if a.out])
    return cells * SMALL_SHARE <= others + written


def brick_groups(axes: Sequence[Axis], shape: BrickShape, most: int, loads: float) -> list[list[int]] | None:
    """Put inputs into groups to be joined before, where that saves work.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    shape : BrickShape
    most : int
        Inputs that one launch takes.
    loads : float
        Work of a cell of a join, in loads from shared memory.

    Returns
    -------
    list of lists of int, or None
        Inputs of each group, the smallest join first; None if more than ``most`` would be left.
    """
    sizes = [axis.size for axis in axes]
    masks, price, cells_of = axis_masks(axes, len(axes[0].strides)), _prices(shape), Sizes(sizes).__getitem__
    of_cell = loads * count(shape.columns + shape.rows + shape.inner + shape.outer) / math.prod(sizes)

    @cache
    def saved(one: int, other: int) -> float:
        union = one | other
        cells = cells_of(union)
        return (
            -math.inf if cells > _BRICK_JOIN_MOST_CELLS else price(one) + price(other) - price(union) - cells * of_cell
        )

    def gain(one: Group, other: Group) -> float:
        return saved(one[0], other[0])

    def partner(smallest: Group, others: Sequence[Group]) -> Group | None:
        found = max(others, key=lambda g: gain(smallest, g))
        return None if gain(smallest, found) < 0 else found

    groups = merge_smallest(((mask, [t]) for t, mask in enumerate(masks)), cells_of, partner, sets_aside=True)
    # the launch takes no more inputs, so the cheapest pairs are joined even at a loss
    while len(groups) > most:
        one, other = max(combinations(groups, 2), key=lambda pair: gain(*pair))
        if gain(one, other) == -math.inf:
            return None
        groups = [group for group in groups if group is not one and group is not other]
        groups.append((one[0] | other[0], sorted([*one[1], *other[1]])))
        groups.sort(key=lambda g: cells_of(g[0]))
    return [members for _, members in groups]


@lru_cache(maxsize=16)
def _prices(shape: BrickShape) -> Callable[[int], float]:
    """Rate what an input with some axes costs a thread: its loads in all states, and its share of the copy."""

    def bits(parts: Parts) -> int:
        return sum({1 << part.axis for part in parts})

    rows, columns, inner = bits(shape.rows), bits(shape.columns), bits(shape.inner)
    held, states, outer = count(shape.rows), count(shape.inner), count(shape.outer)
    threads = count(shape.threads)

    @cache
    def price(mask: int) -> float:
        load = 2.0 * held + held if mask & rows and mask & columns else 3.0 if mask & (rows | columns) else 2.0
        times = outer * (states if mask & inner else 1)
        copied = math.prod([part.size for part in shape.parts if mask >> part.axis & 1])
        return load * times + _BRICK_COPY_LOADS * copied / threads

    return price


# Bricks that are compared for each choice of joins before them, if there are many inputs; and how often this choice
# is repeated for the best of them. Three times as many bricks win 2% and take twice as long.
_BRICK_WAY_SHAPES: Final = 2
_BRICK_WAY_ROUNDS: Final = 2
# About how many bytes per second the joins before bricks write, used to compare several ways.
_BRICK_WAY_BYTES_PER_SECOND: Final = 1.6e12

Groups = tuple[tuple[int, ...], ...]
"""Inputs that are joined before bricks read them, by the table that they become."""


@dataclass(frozen=True, slots=True)
class BrickWay:
    """A way to run a step by bricks.

    Attributes
    ----------
    seconds
        Of the bricks, and of the joins before them, about.
    shape
    groups
    """

    seconds: float
    shape: BrickShape
    groups: Groups


def brick_ways(axes: Sequence[Axis], itemsize: int, shares: Sequence[float], parts: int) -> list[BrickWay]:
    """Return ways to run a step of many inputs by bricks, the cheapest first.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    itemsize : int
        Bytes of a cell.
    shares : sequence of float
        Shares of the shared memory that large inputs may take.
    parts : int
        Axes that a brick has more than one cell of, at most.
    """
    found = dict[tuple[BrickShape, Groups], BrickWay]()

    def consider(shape: BrickShape, groups: Iterable[Iterable[int]]) -> None:
        way = shape, tuple([tuple(sorted(group)) for group in groups])
        if way not in found:
            seconds = _seconds(axes, shape, way[1], itemsize)
            found[way] = BrickWay(math.inf if seconds is None else seconds, *way)

    def consider_shapes(axes_of_tables: Sequence[Axis], groups: Groups | None) -> None:
        for shape in islice(brick_shapes(axes_of_tables, itemsize, shares, parts), _BRICK_WAY_SHAPES):
            if groups is not None:
                consider(shape, groups)
            for loads in BRICK_JOIN_LOADS:
                others = brick_groups(axes, shape, MAX_INPUTS, loads)
                if others is not None:
                    consider(shape, others)

    first = tuple([tuple(group) for group in join_groups(axes, len(axes[0].strides))])
    consider_shapes(axes, None)
    consider_shapes(joined_axes(axes, first, output_order(axes)), first)
    for _ in range(_BRICK_WAY_ROUNDS):
        best = min(found.values(), key=lambda way: way.seconds, default=None)
        if best is None or best.seconds == math.inf:
            break
        consider_shapes(joined_axes(axes, best.groups, brick_order(axes, best.shape)), best.groups)
    return sorted([way for way in found.values() if way.seconds < math.inf], key=lambda way: way.seconds)


def joined_axes(axes: Sequence[Axis], groups: Groups, order: Sequence[int]) -> list[Axis]:
    """Return the axes with the strides of the tables that groups of inputs are joined into, in an order of axes."""
    columns = []
    for group in groups:
        tables = [(t, [axis.strides[t] for axis in axes]) for t in group]
        columns.append(tables[0][1] if len(group) == 1 else joint(axes, tables, order)[1])
    strides = zip(*columns, strict=True)
    return [Axis(axis.size, column, axis.out) for axis, column in zip(axes, strides, strict=True)]


def brick_of(axes: Sequence[Axis], shape: BrickShape, itemsize: int) -> tuple[Brick, list[int]] | None:
    """Lay out a brick, its inputs by kind; return it and this order of them, or None if the kernel has no place."""
    by_kind = sorted(range(len(axes[0].strides)), key=lambda t: kind(axes, shape, t))
    ours = [replace(axis, strides=tuple([axis.strides[t] for t in by_kind])) for axis in axes]
    brick = lay_out(ours, shape, itemsize)
    if brick is None:
        return None
    if ragged(brick, itemsize):
        beside = lay_out(ours, shape, itemsize, along_output=True)
        brick = min(brick, beside or brick, key=lambda each: brick_seconds(each, itemsize))
    return resident(brick, itemsize), by_kind


def _seconds(axes: Sequence[Axis], shape: BrickShape, groups: Groups, itemsize: int) -> float | None:
    """Predict a way, about."""
    out_cells = math.prod([axis.size for axis in axes if axis.out])
    kept, copies = with_partial(axes, shape, out_cells)
    made = brick_of(joined_axes(kept, groups, brick_order(kept, shape)), shape, itemsize)
    if made is None:
        return None
    tables = [join_cells(axes, group) for group in groups if len(group) > 1]
    tables += [copies * out_cells] if copies > 1 else []
    seconds = brick_seconds(made[0], itemsize) + len(tables) * 2 * LAUNCH_SECONDS
    return seconds + sum(tables) * itemsize / _BRICK_WAY_BYTES_PER_SECOND
