"""Bricks of a join: which of its cells a block of threads takes at once. Pure: no values.

A brick is a product of parts of the step's axes. Its slice of every input is copied into shared memory once; an
input is read again only for the cells of a brick that it depends on (Fioretto et al. 2018 §6: few large reads).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Final

from .device_limits import NOMINAL
from .streams import VECTOR_BYTES, Axis, divisor
from .tiling_policy import TilingPolicy

MAX_THREADS: Final = 256
MAX_ROWS: Final = 9
MAX_STATES: Final = 64
"""Threads, rows of a thread and eliminated states of either kind in a brick; as in ``cuda/brick.cu``."""

_OTHER_CELLS: Final = 16
"""Cells of a thread whose columns are no neighbours in the output, about."""

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
        A vector of each thread: neighbours in the output where these are a power of two, or cells of another axis.
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


def lanes(columns: int) -> int:
    """Cells of the vector that holds some columns: a power of two."""
    return 1 << (columns - 1).bit_length()


def count(parts: Iterable[BrickAxis]) -> int:
    """Cells of some parts together."""
    return math.prod([part.size for part in parts])


class BrickCells:
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
        self.sizes = [sizes[t] for t in self.large]
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
        self.along_output()

    def grow(self) -> None:
        """Take what is wanted of all axes."""
        policy = TilingPolicy.current()
        self.grow_to(self.gone, policy.brick_states_before)
        self.grow_to(self.kept, MAX_THREADS * self.columns_cells // 2)
        self.fill()
        self.grow_to(self.kept, MAX_THREADS * self.columns_cells * min(4, self.most_rows))
        self.grow_to(self.gone, policy.brick_states_after)

    def broken(self) -> list[int]:
        """Numbers of the largest inputs of which it reads less than whole sectors."""
        return [k for k in range(len(self.large)) if self.run(k) < self.sector][:2]

    def run(self, k: int) -> int:
        """Neighbouring cells of a large input that are in the brick together."""
        run = 1
        for i in self.by_stride[k]:
            run *= self.cells[i]
            if self.cells[i] < self.axes[i].size:
                break
        return run

    def along_input(self, k: int, wanted: int) -> bool:
        """Take neighbours in a large input, as many as wanted; return whether there is room for them."""
        run = 1
        for i in self.by_stride[k]:
            if run >= wanted:
                break
            size = self.axes[i].size
            part = next(d for d in range(min(size, -(-wanted // run)), size + 1) if size % d == 0)
            self.cells[i] = math.lcm(self.cells[i], part)
            self.lines[i] = self.cells[i]
            run *= self.cells[i]
            if self.cells[i] < size:
                break
        return self._fits()

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
        # Columns of another axis may hold more than these.
        self.most_kept = MAX_THREADS * max(self.columns_cells * self.most_rows, min(self.most_cells, _OTHER_CELLS))
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

    def moved(self) -> float:
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
        factors = [least_factor(axis.size) for axis in self.axes]
        moved = self.moved()
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
        moved = self.moved() if self._fits() else math.inf
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
                self.cells[i] *= least_factor(self.axes[i].size // before)
                if self.cells[i] > before and self._fits():
                    options.append((self._slices(), self.axes[i].out, i, self.cells[i]))
                self.cells[i] = before
            if not options:
                return
            _, _, i, cells = min(options)
            self.cells[i] = cells


@cache
def _near(n: int, wanted: int) -> int:
    """Return the largest divisor of ``n`` up to some number; a larger one where that is less than half of it."""
    below = divisor(n, wanted)
    above = next((d for d in range(wanted, min(n, 2 * wanted) + 1) if n % d == 0), below)
    return below if 2 * below > wanted else above


@cache
def least_factor(n: int) -> int:
    """Return the least prime factor; 1 of 1."""
    return next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
