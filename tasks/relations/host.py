"""Operations over rows in the memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring

Array = NDArray[Any]

#: So many neighbours are summed one after the other, then as many of their sums: the order does not depend on a side.
TILE: Final = 32


class Host:
    """Operations in NumPy; see :class:`.sides.Side`."""

    arrays: Any = np

    def repacked(self, words: Array, moves: Array, n_words: int) -> Array:
        """Move fields of keys to where they stand in another layout."""
        out = np.zeros((len(words), n_words), np.uint64)
        for word, mask, right, to, left in moves:
            out[:, to] |= (words[:, word] & mask) >> right << left
        return out

    def packed(self, cells: Array, digits: Sequence[tuple[int, int, int, int, int]]) -> Array:
        """Return the keys of cells of a dense table."""
        out = np.zeros((len(cells), 1 + max([word for word, *_ in digits], default=0)), np.uint64)
        for word, shift, _, stride, dim in digits:
            out[:, word] |= (cells // stride % dim).astype(np.uint64) << np.uint64(shift)
        return out

    def offsets(self, words: Array, parts: Array) -> Array:
        """Return where keys stand in a dense table."""
        found = np.zeros(len(words), np.uint64)
        for word, shift, mask, stride in parts:
            found += (words[:, word] >> shift & mask) * stride
        return found.view(np.int64)

    def matching(self, words: Array, mask: Array, wanted: Array) -> Array:
        """Return the numbers of keys that are `wanted` in the bits of `mask`."""
        return np.flatnonzero(((words & mask) == wanted).all(axis=1))

    def order(self, words: Array) -> Array | None:
        """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""
        if _ascending(words):
            return None
        if words.shape[1] == 1:
            return np.argsort(words[:, 0], kind="stable")
        return np.lexsort(words.T[::-1])

    def starts(self, words: Array) -> Array:
        """Return where runs of equal keys begin."""
        heads = np.ones(len(words), bool)
        heads[1:] = (words[1:] != words[:-1]).any(axis=1)
        return np.flatnonzero(heads)

    def places(self, words: Array, among: Array) -> Array:
        """Return where keys stand among distinct ascending ones, -1 for those that do not."""
        if words.shape[1] > 1:
            words, among = _numbered(words, among)
        if not len(among):
            return np.full(len(words), -1)
        found = np.searchsorted(among[:, 0], words[:, 0])
        found[found == len(among)] = 0
        return np.where(among[found, 0] == words[:, 0], found, -1)

    def spread(self, ends: Array, first: int, last: int) -> tuple[Array, Array]:
        """Return (row, number within the row) of outputs `first` to `last`."""
        outputs = np.arange(first, last)
        rows = np.searchsorted(ends, outputs, side="right")
        return rows, outputs - np.concatenate([[0], ends])[rows]

    def product(self, left: Array, right: Array, semiring: Semiring) -> Array:
        """Multiply values."""
        if semiring.name == "mod_sum_product":
            return left * right % semiring.modulus
        if semiring.name == "sum_product":
            return left * right
        total = left + right
        return np.minimum(total, semiring.zero, dtype=total.dtype) if semiring.saturates else total

    def sums(self, values: Array, starts: Array, semiring: Semiring) -> Array:
        """Sum runs of values."""
        if not len(starts):
            return values[:0]
        if semiring.name == "min_plus":
            return np.minimum.reduceat(values, starts)
        if semiring.name == "mod_sum_product":
            return np.add.reduceat(values, starts) % semiring.modulus
        if semiring.name == "sum_product":
            return _tiled_sums(values, starts)
        tops = np.maximum.reduceat(values, starts)
        lengths = np.diff(starts, append=len(values))
        return tops + np.log(_tiled_sums(np.exp(values - np.repeat(tops, lengths)), starts))


HOST: Final = Host()


def _ascending(words: Array) -> bool:
    """Whether keys stand in ascending order; equal ones may follow each other."""
    below = np.ones(len(words) - 1 if len(words) else 0, bool)
    for column in words.T[::-1]:
        below = (column[:-1] < column[1:]) | ((column[:-1] == column[1:]) & below)
    return bool(below.all())


def _numbered(words: Array, among: Array) -> tuple[Array, Array]:
    """Return keys of one word that compare as those of several do."""
    both = np.concatenate([among, words])
    order = np.lexsort(both.T[::-1])
    heads = np.ones(len(both), np.uint64)
    heads[1:] = (both[order[1:]] != both[order[:-1]]).any(axis=1)
    numbers = np.empty((len(both), 1), np.uint64)
    numbers[order, 0] = np.cumsum(heads)
    return numbers[len(among) :], numbers[: len(among)]


def _tiled_sums(values: Array, starts: Array) -> Array:
    """Sum runs, TILE neighbours at a time and in order."""
    lengths = np.diff(starts, append=len(values))
    while len(values) > len(lengths):
        tiles = -(-lengths // TILE)
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        first = np.repeat(np.cumsum(tiles) - tiles, lengths)
        values, lengths = np.bincount(first + within // TILE, weights=values), tiles
    return values
