"""Bricks of a join: which of its cells a block of threads takes at once. Pure: no values.

A brick is a product of parts of the step's axes. Its slice of every input is copied into shared memory once; an
input is read again only for the cells of a brick that it depends on (Fioretto et al. 2018 §6: few large reads).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from ...steps.light_dataclass import dataclass
from .pass_axes import MAX_INPUTS
from .streams import THREADS, VECTOR_BYTES, Axis, divisor
from .tiling_policy import FAR_BYTES, NOMINAL

# Cells of an input from which it counts when a brick is chosen.
_BRICK_COUNTED_CELLS: Final = 1 << 12
# Share of all reads that another choice of axes must save.
_BRICK_LEAST_GAIN_SHARE: Final = 0.005
# The work of copying a cell into shared memory in addition to reading it, in reads.
_BRICK_COPY_READS: Final = 0.5
# Eliminated states that a brick takes before its outputs are chosen.
_BRICK_STATES_BEFORE: Final = 4
# Eliminated states that it takes after them, where there is room.
_BRICK_STATES_AFTER: Final = 16

MAX_THREADS: Final = THREADS
MAX_ROWS: Final = 9
MAX_STATES: Final = 64
"""Threads, rows of a thread and eliminated states of either kind in a brick; as in ``cuda/brick.cu``."""

_OTHER_CELLS: Final = 16
"""Cells of a thread whose columns are no neighbours in the output, about."""

SHARED_BYTES: Final = 52 << 10
"""Shared memory of a brick's slices: with a block's tables, available on every device since 2018."""


@dataclass(frozen=True, slots=True)
class BrickAxis:
    """Cells of one axis in a brick: how many, and how far apart along the axis."""

    axis: int
    size: int
    unit: int


Parts = tuple[BrickAxis, ...]


@dataclass(frozen=True, slots=True)
class BrickShape:
    """The axes of a brick, by purpose.

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
        """All parts, the parts of a thread's registers first."""
        return self.columns + self.rows + self.threads + self.inner + self.outer


def lanes(columns: int) -> int:
    """Cells of the vector that holds some columns: a power of two."""
    return 1 << (columns - 1).bit_length()


def count(parts: Iterable[BrickAxis]) -> int:
    """Cells of some parts together."""
    return math.prod([part.size for part in parts])


class BrickCells:
    """Cells of every axis in the brick so far."""

    def __init__(
        self, axes: Sequence[Axis], itemsize: int, room: int, parts: int, line_bytes: int = NOMINAL.line_bytes
    ) -> None:
        self.axes = axes
        self.parts = parts
        self.itemsize = itemsize
        self.room = room
        self.cells = [1] * len(axes)
        sizes = [math.prod([a.size for a in axes if a.strides[t]]) for t in range(len(axes[0].strides))]
        order = sorted(range(len(sizes)), key=lambda t: -sizes[t])
        self.large = [t for t in order if sizes[t] >= _BRICK_COUNTED_CELLS][:MAX_INPUTS]
        self.sizes = [sizes[t] for t in self.large]
        self.weight = [1.0 if sizes[t] * itemsize > NOMINAL.cached_bytes else 0.5 for t in self.large]
        self.by_stride = [
            [i for _, i in sorted((a.strides[t], i) for i, a in enumerate(axes) if a.strides[t])] for t in self.large
        ]
        self.masks = [sum([1 << i for i in order]) for order in self.by_stride]
        self.kept = sorted((i for i, a in enumerate(axes) if a.out), key=lambda i: axes[i].out)
        self.gone = [i for i, a in enumerate(axes) if not a.out]
        self.columns: list[BrickAxis] = []
        self.columns_cells = 1
        self.sector = NOMINAL.sector_bytes // itemsize
        # A thread holds 32 words of sums, or 16 of two words each.
        self.most_cells = {2: 64, 4: 32}.get(itemsize, 16)
        self.along_output(line_bytes // itemsize)

    def grow(self, states: int | None = None) -> None:
        """Take the desired cells of all axes, with ``states`` eliminated states first if given."""
        self.grow_to(self.gone, states or _BRICK_STATES_BEFORE)
        self.grow_to(self.kept, MAX_THREADS * self.columns_cells // 2)
        self.fill()
        self.grow_to(self.kept, MAX_THREADS * self.columns_cells * min(4, self.most_rows))
        self.grow_to(self.gone, _BRICK_STATES_AFTER)

    @property
    def cut_states(self) -> int:
        """Eliminated states of the step, where a brick could take all of them and has only some; otherwise 0."""
        states = math.prod([self.axes[i].size for i in self.gone])
        return states if states <= MAX_STATES and states > math.prod([self.cells[i] for i in self.gone]) else 0

    def broken(self) -> list[int]:
        """Return the numbers of the largest inputs read in less than whole sectors, or for far ones, less than whole
        lines.
        """
        far, line = FAR_BYTES // self.itemsize, NOMINAL.line_bytes // self.itemsize
        large = enumerate(self.sizes)
        return [k for k, cells in large if self.run(k) < (line if cells > far else self.sector)][:2]

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

    def along_output(self, line: int) -> None:
        """Choose the columns of a thread, then threads along ``line`` neighboring cells of the output.

        Parameters
        ----------
        line : int
            Cells of a memory line.
        """
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
        run = 1
        for i in self.kept:
            size = self.axes[i].size
            if run >= line:
                break
            wanted = self.cells[i] * _near(size // self.cells[i], max(1, line // (run * self.cells[i])))
            self.cells[i] = wanted
            run *= wanted
            if wanted < size:
                break
        self.ragged = run % self.sector > 0
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
        return self.read_cells([math.prod([self.cells[i] for i in order]) for order in self.by_stride]) / math.prod(
            self.cells
        )

    def read_cells(self, slices: Sequence[int]) -> float:
        """Return the cells that a brick reads, given its slices' cells, counting whole sectors."""
        reads = _BRICK_COPY_READS
        total, cells, axes, sector = 0.0, self.cells, self.axes, self.sector
        for weight, order, held in zip(self.weight, self.by_stride, slices, strict=True):
            run = 1
            for i in order:
                run *= cells[i]
                if run >= sector or cells[i] < axes[i].size:
                    break
            total += held * (reads + weight * (sector / run if run < sector else 1.0))
        return total

    def fill(self) -> None:
        """Take the axes that save most reads, then give back cells that another axis would use better."""
        axes, cells = self.axes, self.cells
        factors = [least_factor(axis.size) for axis in axes]
        moved = self.moved()
        while True:
            taken = _Taken(self)
            more = [i for i, a in enumerate(axes) if cells[i] < a.size and a.size // cells[i] % factors[i] == 0]
            best = (moved * (1 - _BRICK_LEAST_GAIN_SHARE), -1, -1)
            for i in more:
                best = min(best, (taken.moved_with(i, factors[i]), i, -1))
            if best[1] < 0:
                less = [
                    j for j, n in enumerate(cells) if n % factors[j] == 0 and n // factors[j] >= self.lines.get(j, 1)
                ]
                for i in more:
                    for j in less:
                        if i != j:
                            best = min(best, (taken.moved_with(i, factors[i], j, factors[j]), i, j))
            moved, i, j = best
            if i < 0:
                return
            cells[i] *= factors[i]
            if j >= 0:
                cells[j] //= factors[j]

    def grow_to(self, group: Sequence[int], wanted: int) -> None:
        """Take more of some axes, those first that need the least shared memory."""
        while math.prod([self.cells[i] for i in group]) < wanted:
            taken, options = _Taken(self), list[tuple[int, int, int, int]]()
            for i in group:
                more = least_factor(self.axes[i].size // self.cells[i])
                slices = taken.slices_with(i, more) if more > 1 else None
                if slices is not None:
                    options.append((sum(slices), self.axes[i].out, i, more))
            if not options:
                return
            _, _, i, more = min(options)
            self.cells[i] *= more


class _Taken:
    """Products over the cells of a brick, by which brick after brick with one axis changed is rated."""

    def __init__(self, brick: BrickCells) -> None:
        self._brick = brick
        cells = brick.cells
        self._kept = math.prod([cells[i] for i in brick.kept])
        self._gone = math.prod([cells[i] for i in brick.gone])
        self._parts = sum([n > 1 for n in cells])
        self._slices = [math.prod([cells[i] for i in order]) for order in brick.by_stride]

    def slices_with(self, i: int, more: int, j: int = -1, less: int = 1) -> list[int] | None:
        """Return the cells of every slice with ``more`` times the cells of axis ``i``, and ``less`` times fewer of axis
        ``j``.

        None where a block has no threads or shared memory for them.
        """
        brick, kept, gone = self._brick, self._kept, self._gone
        axes, cells = brick.axes, brick.cells
        parts = self._parts + (cells[i] == 1)
        if axes[i].out:
            kept *= more
        else:
            gone *= more
        if j >= 0:
            parts -= cells[j] == less > 1
            if axes[j].out:
                kept //= less
            else:
                gone //= less
        if kept > brick.most_kept or gone > MAX_STATES or parts > brick.parts:
            return None
        up, down = 1 << i, 1 << j if j >= 0 else 0
        slices = [
            held * (more if mask & up else 1) // (less if mask & down else 1)
            for held, mask in zip(self._slices, brick.masks, strict=True)
        ]
        return slices if sum(slices) <= brick.room else None

    def moved_with(self, i: int, more: int, j: int = -1, less: int = 1) -> float:
        """Rate the same by the cells that are read for each of the join; infinity where there is no room."""
        slices = self.slices_with(i, more, j, less)
        if slices is None:
            return math.inf
        cells = self._brick.cells
        before = cells[i], cells[j]
        cells[i] *= more
        if j >= 0:
            cells[j] //= less
        moved = self._brick.read_cells(slices) / (self._kept * self._gone * more // less)
        cells[i] = before[0]
        if j >= 0:
            cells[j] = before[1]
        return moved


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
