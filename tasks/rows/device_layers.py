"""Layers of rows on a GPU: the operations of :mod:`.layers` on arrays of CuPy, with the same results bit for bit."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from ..gpu import arrays
from ..gpu.kernels import cupy, kernel
from ..gpu.tiling.streams import THREADS
from ..steps.policy import RowPolicy
from .device import SMALL_TABLE
from .host import TABLE_CELLS_A_ROW
from .layers import Layer, Operations, Rows, Space, lowered

#: Cells of one block of threads.
_TILE: Final = 8 * THREADS
#: If at least this number of rows may become one, one thread would compare all of them. New keys are an array if they
#: are few.
_LONG_GROUP: Final = 64
_NOTHING: Final = np.uint64((1 << 64) - 1)
_ADDRESSES = ("keys", "costs", "order", "groups", "program")
_OUTPUTS = ("out_keys", "out_costs", "out_origin", "progress")
#: ``Layer`` in ``cuda/layer.cu``.
_LAYER = np.dtype(
    [
        *((name, "u8") for name in _ADDRESSES),
        *((name, "i8") for name in ("rows", "first", "cells")),
        *((name, "f8") for name in ("constant", "upper")),
        *((name, "u8") for name in _OUTPUTS),
        *((name, "i8") for name in ("moves", "parts", "tables", "states", "stays", "merging")),
    ]
)


def device_space() -> Space:
    """Return arrays on the device that layers are written to in turn."""
    return Space(_room)


def _room(rows: int, words: int) -> tuple[Any, Any, Any]:
    keys = arrays.empty(rows * words, "uint64").reshape(rows, words)
    return keys, arrays.empty(rows, "float64"), arrays.empty(rows, "uint32")


def row_bytes(words: int) -> int:
    """Return the device memory of one row in bytes: both buffers of a Space, and the workspace of a sort or a cut."""
    return 2 * (8 * words + 8 + 4) + 8 * words + 48


def least_room(layer: Layer) -> int:
    """The number of spare rows that the output of :func:`next_rows` needs beyond the rows that are kept."""
    return max(RowPolicy.current().device_spare_rows, layer.d)


def on_device(table: Any) -> Any:
    """Return an array on the device."""
    return cupy().ascontiguousarray(cupy().asarray(table))


def large_blocks() -> AbstractContextManager[None]:
    """Let CuPy take the memory of temporaries from the pool of large tables."""
    cp = cupy()
    manager: AbstractContextManager[None] = cp.cuda.using_allocator(arrays.large_pool().malloc)
    return manager


def order_of_groups(rows: Rows, layer: Layer) -> Any:
    """Return the numbers of rows, int64, in stable order of the remaining keys; None if they are in order already."""
    leaving = layer.leaving
    if not len(rows) or leaving == [*layer.keys.variables[::-1][: len(leaving)]]:
        return None
    launch = _Launch(rows, layer)
    cp, n, words = cupy(), len(rows), layer.next_keys.n_words
    packed = arrays.empty(words * n, "uint64")
    launch.record["out_keys"] = packed.data.ptr
    launch("repack", -(-n // THREADS))
    order = None
    for word in reversed(range(words)):
        keys = _narrowed(packed[word * n : (word + 1) * n], layer, word)
        if keys is None:
            continue
        found = cp.argsort(keys if order is None else keys[order])
        order = found if order is None else order[found]
    return cp.arange(n) if order is None else order


def _narrowed(keys: Any, layer: Layer, word: int) -> Any:
    """Return one word of keys in as few bits as hold what stays; None if nothing is there."""
    fields = [f for v, f in layer.next_keys.fields.items() if v != layer.variable and f[0] == word and f[2]]
    if not fields:
        return None
    low, high = min(shift for _, shift, _ in fields), max(shift + bits for _, shift, bits in fields)
    return (keys >> np.uint64(low)).astype(np.uint32) if high - low <= 32 else keys


def next_rows(
    rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int | None = None
) -> tuple[Rows, Any, float]:
    """Go on to the next layer like :func:`.layers.next_rows`, on the device; `space` is a :func:`device_space`."""
    with large_blocks():
        return _next_rows(rows, layer, upper, most, space, most if spare is None else spare)


def _next_rows(rows: Rows, layer: Layer, upper: float, most: int, space: Space, spare: int) -> tuple[Rows, Any, float]:
    width = layer.d if layer.stays else 1
    few = max(SMALL_TABLE, TABLE_CELLS_A_ROW * len(rows))
    crowded = _longest_group(layer) > _LONG_GROUP and len(rows) > 0
    if crowded and (cells := _keys_of_one_word(layer)) is not None and cells <= few:
        return _of_few_cells(_Launch(rows, layer), cells, upper, most, space)
    order = order_of_groups(rows, layer)
    launch = _Launch(rows, layer, order)
    if crowded and width * (groups := launch.number_groups()) <= few:
        return _of_few_cells(launch, width * groups, upper, most, space)
    room = min(len(rows) * width, most + max(spare, least_room(layer)))
    keys, costs, origin = space.turn(room, layer.next_keys.n_words)
    count, cut, at = 0, np.inf, 0
    while at < len(rows):
        size = min(len(rows) - at, (room - count) // width)
        count += launch.advance(at, size * width, min(upper, cut), keys[count:], costs[count:], origin[count:])
        at += size
        if count > most:
            cut = _keep_least(keys[:count], costs[:count], origin[:count], most)
            count = most
    return Rows(keys[:count], costs[:count]), origin[:count], cut


def _longest_group(layer: Layer) -> int:
    """Return the maximum number of rows that can merge into one."""
    return math.prod([d for v, d in zip(layer.keys.variables, layer.keys.dims, strict=True) if v in layer.leaving])


def _keys_of_one_word(layer: Layer) -> int | None:
    """Return an exclusive upper bound of all new keys; None if a key has several words."""
    if layer.next_keys.n_words > 1:
        return None
    return layer.next_keys.span


def _of_few_cells(launch: _Launch, cells: int, upper: float, most: int, space: Space) -> tuple[Rows, Any, float]:
    """Go on to the next layer by an array of the least costs of all new keys, or of all groups' states."""
    cp = cupy()
    best, owners = cp.full(cells, _NOTHING, np.uint64), cp.empty(cells, np.uint32)
    owners.fill((1 << 32) - 1)
    launch.scatter(upper, best, owners)
    found = cp.flatnonzero(best != _NOTHING)
    keys, costs, origin = space.turn(len(found), launch.layer.next_keys.n_words)
    origin[:] = owners[found]
    bits = best[found]
    costs[:] = cp.where(bits >> np.uint64(63), bits ^ np.uint64(1 << 63), ~bits).view(np.float64)
    launch.rekey(origin, keys)
    if len(found) <= most:
        return Rows(keys, costs), origin, np.inf
    cut = _keep_least(keys, costs, origin, most)
    return Rows(keys[:most], costs[:most]), origin[:most], cut


def _keep_least(keys: Any, costs: Any, origin: Any, most: int) -> float:
    """Move the cheapest rows, and the first of equals, to the front; return the cost of the cheapest that is not."""
    cp = cupy()
    # sorted as integers, as the bits of positive numbers are: differences of costs are exact
    lowest = costs.min()
    bits = (costs - lowest).view(np.int64)
    bits.sort()
    cut = float(bits[most : most + 1].view(np.float64)[0] + lowest)
    del bits
    kept = costs < cut
    ties = most - int(cp.count_nonzero(kept))
    kept[cp.flatnonzero(costs == cut)[:ties]] = True
    places = cp.flatnonzero(kept)
    for array in (keys, costs, origin):
        array[:most] = array[places]
    return cut


class _Launch:
    """The kernels of one layer, and their argument."""

    def __init__(self, rows: Rows, layer: Layer, order: Any = None) -> None:
        cp = cupy()
        self._words = {"WORDS": layer.keys.n_words, "NEW_WORDS": layer.next_keys.n_words}
        moves = layer.keys.moves(layer.next_keys)
        parts, terms = lowered(layer)
        tables = [on_device(term.costs) for term, *_ in terms]
        spans = [(t.data.ptr, first, last, sign < 0) for t, (_, first, last, sign) in zip(tables, terms, strict=True)]
        # the part that costs already include is subtracted first, as on the CPU
        spans.sort(key=lambda span: not span[3])
        same = layer.keys.mask(layer.leaving)
        words = [same, moves.reshape(-1), parts.reshape(-1), np.array(spans, np.uint64).reshape(-1)]
        program = cp.asarray(np.concatenate(words))
        self.layer, self._rows, self._held = layer, len(rows), [rows, order, tables, program]
        self.record = np.zeros((), _LAYER)
        where = (rows.keys, rows.costs, order, None, program)
        for name, array in zip(_ADDRESSES, where, strict=True):
            self.record[name] = 0 if array is None else array.data.ptr
        self.record["rows"], self.record["constant"] = len(rows), layer.constant
        self.record["moves"], self.record["parts"], self.record["tables"] = len(moves), len(parts), len(spans)
        self.record["states"], self.record["stays"] = layer.d, layer.stays
        self.record["merging"] = bool(layer.leaving)

    def __call__(self, entry: str, blocks: int) -> None:
        kernel("layer", "min_plus", "float64", entry=entry, **self._words)((blocks,), (THREADS,), [self.record])

    def number_groups(self) -> int:
        """Number the groups, for :meth:`scatter`; return their number."""
        cp = cupy()
        order = self._held[1]
        heads = cp.empty(self._rows, np.uint32)
        self.record["out_origin"] = heads.data.ptr
        self("heads", -(-self._rows // THREADS))
        numbers = cp.cumsum(heads, dtype=np.uint32) - np.uint32(1)
        groups = numbers
        if order is not None:
            groups = cp.empty_like(numbers)
            groups[order] = numbers
        self.record["groups"] = groups.data.ptr
        self._held.append(groups)
        return int(numbers[-1]) + 1

    def scatter(self, upper: float, best: Any, owners: Any) -> None:
        """Fill arrays of cells: the bits of the least cost, and the least origin with this cost."""
        cells = self._rows * (self.layer.d if self.layer.stays else 1)
        self.record["cells"], self.record["upper"] = cells, upper
        self.record["out_keys"], self.record["out_origin"] = best.data.ptr, owners.data.ptr
        for entry in ("least", "owners"):
            self(entry, -(-cells // THREADS))

    def rekey(self, origin: Any, keys: Any) -> None:
        """Write the new keys of origins."""
        self.record["cells"] = len(origin)
        self.record["out_keys"], self.record["out_origin"] = keys.data.ptr, origin.data.ptr
        if len(origin):
            self("rekey", -(-len(origin) // THREADS))

    def advance(self, first: int, cells: int, upper: float, *outputs: Any) -> int:
        """Expand some cells from a position of the order on; return the number of written rows."""
        blocks = -(-cells // _TILE)
        progress = cupy().zeros(blocks + 1, np.uint64)
        self.record["first"], self.record["cells"], self.record["upper"] = first, cells, upper
        for name, array in zip(_OUTPUTS, (*outputs, progress), strict=True):
            self.record[name] = array.data.ptr
        self("advance", blocks)
        return int(progress[-1]) & (1 << 62) - 1


DEVICE = Operations(next_rows, device_space, row_bytes, least_room, on_device)
