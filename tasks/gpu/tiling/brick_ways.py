"""Ways to cut a step of many inputs into bricks after joining groups of inputs, by price. Pure: no values.

The reads of a brick depend on the tables that are joined before it, and the best joins depend on the brick. Therefore
bricks are found for some groups, then groups for these bricks, then bricks for these groups again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from ...steps.light_dataclass import dataclass
from .brick_cells import BrickShape
from .brick_joins import brick_groups, brick_order
from .brick_layout import Brick, kind, lay_out, with_partial
from .brick_shapes import brick_shapes
from .buckets import joint
from .pass_axes import MAX_INPUTS, join_cells, join_groups, output_order
from .pass_prices import brick_seconds, ragged, resident
from .streams import Axis
from .tiling_policy import BRICK_JOIN_LOADS, LAUNCH_SECONDS

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
