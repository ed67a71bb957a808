"""Compiled loops over rows: moving fields, finding and summing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.jit import njit
from .keys import WORD_BITS
from .numpy_rows import TILE

#: Levels of tiles, for any number of rows; see :data:`.numpy_rows.TILE`.
_LEVELS = WORD_BITS // (TILE.bit_length() - 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(nogil=True, cache=True)
def repack(words: Any, moves: Any, out: Any) -> None:
    """Move fields of keys into `out`; see :meth:`.rows.keys.Keys.moves`."""
    out[:] = 0
    for k in range(len(moves)):
        word, mask, right, to, left = moves[k, 0], moves[k, 1], moves[k, 2], moves[k, 3], moves[k, 4]
        for i in range(len(words)):
            out[i, to] |= (words[i, word] & mask) >> right << left


@njit(nogil=True, cache=True)
def starts(words: Any, mask: Any, out: Any) -> int:
    """Write where runs begin of keys that are equal in the bits of `mask`; return how many."""
    count = 0
    for i in range(len(words)):
        differ = np.uint64(i == 0)
        for w in range(words.shape[1] if i else 0):
            differ |= (words[i, w] ^ words[i - 1, w]) & mask[w]
        out[count] = i
        count += differ != 0
    return count


@njit(nogil=True)
def less(a: Any, i: int, b: Any, j: int) -> bool:
    """Whether a key of `a` comes before one of `b`."""
    for w in range(a.shape[1]):
        if a[i, w] != b[j, w]:
            return bool(a[i, w] < b[j, w])
    return False


@njit(nogil=True)
def same_key(a: Any, i: int, b: Any, j: int) -> bool:
    """Whether a key of `a` is one of `b`."""
    if a.shape[1] == 1:
        return bool(a[i, 0] == b[j, 0])
    differ = np.uint64(0)
    for w in range(a.shape[1]):
        differ |= a[i, w] ^ b[j, w]
    return bool(differ == 0)


@njit(nogil=True)
def copy_key(words: Any, i: int, out: Any, n: int) -> None:
    """Write one key to a place of `out`."""
    # downwards, or the compiler calls memcpy, which takes longer than all else
    for w in range(words.shape[1] - 1, -1, -1):
        out[n, w] = words[i, w]


@njit(nogil=True)
def _behind(words: Any, at: int, key: Any, i: int, equal: bool) -> int:
    """Return the first place from `at` on whose key is not below ``key[i]``, nor equal to it where that is asked."""
    step, n = 1, len(words)
    while at + step <= n and (less(words, at + step - 1, key, i) or (equal and same_key(words, at + step - 1, key, i))):
        at += step
        step *= 2
    high = min(at + step - 1, n)
    while at < high:
        middle = (at + high) // 2
        if less(words, middle, key, i) or (equal and same_key(words, middle, key, i)):
            at = middle + 1
        else:
            high = middle
    return at


@njit(nogil=True, cache=True)
def walk(words: Any, among: Any, first: Any, count: Any) -> None:
    """Find ascending keys among ascending ones: where they begin, and how many there are."""
    at = stop = 0
    for i in range(len(words)):
        if i == 0 or not same_key(words, i, words, i - 1):
            at = _behind(among, stop, words, i, False)
            stop = _behind(among, at, words, i, True)
        first[i] = at
        count[i] = stop - at


@njit(nogil=True, cache=True)
def look_up(words: Any, ends: Any, first: Any, count: Any) -> None:
    """Find keys in a table: rows of key k are ``ends[k]`` to ``ends[k + 1]``."""
    for i in range(len(words)):
        first[i] = ends[words[i, 0]]
        count[i] = ends[words[i, 0] + np.uint64(1)] - first[i]


@njit(nogil=True)
def _slot(words: Any, i: int, mask: int) -> Any:
    mixed = np.uint64(0)
    for w in range(words.shape[1]):
        mixed = (mixed ^ words[i, w]) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return np.int64((mixed * _MIX) >> np.uint64(20)) & mask


@njit(nogil=True, cache=True)
def fill_hash(among: Any, slots: Any) -> None:
    """Put the numbers of distinct keys into slots, twice as many at least; the others stay -1."""
    mask = len(slots) - 1
    for g in range(len(among)):
        slot = _slot(among, g, mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = g


@njit(nogil=True, cache=True)
def hashed(words: Any, among: Any, slots: Any, groups: Any, first: Any, count: Any) -> None:
    """Find keys by :func:`fill_hash`."""
    mask = len(slots) - 1
    for i in range(len(words)):
        slot = _slot(words, i, mask)
        while slots[slot] >= 0 and not same_key(words, i, among, slots[slot]):
            slot = (slot + 1) & mask
        g = slots[slot]
        first[i] = groups[g] if g >= 0 else 0
        count[i] = groups[g + 1] - groups[g] if g >= 0 else 0


@njit(nogil=True)
def _carried(totals: Any, counts: Any, value: float) -> None:
    """Add the sum of one tile to those before."""
    level = 0
    while True:
        totals[level] += value
        counts[level] += 1
        if counts[level] < TILE:
            return
        value = totals[level]
        totals[level], counts[level] = 0.0, 0
        level += 1


@njit(nogil=True)
def _closed(totals: Any, counts: Any) -> float:
    """Return the sum of all tiles, and forget it."""
    top = 0
    for level in range(_LEVELS):
        top = level if counts[level] else top
    for level in range(top):
        if counts[level]:
            value = totals[level]
            totals[level], counts[level] = 0.0, 0
            upper = level + 1
            totals[upper] += value
            counts[upper] += 1
    value = totals[top]
    totals[top], counts[top] = 0.0, 0
    return float(value)


@njit(nogil=True, cache=True)
def fold_costs(words: Any, values: Any, order: Any, modulus: int, zero: Any, out: Any, sums: Any) -> int:
    """Keep the least value of equal keys, or, with a modulus, their sum; see :func:`fold_sums`."""
    permuted = len(order) > 0
    n = head = 0
    total = values[0]
    for i in range(len(values) + 1):
        row = 0
        if i < len(values):
            row = order[i] if permuted else i
            if i and same_key(words, head, words, row):
                total = total + values[row] if modulus else min(total, values[row])
                continue
        if i:
            copy_key(words, head, out, n)
            total = total % modulus if modulus else total
            sums[n] = total
            n += total != zero
        head, total = row, values[row]
    return n


@njit(nogil=True, cache=True, makes_arrays=True)
def fold_sums(words: Any, values: Any, order: Any, logs: bool, zero: float, out: Any, sums: Any) -> int:
    """Sum what has equal keys, which are neighbours in an order (none if it is empty); zeros are left out.

    Parameters
    ----------
    words, values : (rows, words) uint64, (rows,) float64
        One row at least.
    order : (rows,) int64
    logs : bool
        Whether values are logarithms.
    zero : float
    out, sums
        The result, with room for one row more than there are.

    Returns
    -------
    int
        How many rows were written.
    """
    permuted = len(order) > 0
    totals, counts = np.zeros(_LEVELS), np.zeros(_LEVELS, np.int64)
    n = head = 0
    total, parts, tile, deep = values[0], 1.0, 1, False
    for i in range(len(values) + 1):
        row = 0
        if i < len(values):
            row = order[i] if permuted else i
            if i and same_key(words, head, words, row):
                value = values[row]
                if logs:
                    high = max(total, value)
                    parts = parts * np.exp(total - high) + np.exp(value - high)
                    total = high
                # Sums of tiles, then sums of tiles of tiles: the rounding error grows with the logarithm of the run's
                # length, and NumPy and the device's kernels, which do the same, give the same bits.
                elif tile < TILE:
                    total += value
                    tile += 1
                else:
                    _carried(totals, counts, total)
                    total, tile, deep = value, 1, True
                continue
        if i:
            if deep:
                _carried(totals, counts, total)
                total = _closed(totals, counts)
            copy_key(words, head, out, n)
            total = total + np.log(parts) if logs else total
            # Written first and counted if it is not zero: hence the room for one more row.
            sums[n] = total
            n += total != zero
        head, total, parts, tile, deep = row, values[row], 1.0, 1, False
    return n


# Compiled loops over rows: products with rows of other tables, and with entries of dense ones.


@njit(nogil=True)
def _times(law: int, zero: Any, modulus: int, a: Any, b: Any) -> Any:
    """Multiply; `law` is the number of the semiring's name in :data:`.host.LAWS`."""
    if law == 1:
        return a * b
    if law == 3:
        return a * b % modulus
    total = a + b
    return zero if law == 0 and total > zero else total


@njit(nogil=True, cache=True)
def expand(
    law: int,
    zero: Any,
    modulus: int,
    row: int,
    first: Any,
    ends: Any,
    start: int,
    stop: int,
    left: Any,
    right: Any,
    left_values: Any,
    right_values: Any,
    out: Any,
    values: Any,
) -> int:
    """Write outputs `start` to `stop` of a join, the first of them of `row`; zeros are left out.

    Parameters
    ----------
    first, ends : (rows,) int64
        Row i of the left meets rows of the right from ``first[i]`` on; its outputs end before ``ends[i]``.
    left, right : (rows, words) uint64
        Keys in the layout of the result, zeros where a side has no state.
    out, values
        The result, with room for one row more.
    """
    n = 0
    at = start
    narrow = out.shape[1] == 1
    while at < stop:
        last = min(ends[row], stop)
        begin = ends[row - 1] if row else 0
        begin = first[row] + at - begin
        for j in range(begin, begin + last - at):
            product = _times(law, zero, modulus, left_values[row], right_values[j])
            # Most keys have one word: they need no inner loop.
            if narrow:
                out[n, 0] = left[row, 0] | right[j, 0]
            else:
                for w in range(out.shape[1]):
                    out[n, w] = left[row, w] | right[j, w]
            values[n] = product
            n += product != zero
        at = max(at, last)
        row += 1
    return n


@njit(nogil=True)
def _plus(law: int, a: Any, b: Any) -> Any:
    return a + b if law == 3 else min(a, b)


@njit(nogil=True)
def _makes(left: Any, row: int, right: Any, other: int, out: Any, n: int) -> bool:
    """Whether the key that rows of both sides make is one of `out`."""
    differ = np.uint64(0)
    for w in range(out.shape[1]):
        differ |= out[n, w] ^ (left[row, w] | right[other, w])
    return bool(differ == 0)


@njit(nogil=True, cache=True)
def expand_costs(
    law: int,
    zero: Any,
    modulus: int,
    row: int,
    first: Any,
    ends: Any,
    start: int,
    stop: int,
    left: Any,
    right: Any,
    left_values: Any,
    right_values: Any,
    out: Any,
    sums: Any,
) -> int:
    """Write the outputs of a join as :func:`expand` does, in ascending order, with equal keys summed: the least, or
    residues.

    The right rows that have equal keys are summed before they are multiplied, once.

    Parameters
    ----------
    law, zero, modulus : int, number, int
        Number of the semiring's name in ``host.LAWS``, its zero (inf for costs), and the modulus of residues.
    row : int
        The left row of the first output.
    first, ends : (rows,) int64
        Row i of the left meets rows of the right from ``first[i]`` on; its outputs end before ``ends[i]``.
    start, stop : int
        Outputs to make; they ascend.
    left, right : (rows, words) uint64
        Keys in the layout of the result, zeros where a side has no state.
    left_values, right_values : (rows,)
        Values of one dtype.
    out, sums : (most, words) uint64, (most,)
        Written to: keys in ascending order, and their sums, in the dtype of the values.

    Returns
    -------
    int
        The number of keys written; keys with sum zero are left out.
    """
    n, begun = 0, False
    at = start
    while at < stop:
        j = first[row] + at - (ends[row - 1] if row else 0)
        last = max(at, min(ends[row], stop))
        end = j + last - at
        while j < end:
            k, total = j + 1, right_values[j]
            while k < end and same_key(right, k, right, j):
                total = _plus(law, total, right_values[k])
                k += 1
            total = _times(law, zero, modulus, left_values[row], total % modulus if law == 3 else total)
            # The outputs ascend, so that only the key that was written last can be equal.
            if begun and _makes(left, row, right, j, out, n):
                total = _plus(law, sums[n], total)
                sums[n] = total % modulus if law == 3 else total
            else:
                n += begun and sums[n] != zero
                for w in range(out.shape[1] - 1, -1, -1):
                    out[n, w] = left[row, w] | right[j, w]
                sums[n], begun = total, True
            j = k
        at = last
        row += 1
    return n + int(begun and sums[n] != zero)


@njit(nogil=True, cache=True)
def multiply(law: int, zero: Any, modulus: int, words: Any, values: Any, parts: Any, table: Any, out: Any) -> int:
    """Write the products of rows with entries of a dense table; return how many are zero.

    Parameters
    ----------
    parts : (parts, 4) uint64
        Where the entry of a key stands; see :meth:`.rows.keys.Keys.gathers`.
    """
    zeros = 0
    for i in range(len(words)):
        at = np.uint64(0)
        for k in range(len(parts)):
            at += (words[i, parts[k, 0]] >> parts[k, 1] & parts[k, 2]) * parts[k, 3]
        product = _times(law, zero, modulus, values[i], table[np.int64(at)])
        out[i] = product
        zeros += product == zero
    return zeros
