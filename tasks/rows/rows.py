"""Rows tables in memory, and what a layered search does with them; NumPy arrays, compiled loops.

Every operation takes arrays and returns arrays, and says exactly which rows in which order come out, so that another
implementation gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..code_files import Patience
from ..cpu.threads import share, split
from ..gpu.arrays import on_host
from .keys import Words
from .layer import Costs, Layer, Origin, Rows, lowered
from .plain import next_rows as next_plain

#: Layers of more expanded rows are not in NumPy, which takes so long for a layer and for one of them.
_PLAIN_CELLS = 1 << 17
_LAYER_SECONDS, _CELL_SECONDS = 3e-4, 4e-7
_PATIENCE = Patience("tasks.rows.loops", "advance")
#: A thread sorts so many rows at least, or expands so many.
_SHARED_ROWS = 1 << 15
_SHARED_CELLS = 1 << 16


@dataclass
class Space:
    """Two sets of arrays that layers are written to in turn, so that memory is taken from the system once.

    ``take(rows, words)`` takes keys, costs and origins from it.
    """

    take: Callable[[int, int], tuple[Any, Any, Any]] = field(default_factory=lambda: _room)
    _arrays: list[tuple[Any, Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._arrays = [self.take(0, 1), self.take(0, 1)]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(array.nbytes) for arrays in self._arrays for array in arrays)

    def turn(self, rows: int, words: int) -> tuple[Words, Costs, Origin]:
        """Return keys, costs and origins for so many rows; those of the turn before the last are overwritten."""
        keys, costs, origin = self._arrays.pop(0)
        if len(costs) < rows or keys.size < rows * words:
            keys, costs, origin = self.take(rows, words)
        self._arrays.append((keys, costs, origin))
        return keys.reshape(-1)[: rows * words].reshape(rows, words), costs[:rows], origin[:rows]


def _room(rows: int, words: int) -> tuple[Words, Costs, Origin]:
    return np.empty((rows, words), np.uint64), np.empty(rows), np.empty(rows, np.uint32)


def row_bytes(words: int) -> int:
    """Memory of one row of :func:`next_rows`' working arrays: two turns of a Space, orders, and costs to cut by."""
    return 2 * (8 * words + 8 + 4) + 2 * 4 + 8 + 8


def order_of_groups(rows: Rows, layer: Layer, threads: int = 1) -> NDArray[np.int32]:
    """Return the numbers of rows in stable order of what stays of their keys; empty if nothing leaves.

    One variable after the other falls away, last field first: rows that agree before its field are then in runs that
    are sorted by what is behind it, and are merged.
    """
    from .order_loops import merge_groups

    leaving = layer.leaving
    if not leaving:
        return np.empty(0, np.int32)
    n, keys = len(rows), layer.keys
    order, spare, starts = np.arange(n, dtype=np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    ranges = split(n, min(threads, 1 + n // _SHARED_ROWS))
    for gone, v in enumerate(leaving, start=1):
        # where nothing is left behind the field, rows are in order without it
        if leaving[:gone] != [*keys.variables[: -gone - 1 : -1]]:
            arrays = keys.mask_before(v), keys.mask(leaving[:gone]), order, spare, starts
            share(lambda _, *span, arrays=arrays: merge_groups(rows.keys, *arrays, *span), ranges)
    return order


def next_rows(
    rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None = None, threads: int = 1
) -> tuple[Rows, Origin, float]:
    """Give every row every state of the layer's variable; keep the cheapest row of each new key, and the cheapest keys.

    Parameters
    ----------
    rows : Rows
    layer : Layer
    upper : float
        Rows of this cost or more are dropped.
    most : int
        Rows that are kept: of more, the cheapest, and the first of equals.
    space : Space
        Where the result is; `rows` may be the result before.
    spare : int, optional
        How many rows more may wait until the cheapest are chosen; the more, the seldomer. As many as `most` by default.
    threads : int
        Share large layers; the result does not depend on their number.

    Returns
    -------
    rows : Rows
    origin : (rows,) uint32
        ``row * d + state`` of each, the least of equally cheap ones.
    cut : float
        No row was dropped that is cheaper than this and than `upper`; inf if only `upper` dropped any.
    """
    from . import loops

    order = order_of_groups(rows, layer, threads)
    moves, same = layer.keys.moves(layer.next_keys), layer.keys.mask(layer.leaving)
    parts, tables, held = _lowered(layer)
    room = min(len(rows) * layer.d, most + (most if spare is None else spare)) + threads * layer.least_room
    keys, costs, origin = space.turn(room, layer.next_keys.n_words)
    count, cut, at = 0, np.inf, 0
    arrays = rows.keys, rows.costs, order, same, moves, parts, tables
    advance = partial(loops.advance, *arrays, layer.d, layer.stays, layer.constant)
    while at < len(rows):
        pieces = _pieces(layer, at, len(rows), count, room, threads)
        at, count = _advanced(advance, pieces, min(upper, cut), layer.block_rows, (keys, costs, origin))
        if count > most:
            cut, less = loops.ranked(costs[:count], most)
            count = loops.keep_least(keys, costs, origin, count, cut, most - less)
    del held
    return Rows(keys[:count], costs[:count]), origin[:count], cut


_Piece = tuple[tuple[int, int], slice]
"""Rows that one thread expands, and where it writes."""


def _advanced(
    advance: Callable[..., tuple[int, int]],
    pieces: Sequence[_Piece],
    limit: float,
    block: int,
    out: tuple[Any, Any, Any],
) -> tuple[int, int]:
    """Expand pieces, each in a thread; return where to go on, and how many rows there are then."""
    from . import loops

    ends = [(0, 0)] * len(pieces)

    def expand(number: int, start: int, stop: int) -> None:
        ends[number] = advance(limit, start, stop, block, *(array[pieces[number][1]] for array in out))

    share(expand, [rows for rows, _ in pieces])
    count = pieces[0][1].start
    for (_, room), (_, found) in zip(pieces, ends, strict=True):
        count = loops.close_up(out[0], out[1], out[2], count, room.start, room.start + found)
    return ends[-1][0], count


def _pieces(layer: Layer, start: int, stop: int, count: int, room: int, threads: int) -> list[_Piece]:
    """Cut the rows that are left into pieces that cannot overflow; a single one goes on where its room ended."""
    threads = min(threads, (stop - start) * layer.d // _SHARED_CELLS)
    if threads > 1:
        size = (room - count) // threads
        rows = min(-(-(stop - start) // threads), (size - layer.least_room) // layer.d)
        if rows * layer.d >= _SHARED_CELLS // 2:
            ranges = [(at, min(stop, at + rows)) for at in range(start, stop, rows)][:threads]
            return [(piece, slice(count + i * size, count + (i + 1) * size)) for i, piece in enumerate(ranges)]
    return [((start, stop), slice(count, room))]


def _lowered(layer: Layer) -> tuple[Words, NDArray[np.int64], list[Costs]]:
    """Return the parts and tables of a layer as :func:`.loops.advance` takes them, and what must stay alive."""
    parts, terms = lowered(layer)
    held = [np.ascontiguousarray(term.costs, np.float64) for term, *_ in terms]
    tables = [(costs.ctypes.data, *span) for costs, (_, *span) in zip(held, terms, strict=True)]
    return parts, np.array(tables, np.int64).reshape(-1, 4), held


def _quickest(
    rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None, threads: int
) -> tuple[Rows, Origin, float]:
    """Go on to the next layer by compiled loops, or without them as long as that is quicker than to have them."""
    cells = len(rows) * layer.d
    if cells > _PLAIN_CELLS or _PATIENCE.ends(_LAYER_SECONDS + cells * _CELL_SECONDS):
        return next_rows(rows, layer, upper, most, space, spare, threads)
    return next_plain(rows, layer, upper, most)


@dataclass(frozen=True)
class Operations:
    """What a layered search needs, on one side: the host's, or a device's.

    Parameters
    ----------
    next_rows : callable
        See :func:`next_rows`.
    space : callable
        Makes the Space that it writes to.
    row_bytes : callable
        Memory of one row of working arrays by words of its key.
    least_room : callable
        Rows of a layer that there is room for beyond those that are kept.
    here : callable
        Return an array of this side for one of either.
    """

    next_rows: Callable[[Rows, Layer, float, int, Space, int | None], tuple[Rows, Any, float]]
    space: Callable[[], Space]
    row_bytes: Callable[[int], int]
    least_room: Callable[[Layer], int]
    here: Callable[[Any], Any]


def host(threads: int = 1) -> Operations:
    """Return the operations of this process, whose large layers threads share."""

    def go_on(
        rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None
    ) -> tuple[Rows, Origin, float]:
        return _quickest(rows, layer, upper, most, space, spare, threads)

    return Operations(go_on, Space, row_bytes, lambda layer: threads * layer.least_room, on_host)


HOST = host()
