"""Where the tables of a propagation lie on a GPU, and its bytes: known before its records are written. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from ...steps.axes import Axes
from ...steps.number_limits import LARGEST_INT32, ordered_sum
from ..tiling.tiling_policy import NOMINAL
from .tiles import LINE_CELLS, NO_GROUP, CaseGroup, Tiles, busy_seconds, cells_of, message_tiles, tiles_with_lanes

# Items that each block should have where there is enough work.
_MESSAGE_BLOCK_ITEMS: Final = 14
# Shortest item: about as long as what it waits for besides its work.
_MESSAGE_ITEM_SECONDS: Final = 1e-6
# Length of an item with many cases, when no case waits for a single item.
_MESSAGE_BATCH_ITEM_SECONDS: Final = 40e-6

HEAD_WORDS: Final = 24
INPUT_WORDS: Final = 5
AXIS_WORDS: Final = 4
"""As in ``cuda/messages.cu``."""

MOST_CELLS: Final = LARGEST_INT32 + 1
"""Cells of a table are fewer: divisions are exact for numbers of 31 bits. Lines of all tables are counted by 32."""
MOST_LINES: Final = 2 * MOST_CELLS
# Blocks that the nominal device holds at a time, and the desired items per block if there is enough work. The waiting
# time of an item should not exceed the time of the shortest item.
_BLOCKS: Final = 6 * NOMINAL.processors


@dataclass(frozen=True, slots=True)
class Operation:
    """One table to compute: its number, the numbers of the tables it reads, and the loops."""

    table: int
    inputs: tuple[int, ...]
    axes: Axes


@dataclass(frozen=True, slots=True)
class OperationKind:
    """Common properties of operations with the same loops: the loops, their division into items, and the number of
    items.

    Most operations of a propagation are alike, so results that depend only on loops are computed once.
    """

    axes: Axes
    tiles: Tiles
    count: int

    @property
    def inputs(self) -> int:
        """Tables that each reads."""
        return len(self.axes.strides)

    @property
    def words(self) -> int:
        """Words of the record of each."""
        tiles = self.tiles
        axes = len(tiles.outs) + len(tiles.highs) + len(tiles.lows)
        return HEAD_WORDS + INPUT_WORDS * self.inputs + (AXIS_WORDS + self.inputs) * axes


@dataclass(frozen=True, eq=False)
class MessageLayout:
    """The tables of a propagation, each with its place.

    Attributes
    ----------
    operations
        In an order in which tables are made before they are read.
    kinds
    kind_of
        For each operation the number of its kind.
    constant_at
        For each constant table, its first cell among the constants.
    slab_at
        For each finding and each computed table, its first cell in the slab of a case; findings come first.
    pieces_at
        For each operation, the first cell of the sums of its elimination's pieces.
    finding_cells, slab_cells, constant_cells
    group
        Cases that are computed together; slabs are a multiple of it.
    """

    operations: Sequence[Operation]
    kinds: Sequence[OperationKind]
    kind_of: Sequence[int]
    constant_at: Mapping[int, int]
    slab_at: Mapping[int, int]
    pieces_at: Sequence[int]
    finding_cells: int
    slab_cells: int
    constant_cells: int
    group: int

    @cached_property
    def split_tiles(self) -> int:
        """Tiles whose elimination is cut into pieces."""
        return sum(kind.count * kind.tiles.count for kind in self.kinds if kind.tiles.pieces > 1)

    @cached_property
    def control_words(self) -> int:
        """Words that count and bound the tables of one case."""
        return 3 * len(self.operations) + self.split_tiles + 1

    def case_bytes(self, answer_cells: int) -> int:
        """Bytes on the device for each case."""
        return 8 * (self.slab_cells + answer_cells) + 4 * self.control_words

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes on the device for any number of cases."""
        items = sum(kind.count * kind.tiles.count * kind.tiles.pieces for kind in self.kinds)
        words = sum(kind.count * kind.words for kind in self.kinds)
        # an item is four words: the place and the length of its record, a tile and a piece
        return 8 * self.constant_cells + 4 * (words + 4 * items)

    @cached_property
    def most_cells(self) -> int:
        """Cells of the largest table, or of the largest elimination."""
        shapes = [kind.tiles for kind in self.kinds]
        return max((max(s.outputs, cells_of(s.highs) * cells_of(s.lows)) for s in shapes), default=0)

    @property
    def countable(self) -> bool:
        """Whether the numbers of a record are large enough for all tables."""
        lines = max(self.slab_cells, self.constant_cells) // LINE_CELLS
        in_groups = self.group == 1 or self.slab_cells * self.group < MOST_CELLS
        return self.most_cells < MOST_CELLS and lines < MOST_LINES and in_groups


def layout_of(
    operations: Sequence[Operation],
    constants: Mapping[int, int],
    findings: Mapping[int, int],
    results: Collection[int] = (),
    item_seconds: float | None = None,
    group: int = 1,
    lanes: int | None = None,
) -> MessageLayout:
    """Cut a propagation into items and give all tables their places.

    Parameters
    ----------
    operations : sequence of Operation
        In an order in which tables are made before they are read.
    constants : mapping of int to int
        Cells of the tables that no run changes.
    findings : mapping of int to int
        Cells of the tables that are written before every run; packed without gaps, in their order.
    results : collection of int
        Tables that lie side by side, in their order.
    item_seconds : float, optional
        How long an item should take; chosen from the total if not given.
    group : int
        Cases that are computed together.
    lanes : int, optional
        Outputs side by side, where launches are measured; chosen for each operation if not given.
    """
    kind_of, kinds = _kinds(operations, constants, group, item_seconds, lanes)
    slab_at, constant_at, slab, fixed = {}, {}, 0, 0
    for table, cells in findings.items():
        slab_at[table] = slab
        slab += cells
    finding_cells, slab = slab, _lined(slab)
    for table, cells in constants.items():
        constant_at[table] = fixed
        fixed = _lined(fixed + cells)
    numbers = {op.table: n for n, op in enumerate(operations)}
    outputs = [_lined(kind.tiles.outputs // group) for kind in kinds]
    # results come first, so that one launch can read them side by side
    for table in {**dict.fromkeys(results), **numbers}:
        slab_at[table] = slab
        slab += outputs[kind_of[numbers[table]]]
    pieces = [_piece_cells(kind.tiles, group) for kind in kinds]
    *pieces_at, slab = accumulate([pieces[k] for k in kind_of], initial=slab)
    return MessageLayout(
        operations, kinds, kind_of, constant_at, slab_at, pieces_at, finding_cells, slab, max(fixed, LINE_CELLS), group
    )


def _kinds(
    operations: Sequence[Operation],
    constants: Mapping[int, int],
    group: int,
    item_seconds: float | None,
    lanes: int | None = None,
) -> tuple[list[int], list[OperationKind]]:
    """Return the kind of each operation and all kinds, cut into items."""
    found: dict[tuple[Axes, tuple[bool, ...]], int] = {}
    # steps that are alike mostly have the same object, which need not be compared
    seen: dict[tuple[int, tuple[bool, ...]], int] = {}
    kind_of = []
    for op in operations:
        # of one case it does not matter what varies, and its lanes were chosen for the time of all items
        varies = tuple([i not in constants for i in op.inputs]) if group > 1 else ()
        number = seen.get((id(op.axes), varies))
        if number is None:
            number = seen[id(op.axes), varies] = found.setdefault((op.axes, varies), len(found))
        kind_of.append(number)
    counts = Counter(kind_of)
    wanted = item_seconds or (
        _item_seconds([(axes, counts[k]) for (axes, _), k in found.items()])
        if group == 1
        else _MESSAGE_BATCH_ITEM_SECONDS
    )

    def cut(axes: Axes, varies: tuple[bool, ...]) -> Tiles:
        if lanes is not None:
            return tiles_with_lanes(axes, wanted, lanes)
        return message_tiles(axes, wanted, NO_GROUP if group == 1 else CaseGroup(group, varies))

    return kind_of, [OperationKind(axes, cut(axes, varies), counts[k]) for (axes, varies), k in found.items()]


def _piece_cells(tiles: Tiles, group: int) -> int:
    """Return the cells per case for the sums of an elimination's pieces."""
    return _lined(tiles.pieces * tiles.outputs // group) if tiles.pieces > 1 else 0


def _lined(cells: int) -> int:
    """Round up to whole lines."""
    return -(-cells // LINE_CELLS) * LINE_CELLS


def _item_seconds(operations: Sequence[tuple[Axes, int]]) -> float:
    """Items that are worth their waiting, and short enough that every block has several and no chain is long.

    Takes the loops of operations, each with how many there are.
    """
    return max(
        ordered_sum(count * busy_seconds(axes) for axes, count in operations) / (_BLOCKS * _MESSAGE_BLOCK_ITEMS),
        _MESSAGE_ITEM_SECONDS,
    )
