"""How a block of threads computes a tile of a message on a GPU: which cells are its lanes. Pure: no values.

The axes of a step fall into three groups: the output's axes, divided into tiles of consecutive cells; and the
eliminated axes, divided into *highs* and *lows*. A thread is one lane of the outputs of a tile and one lane of the
lows; it iterates over all highs of its piece. Both orders are free, so that lanes lie where most tables are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...steps.axes import Axes
from ...steps.number_limits import ordered_sum
from ..tiling.streams import Axis
from ..tiling.tiling_policy import NOMINAL

# Messages of less work are cut for threads of one block, larger ones for many items.
_MESSAGE_SMALL_CELLS: Final = 4096
# Eliminated states that a thread sums up at least, about, before several threads share an output.
_MESSAGE_SHORT_STATES: Final = 4
# Nanoseconds that a thread waits for an output, on an H200 with little else to do.
_MESSAGE_OUTPUT_NS: Final = 150.0
# Nanoseconds that a thread needs for each axis of its outputs.
_MESSAGE_AXIS_NS: Final = 25.0
# Nanoseconds that a thread needs for an eliminated state of the outer loop.
_MESSAGE_HIGH_NS: Final = 50.0
# Nanoseconds that a thread needs for all states of the inner loop that it reads at a time.
_MESSAGE_LOWS_NS: Final = 350.0
# Nanoseconds to add up the partial sums of several items.
_MESSAGE_PIECES_NS: Final = 3000.0

THREADS: Final = 128
"""Threads of a block; as in ``cuda/messages.cu``."""

UNROLLED_INPUTS: Final = 6
"""Inputs for which the kernel has loops of their own; as in ``cuda/messages.cu``."""

LOW_WORDS: Final = 1024
HIGH_WORDS: Final = 512
"""Offsets of lows and highs that a block keeps at once, over all inputs."""

LINE_CELLS: Final = NOMINAL.line_bytes // 8
"""Doubles of a cache line; as in ``cuda/messages.cu``."""


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """Cases that are computed together, and which inputs differ between them."""

    cases: int = 1
    varies: tuple[bool, ...] = ()


NO_GROUP: Final = CaseGroup()

CASE_STRIDE: Final = 1 << 40
"""Stands for the cells between two cases, which are known when all tables have their places."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The mapping of a step.

    Attributes
    ----------
    outs, highs, lows
        Axes, slowest first.
    lanes_out, lanes_low
        Threads side by side; their product is at most `THREADS`.
    out_fast
        Whether neighbouring threads have neighbouring outputs, and not neighbouring lows.
    tile
        Outputs of a tile.
    pieces, piece_highs
        Blocks that share the elimination of a tile, and the highs of each.
    """

    outs: tuple[Axis, ...]
    highs: tuple[Axis, ...]
    lows: tuple[Axis, ...]
    lanes_out: int
    lanes_low: int
    out_fast: bool
    tile: int
    pieces: int
    piece_highs: int

    @property
    def outputs(self) -> int:
        """Cells of the output."""
        return cells_of(self.outs)

    @property
    def count(self) -> int:
        """Tiles of the output."""
        return -(-self.outputs // self.tile)

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(next(axis.strides for axis in (*self.outs, *self.highs, *self.lows, _SCALAR)))


_SCALAR: Final = Axis(1, (0,), 0)


def cells_of(axes: Sequence[Axis]) -> int:
    """Cells of a group of axes."""
    return math.prod([axis.size for axis in axes])


def message_tiles(axes: Axes, item_seconds: float, group: CaseGroup = NO_GROUP) -> Tiles:
    """Choose the lanes of a step and cut it into items that take about ``item_seconds``."""
    return _cut(_lanes_for(axes, group), item_seconds)


def tiles_with_lanes(axes: Axes, item_seconds: float, outputs: int) -> Tiles:
    """Cut a step into items with the lanes nearest to ``outputs`` side by side, to measure the launch space."""

    def distance(tiles: Tiles) -> tuple[float, float]:
        return abs(math.log2(tiles.lanes_out / outputs)), _cost(tiles)

    return _cut(min(_large(axes, NO_GROUP), key=distance), item_seconds)


def seconds_of(tiles: Tiles) -> float:
    """Predict how long one item takes while its inputs are there and the device has little else to do."""
    return 1e-9 * -(-tiles.tile // tiles.lanes_out) * _output_nanoseconds(tiles, tiles.piece_highs)


def busy_seconds(axes: Axes) -> float:
    """Predict the time of all items of a step together."""
    tiles = _lanes_for(axes, NO_GROUP)
    return 1e-9 * -(-tiles.outputs // tiles.lanes_out) * _output_nanoseconds(tiles, cells_of(tiles.highs))


def _output_nanoseconds(tiles: Tiles, highs: int) -> float:
    """Time of a thread for one output of its own."""
    inputs = tiles.inputs
    shares = -(-cells_of(tiles.lows) // (tiles.lanes_low * _at_once(inputs)))
    waits = max(inputs / UNROLLED_INPUTS, 1.0)
    return (
        _MESSAGE_OUTPUT_NS
        + _MESSAGE_AXIS_NS * len(tiles.outs)
        + highs * (_MESSAGE_HIGH_NS + _MESSAGE_LOWS_NS * waits * shares)
    )


def _at_once(inputs: int) -> int:
    """Lows that a thread reads at a time; as in ``cuda/messages.cu``."""
    return 4 if inputs <= 3 else 2 if inputs <= 6 else 1


@lru_cache(maxsize=1 << 14)
def _lanes_for(axes: Axes, group: CaseGroup) -> Tiles:
    """Choose the lanes of a step, with all its highs in one piece."""
    work = axes.cells * len(axes.strides) * group.cases
    if work <= _MESSAGE_SMALL_CELLS:
        return _small(axes, group)
    return min(_large(axes, group), key=_cost)


def _small(axes: Axes, group: CaseGroup) -> Tiles:
    """A step of one block: outputs side by side, and enough lows that no thread has many."""
    outs, eliminated = _groups(axes, len(axes.strides), group)
    highs, lows = _highs_and_lows(eliminated, len(axes.strides))
    lanes = min(cells_of(outs), THREADS)
    wanted = -(-cells_of(eliminated) // _MESSAGE_SHORT_STATES)
    return _lanes(outs, highs, lows, lanes, min(THREADS // lanes, cells_of(lows), wanted), True)


def _large(axes: Axes, group: CaseGroup) -> Iterator[Tiles]:
    """Orders by the strides of the largest input and of the output, and several shapes of lanes."""
    sizes = [axes.cells_of(i) for i in range(len(axes.strides))]
    for leading in dict.fromkeys((sizes.index(max(sizes)), len(sizes))):
        outs, eliminated = _groups(axes, leading, group)
        highs, lows = _highs_and_lows(eliminated, len(axes.strides))
        most = min(cells_of(outs), THREADS)
        runs = np.cumprod([axis.size for axis in reversed(outs)], dtype=np.int64) if outs else np.ones(1, np.int64)
        shapes = {1 << i for i in range(8)} | {int(n) for n in runs}
        for lanes in sorted(n for n in shapes | {most} if n <= most):
            others = min(THREADS // lanes, cells_of(lows))
            for out_fast in (True, False) if lanes > 1 < others else (True,):
                yield _lanes(outs, highs, lows, lanes, others, out_fast)


def _lanes(
    outs: tuple[Axis, ...], highs: tuple[Axis, ...], lows: tuple[Axis, ...], lanes: int, others: int, out_fast: bool
) -> Tiles:
    return Tiles(outs, highs, lows, lanes, others, out_fast, lanes, 1, cells_of(highs))


def _groups(axes: Axes, leading: int, group: CaseGroup) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes of the output and eliminated ones, each in the order of one table (behind the inputs: the output).

    Cases are the slowest axis of the output.
    """
    strides = (*axes.strides, axes.out)[leading]

    def rank(a: int) -> tuple[bool, int, int]:
        return strides[a] != 0, -strides[a], -axes.out[a]

    order = sorted(range(len(axes.sizes)), key=rank)
    every = [Axis(axes.sizes[a], tuple([table[a] for table in axes.strides]), axes.out[a]) for a in order]
    outs = [axis for axis in every if axis.out]
    if group.cases > 1:
        outs.insert(0, Axis(group.cases, tuple([CASE_STRIDE * varies for varies in group.varies]), CASE_STRIDE))
    return tuple(outs), tuple([axis for axis in every if not axis.out])


def _highs_and_lows(axes: Sequence[Axis], inputs: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Cut eliminated axes so that the offsets of the lows fit; the axis where they end is cut in two."""
    room = max(LOW_WORDS // inputs, 1)
    highs, lows = list(axes), list[Axis]()
    while highs and highs[-1].size <= room:
        lows.insert(0, highs.pop())
        room //= lows[0].size
    if highs:
        axis = highs[-1]
        part = max(n for n in range(1, room + 1) if axis.size % n == 0)
        if part > 1:
            highs[-1] = replace(axis, size=axis.size // part, strides=tuple([part * s for s in axis.strides]))
            lows.insert(0, replace(axis, size=part))
    return tuple(highs), tuple(lows)


def _cost(tiles: Tiles) -> float:
    """Estimate the work of all warps: instructions, and lines of 128 bytes that their loads touch."""
    inputs = tiles.inputs
    lines = _lines(tiles)
    threads = tiles.lanes_out * tiles.lanes_low
    warps = -(-threads // NOMINAL.warp)
    shares = -(-tiles.outputs // tiles.lanes_out) * warps
    rounds = cells_of(tiles.highs) * -(-cells_of(tiles.lows) // tiles.lanes_low)
    once = len(tiles.outs) * (1.0 + 0.5 * inputs) + lines[-1] + 12.0 * (tiles.lanes_low - 1).bit_length()
    # a block with idle threads hides less of the other threads' waiting
    idle = 1.0 + 0.25 * (THREADS / threads - 1.0)
    return idle * shares * (rounds * (2.5 * inputs + ordered_sum(lines[:-1])) + once)


def _lines(tiles: Tiles) -> list[int]:
    """Lines that the first warp touches in each table."""
    out, low = _first_warp(tiles.lanes_out, tiles.lanes_low, tiles.out_fast)
    where = _first_offsets(tiles.outs)[out] + _first_offsets(tiles.lows)[low]
    return [len(set(column)) for column in (where // LINE_CELLS).T.tolist()]


@lru_cache(maxsize=1 << 12)
def _first_warp(lanes_out: int, lanes_low: int, out_fast: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the outputs and the lows of the threads of the first warp."""
    threads = np.arange(min(NOMINAL.warp, lanes_out * lanes_low))
    if out_fast:
        return threads % lanes_out, threads // lanes_out
    return threads // lanes_low, threads % lanes_low


@lru_cache(maxsize=1 << 8)
def _first_offsets(axes: tuple[Axis, ...]) -> NDArray[np.int64]:
    """Return where the cells lie that a warp begins with: many shapes of lanes are weighed for the same axes."""
    return offsets_of(axes, np.arange(NOMINAL.warp))


def offsets_of(axes: Sequence[Axis], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where some cells of a group of axes lie in each table, the output last: shape (cells, tables)."""
    where = np.zeros((len(cells), 1), dtype=np.int64)
    for axis in reversed(axes):
        where = where + (cells % axis.size)[:, None] * np.array([*axis.strides, axis.out])
        cells = cells // axis.size
    return where


def _cut(tiles: Tiles, item_seconds: float) -> Tiles:
    """Choose the outputs of a tile and the pieces of the elimination."""
    wanted = item_seconds * 1e9
    whole = _output_nanoseconds(tiles, cells_of(tiles.highs))
    most = max(HIGH_WORDS // tiles.inputs, 1)
    if whole > wanted + _MESSAGE_PIECES_NS:
        if _output_nanoseconds(tiles, 1) > wanted:
            tiles = _with_few_lows(tiles)
        fixed, whole = _output_nanoseconds(tiles, 0), _output_nanoseconds(tiles, cells_of(tiles.highs))
        most = min(most, max(int((wanted - fixed) * cells_of(tiles.highs) / (whole - fixed)), 1))
    highs = cells_of(tiles.highs)
    pieces = -(-highs // min(highs, most))
    piece_highs = -(-highs // pieces)
    rounds = max(int(wanted / whole), 1) if pieces == 1 else 1
    count = -(-tiles.outputs // (rounds * tiles.lanes_out))
    even = -(-tiles.outputs // (count * tiles.lanes_out)) * tiles.lanes_out
    return replace(tiles, tile=even, pieces=-(-highs // piece_highs), piece_highs=piece_highs)


def _with_few_lows(tiles: Tiles) -> Tiles:
    """Leave as many lows as keep the lanes busy; others become highs, which can be cut into pieces."""
    least = tiles.lanes_low * _at_once(tiles.inputs)
    highs, lows, after = list(tiles.highs), list[Axis](), 1
    for axis in reversed(tiles.lows):
        if after >= least:
            highs.insert(len(tiles.highs), axis)
            continue
        part = next(n for n in range(1, axis.size + 1) if axis.size % n == 0 and (n * after >= least or n == axis.size))
        lows.insert(0, replace(axis, size=part))
        after *= part
        if part < axis.size:
            strides = tuple([part * stride for stride in axis.strides])
            highs.insert(len(tiles.highs), replace(axis, size=axis.size // part, strides=strides))
    return replace(tiles, highs=tuple(highs), lows=tuple(lows), piece_highs=cells_of(highs))
