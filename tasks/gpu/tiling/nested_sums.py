"""Which axes of a step are eliminated before its other inputs are multiplied in (the distributive law).

Pure: no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .pass_axes import axis_masks, cells_by_mask
from .streams import Axis
from .tiling_policy import TilingPolicy


@dataclass(frozen=True, slots=True)
class InnerSum:
    """A sum inside of a step.

    Attributes
    ----------
    members : tuple of int
        Inputs that it multiplies: all that have one of its eliminated axes.
    gone : tuple of int
        Axes that it eliminates.
    held : tuple of int
        Axes of its result, outermost first: those that the step eliminates come first.
    """

    members: tuple[int, ...]
    gone: tuple[int, ...]
    held: tuple[int, ...]


def inner_sums(axes: Sequence[Axis], inputs: int) -> list[InnerSum]:
    """Find sums that may save much when they are made first, each a table of its own.

    Two at most: the one that leaves fewest cells, if that is much, and that over all eliminated axes, which may be a
    product. A table counts as so many cells more, for it is written and read again.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    inputs : int
    """
    policy = TilingPolicy.current()
    masks, cells = axis_masks(axes, inputs), cells_by_mask([axis.size for axis in axes])
    most = policy.inner_sum_share * cells((1 << len(axes)) - 1)
    tables = sum([cells(mask) for mask in masks]) + cells(sum([1 << i for i, axis in enumerate(axes) if axis.out]))
    found = list[tuple[float, InnerSum]]()
    sets = _candidates([i for i, axis in enumerate(axes) if not axis.out])
    for gone in sets:
        dropped = sum([1 << i for i in gone])
        members = tuple([t for t in range(inputs) if masks[t] & dropped])
        if len(members) == inputs:
            continue
        union = _union(masks[t] for t in members)
        table = union & ~dropped
        if cells(table) * policy.inner_sum_ratio > tables:
            continue
        left = _union([table, *(masks[t] for t in range(inputs) if t not in members)])
        written = policy.inner_sum_cell * cells(table)
        price = cells(union) + cells(left) + written
        if price < most or (gone is sets[-1] and written < most):
            held = sorted(
                [i for i in range(len(axes)) if table >> i & 1], key=lambda i: (axes[i].out > 0, -axes[i].out)
            )
            found.append((price, InnerSum(members, tuple(gone), tuple(held))))
    if not found:
        return []
    best = min(found, key=lambda each: each[0])
    whole = [each for each in found if each is not best and len(each[1].gone) == len(sets[-1])]
    return [each for _, each in (best, *whole)]


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _candidates(gone: list[int]) -> list[list[int]]:
    """Sets of eliminated axes: each alone, and all."""
    return [*([i] for i in gone if len(gone) > 1), gone] if gone else []
