"""Axes of device passes: fused, grouped into joins, cut for partial sums. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, reduce
from heapq import heapify, heappop, heappush
from itertools import combinations
from operator import or_
from typing import Final

from ...steps.axes import Axes
from .streams import Axis, divisor
from .tiling_policy import TilingPolicy

FEW_INPUTS: Final = 4
MAX_INPUTS: Final = 8
"""Inputs of one pass. More than a few are joined before where that makes small tables, more than the maximum always."""


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


def cells_by_mask(sizes: Sequence[int]) -> Callable[[int], int]:
    """Return what says how many cells some axes, as a bit set, have."""

    @cache
    def cells(mask: int) -> int:
        return math.prod([size for i, size in enumerate(sizes) if mask >> i & 1])

    return cells


def partial_axes(axes: Sequence[Axis], inputs: int) -> tuple[dict[int, int], bool]:
    """Choose eliminated axes to keep in partial sums: axis → cells of it, and whether they come last.

    They are wanted where the output has too few cells for all threads, or where the largest input is
    contiguous along eliminated cells only. Whole axes or exact parts, those with the smallest strides first:
    neighbouring threads then read neighbouring cells.
    """
    policy = TilingPolicy.current()
    depth = math.prod(a.size for a in axes if not a.out)
    cells = math.prod(a.size for a in axes if a.out)
    largest = max(range(inputs), key=lambda t: join_cells(axes, (t,)))
    inner = min(
        (i for i, a in enumerate(axes) if a.strides[largest]), key=lambda i: axes[i].strides[largest], default=-1
    )
    along = inner >= 0 and not axes[inner].out and axes[inner].size > policy.short_sum_states
    if depth <= policy.short_sum_states or (
        cells * 4 >= policy.parallel_cells and not (along and depth >= 8 * policy.row_cells)
    ):
        return {}, False
    wanted = min(depth // 8, max(policy.parallel_cells // cells, policy.row_cells if along else 1))
    return _kept_cells(axes, largest, wanted), along or cells < policy.row_cells


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

    ``sums_last``: those of a cell are together, not the cells of a sum.
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
    """Put tables into so few groups that one pass takes their joins, with few cells written for these.

    Either the pair whose join has the fewest cells more than the joins that it replaces comes first, or the smallest
    group joins the one that it enlarges least: the former is better where tables have few axes in common.
    """
    policy = TilingPolicy.current()
    masks, cells = axis_masks(axes, tables), cells_by_mask([axis.size for axis in axes])
    free = max(policy.join_cells, max(map(cells, masks)) >> policy.free_join_log2)

    def enough(groups: int, union: int) -> bool:
        return groups <= FEW_INPUTS or (groups <= MAX_INPUTS and union > free)

    def written(groups: Sequence[_Group]) -> int:
        return sum([cells(mask) for mask, members in groups if len(members) > 1])

    groups = [(mask, [t]) for t, mask in enumerate(masks)]
    best = min((_pairs_joined(groups, cells, enough), _smallest_joined(groups, cells, enough)), key=written)
    return [members for _, members in best]


_Group = tuple[int, list[int]]
"""Axes of a join, and its tables."""


def _pairs_joined(
    groups: Sequence[_Group], cells: Callable[[int], int], enough: Callable[[int, int], bool]
) -> list[_Group]:
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
    groups: Sequence[_Group], cells: Callable[[int], int], enough: Callable[[int, int], bool]
) -> list[_Group]:
    """Join the smallest group with the one that it enlarges least, until the groups are ``enough``."""
    left = sorted(groups, key=lambda g: cells(g[0]))
    while len(left) > 1:
        mask, members = left[0]
        partner = min(left[1:], key=lambda g: (cells(g[0] | mask) // cells(g[0]), cells(g[0])))
        if enough(len(left), cells(partner[0] | mask)):
            break
        del left[0]
        left.remove(partner)
        left.append((partner[0] | mask, sorted([*partner[1], *members])))
        left.sort(key=lambda g: cells(g[0]))
    return left


def small_groups(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Put the members of a large join into groups whose joins are small beside it, by their strides along some axes."""
    policy = TilingPolicy.current()
    masks, cells = [sum(1 << i for i, stride in enumerate(own) if stride) for own in strides], cells_by_mask(sizes)
    whole = cells(reduce(or_, masks))
    groups = sorted(((mask, [t]) for t, mask in enumerate(masks)), key=lambda g: cells(g[0]))
    if len(masks) <= FEW_INPUTS or whole <= policy.flat_join_cells:
        return [members for _, members in groups]
    found: list[list[int]] = []
    while groups:
        mask, members = groups.pop(0)
        partner = min(groups, key=lambda g: (cells(g[0] | mask), -cells(g[0])), default=None)
        if partner is None or cells(partner[0] | mask) * policy.small_join_ratio > whole:
            found.append(members)
            continue
        groups.remove(partner)
        groups.append((partner[0] | mask, sorted([*partner[1], *members])))
        groups.sort(key=lambda g: cells(g[0]))
    return found


def output_order(axes: Sequence[Axis]) -> list[int]:
    """Order axes, outermost first, so that vectors of the output are vectors of a table: what is eliminated first."""
    return sorted(range(len(axes)), key=lambda i: (axes[i].out != 0, -axes[i].out))
