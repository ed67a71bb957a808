"""Bricks of a join: which of its cells a block of threads takes at once, and what each axis is for. Pure: no values.

A brick is a product of parts of the step's axes. Its slice of every input is copied into shared memory once; an
input is read again only for the cells of a brick that it depends on (Fioretto et al. 2018 §6: few large reads).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from typing import Final

from .device_limits import NOMINAL
from .streams import VECTOR_BYTES, Axis, divisor
from .tiling_policy import TilingPolicy

MAX_THREADS: Final = 256
MAX_ROWS: Final = 9
MAX_STATES: Final = 64
"""Threads, rows of a thread and eliminated states of either kind in a brick; as in ``cuda/brick.cu``."""

SHARED_BYTES: Final = 52 << 10
"""Of the slices of a brick: with a block's tables, what every device since 2018 has."""


@dataclass(frozen=True, slots=True)
class BrickAxis:
    """Cells of one axis in a brick: how many, and how far apart along the axis."""

    axis: int
    size: int
    unit: int


Parts = tuple[BrickAxis, ...]


@dataclass(frozen=True, slots=True)
class BrickShape:
    """The axes of a brick by what they are for.

    Attributes
    ----------
    columns
        Neighbours in the output: a vector of each thread.
    rows
        Further cells of each thread.
    threads
        One cell a thread.
    inner, outer
        Eliminated: an input without the inner ones is multiplied in after the sum over them.
    """

    columns: Parts
    rows: Parts
    threads: Parts
    inner: Parts
    outer: Parts

    @property
    def parts(self) -> Parts:
        """All parts, those of a thread's registers first."""
        return self.columns + self.rows + self.threads + self.inner + self.outer


def count(parts: Iterable[BrickAxis]) -> int:
    """Cells of some parts together."""
    return math.prod([part.size for part in parts])


def choose_shape(axes: Sequence[Axis], itemsize: int, room: int, parts: int) -> BrickShape | None:
    """Choose a brick; None where none is worth it.

    Parameters
    ----------
    axes : sequence of Axis
    itemsize : int
        Bytes of a cell.
    room : int
        Cells of shared memory for large inputs.
    parts : int
        Axes that it has more than one cell of, at most.
    """
    policy = TilingPolicy.current()
    taken = _Taken(axes, itemsize, room, parts)
    taken.along_output()
    taken.grow_to(taken.gone, policy.brick_states_before)
    taken.grow_to(taken.kept, MAX_THREADS * taken.columns_cells // 2)
    taken.fill()
    taken.grow_to(taken.kept, MAX_THREADS * taken.columns_cells * min(4, taken.most_rows))
    taken.grow_to(taken.gone, policy.brick_states_after)
    return taken.shape()


class _Taken:
    """Cells of every axis in the brick so far."""

    def __init__(self, axes: Sequence[Axis], itemsize: int, room: int, parts: int) -> None:
        policy = TilingPolicy.current()
        self.axes = axes
        self.parts = parts
        self.itemsize = itemsize
        self.room = room
        self.cells = [1] * len(axes)
        sizes = [math.prod([a.size for a in axes if a.strides[t]]) for t in range(len(axes[0].strides))]
        order = sorted(range(len(sizes)), key=lambda t: -sizes[t])
        self.large = [t for t in order if sizes[t] >= policy.brick_counted_cells][: policy.brick_counted_inputs]
        self.weight = [1.0 if sizes[t] * itemsize > NOMINAL.cached_bytes else 0.5 for t in self.large]
        self.by_stride = [
            [i for _, i in sorted((a.strides[t], i) for i, a in enumerate(axes) if a.strides[t])] for t in self.large
        ]
        self.kept = sorted((i for i, a in enumerate(axes) if a.out), key=lambda i: axes[i].out)
        self.gone = [i for i, a in enumerate(axes) if not a.out]
        self.columns: list[BrickAxis] = []
        self.columns_cells = 1
        self.sector = NOMINAL.sector_bytes // itemsize
        # A thread holds 32 words of sums, or 16 of two words each.
        self.most_cells = {2: 64, 4: 32}.get(itemsize, 16)

    def along_output(self) -> None:
        """Take the columns, and with the threads whole lines of the output."""
        most = VECTOR_BYTES // self.itemsize
        for i in self.kept:
            axis = self.axes[i]
            part = math.gcd(axis.size, most // self.columns_cells)
            if axis.out != self.columns_cells or part == 1 or (self.columns_cells >= 4 and self._splits(i)):
                break
            self.columns.append(BrickAxis(i, part, 1))
            self.columns_cells *= part
            self.cells[i] = part
            if part < axis.size:
                break
        self.most_rows = min(MAX_ROWS, self.most_cells // self.columns_cells)
        self.most_kept = MAX_THREADS * self.columns_cells * self.most_rows
        line, run = NOMINAL.line_bytes // self.itemsize, 1
        for i in self.kept:
            size = self.axes[i].size
            if run >= line:
                break
            wanted = self.cells[i] * _near(size // self.cells[i], max(1, line // (run * self.cells[i])))
            self.cells[i] = wanted
            run *= wanted
            if wanted < size:
                break
        self.lines = {i: n for i, n in enumerate(self.cells) if n > 1}

    def _splits(self, i: int) -> bool:
        """Whether a large input has only one of an axis and the columns so far."""
        first = self.columns[0].axis
        return any(bool(self.axes[i].strides[t]) != bool(self.axes[first].strides[t]) for t in self.large)

    def _fits(self) -> bool:
        """Whether a block has the threads and the shared memory."""
        cells = self.cells
        return (
            math.prod([cells[i] for i in self.kept]) <= self.most_kept
            and math.prod([cells[i] for i in self.gone]) <= MAX_STATES
            and sum([n > 1 for n in cells]) <= self.parts
            and self._slices() <= self.room
        )

    def _slices(self) -> int:
        return sum([math.prod([self.cells[i] for i in order]) for order in self.by_stride])

    def _moved(self) -> float:
        """Cells that are read for each cell of the join, counting whole sectors."""
        policy = TilingPolicy.current()
        total, cells, axes, sector = 0.0, self.cells, self.axes, self.sector
        for weight, order in zip(self.weight, self.by_stride, strict=True):
            run = 1
            for i in order:
                run *= cells[i]
                if run >= sector or cells[i] < axes[i].size:
                    break
            total += math.prod([cells[i] for i in order]) * (policy.brick_copy_reads + weight * max(1.0, sector / run))
        return total / math.prod(cells)

    def fill(self) -> None:
        """Take what saves most reads, and then give back what another axis would use better."""
        policy = TilingPolicy.current()
        factors = [_least_factor(axis.size) for axis in self.axes]
        moved = self._moved()
        while True:
            best = (moved * (1 - policy.brick_least_gain_share), -1, -1)
            for i in range(len(self.axes)):
                best = min(best, self._tried(factors, i, -1))
            if best[1] < 0:
                for i, j in permutations(range(len(self.axes)), 2):
                    best = min(best, self._tried(factors, i, j))
            moved, i, j = best
            if i < 0:
                return
            self._change(factors, i, j)

    def _tried(self, factors: Sequence[int], i: int, j: int) -> tuple[float, int, int]:
        """Rate more of axis ``i`` and less of axis ``j``, if any."""
        if self.axes[i].size // self.cells[i] % factors[i] or self.axes[i].size == self.cells[i]:
            return (math.inf, i, j)
        if j >= 0 and (self.cells[j] % factors[j] or self.cells[j] // factors[j] < self.lines.get(j, 1)):
            return (math.inf, i, j)
        before = self.cells[i], self.cells[j]
        self._change(factors, i, j)
        moved = self._moved() if self._fits() else math.inf
        self.cells[i] = before[0]
        if j >= 0:
            self.cells[j] = before[1]
        return (moved, i, j)

    def _change(self, factors: Sequence[int], i: int, j: int) -> None:
        self.cells[i] *= factors[i]
        if j >= 0:
            self.cells[j] //= factors[j]

    def grow_to(self, group: Sequence[int], wanted: int) -> None:
        """Take more of some axes, those first that need the least shared memory."""
        while math.prod([self.cells[i] for i in group]) < wanted:
            options = []
            for i in group:
                before = self.cells[i]
                self.cells[i] *= _least_factor(self.axes[i].size // before)
                if self.cells[i] > before and self._fits():
                    options.append((self._slices(), self.axes[i].out, i, self.cells[i]))
                self.cells[i] = before
            if not options:
                return
            _, _, i, cells = min(options)
            self.cells[i] = cells

    def shape(self) -> BrickShape | None:
        """Give every axis of the brick its use."""
        in_columns = {part.axis: part.size for part in self.columns}
        while not (options := self._ways_to_take_rows(in_columns)):
            if not self._give_back(in_columns):
                return None
        share = self._share(in_columns)
        self.slices = [math.prod([self.cells[i] for i in order]) for order in self.by_stride]
        self.brick_cells = math.prod(self.cells)
        states = [BrickAxis(i, self.cells[i], 1) for i in self.gone if self.cells[i] > 1]
        inner = states
        rows: dict[int, int] = {}
        for _ in range(2):
            rows = min(options, key=lambda r: self._work(r, inner))
            inner = list(min(_subsets(states), key=lambda s: self._work(rows, s)))
        outer = [part for part in states if part not in inner]
        return BrickShape(
            columns=tuple(self.columns),
            rows=tuple(BrickAxis(i, r, self.cells[i] // r) for i, r in rows.items()),
            threads=tuple(
                BrickAxis(i, n // rows.get(i, 1), in_columns.get(i, 1)) for i, n in share.items() if n > rows.get(i, 1)
            ),
            inner=tuple(inner),
            outer=tuple(outer),
        )

    def _share(self, in_columns: dict[int, int]) -> dict[int, int]:
        """Cells of the output's axes that are left to threads and their rows."""
        return {i: self.cells[i] // in_columns.get(i, 1) for i in self.kept if self.cells[i] > in_columns.get(i, 1)}

    def _ways_to_take_rows(self, in_columns: dict[int, int]) -> list[dict[int, int]]:
        """Ways to take rows that leave no more threads than a block has, and enough of them."""
        share = self._share(in_columns)
        threads = math.prod(share.values())
        least = min(TilingPolicy.current().brick_least_threads, threads)
        return [
            rows
            for rows in _row_options(self._free_for_rows(share), self.most_rows)
            if least <= threads // math.prod(rows.values()) <= MAX_THREADS
        ]

    def _give_back(self, in_columns: dict[int, int]) -> bool:
        """Take less of the axis of the output that saves fewest reads; return whether there is any."""
        options = []
        for i in self.kept:
            before, least = self.cells[i], in_columns.get(i, 1)
            factor = _least_factor(before // least)
            if factor > 1:
                self.cells[i] = before // factor
                options.append((before // factor < self.lines.get(i, 1), self._moved(), i, before // factor))
                self.cells[i] = before
        if not options:
            return False
        _, _, i, self.cells[i] = min(options)
        return True

    def _free_for_rows(self, share: dict[int, int]) -> dict[int, int]:
        """Leave whole sectors of the output to neighbouring threads."""
        free, run = dict(share), self.columns_cells
        for i in self.kept:
            if run >= self.sector or self.cells[i] == 1:
                break
            if i in share:
                together = divisor(share[i], self.sector // run)
                free[i] //= together
                run *= together
        return free

    def _work(self, rows: dict[int, int], inner: Iterable[BrickAxis]) -> float:
        """Rough cycles of a warp for each cell: loads from shared memory and arithmetic."""
        copied = 0
        for t, cells in zip(self.large, self.slices, strict=True):
            # Where a vector has several axes, an input without one of them is copied again for it.
            for group in (rows, {part.axis: part.size for part in self.columns}):
                without = math.prod([n for i, n in group.items() if not self.axes[i].strides[t]])
                if without < math.prod(group.values()):
                    cells *= without
            copied += cells
        held, words = math.prod(rows.values()), max(1.0, self.columns_cells * self.itemsize / 4)
        states = count(inner)
        first = second = 0.0
        kinds = set()
        for t in self.large:
            tall = any(self.axes[i].strides[t] for i in rows)
            broad = any(self.axes[part.axis].strides[t] for part in self.columns)
            load = (
                held * (words + 0.5) if tall and broad else words + 0.5 if broad else held * 0.5 + 0.5 if tall else 1.5
            )
            if states == 1 or any(self.axes[part.axis].strides[t] for part in inner):
                first += load
                kinds.add((tall, broad))
            else:
                second += load
        sums = held * words * 0.5
        first += 1.5 + sums * (2 if (True, True) in kinds and len(kinds) > 1 else 1)
        if second:
            second += 2 * sums
        return (first + second / states) / (
            held * self.columns_cells
        ) + TilingPolicy.current().brick_copy_cycles * copied / self.brick_cells


def _row_options(share: dict[int, int], most: int) -> list[dict[int, int]]:
    """Ways to take a thread's rows from at most two axes; from three where these are short."""
    single = [(i, r) for i, n in share.items() for r in range(2, min(n, most) + 1) if n % r == 0]
    pairs = [{i: r, j: q} for (i, r), (j, q) in combinations(single, 2) if i != j and r * q <= most]
    short = [i for i, n in share.items() if n % 2 == 0 and n % 4]
    triples = [dict.fromkeys(each, 2) for each in combinations(short, 3)] if most >= 8 else []
    return [{}, *({i: r} for i, r in single), *pairs, *triples]


def _subsets(parts: Sequence[BrickAxis]) -> list[tuple[BrickAxis, ...]]:
    """All subsets, the largest first; of many parts only those that leave out at most two."""
    least = 0 if len(parts) <= 6 else len(parts) - 2
    return [s for n in range(len(parts), least - 1, -1) for s in combinations(parts, n)]


@cache
def _near(n: int, wanted: int) -> int:
    """Return the largest divisor of ``n`` up to some number; a larger one where that is less than half of it."""
    below = divisor(n, wanted)
    above = next((d for d in range(wanted, min(n, 2 * wanted) + 1) if n % d == 0), below)
    return below if 2 * below > wanted else above


@cache
def _least_factor(n: int) -> int:
    """Return the least prime factor; 1 of 1."""
    return next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
