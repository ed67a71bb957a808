"""Operations over rows in NumPy, for few rows: the same operations as the compiled loops and the device's kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring

Array = NDArray[Any]

#: This number of neighbours is summed one after the other, then the same number of their sums. All backends use this
#: order.
TILE: Final = 32
#: Sums that are the same in whatever order.
ANY_ORDER: Final = ("min_plus", "mod_sum_product")


def order(words: Array) -> Array | None:
    """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""
    if ascending(words):
        return None
    if words.shape[1] == 1:
        return np.argsort(words[:, 0], kind="stable")
    return np.lexsort(words.T[::-1])


def ascending(words: Array) -> bool:
    """Whether keys stand in ascending order; equal ones may follow each other."""
    below = np.ones(max(len(words) - 1, 0), bool)
    for column in words.T[::-1]:
        below = (column[:-1] < column[1:]) | ((column[:-1] == column[1:]) & below)
    return bool(below.all())


def starts(words: Array, mask: Array | None = None) -> Array:
    """Return where runs begin of keys that are equal in the bits of a mask."""
    differ = words[1:] ^ words[:-1]
    heads = np.ones(len(words), bool)
    heads[1:] = (differ if mask is None else differ & mask).any(axis=1)
    return np.flatnonzero(heads)


def comparable(words: Array) -> Array:
    """Return keys as single numbers, or as strings that sort like them."""
    if words.shape[1] == 1:
        return words[:, 0]
    return words.astype(">u8").view(f"S{8 * words.shape[1]}")[:, 0]


def spread(first: Array, ends: Array, start: int, stop: int) -> tuple[Array, Array]:
    """Return which rows of the left and of the right outputs `start` to `stop` of a join are made of."""
    outputs = np.arange(start, stop)
    rows = np.searchsorted(ends, outputs, side="right")
    return rows, first[rows] + outputs - np.concatenate([[0], ends])[rows]


def product(left: Array, right: Array, semiring: Semiring) -> Array:
    """Multiply values."""
    if semiring.name == "mod_sum_product":
        return left * right % semiring.modulus
    if semiring.name == "sum_product":
        return left * right
    total = left + right
    return np.minimum(total, semiring.zero, dtype=total.dtype) if semiring.saturates else total


def sums(values: Array, starts: Array, semiring: Semiring) -> Array:
    """Sum runs of values; there is at least one run."""
    if semiring.name == "min_plus":
        return np.minimum.reduceat(values, starts)
    if semiring.name == "mod_sum_product":
        return np.add.reduceat(values, starts) % semiring.modulus
    if semiring.name == "sum_product":
        return _tiled_sums(values, starts)
    tops = np.maximum.reduceat(values, starts)
    lengths = np.diff(starts, append=len(values))
    return tops + np.log(_tiled_sums(np.exp(values - np.repeat(tops, lengths)), starts))


def _tiled_sums(values: Array, starts: Array) -> Array:
    """Sum runs, TILE neighbours at a time and in order."""
    lengths = np.diff(starts, append=len(values))
    while len(values) > len(lengths):
        tiles = -(-lengths // TILE)
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        first = np.repeat(np.cumsum(tiles) - tiles, lengths)
        values, lengths = np.bincount(first + within // TILE, weights=values), tiles
    return values
