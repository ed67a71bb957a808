"""Records of a propagation on a GPU: what ``cuda/messages.cu`` reads instead of a program. Pure: no values.

Every step becomes a record of 32-bit words (its tiles, inputs and axes), every tile or piece of one an item. Items
are in an order in which all inputs of a step are made before it, the longest way to the end first: blocks that take
them one by one never wait for an item that has not begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..device_policy import DevicePolicy
from ..tiling.streams import Axis
from .layout import HEAD_WORDS, INPUT_WORDS, MessageLayout, Operation, layout_of, record_words
from .tiles import CASE_STRIDE, LINE_CELLS, THREADS, UNROLLED_INPUTS, Tiles, cells_of, seconds_of

CONSTANT, FINDING, COMPUTED = range(3)
"""As in ``cuda/messages.cu``."""
FINDING_EXPONENT: Final = -100
"""Every positive likelihood is at least 2 to this, the largest is 1."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A table that no run changes: its cells, and the exponent of its least positive entry; the largest is 1.

    Sums of products are scaled by exponents; for least sums they mean nothing.
    """

    cells: int
    least_exponent: int


@dataclass(frozen=True, eq=False)
class MessageRecords(MessageLayout):
    """A propagation ready for a device.

    Attributes
    ----------
    words
        (n,) uint32, all records.
    items
        (n, 4) uint32: first word of the record, number of its words, tile, piece.
    numbers
        For each computed table its number on the device.
    shared_bytes
        Shared memory of a block.
    levels
        Length of the longest chain of steps.
    factors
        Factors multiplied: cells of all joins, once for each input.
    """

    words: NDArray[np.uint32]
    items: NDArray[np.uint32]
    numbers: Mapping[int, int]
    shared_bytes: int
    levels: int
    factors: int


def records_of(
    operations: Sequence[Operation],
    constants: Mapping[int, Constant],
    findings: Mapping[int, int],
    results: Collection[int] = (),
    item_seconds: float | None = None,
    group: int = 1,
) -> MessageRecords:
    """Lay out and describe a propagation; see :func:`~.messages.layout.layout_of`.

    Raises
    ------
    ValueError
        If a table has more cells than a record counts.
    """
    cells = {table: constant.cells for table, constant in constants.items()}
    layout = layout_of(operations, cells, findings, results, item_seconds, group)
    if not layout.countable:
        raise ValueError(
            f"tables of up to {layout.most_cells:.3g} cells; one of a propagation on a GPU has at most 2^31, "
            "and so have all of a group of cases"
        )
    tiles = layout.tiles
    writer = _Writer(layout, constants, findings)
    rows = [writer.record(op) for op in operations]
    levels, urgency = _chains(operations, tiles)
    order = sorted(range(len(operations)), key=lambda n: -urgency[n])
    return MessageRecords(
        **{field.name: getattr(layout, field.name) for field in fields(layout)},
        words=np.array(writer.words, dtype=np.uint32),
        items=_items([rows[n] for n in order], [tiles[operations[n].table] for n in order]),
        numbers=writer.numbers,
        shared_bytes=4 * writer.shared_words,
        levels=levels,
        factors=_factors(operations),
    )


def _items(records: Sequence[tuple[int, int]], shapes: Sequence[Tiles]) -> NDArray[np.uint32]:
    """Return an item for each piece of each tile of some steps, with first word and length of its record."""
    places = np.array(records, np.int64).reshape(-1, 2)
    pieces = np.array([shape.pieces for shape in shapes], np.int64)
    counts = pieces * np.array([shape.count for shape in shapes], np.int64)
    steps = np.repeat(np.arange(len(shapes)), counts)
    tile, piece = np.divmod(np.arange(len(steps)) - np.repeat(np.cumsum(counts) - counts, counts), pieces[steps])
    return np.column_stack((places[steps], tile, piece)).astype(np.uint32)


def _factors(operations: Sequence[Operation]) -> int:
    return sum(op.axes.cells * len(op.inputs) for op in operations)


def _chains(operations: Sequence[Operation], tiles: Mapping[int, Tiles]) -> tuple[int, list[float]]:
    """Return the longest chain, and for each operation the time from its start to the end of all that need it."""
    policy = DevicePolicy.current()
    depth: dict[int, int] = {}
    for op in operations:
        depth[op.table] = 1 + max((depth.get(i, 0) for i in op.inputs), default=0)
    after: dict[int, float] = {}
    urgency = [0.0] * len(operations)
    for n in range(len(operations) - 1, -1, -1):
        op = operations[n]
        urgency[n] = after.get(op.table, 0.0) + policy.message_waiting_seconds + seconds_of(tiles[op.table])
        for i in op.inputs:
            after[i] = max(after.get(i, 0.0), urgency[n])
    return max(depth.values(), default=0), urgency


class _Writer:
    """Appends records to a list of words."""

    def __init__(self, layout: MessageLayout, constants: Mapping[int, Constant], findings: Mapping[int, int]) -> None:
        self.words: list[int] = []
        self.numbers = {op.table: n for n, op in enumerate(layout.operations)}
        self.shared_words = 0
        self._split_tiles = 0
        self._layout, self._constants, self._findings = layout, constants, findings

    def record(self, op: Operation) -> tuple[int, int]:
        """Append a record; return its first word and its length."""
        layout, shape, inputs = self._layout, self._layout.tiles[op.table], len(op.inputs)
        axes = (*shape.outs, *shape.highs, *shape.lows)
        axes_at = HEAD_WORDS + INPUT_WORDS * inputs
        length = record_words(shape, inputs)
        inputs_at = -(-length // 4) * 4
        # inverses, starts, factors, ranges and bounds
        low_at = inputs_at + 4 * inputs * layout.group + 2 * inputs + 4 * layout.group
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
            *(self.numbers[op.table], self._split_tiles if split else 0),
            *(layout.slab_at[op.table] // LINE_CELLS, layout.pieces_at[op.table] // LINE_CELLS),
            *(layout.group, shape.outputs // layout.group),
            *(axes_at, inputs_at, low_at, high_at, start_at),
        )
        if split:
            self._split_tiles += shape.count
        start = len(self.words)
        self.words += head
        for i in op.inputs:
            self.words += self._input(i)
        for axis in axes:
            self.words += _axis_words(axis, layout.slab_cells)
        return start, length

    def _input(self, table: int) -> tuple[int, ...]:
        layout = self._layout
        if table in self._constants:
            least = self._constants[table].least_exponent
            return CONSTANT, 0, layout.constant_at[table] // LINE_CELLS, 0, least & 0xFFFFFFFF
        if table in self._findings:
            return FINDING, 0, layout.slab_at[table], 0, FINDING_EXPONENT & 0xFFFFFFFF
        return COMPUTED, self.numbers[table], layout.slab_at[table] // LINE_CELLS, layout.tiles[table].count, 0


def _axis_words(axis: Axis, case_cells: int) -> tuple[int, ...]:
    """Describe an axis; its division is a multiplication, exact for numbers below 2^31 (Granlund and Montgomery)."""
    bits = (axis.size - 1).bit_length()
    magic = -((-1 << (31 + bits)) // axis.size)
    strides = [case_cells if stride == CASE_STRIDE else stride for stride in (axis.out, *axis.strides)]
    return axis.size, magic, bits - 1, *strides


def least_exponents(tables: Sequence[NDArray[Any]]) -> list[int]:
    """Return the exponent of the least positive entry of each table, 0 if it has none."""
    policy = DevicePolicy.current()
    least = np.full(len(tables), np.inf)
    sizes = [table.size for table in tables]
    small = [k for k, size in enumerate(sizes) if 0 < size <= policy.least_entry_cells]
    for first in range(0, len(small), policy.least_entry_tables):
        some = small[first : first + policy.least_entry_tables]
        flat = np.concatenate([tables[k] for k in some], axis=None)
        starts = np.cumsum([0, *[sizes[k] for k in some[:-1]]])
        least[some] = np.minimum.reduceat(np.where(flat > 0.0, flat, np.inf), starts)
    for k, size in enumerate(sizes):
        if size > policy.least_entry_cells:
            least[k] = tables[k].min(where=tables[k] > 0.0, initial=np.inf)
    exponents = np.frexp(least)[1] - 1
    exponents[np.isinf(least)] = 0
    found: list[int] = exponents.tolist()
    return found
