"""Shapes of bricks: the role of each axis of a brick, and the choice among several bricks. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Final

from .brick_cells import (
    MAX_ROWS,
    MAX_THREADS,
    SHARED_BYTES,
    BrickAxis,
    BrickCells,
    BrickShape,
    Parts,
    count,
    lanes,
    least_factor,
)
from .streams import VECTOR_BYTES, Axis
from .tiling_policy import NOMINAL, TilingPolicy

# Neighbours in the output from which no other columns are tried.
_BRICK_USUAL_COLUMNS: Final = 4
# Work of storing a vector, in loads from shared memory.
_BRICK_STORE_LOADS: Final = 18.0
# Cycles that a thread takes to copy a cell.
_BRICK_COPY_CYCLES: Final = 8.0
# Least threads of a block, where rows of a thread would leave fewer.
_BRICK_LEAST_THREADS: Final = 64

_LINES: Final = 4, 8
"""Lines of the output, about, that a brick takes together where these do not begin with a sector."""


def brick_shapes(axes: Sequence[Axis], itemsize: int, shares: Sequence[float], parts: int) -> Iterator[BrickShape]:
    """Yield bricks to compare, the larger shares first: with lines of the output, then also with lines of an input.

    If there are few eliminated states, bricks that take all of them before other axes are yielded too.

    Parameters
    ----------
    axes : sequence of Axis
    itemsize : int
        Bytes of a cell.
    shares : sequence of float
        Shares of the shared memory that large inputs may take.
    parts : int
        Axes that a brick has more than one cell of, at most.
    """
    searched = math.prod([axis.size for axis in axes]) >= TilingPolicy.current().brick_compared_cells
    seen = set[BrickShape]()
    for number, share in enumerate(shares):
        room = int(share * SHARED_BYTES / itemsize)
        usual = _BrickUses(axes, itemsize, room, parts)
        usual.grow()
        grown = [usual]
        # a large step is worth more candidates
        if searched and usual.cut_states:
            whole = _BrickUses(axes, itemsize, room, parts)
            whole.grow(usual.cut_states)
            grown.append(whole)
        if searched and usual.ragged:
            for lines in _LINES:
                longer = _BrickUses(axes, itemsize, room, parts, lines * NOMINAL.line_bytes)
                longer.grow()
                grown.append(longer)
        if searched and number % 2 == 0:
            for k, line in product(usual.broken(), (NOMINAL.sector_bytes, NOMINAL.line_bytes)):
                other = _BrickUses(axes, itemsize, room, parts)
                if other.along_input(k, line // itemsize):
                    other.grow()
                    grown.append(other)
        for uses in grown:
            shape = uses.shape()
            if shape is not None and shape not in seen:
                seen.add(shape)
                yield shape


class _BrickUses(BrickCells):
    """The cells of a brick, and what they are for."""

    def __init__(
        self, axes: Sequence[Axis], itemsize: int, room: int, parts: int, line_bytes: int = NOMINAL.line_bytes
    ) -> None:
        super().__init__(axes, itemsize, room, parts, line_bytes)
        self.known_rows: dict[tuple[tuple[int, int], ...], tuple[int, list[int]]] = {}

    def shape(self) -> BrickShape | None:
        """Give every axis of the brick its use."""
        usual = tuple(self.columns)
        while True:
            ways = [
                way for columns in (usual, *self._other_columns()) if (way := self._shape_with(columns)) is not None
            ]
            if ways:
                return min(ways, key=lambda way: way[0])[1]
            if not self._give_back({part.axis: part.size for part in usual}):
                return None

    def _other_columns(self) -> list[Parts]:
        """Columns along any axis of the output, where its neighbours are too few for a vector."""
        most = VECTOR_BYTES // self.itemsize
        if self.columns_cells * 2 > min(most, _BRICK_USUAL_COLUMNS):
            return []
        sizes = [n for n in range(2, 9) if n > self.columns_cells and lanes(n) <= max(most, 4)]
        return [(BrickAxis(i, n, 1),) for i in self.kept for n in sizes if self.cells[i] % n == 0]

    def _shape_with(self, columns: Parts) -> tuple[float, BrickShape] | None:
        """Choose rows and inner states for given columns, by their predicted work.

        Parameters
        ----------
        columns : sequence of BrickAxis
            Cells that a thread computes side by side.

        Returns
        -------
        float, BrickShape or None
            Work per cell, in cycles of a warp, with the stores; None if no rows are possible.
        """
        usual = columns == tuple(self.columns)
        in_columns = {part.axis: part.size for part in columns}
        self.lanes, self.vector = lanes(count(columns)), columns
        self.most_rows = min(MAX_ROWS, self.most_cells // self.lanes)
        share, together = self._share(in_columns), self.columns_cells if usual else 1
        options = self._ways_to_take_rows(share, together)
        if not options:
            return None
        self.brick_cells = math.prod(self.cells)
        loads = self._loads_with(in_columns)
        states = [BrickAxis(i, self.cells[i], 1) for i in self.gone if self.cells[i] > 1]
        inner = tuple(states)
        rows: dict[int, int] = {}
        # rows and inner states depend on each other: two rounds of choosing one given the other
        for _ in range(2):
            usage = self._in_first_sum(inner)
            rows = min(options, key=lambda r: self._work(self._rows_without(r), loads, usage))
            without = self._rows_without(rows)
            inner = min(_subsets(states), key=lambda s: self._work(without, loads, self._in_first_sum(s)))
        outer = [part for part in states if part not in inner]
        stored = _BRICK_STORE_LOADS / together
        summed = math.prod([self.axes[i].size for i in self.gone])
        work = self._work(self._rows_without(rows), loads, self._in_first_sum(inner))
        return work + stored / summed, BrickShape(
            columns=columns,
            rows=tuple(BrickAxis(i, r, self.cells[i] // r) for i, r in rows.items()),
            threads=tuple(
                BrickAxis(i, n // rows.get(i, 1), in_columns.get(i, 1)) for i, n in share.items() if n > rows.get(i, 1)
            ),
            inner=inner,
            outer=tuple(outer),
        )

    def _share(self, in_columns: dict[int, int]) -> dict[int, int]:
        """Cells of the output's axes that are left to threads and their rows."""
        return {i: self.cells[i] // in_columns.get(i, 1) for i in self.kept if self.cells[i] > in_columns.get(i, 1)}

    def _ways_to_take_rows(self, share: dict[int, int], together: int) -> list[dict[int, int]]:
        """Ways to take rows that leave no more threads than a block has, and enough of them.

        ``together``: neighbours in the output that a thread's columns are.
        """
        threads = math.prod(share.values())
        least = min(_BRICK_LEAST_THREADS, threads)
        return [
            rows
            for rows in _row_options(self._free_for_rows(share, together), self.most_rows)
            if least <= threads // math.prod(rows.values()) <= MAX_THREADS
        ]

    def _give_back(self, in_columns: dict[int, int]) -> bool:
        """Take less of the axis of the output that saves fewest reads; return whether there is any."""
        options = []
        for i in self.kept:
            before, least = self.cells[i], in_columns.get(i, 1)
            factor = least_factor(before // least)
            if factor > 1:
                self.cells[i] = before // factor
                options.append((before // factor < self.lines.get(i, 1), self.moved(), i, before // factor))
                self.cells[i] = before
        if not options:
            return False
        _, _, i, self.cells[i] = min(options)
        return True

    def _free_for_rows(self, share: dict[int, int], run: int) -> dict[int, int]:
        """Leave whole sectors of the output to neighbouring threads."""
        free = dict(share)
        for i in self.kept:
            if run >= self.sector or self.cells[i] == 1:
                break
            if i in share:
                wanted = -(-self.sector // run)
                together = next(d for d in range(min(wanted, share[i]), share[i] + 1) if share[i] % d == 0)
                free[i] //= together
                run *= together
        return free

    def _loads_with(self, in_columns: dict[int, int]) -> list[tuple[bool, int]]:
        """For each large input, whether it differs by some columns, and the cells of its slice.

        Where a vector has several axes, an input without one of them is copied again for it; so it is for rows.
        """
        width, loads = math.prod(in_columns.values()), list[tuple[bool, int]]()
        for order, without in zip(self.by_stride, self._without(in_columns), strict=True):
            held = math.prod([self.cells[i] for i in order])
            loads.append((without < width, held * without if without < width else held))
        return loads

    def _without(self, taken: dict[int, int]) -> list[int]:
        """For each large input, cells of some parts of axes, more than one each, by which it does not differ."""
        return [math.prod([n for i, n in taken.items() if not mask >> i & 1]) for mask in self.masks]

    def _rows_without(self, rows: dict[int, int]) -> tuple[int, list[int]]:
        """The number of cells of some rows, and for each large input the number of rows by which it does not differ."""
        known = self.known_rows.get(key := tuple(rows.items()))
        if known is None:
            known = self.known_rows[key] = math.prod(rows.values()), self._without(rows)
        return known

    def _in_first_sum(self, inner: Iterable[BrickAxis]) -> tuple[int, list[bool]]:
        """Inner states, and whether each large input differs by them or there is one."""
        bits = sum([1 << part.axis for part in inner])
        return count(inner), [not bits or mask & bits > 0 for mask in self.masks]

    def _work(self, rows: tuple[int, list[int]], loads: list[tuple[bool, int]], inner: tuple[int, list[bool]]) -> float:
        """Return rough cycles of a warp per cell: loads from shared memory and arithmetic.

        Parameters
        ----------
        rows : (int, list of int)
            Rows of a thread, and for each input the rows that its values differ in.
        loads : list of (bool, int)
            For each input, whether it has the columns, and the cells of its slice.
        inner : (int, list of bool)
            Inner states, and for each input whether it belongs to the inner sum.
        """
        (held, withouts), (states, in_first) = rows, inner
        words, copied = max(1.0, self.lanes * self.itemsize / 4), 0
        first = second = 0.0
        both = others = False
        for without, (broad, cells), sooner in zip(withouts, loads, in_first, strict=True):
            if without < held:
                copied += cells * without
                load = held * (words + 0.5) if broad else held * 0.5 + 0.5
                whole = broad
            else:
                copied += cells
                load = words + 0.5 if broad else 1.5
                whole = False
            # inputs of the outer sum are multiplied once for all inner states
            if sooner:
                first += load
                both, others = both or whole, others or not whole
            else:
                second += load
        sums = held * words * 0.5
        first += 1.5 + sums * (2 if both and others else 1)
        if second:
            second += 2 * sums
        copying = _BRICK_COPY_CYCLES * copied / self.brick_cells
        return (first + second / states) / (held * count(self.vector)) + copying


def _row_options(share: dict[int, int], most: int) -> list[dict[int, int]]:
    """Ways to take a thread's rows from at most two axes; from three where these are short."""
    single = [(i, r) for i, n in share.items() for r in range(2, min(n, most) + 1) if n % r == 0]
    pairs = [{i: r, j: q} for (i, r), (j, q) in combinations(single, 2) if i != j and r * q <= most]
    short = [i for i, n in share.items() if n % 2 == 0 and n % 4]
    triples = [dict.fromkeys(each, 2) for each in combinations(short, 3)] if most >= 8 else []
    return [{}, *({i: r} for i, r in single), *pairs, *triples]


def _subsets(parts: Sequence[BrickAxis]) -> list[tuple[BrickAxis, ...]]:
    """All subsets, the largest first. For many parts, only the subsets that leave out at most two of them."""
    least = 0 if len(parts) <= 6 else len(parts) - 2
    return [s for n in range(len(parts), least - 1, -1) for s in combinations(parts, n)]
