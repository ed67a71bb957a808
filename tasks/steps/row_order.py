"""The row of a streaming step: the cells of its innermost loop, and the order of the axes in the loops.

The predicted time of a cell decides. A good row is long, and contiguous in most tables. Other tables are gathered, or
copied before the loops. If the largest input ends in eliminated axes, some of these axes are kept as a row that is
summed later. A small output may be computed in the order of the largest input, and reordered afterwards. Pure: no
values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from .axes import RUN_CELLS, Axes
from .light_dataclass import dataclass

Group = tuple[int, ...]

SPREAD_CELLS: Final = 65536
"""Inputs with a part of the row are spread over all of it up to this many cells."""

COPIED_CELLS: Final = 1 << 22
_COPIED_SHARE: Final = 8
"""A larger input that loops would gather again and again is copied in the order of the row.

The copy has at most this many cells, or this share of the cells of the largest input.
"""

_GATHER_NS, _COPY_NS = 1.2, 5.0
"""Nanoseconds of a cell: gathered by the loops, or copied in another order before or after them."""

SMALL_SHARE: Final = 16
"""A table with at most one in this many cells of another table costs little beside it: an output that is put in order
after the loops, or a join of small inputs before them."""

_SHORTEST_ROW: Final = 8

SUMMED_CELLS: Final = 256
"""Eliminated axes are kept as a row up to this many cells. Blocks of NumPy take this many cells of the output before
they take eliminated axes, so that reductions run over rows."""


@dataclass(frozen=True, slots=True)
class OutputTurn:
    """The reordering of a small output that the loops compute in another order.

    Attributes
    ----------
    sizes
        Sizes of the output's axes, in the order of the loops.
    order
        For each axis of the output, its place in ``sizes``.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]


def ordered(axes: Axes, largest: int) -> tuple[Axes, int, OutputTurn | None, Group | None]:
    """Choose the order of the loops that is predicted to be fastest.

    Returns
    -------
    Axes
        The axes in the order of the loops; the output's own order, unless another order is predicted to be faster.
    int
        Cells of a row that is summed after the loops.
    OutputTurn or None
        The reordering of the output after the loops.
    tuple of int or None
        The axes of the row.
    """
    kept, summed = _keep_last(axes, largest)
    cost, row = _choose_row(kept, largest)
    found: tuple[Axes, int, OutputTurn | None, Group | None] = kept, summed, None, row
    if summed > 1:
        return found
    turned, turn = _turned(axes, largest)
    for other, later in ((turned, turn), (_split_last(axes, largest), None)):
        if other is None:
            continue
        other, summed = _keep_last(other, largest)
        other_cost, row = _choose_row(other, largest)
        other_cost += _COPY_NS * size_of(axes, range(axes.eliminated, len(axes.sizes))) * summed / axes.cells
        if other_cost < cost:
            found, cost = (other, summed, later, row), other_cost
    return found


def _turned(axes: Axes, largest: int) -> tuple[Axes | None, OutputTurn | None]:
    """Put the axes of a small output in the order of the largest input, if that is another."""
    first, mine = axes.eliminated, axes.strides[largest]
    kept = range(first, len(axes.sizes))
    order = sorted(kept, key=lambda axis: -mine[axis] if mine[axis] else -math.inf)
    if order == [*kept] or size_of(axes, kept) * SMALL_SHARE > axes.cells:
        return None, None
    sizes = [axes.sizes[axis] for axis in order]
    places = [*range(first), *order]
    turned = Axes(
        sizes=tuple([axes.sizes[axis] for axis in places]),
        strides=tuple([tuple([strides[axis] for axis in places]) for strides in axes.strides]),
        out=(*axes.out[:first], *[math.prod(sizes[i + 1 :]) for i in range(len(sizes))]),
    )
    return turned, OutputTurn(tuple(sizes), tuple([order.index(axis) for axis in kept]))


def _split_last(axes: Axes, largest: int) -> Axes | None:
    """Cut the eliminated axis in which the largest input ends, where all of it is too long to be summed later."""
    mine = axes.strides[largest]
    last = min((a for a, stride in enumerate(mine) if stride), key=mine.__getitem__, default=-1)
    if not 0 <= last < axes.eliminated:
        return None
    most = min(SUMMED_CELLS, axes.cells // (SMALL_SHARE * size_of(axes, range(axes.eliminated, len(axes.sizes)))))
    part = max((n for n in range(1, most + 1) if axes.sizes[last] % n == 0), default=1)
    if part < _SHORTEST_ROW or part == axes.sizes[last]:
        return None

    def cut(values: Sequence[int], outside: int, inside: int) -> tuple[int, ...]:
        return (*values[:last], outside, inside, *values[last + 1 :])

    strides = [cut(each, each[last] * part, each[last]) for each in axes.strides]
    return Axes(cut(axes.sizes, axes.sizes[last] // part, part), tuple(strides), cut(axes.out, 0, 0))


def _keep_last(axes: Axes, largest: int) -> tuple[Axes, int]:
    """If the largest input ends in eliminated axes and the output is small, sum the last of these axes later.

    Otherwise the row of the loop would be too short. If the axes of the largest input give no row, axes of other
    inputs complete it.

    Parameters
    ----------
    axes : Axes
        Sizes and strides of a step; eliminated axes first.
    largest : int
        Index of the largest input.

    Returns
    -------
    Axes, int
        The axes with the kept ones last, and the number of their joint states: 1 if nothing changes.
    """
    mine = axes.strides[largest]
    out_cells = math.prod(axes.sizes[axes.eliminated :])
    kept: list[int] = []
    size = 1
    own = sorted([a for a, stride in enumerate(mine) if stride], key=lambda a: mine[a])
    others = [a for a in reversed(range(axes.eliminated)) if not mine[a]] if out_cells < _SHORTEST_ROW else []
    for k, axis in enumerate((*own, *others)):
        if k >= len(own) and size >= _SHORTEST_ROW:
            break
        if axes.out[axis] and out_cells < _SHORTEST_ROW:
            continue
        wider = size * axes.sizes[axis]
        # the larger output must stay small beside the cells of the step
        if (
            axes.out[axis]
            or out_cells * wider * SMALL_SHARE > axes.cells
            or (size >= _SHORTEST_ROW and wider > SUMMED_CELLS)
        ):
            break
        kept.insert(0, axis)
        size = wider
    if size < _SHORTEST_ROW:
        return axes, 1
    order = [axis for axis in range(len(axes.sizes)) if axis not in kept] + kept
    out = [axes.out[axis] * size for axis in order]
    for i in range(len(order) - len(kept), len(order)):
        out[i] = math.prod([axes.sizes[axis] for axis in order[i + 1 :]])
    return Axes(
        sizes=tuple([axes.sizes[axis] for axis in order]),
        strides=tuple([tuple([strides[axis] for axis in order]) for strides in axes.strides]),
        out=tuple(out),
    ), size


def _choose_row(axes: Axes, largest: int) -> tuple[float, Group | None]:
    """Choose how many trailing axes of the output make the row, by the predicted time of a cell; return both."""
    best, choice = math.inf, None
    count, reading = len(axes.sizes), RowReading(axes, largest)
    tables = _tables(axes, reading.cells)
    cells = 1
    for start in range(count - 1, reading.eliminated - 1, -1):
        cells *= axes.sizes[start]
        if cells > RUN_CELLS and start < count - 1:
            break
        if cells >= _SHORTEST_ROW:
            cost = _cost(reading, start, cells, tables)
            if cost < best:
                best, choice = cost, tuple(range(start, count))
    return best, choice


def _tables(axes: Axes, cells: Sequence[int]) -> list[tuple[int, int, int]]:
    """For each input the last axis that it has, the last where it is not laid out as the output, and its cells."""
    found = []
    for own, strides in zip(cells, axes.strides, strict=True):
        has = differs = len(axes.sizes) - 1
        while has >= 0 and not strides[has]:
            has -= 1
        while differs >= 0 and strides[differs] == axes.out[differs]:
            differs -= 1
        found.append((has, differs, own))
    return found


def _cost(reading: RowReading, start: int, cells: int, tables: Sequence[tuple[int, int, int]]) -> float:
    """Predict the nanoseconds of a cell: overhead shared by the row, loads, and gathers where not reused."""
    overhead, per_cell = 8.0, 0.1
    most = min(SPREAD_CELLS, reading.all_cells // SMALL_SHARE)
    for i, (has, differs, own) in enumerate(tables):
        if has < start:
            overhead += 1
        elif differs < start or own * cells <= most:
            per_cell += 0.06
        else:
            per_cell += 0.06 + min(reading.gathering_and_copying(i, start))
    return per_cell + overhead / cells


class RowReading:
    """The cost of inputs that are not laid out as the row, for rows from an axis on to the last axis.

    Attributes
    ----------
    cells
        Of each input.
    all_cells
        Of the step.
    """

    def __init__(self, axes: Axes, largest: int) -> None:
        self._axes = axes
        self.eliminated = axes.eliminated
        self.all_cells = axes.cells
        self.cells = [axes.cells_of(i) for i in range(len(axes.strides))]
        self._whole = self.cells[largest]
        mine = axes.strides[largest]
        self._inner = [axis for axis in range(self.eliminated, len(axes.sizes)) if not mine[axis]]

    def gathering_and_copying(self, i: int, start: int) -> tuple[float, float]:
        """Nanoseconds for each cell of the step where the loops gather an input, or copy it as the row before."""
        axes, strides = self._axes, self._axes.strides[i]
        reused = 1
        for axis in self._inner:
            if axis >= start:
                break
            if strides[axis]:
                reused = 1
                break
            reused *= axes.sizes[axis]
        gathering = _GATHER_NS / reused
        cells = math.prod(axes.sizes[start:])
        for n, stride in zip(axes.sizes[:start], strides, strict=False):
            if stride:
                cells *= n
        if cells > min(max(COPIED_CELLS, self._whole // _COPIED_SHARE), self._whole):
            return gathering, math.inf
        return gathering, _COPY_NS * cells / self.all_cells


def role_of(axes: Axes, strides: Sequence[int], row: Group) -> str:
    if not any(strides[axis] for axis in row):
        return "number"
    return "row" if all(strides[axis] == axes.out[axis] for axis in row) else "gather"


def size_of(axes: Axes, group: Iterable[int]) -> int:
    return math.prod([axes.sizes[axis] for axis in group])
