"""Which axes of a step are eliminated before its other inputs are multiplied in (the distributive law).

Pure: no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ...steps.light_dataclass import dataclass
from .pass_axes import axis_masks, cells_by_mask
from .streams import Axis
from .tiling_policy import TilingPolicy

# The work of writing and reading such a table for each of its cells, in cells of a step.
_INNER_SUM_CELL: Final = 16.0


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
        Axes of the result of the inner sum, outermost first: the axes that the step eliminates come first.
    """

    members: tuple[int, ...]
    gone: tuple[int, ...]
    held: tuple[int, ...]


def inner_sums(axes: Sequence[Axis], inputs: int) -> list[InnerSum]:
    """Find sums that may be made first, each a table of its own.

    At most three: the sum that leaves the fewest cells; the best sum over a single axis; and the sum over all
    eliminated axes. Also a sum that leaves no fewer cells than the step may pay, because it may be a product. A table
    counts as additional cells, because it is written and read again.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    inputs : int
    """
    policy = TilingPolicy.current()
    masks, cells = axis_masks(axes, inputs), cells_by_mask([axis.size for axis in axes])
    tables = sum([cells(mask) for mask in masks]) + cells(sum([1 << i for i, axis in enumerate(axes) if axis.out]))

    def priced(gone: frozenset[int]) -> tuple[float, int]:
        """Cells of the sum over some axes, of its table and of the remaining step; axes of the table."""
        dropped = sum([1 << i for i in gone])
        union = _union([mask for mask in masks if mask & dropped])
        table = union & ~dropped
        left = _union([table, *(mask for mask in masks if not mask & dropped)])
        return cells(union) + cells(left) + _INNER_SUM_CELL * cells(table), table

    whole = frozenset([i for i, axis in enumerate(axes) if not axis.out])
    found = list[tuple[float, InnerSum]]()
    for gone in _candidates(whole, lambda some: priced(some)[0]):
        dropped = sum([1 << i for i in gone])
        members = tuple([t for t in range(inputs) if masks[t] & dropped])
        price, table = priced(gone)
        # a sum over all inputs is the step itself, and a large table costs more than it saves
        if len(members) == inputs or cells(table) * policy.inner_sum_ratio > tables:
            continue
        held = sorted([i for i in range(len(axes)) if table >> i & 1], key=lambda i: (axes[i].out > 0, -axes[i].out))
        found.append((price, InnerSum(members, tuple(sorted(gone)), tuple(held))))
    if not found:
        return []
    found.sort(key=lambda each: each[0])
    sums = [each for _, each in found]
    single = [each for each in sums if len(each.gone) == 1][:1]
    every = [each for each in sums if len(each.gone) == len(whole)]
    return list(dict.fromkeys([sums[0], *single, *every]))


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _candidates(gone: frozenset[int], price: Callable[[frozenset[int]], float]) -> list[frozenset[int]]:
    """Sets of eliminated axes: each axis alone, then extended by the axis that lowers the price most, and all axes."""
    found = dict[frozenset[int], None]()
    for axis in sorted(gone):
        some, rated = frozenset([axis]), price(frozenset([axis]))
        while some not in found:
            found[some] = None
            more = min(((price(some | {other}), other) for other in gone - some), default=None)
            if more is None or more[0] >= rated:
                break
            rated, some = more[0], some | {more[1]}
    return list(found | {gone: None}) if gone else []
