"""Records of a propagation on a GPU: the data that ``cuda/messages.cu`` reads as its program. Pure: no values.

Every step becomes a record of 32-bit words (its tiles, inputs and axes), every tile or piece of one an item. Items
are in an order in which all inputs of a step are made before it, the longest way to the end first: blocks that take
them one by one never wait for an item that has not begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...steps.streaming import BLOCK_CELLS
from ...sweeps.table_packs import TablePack
from ..tiling.streams import Axis
from .layout import HEAD_WORDS, INPUT_WORDS, MOST_LINES, MessageLayout, Operation, OperationKind, layout_of
from .tiles import CASE_STRIDE, LINE_CELLS, THREADS, UNROLLED_INPUTS, Tiles, cells_of, seconds_of

# Waiting cost of a message for the items of its inputs.
_MESSAGE_WAITING_SECONDS: Final = 2e-6

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
    lanes: int | None = None,
) -> MessageRecords:
    """Lay out and describe a propagation; see :func:`~.messages.layout.layout_of`.

    Raises
    ------
    ValueError
        If a table has more cells than a record counts.
    """
    cells = {table: constant.cells for table, constant in constants.items()}
    layout = layout_of(operations, cells, findings, results, item_seconds, group, lanes)
    return described(layout, {table: constant.least_exponent for table, constant in constants.items()}, findings)


def described(
    layout: MessageLayout, least_exponents: Mapping[int, int], findings: Collection[int] = ()
) -> MessageRecords:
    """Describe a propagation that is laid out.

    Parameters
    ----------
    layout : MessageLayout
    least_exponents : mapping of int to int
        Of each constant table; see `Constant`.
    findings : collection of int
        Tables that are written before every run.

    Raises
    ------
    ValueError
        If a table has more cells than a record counts.
    """
    if not layout.countable:
        raise ValueError(
            f"tables of up to {layout.most_cells:.3g} cells; one of a propagation on a GPU has at most 2^31, "
            "and so have all of a group of cases"
        )
    kinds, operations = layout.kinds, layout.operations
    kind_of = np.array(layout.kind_of, np.intp)
    levels, urgency = _chains(layout)
    order = np.argsort(-np.array(urgency), kind="stable")
    lengths = np.array([kind.words for kind in kinds], np.int64)[kind_of]
    starts = np.cumsum(lengths) - lengths
    return MessageRecords(
        **{field.name: getattr(layout, field.name) for field in fields(layout)},
        words=_words(layout, kind_of, starts, least_exponents, findings),
        items=_items(starts[order], lengths[order], [kinds[k].tiles for k in kind_of[order].tolist()]),
        numbers={op.table: n for n, op in enumerate(operations)},
        shared_bytes=4 * max([_shared_places(kind, layout.group)[-1] for kind in kinds], default=0),
        levels=levels,
        factors=sum(kind.count * kind.axes.cells * kind.inputs for kind in kinds),
    )


def _items(starts: NDArray[np.int64], lengths: NDArray[np.int64], shapes: Sequence[Tiles]) -> NDArray[np.uint32]:
    """Return an item for each piece of each tile of some steps, with first word and length of its record."""
    pieces = np.array([shape.pieces for shape in shapes], np.int64)
    counts = pieces * np.array([shape.count for shape in shapes], np.int64)
    steps = np.repeat(np.arange(len(shapes)), counts)
    tile, piece = np.divmod(np.arange(len(steps)) - np.repeat(np.cumsum(counts) - counts, counts), pieces[steps])
    return np.column_stack((starts[steps], lengths[steps], tile, piece)).astype(np.uint32)


def _chains(layout: MessageLayout) -> tuple[int, list[float]]:
    """Return the longest chain, and for each operation the time from its start to the end of all that need it."""
    waiting, operations = _MESSAGE_WAITING_SECONDS, layout.operations
    seconds = [seconds_of(kind.tiles) for kind in layout.kinds]
    depth: dict[int, int] = {}
    for op in operations:
        depth[op.table] = 1 + max([depth.get(i, 0) for i in op.inputs], default=0)
    after: dict[int, float] = {}
    urgency = [0.0] * len(operations)
    for n in range(len(operations) - 1, -1, -1):
        op = operations[n]
        urgency[n] = own = after.get(op.table, 0.0) + waiting + seconds[layout.kind_of[n]]
        for i in op.inputs:
            if after.get(i, 0.0) < own:
                after[i] = own
    return max(depth.values(), default=0), urgency


# Words of a record's head that differ between operations of a kind.
_NUMBER, _FIRST_SPLIT, _OUT, _PIECES = range(13, 17)


def _words(
    layout: MessageLayout,
    kind_of: NDArray[np.intp],
    starts: NDArray[np.int64],
    least_exponents: Mapping[int, int],
    findings: Collection[int],
) -> NDArray[np.uint32]:
    """Write the records of all operations.

    Records of a kind differ only in the places of their tables, so these are written for all records together.

    Parameters
    ----------
    layout : MessageLayout
    kind_of : int array, shape (operations,)
        Kind of each operation.
    starts : int64 array, shape (operations,)
        Place of each record, in words.
    least_exponents : mapping of int to int
        Exponent of the least entry of each constant table.
    findings : collection of int
        Tables that are written before every run.
    """
    operations, kinds = layout.operations, layout.kinds
    if not operations:
        return np.zeros(0, np.uint32)
    forms = [_form(kind, layout) for kind in kinds]
    words = np.concatenate([forms[k] for k in layout.kind_of])
    made = np.array([layout.slab_at[op.table] for op in operations], np.int64) // LINE_CELLS
    counts = np.array([kind.tiles.count for kind in kinds], np.int64)[kind_of]
    split = np.where(np.array([kind.tiles.pieces for kind in kinds])[kind_of] > 1, counts, 0)
    numbers = np.arange(len(operations))
    words[starts + _NUMBER] = numbers
    words[starts + _FIRST_SPLIT] = np.where(split > 0, np.cumsum(split) - split, 0)
    words[starts + _OUT] = made
    words[starts + _PIECES] = np.array(layout.pieces_at, np.int64) // LINE_CELLS
    # one line for each table that may be read
    constants = np.tile(np.array([CONSTANT, 0, 0, 0, 0]), (len(least_exponents), 1))
    constants[:, 2] = [layout.constant_at[table] // LINE_CELLS for table in least_exponents]
    constants[:, 4] = [least & _WORD for least in least_exponents.values()]
    found = np.tile(np.array([FINDING, 0, 0, 0, FINDING_EXPONENT & _WORD]), (len(findings), 1))
    found[:, 2] = [layout.slab_at[table] for table in findings]
    computed = np.stack([np.full_like(made, COMPUTED), numbers, made, counts, np.zeros_like(made)], axis=1)
    lines = np.concatenate([constants, found, computed])
    line_of = {op.table: n for n, op in enumerate(operations, len(constants) + len(found))}
    line_of |= {table: n for n, table in enumerate(findings, len(constants))}
    line_of |= {table: n for n, table in enumerate(least_exponents)}
    read = [line_of[i] for op in operations for i in op.inputs]
    inputs = np.array([kind.inputs for kind in kinds], np.int64)[kind_of]
    before = np.arange(len(read)) - np.repeat(np.cumsum(inputs) - inputs, inputs)
    at = np.repeat(starts, inputs) + HEAD_WORDS + INPUT_WORDS * before
    words[at[:, np.newaxis] + np.arange(INPUT_WORDS)] = lines[read]
    return words


_WORD: Final = MOST_LINES - 1


def _shared_places(kind: OperationKind, group: int) -> tuple[int, int, int, int, int]:
    """Return where a block has what belongs to inputs, offsets of lows and highs, and starts, and how many words."""
    inputs, lows = kind.inputs, cells_of(kind.tiles.lows)
    inputs_at = -(-kind.words // 4) * 4
    # inverses, starts, factors, ranges and bounds
    low_at = inputs_at + 4 * inputs * group + 2 * inputs + 4 * group
    high_at = low_at + inputs * lows
    start_at = high_at + inputs * kind.tiles.piece_highs
    return inputs_at, low_at, high_at, start_at, start_at + (0 if inputs <= UNROLLED_INPUTS else inputs * THREADS)


def _form(kind: OperationKind, layout: MessageLayout) -> NDArray[np.uint32]:
    """Return the record of a kind of operations, with zeros for where tables are."""
    shape, inputs, group = kind.tiles, kind.inputs, layout.group
    axes = (*shape.outs, *shape.highs, *shape.lows)
    words = [
        *(inputs, shape.outputs, shape.tile, shape.pieces),
        *(cells_of(shape.highs), shape.piece_highs, cells_of(shape.lows)),
        *(shape.lanes_out, shape.lanes_low, int(shape.out_fast)),
        *(len(shape.outs), len(shape.highs), len(shape.lows)),
        *(0, 0, 0, 0),
        *(group, shape.outputs // group),
        *(HEAD_WORDS + INPUT_WORDS * inputs, *_shared_places(kind, group)[:-1]),
        *[0] * (INPUT_WORDS * inputs),
    ]
    for axis in axes:
        words += _axis_words(axis, layout.slab_cells)
    return np.array(words, np.uint32)


def _axis_words(axis: Axis, case_cells: int) -> tuple[int, ...]:
    """Describe an axis; its division is a multiplication, exact for numbers below 2^31 (Granlund and Montgomery)."""
    bits = (axis.size - 1).bit_length()
    magic = -((-1 << (31 + bits)) // axis.size)
    strides = [case_cells if stride == CASE_STRIDE else stride for stride in (axis.out, *axis.strides)]
    return axis.size, magic, bits - 1, *strides


def least_exponents(packs: Sequence[TablePack]) -> list[int]:
    """Return the exponent of the least positive entry of each table, 0 if it has none; no entry is negative."""
    least = [np.zeros(0, np.uint64)]
    for pack in packs:
        if len(pack.nodes) > 1:
            least.append(np.minimum.reduceat(_zeros_last(pack.values), pack.starts[:-1]))
        else:
            # in blocks, because the numbers for a whole large table would take much memory
            blocks = range(0, pack.values.size, BLOCK_CELLS)
            least.append(min([_zeros_last(pack.values[k : k + BLOCK_CELLS]).min(keepdims=True) for k in blocks]))
    positive = (np.concatenate(least) + _ONE).view(np.float64)
    exponents: list[int] = np.where(positive > 0.0, np.frexp(positive)[1] - 1, 0).tolist()
    return exponents


_ONE: Final = np.uint64(1)


def _zeros_last(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return numbers in the order of doubles that are not negative, but for zeros, which are the greatest."""
    return values.view(np.uint64) - _ONE
