"""Which inputs of a step are joined, or copied into another order, before its bricks read them. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import combinations
from typing import Final

from .brick_cells import BrickShape, Parts, count
from .brick_layout import taken_cells
from .device_limits import NOMINAL
from .pass_axes import Group, axis_masks, cells_by_mask, join_cells, merge_smallest
from .streams import Axis

# Inputs whose join has more cells are not joined before bricks read them.
_BRICK_JOIN_MOST_CELLS: Final = 1 << 28
# Work of a cell of a slice, in loads from shared memory.
_BRICK_COPY_LOADS: Final = 4.0
# An input is copied into another order first where bricks then read at least this many cells less for each cell
# copied.
_BRICK_REORDER_SAVED_READS: Final = 16.0
# The number of reads that pays for the launch of a reordered copy.
_BRICK_REORDER_LAUNCH_READS: Final = 1 << 25
# A reordered copy has at most one cell for this many cells of the other tables of the step.
_BRICK_REORDER_RATIO: Final = 16


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
    return cells * _BRICK_REORDER_RATIO <= others + written


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
    masks, price, cells_of = axis_masks(axes, len(axes[0].strides)), _prices(shape), cells_by_mask(sizes)
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
