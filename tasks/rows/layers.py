"""Rows of one layer of a search, and what happens when one more variable gets its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..compiler.code_cache import Patience
from ..compiler.compile_limits import compiled_or
from ..cpu.threads import share, split
from ..gpu.arrays import on_host
from ..steps.policy import RowPolicy
from .keys import Keys, Words, offsets, repacked

# For a layer, and for one of its expanded rows.
_LAYER_SECONDS: Final = 3e-4
_LAYER_CELL_SECONDS: Final = 4e-7

Costs = NDArray[np.float64]
Origin = NDArray[np.uint32]


class LayerTable(Protocol):
    """A table of a layer: flat ``costs (cells,) float64``, C-ordered, the last variable of ``scope`` fastest."""

    @property
    def scope(self) -> tuple[int, ...]:
        """Variables, in the order of their axes."""

    @property
    def costs(self) -> Any:
        """Entries; inf = forbidden."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct keys in ascending order, ``(rows, words) uint64``, and their costs ``(rows,) float64``."""

    keys: Words
    costs: Costs

    def __len__(self) -> int:
        return len(self.costs)


@dataclass(frozen=True, eq=False)
class Layer:
    """The expansion of a layer by the states of one variable.

    Parameters
    ----------
    keys, next_keys : Keys
        Layouts before and after; the later one has some of the same variables in the same order, and may have
        `variable` behind them.
    variable, d : int
        The variable, and the size of its domain.
    added : sequence of Term
        Their scopes end with `variable`, the other variables are of `keys`.
    subtracted : sequence of Term
        Bounds that costs already hold; their scopes are of variables of `keys`.
    constant : float
        Subtracted too.
    """

    keys: Keys
    next_keys: Keys
    variable: int
    d: int
    added: Sequence[LayerTable]
    subtracted: Sequence[LayerTable]
    constant: float = 0.0

    @property
    def leaving(self) -> list[int]:
        """Variables that fall out of the key, the last field first."""
        return [v for v in self.keys.variables[::-1] if v not in self.next_keys.fields]

    @property
    def stays(self) -> bool:
        """Whether the new variable is in the new key."""
        return self.variable in self.next_keys.fields

    @property
    def block_rows(self) -> int:
        """Number of rows that are expanded together. The sums and owners of their successors stay in the second-level
        cache.
        """
        return max(1, RowPolicy.current().block_rows // self.d)

    @property
    def least_room(self) -> int:
        """Rows that what :func:`next_rows` writes to must at least have room for beyond those it keeps."""
        return (self.block_rows + 1) * self.d + 1


def first_rows(cost: float) -> Rows:
    """Return the one row of no variables."""
    return Rows(np.zeros((1, 1), np.uint64), np.array([float(cost)]))


def lowered(layer: Layer) -> tuple[Words, list[tuple[LayerTable, int, int, int]]]:
    """Return the parts of offsets in a layer's tables, and for each table (term, first part, last part, sign)."""
    dims = dict(zip(layer.keys.variables, layer.keys.dims, strict=True)) | {layer.variable: layer.d}
    parts: list[tuple[int, int, int, int]] = []
    spans = []
    for sign, terms in ((1, layer.added), (-1, layer.subtracted)):
        for term in terms:
            strides = [*accumulate((dims[v] for v in term.scope[:0:-1]), mul, initial=1)][::-1]
            scope = [(v, stride) for v, stride in zip(term.scope, strides, strict=True) if v != layer.variable]
            first = len(parts)
            parts += layer.keys.gathers([v for v, _ in scope], [stride for _, stride in scope])
            spans.append((term, first, len(parts), sign))
    return np.array(parts, np.uint64).reshape(-1, 4), spans


# Layers of rows in NumPy, with the same results as :mod:`.layer_loops` bit for bit: for few rows no compiler is needed.


def next_rows_numpy(rows: Rows, layer: Layer, upper: float, most: int) -> tuple[Rows, Origin, float]:
    """Go on to the next layer; see :func:`next_rows_numpy`."""
    sums = _sums(rows, layer).reshape(-1)
    origin = np.flatnonzero(sums < upper)
    keys, costs = _keys(rows.keys, layer, origin), sums[origin]
    if layer.leaving or not layer.stays:
        first = _first_of_equals(keys, costs)
        keys, costs, origin = keys[first], costs[first], origin[first]
    cut = np.inf
    if len(costs) > most:
        cut = float(np.partition(costs, most)[most])
        cheap = costs < cut
        cheap[np.flatnonzero(costs == cut)[: most - int(np.count_nonzero(cheap))]] = True
        keys, costs, origin = keys[cheap], costs[cheap], origin[cheap]
    return Rows(keys, costs), origin.astype(np.uint32), cut


def _sums(rows: Rows, layer: Layer) -> Costs:
    """The cost of every row with every state of the layer's variable."""
    parts, terms = lowered(layer)
    sums = np.repeat((rows.costs - layer.constant)[:, None], layer.d, axis=1)
    for term, first, last, sign in sorted(terms, key=lambda each: each[3]):
        at, costs = offsets(rows.keys, parts[first:last]), np.asarray(term.costs, np.float64)
        sums += costs.reshape(-1, layer.d)[at // layer.d] if sign > 0 else -costs[at][:, None]
    return sums


def _keys(keys: Words, layer: Layer, origin: NDArray[np.int64]) -> Words:
    """The new keys of origins."""
    rows, states = np.divmod(origin, layer.d)
    moved = repacked(keys[rows], layer.keys.moves(layer.next_keys), layer.next_keys.n_words)
    if layer.stays:
        moved[:, -1] |= states.astype(np.uint64)
    return moved


def _first_of_equals(keys: Words, costs: Costs) -> NDArray[np.int64]:
    """The cheapest row of each key, the first of equally cheap ones, in the order of keys."""
    order = np.lexsort((costs, *keys.T[::-1]))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    return order[fresh]


# Rows tables in memory, and what a layered search does with them; NumPy arrays, compiled loops.
#
# Every operation takes arrays and returns arrays, and says exactly which rows in which order come out, so that another
# implementation gives the same bits.

_PATIENCE = Patience("tasks.rows.layer_loops", "advance")


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
    """Return the numbers of rows in stable order of the remaining keys; empty if no variable leaves.

    The variables leave one after the other, last field first. Rows that agree before the field of a variable are then
    in runs that are sorted by the fields behind it, and these runs are merged.
    """
    from .sort_loops import merge_groups

    leaving = layer.leaving
    if not leaving:
        return np.empty(0, np.int32)
    n, keys = len(rows), layer.keys
    order, spare, starts = np.arange(n, dtype=np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    ranges = split(n, min(threads, 1 + n // RowPolicy.current().shared_rows))
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
    from . import layer_loops

    order = order_of_groups(rows, layer, threads)
    moves, same = layer.keys.moves(layer.next_keys), layer.keys.mask(layer.leaving)
    parts, tables, held = _lowered(layer)
    room = min(len(rows) * layer.d, most + (most if spare is None else spare)) + threads * layer.least_room
    keys, costs, origin = space.turn(room, layer.next_keys.n_words)
    count, cut, at = 0, np.inf, 0
    arrays = rows.keys, rows.costs, order, same, moves, parts, tables
    advance = partial(layer_loops.advance, *arrays, layer.d, layer.stays, layer.constant)
    while at < len(rows):
        pieces = _pieces(layer, at, len(rows), count, room, threads)
        at, count = _advanced(advance, pieces, min(upper, cut), layer.block_rows, (keys, costs, origin))
        if count > most:
            cut, less = layer_loops.ranked(costs[:count], most)
            count = layer_loops.keep_least(keys, costs, origin, count, cut, most - less)
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
    from . import layer_loops

    ends = [(0, 0)] * len(pieces)

    def expand(number: int, start: int, stop: int) -> None:
        ends[number] = advance(limit, start, stop, block, *(array[pieces[number][1]] for array in out))

    share(expand, [rows for rows, _ in pieces])
    count = pieces[0][1].start
    for (_, room), (_, found) in zip(pieces, ends, strict=True):
        count = layer_loops.close_up(out[0], out[1], out[2], count, room.start, room.start + found)
    return ends[-1][0], count


def _pieces(layer: Layer, start: int, stop: int, count: int, room: int, threads: int) -> list[_Piece]:
    """Cut the rows that are left into pieces that cannot overflow; a single one goes on where its room ended."""
    shared = RowPolicy.current().shared_rows
    threads = min(threads, (stop - start) * layer.d // shared)
    if threads > 1:
        size = (room - count) // threads
        rows = min(-(-(stop - start) // threads), (size - layer.least_room) // layer.d)
        if rows * layer.d >= shared // 2:
            ranges = [(at, min(stop, at + rows)) for at in range(start, stop, rows)][:threads]
            return [(piece, slice(count + i * size, count + (i + 1) * size)) for i, piece in enumerate(ranges)]
    return [((start, stop), slice(count, room))]


def _lowered(layer: Layer) -> tuple[Words, NDArray[np.int64], list[Costs]]:
    """Return the parts and tables of a layer as :func:`.layer_loops.advance` takes them, and what must stay alive."""
    parts, terms = lowered(layer)
    held = [np.ascontiguousarray(term.costs, np.float64) for term, *_ in terms]
    tables = [(costs.ctypes.data, *span) for costs, (_, *span) in zip(held, terms, strict=True)]
    return parts, np.array(tables, np.int64).reshape(-1, 4), held


def _quickest(
    rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None, threads: int
) -> tuple[Rows, Origin, float]:
    """Go on to the next layer by compiled loops, or without them as long as that is quicker than to have them."""
    cells, policy = len(rows) * layer.d, RowPolicy.current()
    if cells > policy.plain_cells:
        return next_rows(rows, layer, upper, most, space, spare, threads)
    if _PATIENCE.ends(_LAYER_SECONDS + cells * _LAYER_CELL_SECONDS):
        return compiled_or(
            lambda: next_rows(rows, layer, upper, most, space, spare, threads),
            lambda: next_rows_numpy(rows, layer, upper, most),
        )
    return next_rows_numpy(rows, layer, upper, most)


@dataclass(frozen=True)
class Operations:
    """The operations that a layered search needs, on the host or on a device.

    Parameters
    ----------
    next_rows : callable
        See :func:`next_rows`.
    space : callable
        Makes the Space that it writes to.
    row_bytes : callable
        Memory of one row of working arrays by words of its key.
    least_room : callable
        The number of spare rows that a layer needs beyond the rows that are kept.
    here : callable
        Return an array of this side for one of either.
    """

    next_rows: Callable[[Rows, Layer, float, int, Space, int | None], tuple[Rows, Any, float]]
    space: Callable[[], Space]
    row_bytes: Callable[[int], int]
    least_room: Callable[[Layer], int]
    here: Callable[[Any], Any]


def host(threads: int = 1) -> Operations:
    """Return the operations of this process; several threads share its large layers."""

    def go_on(
        rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None
    ) -> tuple[Rows, Origin, float]:
        return _quickest(rows, layer, upper, most, space, spare, threads)

    return Operations(go_on, Space, row_bytes, lambda layer: threads * layer.least_room, on_host)


HOST = host()
