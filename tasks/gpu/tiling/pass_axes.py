"""Axes of device passes: fused, grouped into joins, cut for partial sums. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from heapq import heapify, heappop, heappush
from itertools import combinations
from operator import or_
from typing import Final

from ...steps.axes import Axes, Sizes
from ...steps.row_order import SMALL_SHARE
from .streams import Axis, divisor
from .tiling_policy import NOMINAL, TilingPolicy

# Joins before a step have at most this many cells, or at most this share of the cells of its largest input.
_JOIN_CELLS: Final = 1 << 22
# An output with fewer cells is computed in partial sums: the largest power of two of threads that a device holds.
_PARALLEL_CELLS: Final = 1 << (NOMINAL.processors * NOMINAL.resident_threads).bit_length() - 1
# A join of some members costs nothing beside the join of all where it is this many times smaller.
_SMALL_JOIN_RATIO: Final = 8
# Sums over fewer states are not cut into partial sums.
_SHORT_SUM_STATES: Final = 32
# Cells that a warp reads side by side; outputs of fewer cells are added up along rows.
_ROW_CELLS: Final = NOMINAL.warp

FEW_INPUTS: Final = 4
MAX_INPUTS: Final = 8
"""Inputs of one pass. More than a few are joined before where that makes small tables, more than the maximum always."""


Group = tuple[int, list[int]]
"""Axes of a join, as a bit set, and its tables."""

Partner = Callable[[Group, Sequence[Group]], Group | None]


def as_axes(axes: Axes) -> list[Axis]:
    """Turn a step's axes into one value each."""
    columns = zip(*axes.strides, strict=True) if axes.sizes else ()
    return [Axis(n, tuple(s), out) for n, s, out in zip(axes.sizes, columns, axes.out, strict=True)]


def fused(axes: Iterable[Axis]) -> list[Axis]:
    """Merge neighbours that follow each other in every table, without a limit on their size."""
    result: list[Axis] = []
    for axis in axes:
        last = result[-1] if result else None
        if (
            last is not None
            and (last.out == 0) == (axis.out == 0)
            and last.out == axis.size * axis.out
            and all(a == axis.size * b for a, b in zip(last.strides, axis.strides, strict=True))
        ):
            result[-1] = Axis(last.size * axis.size, axis.strides, axis.out)
        else:
            result.append(axis)
    return result


def row_major(axes: Sequence[Axis]) -> list[int]:
    """Return the strides of a C-ordered table over some axes."""
    strides, cells = [], 1
    for axis in reversed(axes):
        strides.append(cells)
        cells *= axis.size
    return strides[::-1]


def ordered(axes: Sequence[Axis], key: int) -> tuple[Axis, ...]:
    """Order a group of axes as a factor (0, 1) or the output (2) has them, and fuse them.

    Batches, rows and depth go as the left factor has them, so that neighbouring threads and blocks read
    neighbouring cells; columns as the output, which is written along them.
    """
    return tuple(fused(sorted(axes, key=lambda a: -(*a.strides, a.out)[key])))


def join_cells(axes: Sequence[Axis], tables: Iterable[int]) -> int:
    """Return the cells of the join of some tables."""
    tables = tuple(tables)
    return math.prod(a.size for a in axes if any(a.strides[t] for t in tables))


def axis_masks(axes: Sequence[Axis], tables: int) -> list[int]:
    """Return the axes of each table as a bit set."""
    return [sum([1 << i for i, axis in enumerate(axes) if axis.strides[t]]) for t in range(tables)]


def partial_axes(axes: Sequence[Axis], inputs: int) -> tuple[dict[int, int], bool]:
    """Choose eliminated axes to keep in partial sums: axis → cells of it, and whether they come last.

    They are wanted where the output has too few cells for all threads, or where the largest input is
    contiguous along eliminated cells only. Whole axes or exact parts, those with the smallest strides first:
    neighbouring threads then read neighbouring cells.
    """
    depth = math.prod(a.size for a in axes if not a.out)
    cells = math.prod(a.size for a in axes if a.out)
    largest = max(range(inputs), key=lambda t: join_cells(axes, (t,)))
    inner = min(
        (i for i, a in enumerate(axes) if a.strides[largest]), key=lambda i: axes[i].strides[largest], default=-1
    )
    along = inner >= 0 and not axes[inner].out and axes[inner].size > _SHORT_SUM_STATES
    if depth <= _SHORT_SUM_STATES or (cells * 4 >= _PARALLEL_CELLS and not (along and depth >= 8 * _ROW_CELLS)):
        return {}, False
    wanted = min(depth // 8, max(_PARALLEL_CELLS // cells, _ROW_CELLS if along else 1))
    return _kept_cells(axes, largest, wanted), along or cells < _ROW_CELLS


def partial_sums(axes: Sequence[Axis], inputs: int, wanted: int) -> dict[int, int]:
    """Choose eliminated axes to keep in up to ``wanted`` partial sums: axis → cells of it."""
    return _kept_cells(axes, max(range(inputs), key=lambda t: join_cells(axes, (t,))), wanted)


def _kept_cells(axes: Sequence[Axis], largest: int, wanted: int) -> dict[int, int]:
    """Take whole eliminated axes or exact parts, those first along which the largest input is contiguous."""
    parts: dict[int, int] = {}
    for i in sorted((i for i, a in enumerate(axes) if not a.out), key=lambda i: axes[i].strides[largest] or 1 << 62):
        if wanted <= 1:
            break
        part = divisor(axes[i].size, wanted)
        if part > 1:
            parts[i] = part
            wanted //= part
        if part < axes[i].size:
            break
    return parts


def in_partial_sums(axes: Sequence[Axis], parts: dict[int, int], sums_last: bool) -> tuple[list[Axis], int]:
    """Keep parts of eliminated axes in partial sums; return all axes, with the sums' places, and sums of each cell.

    ``sums_last``: the partial sums of one cell are contiguous, instead of the cells of one partial sum.
    """
    axes, summed = split_axes(axes, parts)
    sums, kept = math.prod([axes[i].size for i in summed]), math.prod([axis.size for axis in axes if axis.out])
    places = dict(zip(summed, row_major([axes[i] for i in summed]), strict=True))
    apart, scale = (1, sums) if sums_last else (kept, 1)
    outs = [places[i] * apart if i in places else axis.out * scale for i, axis in enumerate(axes)]
    return [replace(axis, out=out) for axis, out in zip(axes, outs, strict=True)], sums


def split_axes(axes: Sequence[Axis], parts: dict[int, int]) -> tuple[list[Axis], list[int]]:
    """Cut the given axes in two; return all axes and the numbers of the inner parts."""
    result: list[Axis] = []
    chosen: list[int] = []
    for i, axis in enumerate(axes):
        part = parts.get(i, 0)
        if not part:
            result.append(axis)
            continue
        if part < axis.size:
            result.append(Axis(axis.size // part, tuple(s * part for s in axis.strides), axis.out * part))
        chosen.append(len(result))
        result.append(replace(axis, size=part))
    return result, chosen


def join_groups(axes: Sequence[Axis], tables: int) -> list[list[int]]:
    """Put tables into groups, few enough that one pass takes their joins, with few cells written for the joins.

    Either the pair is joined first whose join adds the fewest cells to the joins that it replaces, or the smallest
    group joins the group that it enlarges least. The former is better if tables have few axes in common.
    """
    masks, cells = axis_masks(axes, tables), Sizes([axis.size for axis in axes]).__getitem__
    free = max(_JOIN_CELLS, max(map(cells, masks)) // SMALL_SHARE)

    def enough(groups: int, union: int) -> bool:
        return groups <= FEW_INPUTS or (groups <= MAX_INPUTS and union > free)

    def written(groups: Sequence[Group]) -> int:
        return sum([cells(mask) for mask, members in groups if len(members) > 1])

    groups = [(mask, [t]) for t, mask in enumerate(masks)]
    best = min((_pairs_joined(groups, cells, enough), _smallest_joined(groups, cells, enough)), key=written)
    return [members for _, members in best]


def _pairs_joined(
    groups: Sequence[Group], cells: Callable[[int], int], enough: Callable[[int, int], bool]
) -> list[Group]:
    """Join the pair that adds fewest cells, until the groups are ``enough``, given the cells of the next join."""
    left = dict(enumerate(groups))

    def merger(one: int, other: int) -> tuple[int, int, int, int]:
        union = cells(left[one][0] | left[other][0])
        return union - sum([cells(left[g][0]) for g in (one, other) if len(left[g][1]) > 1]), union, one, other

    pairs = [merger(one, other) for one, other in combinations(left, 2)]
    heapify(pairs)
    while len(left) > 1:
        _, union, one, other = heappop(pairs)
        if one not in left or other not in left:
            continue
        if enough(len(left), union):
            break
        number = max(left) + 1
        (mask, members), (more, others) = left.pop(one), left.pop(other)
        left[number] = (mask | more, sorted([*members, *others]))
        for each in left:
            if each != number:
                heappush(pairs, merger(each, number))
    return list(left.values())


def _smallest_joined(
    groups: Sequence[Group], cells: Callable[[int], int], enough: Callable[[int, int], bool]
) -> list[Group]:
    """Join the smallest group with the group that it enlarges least, until the groups are ``enough``."""

    def partner(smallest: Group, others: Sequence[Group]) -> Group | None:
        mask = smallest[0]
        found = min(others, key=lambda g: (cells(g[0] | mask) // cells(g[0]), cells(g[0])))
        return None if enough(1 + len(others), cells(found[0] | mask)) else found

    return merge_smallest(groups, cells, partner)


def merge_smallest(
    groups: Iterable[Group], cells: Callable[[int], int], partner_of: Partner, *, sets_aside: bool = False
) -> list[Group]:
    """Join the smallest group with its partner, and again, while there is one.

    Parameters
    ----------
    groups : iterable of Group
    cells : callable
        Cells of a table with some axes, as a bit set.
    partner_of : callable
        Chooses the partner of the smallest group among the others, which are sorted by their cells; or none.
    sets_aside : bool
        Where the smallest group has no partner, leave it as it is and go on with the next one.

    Returns
    -------
    list of Group
        The groups, smallest first; where some were set aside these come first.
    """
    left, aside = sorted(groups, key=lambda g: cells(g[0])), list[Group]()
    while len(left) > 1:
        smallest, *others = left
        partner = partner_of(smallest, others)
        if partner is None:
            if not sets_aside:
                break
            aside.append(smallest)
            left = others
            continue
        left = [group for group in others if group is not partner]
        left.append((smallest[0] | partner[0], sorted([*partner[1], *smallest[1]])))
        left.sort(key=lambda g: cells(g[0]))
    return [*aside, *left]


def small_groups(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Put the members of a large join into groups whose joins are small beside it, by their strides along some axes."""
    policy = TilingPolicy.current()
    masks, cells = [sum(1 << i for i, stride in enumerate(own) if stride) for own in strides], Sizes(sizes).__getitem__
    whole = cells(reduce(or_, masks))
    groups = [(mask, [t]) for t, mask in enumerate(masks)]
    if len(masks) <= FEW_INPUTS or whole <= policy.flat_join_cells:
        return [members for _, members in sorted(groups, key=lambda g: cells(g[0]))]

    def partner(smallest: Group, others: Sequence[Group]) -> Group | None:
        found = min(others, key=lambda g: (cells(g[0] | smallest[0]), -cells(g[0])))
        return None if cells(found[0] | smallest[0]) * _SMALL_JOIN_RATIO > whole else found

    return [members for _, members in merge_smallest(groups, cells, partner, sets_aside=True)]


def output_order(axes: Sequence[Axis]) -> list[int]:
    """Order axes, outermost first, so that vectors of the output are vectors of a table: eliminated axes come first."""
    return sorted(range(len(axes)), key=lambda i: (axes[i].out != 0, -axes[i].out))
