"""Operations over rows in the memory of the host: in NumPy for few rows, in compiled loops for many."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.light_dataclass import dataclass
from ..steps.policy import RowPolicy
from ..steps.semiring import Semiring
from . import numpy_rows
from .keys import Keys, offsets, repacked
from .numpy_rows import ANY_ORDER

# A table of all keys has at most this number of cells for each row.
TABLE_CELLS_A_ROW: Final = 4

Array = NDArray[Any]

#: How the compiled loops know a semiring.
LAWS: Final = {"min_plus": 0, "sum_product": 1, "log_sum": 2, "mod_sum_product": 3}
_ALL: Final = ~np.uint64(0)


class HostRows:
    """Rows of the host: in NumPy where they are few, by compiled loops else; see :class:`.row_backend.RowBackend`."""

    arrays: Any = np

    def __init__(self) -> None:
        self._rows_seen = 0

    def compiles(self, rows: int) -> bool:
        """Whether so many rows are for compiled loops: once as many were seen as loading these takes in NumPy."""
        self._rows_seen += rows
        policy = RowPolicy.current()
        loaded_in = policy.warm_rows if "numba" in sys.modules else policy.cold_rows
        return rows > 0 and self._rows_seen >= loaded_in

    def block_rows(self, budget_rows: int) -> int:
        """Return how many rows at a time are fastest."""
        return min(RowPolicy.current().block_rows, budget_rows)

    def repacked(self, words: Array, moves: Array, n_words: int) -> Array:
        """Move fields of keys to where they stand in another layout."""
        if not self.compiles(len(words)):
            return repacked(words, moves, n_words)
        from . import join_loops

        out = np.empty((len(words), n_words), np.uint64)
        join_loops.repack(words, moves, out)
        return out

    def offsets(self, words: Array, parts: Array) -> Array:
        """Return where keys stand in a dense table."""
        return offsets(words, parts)

    def scattered(self, words: Array, values: Array, parts: Array, out: Array) -> None:
        """Set the entries of a dense table where keys stand."""
        out[offsets(words, parts)] = values

    def product_sums(self, rows: Any, factor: Any, mask: Any, moves: Any, semiring: Semiring, most: int) -> None:
        """Leave it to blocks that stay in a cache."""

    def order(self, words: Array) -> Array | None:
        """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""
        if not self.compiles(len(words)):
            return numpy_rows.order(words)
        from . import sort_loops

        ones = np.full(words.shape[1], _ALL)
        return None if sort_loops.ascending(words) else sort_loops.sort_order(words, ones ^ ones, ones)

    def starts(self, words: Array, mask: Array | None = None) -> Array:
        """Return where runs begin of keys that are equal in the bits of `mask`."""
        if not self.compiles(len(words)):
            return numpy_rows.starts(words, mask)
        from . import join_loops

        out = np.empty(len(words) + 1, np.int64)
        return out[: join_loops.starts(words, np.full(words.shape[1], _ALL) if mask is None else mask, out)]

    def between(self, words: Array, low: Array, high: Array) -> tuple[int, int]:
        """Return the start and the end of the ascending keys that lie between two keys."""
        places, (first, last) = range(len(words)), (low[0].tolist(), high[0].tolist())
        start = bisect_left(places, first, key=lambda row: words[row].tolist())
        return start, bisect_right(places, last, start, key=lambda row: words[row].tolist())

    def inside(self, words: Array, fields: Array) -> Array:
        """Return which keys have states within ranges."""
        found = np.ones(len(words), bool)
        for word, shift, mask, first, stop in fields:
            states = words[:, int(word)] >> shift & mask
            found &= (states >= first) & (states < stop)
        return found

    def index(self, words: Array, keys: Keys, ascending: bool) -> KeyPlaces | Sorted:
        """Return where rows are that are looked for by their keys."""
        few = keys.n_words == 1 and keys.span <= TABLE_CELLS_A_ROW * len(words)
        if few and not ascending:
            counts = np.bincount(words[:, 0].view(np.int64), minlength=keys.span)
            return KeyPlaces(self, np.concatenate([[0], np.cumsum(counts)]))
        return Sorted(self, words, ascending)

    def expanded(
        self, matches: tuple[Array, Array], span: tuple[int, int], words: tuple[Array, Array],
        values: tuple[Array, Array], semiring: Semiring,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Return the nonzero outputs of a join."""
        rows = span[1] - span[0]
        if not self.compiles(rows):
            left, right = numpy_rows.spread(*matches, *span)
            products = numpy_rows.product(values[0][left], values[1][right], semiring)
            kept = products != semiring.zero
            return (words[0][left] | words[1][right])[kept], products[kept]
        from . import join_loops

        out, products = np.empty((rows + 1, words[0].shape[1]), np.uint64), np.empty(rows + 1, semiring.dtype)
        count = join_loops.expand(*_expanded_by(matches, span, semiring), *words, *values, out, products)
        return out[:count], products[:count]

    def expanded_sums(
        self, matches: tuple[Array, Array], span: tuple[int, int], words: tuple[Array, Array],
        values: tuple[Array, Array], semiring: Semiring, most: int,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Return :meth:`expanded` with ascending keys, equal keys summed in their order, without zeros."""
        rows, width = span[1] - span[0], words[0].shape[1]
        if semiring.name not in ANY_ORDER or not self.compiles(rows):
            none = np.zeros(width, np.uint64)
            return self.gathered(*self.expanded(matches, span, words, values, semiring), semiring, none, none)
        from . import join_loops

        out, sums = np.empty((min(most, rows), width), np.uint64), np.empty(min(most, rows), semiring.dtype)
        count = join_loops.expand_costs(*_expanded_by(matches, span, semiring), *words, *values, out, sums)
        # views would keep the whole arrays alive
        return out[:count].copy(), sums[:count].copy()

    def multiplied(
        self, words: Array, values: Array, parts: Array, table: Array, semiring: Semiring
    ) -> tuple[Array, Array]:
        """Return rows multiplied with entries of a dense table, without zeros."""
        if self.compiles(len(words)):
            from . import join_loops

            products = np.empty_like(values)
            if not join_loops.multiply(*_law(semiring), words, values, parts, table, products):
                return words, products
        else:
            products = numpy_rows.product(values, table[offsets(words, parts)], semiring)
        kept = products != semiring.zero
        return (words, products) if kept.all() else (words[kept], products[kept])

    def merged(self, runs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Merge runs of keys and values, each in ascending order; among equal keys, rows of earlier runs come first."""
        rows = sum(len(words) for words, _ in runs)
        if not self.compiles(rows):
            words, values = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
            places = numpy_rows.order(words)
            return (words, values) if places is None else (words[places], values[places])
        from . import sort_loops

        waiting = [*runs]
        while len(waiting) > 1:
            odd = waiting[len(waiting) & ~1 :]
            pairs = zip(waiting[::2], waiting[1::2], strict=False)
            waiting = [sort_loops.merge_rows(*a, *b) for a, b in pairs] + odd
        return waiting[0]

    def gathered(
        self, words: Array, values: Array, semiring: Semiring | None, group: Array, mask: Array
    ) -> tuple[Array, Array]:
        """Return rows in ascending order of their keys, equal ones summed in the order they had, without zeros."""
        if not self.compiles(len(words)):
            return _gathered(words, values, semiring)
        from . import sort_loops

        if sort_loops.ascending(words):
            return _folded(words, values, np.empty(0, np.int64), semiring) if semiring else (words, values)
        if len(words) <= 2 * RowPolicy.current().block_rows:
            return _folded(words, values, sort_loops.sort_order(words, group, mask), semiring)
        return self._partitioned(words, values, semiring, group, mask)

    def _partitioned(
        self, words: Array, values: Array, semiring: Semiring | None, group: Array, mask: Array
    ) -> tuple[Array, Array]:
        """Gather rows that are more than a block, after rows with the same first bits were brought together."""
        from . import sort_loops

        out, moved = np.empty_like(words), np.empty_like(values)
        ends = np.empty(1 << sort_loops.DIGIT_BITS, np.int64)
        most = min((len(words) // RowPolicy.current().block_rows).bit_length(), sort_loops.DIGIT_BITS)
        digits = sort_loops.partition(words, values, most, out, moved, ends)
        parts, first = [], 0
        for last in ends[: 1 << digits].tolist():
            if last > first:
                parts.append(self.gathered(out[first:last], moved[first:last], semiring, group, mask))
            first = last
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


@dataclass(frozen=True, eq=False)
class KeyPlaces:
    """Rows by keys of few bits: the rows of key k are ``ends[k]`` to ``ends[k + 1]``."""

    host: HostRows
    ends: Array

    def find(self, words: Array) -> tuple[Array, Array]:
        """Return the first row of each key and how many there are."""
        if not self.host.compiles(len(words)):
            at = words[:, 0].view(np.int64)
            return self.ends[at], self.ends[at + 1] - self.ends[at]
        from . import join_loops

        found = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
        join_loops.look_up(words, self.ends, *found)
        return found


@dataclass(frozen=True, eq=False)
class Sorted:
    """Rows in ascending order of their keys.

    Parameters
    ----------
    host : HostRows
    words : (rows, words) uint64
    ascending : bool
        Whether what is looked for at a time ascends too.
    """

    host: HostRows
    words: Array
    ascending: bool

    def find(self, words: Array) -> tuple[Array, Array]:
        """Return the first row of each key and how many there are."""
        if not self.host.compiles(len(words)):
            wanted = numpy_rows.comparable(words)
            first = np.searchsorted(self._comparable, wanted)
            return first, np.searchsorted(self._comparable, wanted, side="right") - first
        from . import join_loops

        found = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
        if self.ascending:
            join_loops.walk(words, self.words, *found)
        else:
            join_loops.hashed(words, *self._hashed, *found)
        return found

    @cached_property
    def _comparable(self) -> Array:
        return numpy_rows.comparable(self.words)

    @cached_property
    def _hashed(self) -> tuple[Array, Array, Array]:
        """Distinct keys, the numbers of keys by hashes, and where the rows of each key begin."""
        from . import join_loops

        starts = self.host.starts(self.words)
        slots = np.full(1 << (2 * len(starts)).bit_length(), -1)
        join_loops.fill_hash(among := self.words[starts], slots)
        return among, slots, np.append(starts, len(self.words))


def _expanded_by(
    matches: tuple[Array, Array], span: tuple[int, int], semiring: Semiring
) -> tuple[int, Any, int, int, Array, Array, int, int]:
    """Return the semiring's numbers for the compiled loops, and the matches and the span to expand."""
    row = int(np.searchsorted(matches[1], span[0], side="right"))
    return *_law(semiring), row, *matches, *span


def _law(semiring: Semiring) -> tuple[int, Any, int]:
    return LAWS[semiring.name], np.dtype(semiring.dtype).type(semiring.zero), semiring.modulus


def _gathered(words: Array, values: Array, semiring: Semiring | None) -> tuple[Array, Array]:
    """Gather rows in NumPy."""
    places = numpy_rows.order(words)
    if places is not None:
        words, values = words[places], values[places]
    if semiring is None or not len(words):
        return words, values
    starts = numpy_rows.starts(words)
    sums = numpy_rows.sums(values, starts, semiring) if len(starts) < len(values) else values
    kept = sums != semiring.zero
    return words[starts][kept], sums[kept]


def _folded(words: Array, values: Array, order: Array, semiring: Semiring | None) -> tuple[Array, Array]:
    """Sum neighbours of equal keys in an order; none if it is empty."""
    from . import join_loops

    out, sums = np.empty((len(words) + 1, words.shape[1]), np.uint64), np.empty(len(words) + 1, values.dtype)
    if semiring is None:
        np.take(words, order, axis=0, out=out[:-1])
        np.take(values, order, out=sums[:-1])
        return out[:-1], sums[:-1]
    zero = values.dtype.type(semiring.zero)
    if semiring.name in ("min_plus", "mod_sum_product"):
        count = join_loops.fold_costs(words, values, order, semiring.modulus, zero, out, sums)
    else:
        count = join_loops.fold_sums(words, values, order, semiring.name == "log_sum", zero, out, sums)
    # views would keep the whole arrays alive
    return out[:count].copy(), sums[:count].copy()


HOST: Final = HostRows()
