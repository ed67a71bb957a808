"""Records of a propagation on a GPU: what ``cuda/messages.cu`` reads instead of a program. Pure: no values.

Every step becomes a record of 32-bit words (its tiles, inputs and axes), every tile or piece of one an item. Items
are in an order in which all inputs of a step are made before it, the longest way to the end first: blocks that take
them one by one never wait for what nobody has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .axes import Axes
from .gpu_tiles import Axis
from .message_tiles import (
    CASE_STRIDE,
    THREADS,
    UNROLLED_INPUTS,
    Group,
    Tiles,
    busy_seconds,
    cells_of,
    message_tiles,
    seconds_of,
)

HEAD_WORDS: Final = 24
INPUT_WORDS: Final = 5
AXIS_WORDS: Final = 4
"""As in ``cuda/messages.cu``."""

CONSTANT, FINDING, COMPUTED = range(3)
FINDING_EXPONENT: Final = -100
"""Every positive likelihood is at least 2 to this, the largest is 1."""

_ALIGNED_CELLS: Final = 16
_MOST_CELLS: Final = 1 << 32
# Blocks that an H200 holds at a time, and how many items each should have where there is enough work. What an item
# waits for besides its work is about as long as the shortest item should be.
_BLOCKS: Final = 132 * 6
_ITEMS_OF_A_BLOCK, _LEAST_SECONDS, _WAITING_SECONDS = 14, 1e-6, 2e-6
# With many cases nothing waits for one item.
_BATCH_SECONDS = 40e-6


@dataclass(frozen=True, slots=True)
class Operation:
    """One table to compute: its number, the numbers of the tables it reads, and the loops."""

    table: int
    inputs: tuple[int, ...]
    axes: Axes


@dataclass(frozen=True, slots=True)
class Constant:
    """A table that no run changes: where it lies, and the exponent of its least positive entry; the largest is 1."""

    cells: int
    least_exponent: int


@dataclass(frozen=True, eq=False)
class Records:
    """A propagation ready for a device.

    Attributes
    ----------
    words
        (n,) uint32, all records.
    items
        (n, 4) uint32: first word of the record, number of its words, tile, piece.
    constant_at
        For each constant table, its first cell among the constants.
    slab_at
        For each finding and each computed table, its first cell in the slab of a case; findings come first.
    numbers
        For each computed table its number on the device.
    finding_cells, slab_cells, constant_cells
    group
        Cases that are computed together; slabs are a multiple of it.
    split_tiles
        Tiles whose elimination is cut into pieces.
    shared_bytes
        Shared memory of a block.
    levels
        Length of the longest chain of steps.
    factors
        Factors multiplied: cells of all joins, once for each input.
    """

    words: NDArray[np.uint32]
    items: NDArray[np.uint32]
    constant_at: Mapping[int, int]
    slab_at: Mapping[int, int]
    numbers: Mapping[int, int]
    finding_cells: int
    slab_cells: int
    constant_cells: int
    group: int
    split_tiles: int
    shared_bytes: int
    levels: int
    factors: int

    @cached_property
    def control_words(self) -> int:
        """Words that count and bound the tables of one case."""
        return 3 * len(self.numbers) + self.split_tiles + 1

    def case_bytes(self, answer_cells: int) -> int:
        """Bytes on the device for each case."""
        return 8 * (self.slab_cells + answer_cells) + 4 * self.control_words

    @property
    def fixed_bytes(self) -> int:
        """Bytes on the device for any number of cases."""
        return 8 * self.constant_cells + self.words.nbytes + self.items.nbytes


@dataclass
class _Layout:
    """Consecutive places, each aligned to a line."""

    at: dict[int, int] = field(default_factory=dict)
    cells: int = 0

    def take(self, cells: int) -> int:
        start = self.cells
        self.cells = -(-(start + cells) // _ALIGNED_CELLS) * _ALIGNED_CELLS
        return start

    def place(self, table: int, cells: int) -> None:
        self.at[table] = self.take(cells)


def records_of(
    operations: Sequence[Operation],
    constants: Mapping[int, Constant],
    findings: Mapping[int, int],
    results: Collection[int] = (),
    item_seconds: float | None = None,
    group: int = 1,
) -> Records:
    """Lay out and describe a propagation.

    Parameters
    ----------
    operations : sequence of Operation
        In an order in which tables are made before they are read.
    constants : mapping of int to Constant
    findings : mapping of int to int
        Cells of the tables that are written before every run; packed without gaps, in their order.
    results : collection of int
        Tables that lie side by side, in their order.
    item_seconds : float, optional
        How long an item should take; chosen from the total if not given.
    group : int
        Cases that are computed together.

    Raises
    ------
    ValueError
        If the tables of a case have more cells than 32 bits count.
    """
    wanted = item_seconds or (_item_seconds(operations) if group == 1 else _BATCH_SECONDS)

    def tiles_of(op: Operation) -> Tiles:
        return message_tiles(op.axes, wanted, Group(group, tuple([i not in constants for i in op.inputs])))

    tiles = {op.table: tiles_of(op) for op in operations}
    slab, fixed, pieces = _Layout(), _Layout(), dict[int, int]()
    for table, cells in findings.items():
        slab.at[table] = slab.cells
        slab.cells += cells
    finding_cells = slab.cells
    slab.take(0)
    for table, constant in constants.items():
        fixed.place(table, constant.cells)
    first = set(results)
    for table in (*results, *(op.table for op in operations if op.table not in first)):
        slab.place(table, tiles[table].outputs // group)
    for table, shape in tiles.items():
        pieces[table] = slab.take(shape.pieces * shape.outputs // group) if shape.pieces > 1 else 0
    if max(slab.cells * group, fixed.cells) >= _MOST_CELLS:
        raise ValueError(f"tables of {slab.cells:.3g} cells; those of one propagation on a GPU are at most 2^32")
    numbers = {op.table: n for n, op in enumerate(operations)}
    writer = _Writer(tiles, constants, findings, slab, fixed, pieces, numbers, group)
    rows = [writer.record(op) for op in operations]
    levels, urgency = _chains(operations, tiles)
    order = sorted(range(len(operations)), key=lambda n: -urgency[n])
    items = [
        (*rows[n], tile, piece)
        for n in order
        for tile in range(tiles[operations[n].table].count)
        for piece in range(tiles[operations[n].table].pieces)
    ]
    return Records(
        words=np.array(writer.words, dtype=np.uint32),
        items=np.array(items, dtype=np.uint32).reshape(-1, 4),
        constant_at=fixed.at,
        slab_at=slab.at,
        numbers=writer.numbers,
        finding_cells=finding_cells,
        slab_cells=slab.cells,
        constant_cells=max(fixed.cells, 1),
        group=group,
        split_tiles=writer.split_tiles,
        shared_bytes=4 * writer.shared_words,
        levels=levels,
        factors=_factors(operations),
    )


def _factors(operations: Sequence[Operation]) -> int:
    return sum(op.axes.cells * len(op.inputs) for op in operations)


def _item_seconds(operations: Sequence[Operation]) -> float:
    """Items that are worth their waiting, and short enough that every block has several and no chain is long."""
    return max(sum(busy_seconds(op.axes) for op in operations) / (_BLOCKS * _ITEMS_OF_A_BLOCK), _LEAST_SECONDS)


def _chains(operations: Sequence[Operation], tiles: Mapping[int, Tiles]) -> tuple[int, list[float]]:
    """Return the longest chain, and for each operation the time from its start to the end of all that need it."""
    depth: dict[int, int] = {}
    for op in operations:
        depth[op.table] = 1 + max((depth.get(i, 0) for i in op.inputs), default=0)
    after: dict[int, float] = {}
    urgency = [0.0] * len(operations)
    for n in range(len(operations) - 1, -1, -1):
        op = operations[n]
        urgency[n] = after.get(op.table, 0.0) + _WAITING_SECONDS + seconds_of(tiles[op.table])
        for i in op.inputs:
            after[i] = max(after.get(i, 0.0), urgency[n])
    return max(depth.values(), default=0), urgency


class _Writer:
    """Appends records to a list of words."""

    def __init__(
        self,
        tiles: Mapping[int, Tiles],
        constants: Mapping[int, Constant],
        findings: Mapping[int, int],
        slab: _Layout,
        fixed: _Layout,
        pieces: Mapping[int, int],
        numbers: dict[int, int],
        group: int,
    ) -> None:
        self.words: list[int] = []
        self.numbers = numbers
        self.split_tiles = 0
        self.shared_words = 0
        self._tiles, self._constants, self._findings = tiles, constants, findings
        self._slab, self._fixed, self._pieces, self._group = slab, fixed, pieces, group

    def record(self, op: Operation) -> tuple[int, int]:
        """Append a record; return its first word and its length."""
        shape, inputs = self._tiles[op.table], len(op.inputs)
        axes = (*shape.outs, *shape.highs, *shape.lows)
        axes_at = HEAD_WORDS + INPUT_WORDS * inputs
        length = axes_at + (AXIS_WORDS + inputs) * len(axes)
        inputs_at = -(-length // 4) * 4
        # inverses, starts, factors, ranges and bounds
        low_at = inputs_at + 4 * inputs * self._group + 2 * inputs + 4 * self._group
        lows = cells_of(shape.lows)
        high_at = low_at + inputs * lows
        start_at = high_at + inputs * shape.piece_highs
        shared_words = start_at + (0 if inputs <= UNROLLED_INPUTS else inputs * THREADS)
        self.shared_words = max(self.shared_words, shared_words)
        split = shape.pieces > 1
        head = (
            *(inputs, shape.outputs, shape.tile, shape.pieces),
            *(cells_of(shape.highs), shape.piece_highs, lows),
            *(shape.lanes_out, shape.lanes_low, int(shape.out_fast)),
            *(len(shape.outs), len(shape.highs), len(shape.lows)),
            *(self.numbers[op.table], self.split_tiles if split else 0),
            *(self._slab.at[op.table], self._pieces[op.table]),
            *(self._group, shape.outputs // self._group),
            *(axes_at, inputs_at, low_at, high_at, start_at),
        )
        if split:
            self.split_tiles += shape.count
        start = len(self.words)
        self.words += head
        for i in op.inputs:
            self.words += self._input(i)
        for axis in axes:
            self.words += _axis_words(axis, self._slab.cells)
        return start, length

    def _input(self, table: int) -> tuple[int, ...]:
        if table in self._constants:
            least = self._constants[table].least_exponent
            return CONSTANT, 0, self._fixed.at[table], 0, least & 0xFFFFFFFF
        if table in self._findings:
            return FINDING, 0, self._slab.at[table], 0, FINDING_EXPONENT & 0xFFFFFFFF
        return COMPUTED, self.numbers[table], self._slab.at[table], self._tiles[table].count, 0


def _axis_words(axis: Axis, case_cells: int) -> tuple[int, ...]:
    """Describe an axis; its division is a multiplication, exact for numbers below 2^31 (Granlund and Montgomery)."""
    bits = (axis.size - 1).bit_length()
    magic = -((-1 << (31 + bits)) // axis.size)
    strides = [case_cells if stride == CASE_STRIDE else stride for stride in (axis.out, *axis.strides)]
    return axis.size, magic, bits - 1, *strides


def least_exponent(values: NDArray[Any]) -> int:
    """Return the exponent of the least positive entry, 0 if there is none."""
    positive = values[values > 0.0]
    return int(np.frexp(positive.min())[1]) - 1 if positive.size else 0
