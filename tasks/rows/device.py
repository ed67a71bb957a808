"""Operations over rows in the memory of a GPU; the same bits as on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..gpu.kernels import Kernel, cupy, kernel, processors
from ..gpu.recorded import POOL_BYTES
from ..gpu.tiling.streams import THREADS
from ..gpu.tiling.tiling_policy import NOMINAL
from ..steps.caches import Memo
from ..steps.number_limits import FAR_INTEGER
from ..steps.semiring import Semiring
from .host import TABLE_CELLS_A_ROW
from .keys import Keys, Words
from .numpy_rows import ANY_ORDER, TILE

_TILE: Final = 2048
_SORTED: Final = 3072
_DIGIT_BITS: Final = 8
_DIGITS: Final = 1 << _DIGIT_BITS
_COUNTING_BLOCKS: Final = 8
_COUNT: Final = FAR_INTEGER - 1
#: A table of all keys has at most this number of cells, or this multiple of its rows.
SMALL_TABLE: Final = 1 << 16


class DeviceRows:
    """Rows of a device, by kernels in CUDA; see :class:`.row_backend.RowBackend`."""

    @property
    def arrays(self) -> Any:
        """CuPy."""
        return cupy()

    def block_rows(self, budget_rows: int) -> int:
        """Return how many rows at a time are fastest."""
        return budget_rows

    def repacked(self, words: Any, moves: Words, n_words: int) -> Any:
        """Move fields of keys to where they stand in another layout."""
        out = cupy().empty((len(words), n_words), np.uint64)
        arguments = words, _copied(moves), len(moves), len(words), out
        _launch("repack", len(words), arguments, words.shape[1], n_words)
        return out

    def offsets(self, words: Any, parts: Words) -> Any:
        """Return where keys stand in a dense table."""
        found = cupy().zeros(len(words), np.uint64)
        for word, shift, mask, stride in parts:
            found += (words[:, int(word)] >> shift & mask) * stride
        return found.view(np.int64)

    def order(self, words: Any) -> Any:
        """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""
        return None if _ascending(words) else _order(words, np.full(words.shape[1], ~np.uint64(0)))

    def starts(self, words: Any, mask: Words | None = None) -> Any:
        """Return where runs begin of keys that are equal in the bits of `mask`."""
        cp, width = cupy(), words.shape[1]
        heads = cp.empty(len(words), bool)
        bits = np.full(width, ~np.uint64(0)) if mask is None else mask
        _launch("heads", len(words), (words, _copied(bits), len(words), heads), width)
        return cp.flatnonzero(heads)

    def between(self, words: Any, low: Words, high: Words) -> tuple[int, int]:
        """Return the start and the end of the ascending keys that lie between two keys."""
        ends = cupy().asarray(np.concatenate([low, high]))
        first, counts = cupy().stack(DeviceIndex(words, 0).find(ends)).get()
        return int(first[0]), int(first[1] + counts[1])

    def inside(self, words: Any, fields: Words) -> Any:
        """Return which keys have states within ranges."""
        found = cupy().empty(len(words), bool)
        _launch("inside", len(words), (words, cupy().asarray(fields), len(fields), len(words), found), words.shape[1])
        return found

    def index(self, words: Any, keys: Keys, ascending: bool) -> DeviceIndex:
        """Return where rows are that are looked for by their keys."""
        few = keys.n_words == 1 and keys.span <= max(SMALL_TABLE, TABLE_CELLS_A_ROW * len(words))
        return DeviceIndex(words, keys.span if few else 0)

    def expanded(
        self, matches: tuple[Any, Any], span: tuple[int, int], words: tuple[Any, Any], values: tuple[Any, Any],
        semiring: Semiring,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the nonzero outputs of a join."""
        cp, rows, width = cupy(), span[1] - span[0], words[0].shape[1]
        out, products, zeros = (
            cp.empty((rows, width), np.uint64),
            cp.empty(rows, semiring.dtype),
            cp.zeros(1, np.uint64),
        )
        arguments = (*matches, len(matches[1]), *span, *words, *values, _bound(semiring), out, products, zeros)
        _launch("expand", -(-rows // _TILE) * THREADS, arguments, width, semiring=semiring)
        return _without_zeros(out, products, semiring) if rows and int(zeros[0]) else (out, products)

    def expanded_sums(
        self, matches: tuple[Any, Any], span: tuple[int, int], words: tuple[Any, Any], values: tuple[Any, Any],
        semiring: Semiring, most: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return :meth:`expanded` with ascending keys, equal keys summed in their order, without zeros.

        Three launches: the start of the rows of each tile, products with sums of runs within tiles, and sums of the
        runs that tiles share. If the sum depends on the order, rows are expanded and then gathered.

        Parameters
        ----------
        matches : (rows,) int64, (rows,) int64
            Row i of the left meets rows of the right from the first number on; its outputs end before the second.
        span : (int, int)
            The first output, and the output behind the last one.
        words : (left rows, words) uint64, (right rows, words) uint64
            Keys in the layout of the result, zeros where an input has no state.
        values : (left rows,), (right rows,)
            Values of the semiring's dtype.
        semiring : Semiring
        most : int
            Different keys, at most.

        Returns
        -------
        tuple of (keys, values)
            Arrays of the device: (results, words) uint64, and (results,) of the semiring's dtype.
        """
        cp, rows, width = cupy(), span[1] - span[0], words[0].shape[1]
        if semiring.name not in ANY_ORDER:
            none = np.zeros(width, np.uint64)
            return self.gathered(*self.expanded(matches, span, words, values, semiring), semiring, none, none)
        most, blocks = min(most, rows), -(-rows // _TILE)
        out, sums, progress = (
            cp.empty((most, width), np.uint64),
            cp.empty(most, semiring.dtype),
            cp.zeros(blocks + 2, np.uint64),
        )
        tile_rows, places = cp.empty(blocks + 1, np.int64), cp.empty(blocks, np.int64)
        parts, bound = cp.empty(blocks, semiring.dtype), _bound(semiring)
        _launch(
            "tile_rows",
            blocks + 1 if rows else 0,
            (matches[1], len(matches[1]), *span, blocks, tile_rows),
            width,
            1,
            semiring,
        )
        given = (*matches, tile_rows, *span, *words, *values, bound)
        _launch("expand_reduce", blocks * THREADS, (*given, progress, out, sums, parts, places), width, 1, semiring)
        _launch("add_parts", blocks * NOMINAL.warp, (parts, places, blocks, bound, sums), width, 1, semiring)
        written, zeros = progress[-2:].get().tolist()
        found = _first(out, sums, written & _COUNT)
        return _without_zeros(*found, semiring) if zeros else found

    def multiplied(self, words: Any, values: Any, parts: Words, table: Any, semiring: Semiring) -> tuple[Any, Any]:
        """Return rows multiplied with entries of a dense table, without zeros."""
        cp, rows = cupy(), len(words)
        out, zeros = cp.empty_like(values), cp.zeros(1, np.uint64)
        arguments = words, values, rows, _copied(parts), len(parts), table, _bound(semiring), out, zeros
        _launch("multiply", rows, arguments, words.shape[1], 1, semiring)
        return _without_zeros(words, out, semiring) if rows and int(zeros[0]) else (words, out)

    def product_sums(
        self, rows: tuple[Any, Any], factor: tuple[Words, Any] | None, mask: Words, moves: tuple[Words, int],
        semiring: Semiring, most: int,
    ) -> tuple[Any, Any] | None:  # fmt: skip
        """Return :meth:`gathered` keys of :meth:`multiplied` rows in one launch; None if it is not for these rows.

        Parameters
        ----------
        rows : (rows, words) uint64, (rows,)
            Keys in ascending order, and values.
        factor : (parts, 4) uint64 and (cells,), optional
            A dense table, and where the entry of a key stands in it.
        mask : (words,) uint64
            Rows with equal keys in these bits are summed.
        moves : (moves, 5) uint64, int
            The layout of the resulting keys, and their words.
        semiring : Semiring
        most : int
            Different keys, at most.
        """
        if semiring.name not in ANY_ORDER:
            return None
        cp, (words, values), (moved, width) = cupy(), rows, moves
        parts, table = factor or (np.zeros((0, 4), np.uint64), values)
        blocks = -(-len(words) // _TILE)
        out, sums = cp.empty((most, width), np.uint64), cp.empty(most, semiring.dtype)
        progress = cp.zeros(blocks + 2, np.uint64)
        given = words, values, len(words), _copied(parts), len(parts), table, _copied(mask), _copied(moved), len(moved)
        arguments = *given, _bound(semiring), progress, out, sums
        _launch("product_sums", blocks * THREADS, arguments, words.shape[1], width, semiring)
        written, long = progress[-2:].get().tolist()
        return None if long else _first(out, sums, written & _COUNT)

    def scattered(self, words: Any, values: Any, parts: Words, out: Any) -> None:
        """Set the entries of a dense table where keys stand."""
        arguments = words, values, len(words), _copied(parts), len(parts), out
        dtype = np.dtype(f"int{8 * values.itemsize}").name
        like = kernel("relations", "min_plus", dtype, entry="scatter", WORDS=words.shape[1], NEW_WORDS=1)
        if len(words):
            like((-(-len(words) // THREADS),), (THREADS,), _numbers(arguments))

    def merged(self, runs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Merge runs of keys and values, each in ascending order; among equal keys, rows of earlier runs come first."""
        waiting = [*runs]
        while len(waiting) > 1:
            odd = waiting[len(waiting) & ~1 :]
            waiting = [_merged_pair(*pair) for pair in zip(waiting[::2], waiting[1::2], strict=False)] + odd
        return waiting[0]

    def gathered(
        self, words: Any, values: Any, semiring: Semiring | None, group: Words, mask: Words
    ) -> tuple[Any, Any]:
        """Return rows in ascending order of their keys, equal ones summed in the order they had, without zeros."""
        if len(words) > 1 and mask.any():
            words, values = _sorted(words, values, group | mask)
        if semiring is None or not len(words):
            return words, values
        found = _reduced(words, values, semiring)
        if found is not None:
            return found
        starts = self.starts(words)
        return _without_zeros(words[starts], _sums(values, starts, semiring), semiring)


@dataclass(frozen=True, eq=False)
class DeviceIndex:
    """Rows in ascending order of their keys, and how many keys there may be, if they are few; else 0."""

    words: Any
    cells: int

    def find(self, words: Any) -> tuple[Any, Any]:
        """Return the first row of each key and how many there are."""
        cp, rows = cupy(), len(words)
        found = cp.empty(rows, np.int64), cp.empty(rows, np.int64)
        if self.cells:
            _launch("look_up", rows, (words, rows, self._ends, *found), words.shape[1])
        else:
            _launch("find", rows, (words, rows, self.words, len(self.words), *found), words.shape[1])
        return found

    @cached_property
    def _ends(self) -> Any:
        return cupy().searchsorted(self.words[:, 0], cupy().arange(self.cells + 1, dtype=np.uint64))


def _launch(
    entry: str, threads: int, arguments: tuple[Any, ...], words: int = 1, new_words: int = 1,
    semiring: Semiring | None = None,
) -> None:  # fmt: skip
    """Run a kernel of ``cuda/relations.cu`` with a thread for each row."""
    if threads <= 0:
        return
    law, dtype = (semiring.name, semiring.dtype) if semiring else ("min_plus", "float64")
    clamp = {"CLAMP": 1} if semiring and semiring.saturates else {}
    found = kernel("relations", law, dtype, entry=entry, WORDS=words, NEW_WORDS=new_words, **clamp)
    found((-(-threads // THREADS),), (THREADS,), _numbers(arguments))


def join_kernels(words: int, semiring: Semiring) -> list[Kernel]:
    """Return the kernels that all large joins with keys of this number of words need, one for each source."""
    clamp = {"CLAMP": 1} if semiring.saturates else {}
    sizes = {"WORDS": words, "NEW_WORDS": 1}
    return [
        kernel("relations", "min_plus", "float64", entry="find", **sizes),
        kernel("relations", semiring.name, semiring.dtype, entry="expand", **sizes, **clamp),
        kernel("radix", "min_plus", f"int{8 * semiring.itemsize}", entry="digits"),
    ]


def _copied(numbers: Words) -> Any:
    """Return few numbers on the device; they are copied once."""
    cp = cupy()
    key = numbers.tobytes(), cp.cuda.Device().id
    copy = _COPIES.get(key)
    if copy is None:
        copy = cp.asarray(np.frombuffer(key[0] or bytes(8), np.uint64))
        cp.cuda.get_current_stream().synchronize()  # other threads read it on their own streams
        _COPIES.put(key, copy, max(POOL_BYTES, copy.nbytes))
    return copy


def _finished() -> None:
    """Wait until nothing reads what lies on the device."""
    cupy().cuda.Device().synchronize()


#: Few numbers that kernels read, on devices; none of them takes less than an allocation does.
_COPIES: Final[Memo[Any]] = Memo(1 << 20, _finished)


def _numbers(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a kernel, with integers of 64 bits."""
    return tuple([np.int64(a) if isinstance(a, int) else a for a in arguments])


def _bound(semiring: Semiring) -> int:
    """Return the limit of products or sums, or the modulus."""
    return int(semiring.zero) if semiring.saturates else semiring.modulus


def _merged_pair(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Merge two runs by ranges of as many rows: each block of threads finds where its part of both begins."""
    cp, rows, width = cupy(), len(a[0]) + len(b[0]), a[0].shape[1]
    out, values = cp.empty((rows, width), np.uint64), cp.empty(rows, a[1].dtype)
    arguments = *a, len(a[0]), *b, len(b[0]), out, values
    like = kernel("relations", "min_plus", values.dtype.name, entry="merge", WORDS=width, NEW_WORDS=1)
    if rows:
        like((-(-rows // _TILE),), (THREADS,), _numbers(arguments))
    return out, values


def _without_zeros(words: Any, values: Any, semiring: Semiring) -> tuple[Any, Any]:
    kept = cupy().flatnonzero(values != semiring.zero)
    return words[kept], values[kept]


def _ascending(words: Any) -> bool:
    """Whether keys stand in ascending order; equal ones may follow each other."""
    count = cupy().zeros(1, np.uint64)
    _launch("descents", len(words) - 1, (words, len(words), count), words.shape[1])
    return not int(count[0])


def _reduced(words: Any, values: Any, semiring: Semiring) -> tuple[Any, Any] | None:
    """Sum runs of equal keys, and leave zeros out; None where a run is too long for one thread."""
    cp, rows = cupy(), len(words)
    out, sums = cp.empty_like(words), cp.empty_like(values)
    blocks = -(-rows // _TILE)
    progress = cp.zeros(blocks + 2, np.uint64)
    arguments = words, values, rows, _bound(semiring), progress, out, sums
    _launch("reduce", blocks * THREADS, arguments, words.shape[1], semiring=semiring)
    written, long = progress[-2:].get().tolist()
    if long:
        return None
    return _first(out, sums, written & _COUNT)


def _first(words: Any, values: Any, count: int) -> tuple[Any, Any]:
    """Return the first rows; no memory is held for many that are not there."""
    if 2 * count > len(words):
        return words[:count], values[:count]
    return words[:count].copy(), values[:count].copy()


def _sums(values: Any, starts: Any, semiring: Semiring) -> Any:
    """Sum runs of values, TILE neighbours at a time and in order."""
    cp, runs = cupy(), len(starts)
    while len(values) > runs:
        lengths = cp.diff(starts, append=cp.asarray([len(values)]))
        tiles, count = None, runs
        if int(lengths.max()) > TILE:
            ends = cp.cumsum(-(-lengths // TILE))
            count = int(ends[-1])
            tiles = cp.concatenate([cp.zeros(1, np.int64), ends[:-1]])
        out = cp.empty(count, semiring.dtype)
        where = np.uint64(0) if tiles is None else tiles
        _launch("fold", count, (values, len(values), starts, runs, where, count, _bound(semiring), out), 1, 1, semiring)
        values, starts = out, tiles
    return values


def _sorted(words: Any, values: Any, mask: Words) -> tuple[Any, Any]:
    """Return rows in stable order of the bits of `mask`, which are the most significant."""
    if words.shape[1] > 1:
        if _ascending(words):
            return words, values
        order = _order(words, mask)
        return words[order], values[order]
    keys, moved = _by_digits(words[:, 0], values, int(mask[0]))
    return keys.reshape(-1, 1), moved


def _order(words: Any, mask: Words) -> Any:
    """Return the numbers of rows in stable order of the bits of `mask`."""
    order = cupy().arange(len(words), dtype=np.int32 if len(words) < 1 << 31 else np.int64)
    for word in reversed(range(words.shape[1])):
        if mask[word]:
            order = _by_digits(words[:, word][order], order, int(mask[word]))[1]
    return order


def _by_digits(keys: Any, payload: Any, mask: int) -> tuple[Any, Any]:
    """Sort keys with their payload by all bits from the lowest bit of a mask on; these bits are the first that differ.

    Parameters
    ----------
    keys : (rows,) uint64
        On the device; not written to.
    payload : (rows,), of 4 or 8 bytes each
        Moved with them.
    mask : int
        Ones in the compared bits; all bits from the lowest of these that differs on are compared.

    Returns
    -------
    tuple
        Both in stable order: the arrays that were given, where nothing has to move.
    """
    cp, rows = cupy(), len(keys)
    carried = payload.view(f"int{8 * payload.itemsize}")
    tiles = -(-rows // _SORTED)
    few = (min(tiles, _COUNTING_BLOCKS * processors()),), (THREADS,)
    differing = cp.zeros(2, np.uint64)
    _radix("differing", carried)(*few, (keys, np.int64(rows), differing))
    spread, descents = differing.get().tolist()
    spread &= mask
    if not spread or not descents:
        return keys, payload
    low = (spread & -spread).bit_length() - 1
    bits = spread.bit_length() - low
    passes = -(-bits // _DIGIT_BITS)
    masks = [_DIGITS - 1] * (passes - 1) + [(1 << bits - _DIGIT_BITS * (passes - 1)) - 1]
    counts = cp.zeros((passes, _DIGITS), np.uint64)
    sizes = np.int64(rows), np.int64(low), np.int64(passes), np.uint64(masks[-1])
    _radix("digits", carried)(*few, (keys, *sizes, counts))
    states = cp.empty(tiles * _DIGITS + 1, np.uint64)
    source, target, spare = (keys, carried), (cp.empty_like(keys), cp.empty_like(carried)), None
    found = counts.get()
    firsts = cp.asarray(np.cumsum(found, axis=1) - found)
    for number in np.flatnonzero(found.max(axis=1) < rows).tolist():
        states[:] = 0
        digit = np.int64(rows), np.int64(low + _DIGIT_BITS * number), np.uint64(masks[number])
        _radix("scatter", carried)(
            (tiles,), (THREADS,), (*source, *digit, firsts[number], states, states[-1:], *target)
        )
        # the input arrays are not written to
        spare = spare or (cp.empty_like(keys), cp.empty_like(carried))
        source, target, spare = target, spare, target
    return source[0], source[1].view(payload.dtype)


def _radix(entry: str, carried: Any) -> Any:
    return kernel("radix", "min_plus", carried.dtype.name, entry=entry)


DEVICE: Final = DeviceRows()
