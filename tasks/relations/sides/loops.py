"""Compiled loops over rows: moving fields, radix sorting, finding and summing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...machine_code import njit

#: Neighbours that are summed one after the other; see :data:`.plain.TILE`.
_TILE = 32
_LEVELS = 8
#: Bits of one pass of a radix sort, where all that is sorted fits the cache or not.
_SMALL, _SMALL_BITS, _LARGE_BITS = 1 << 17, 11, 8
_HALF = 32
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
def _ones(bits: int) -> Any:
    return np.uint64((1 << bits) - 1)


@njit(nogil=True)
def _digit(word: int, shift: int, mask: int) -> Any:
    return np.int64(word >> np.uint64(shift) & mask)


@njit(nogil=True)
def _starts_of_digits(counts: Any) -> None:
    """Replace how many of each digit there are by where they begin."""
    at = 0
    for k in range(len(counts)):
        at, counts[k] = at + counts[k], at


@njit(nogil=True)
def _pass(source: Any, target: Any, shift: int, digits: int, ends: Any) -> None:
    """Move packed rows to the places of their digits; ``ends`` holds how many of each digit there are."""
    _starts_of_digits(ends)
    mask: Any = np.uint64(digits - 1)
    for i in range(len(source)):
        digit = _digit(source[i], shift, mask)
        target[ends[digit]] = source[i]
        ends[digit] += 1


@njit(nogil=True)
def _sort_packed(a: Any, b: Any, bits: int) -> tuple[Any, Any]:
    """Sort `a` by some bits above the lower half; return both arrays, the one with the result first."""
    most = _SMALL_BITS if len(a) <= _SMALL else _LARGE_BITS
    passes = -(-bits // most)
    width = -(-bits // passes)
    counts = np.zeros((passes, 1 << width), np.int64)
    mask = _ones(width)
    for i in range(len(a)):
        rest = a[i] >> np.uint64(_HALF)
        for k in range(passes):
            counts[k, np.int64(rest & mask)] += 1
            rest >>= np.uint64(width)
    for k in range(passes):
        digit = _digit(a[0], _HALF + k * width, mask)
        if counts[k, digit] < len(a):
            _pass(a, b, _HALF + k * width, 1 << width, counts[k])
            a, b = b, a
    return a, b


@njit(nogil=True)
def _span(words: Any, w: int, mask: int) -> tuple[int, int]:
    """Return the lowest bit, and how many bits from there on, in which keys differ within a mask of word `w`."""
    varying = np.uint64(0)
    for i in range(len(words)):
        varying |= words[i, w] ^ words[0, w]
    varying &= mask
    low = high = 0
    while varying >> np.uint64(high):
        high += 1
    while low < high and not varying >> np.uint64(low) & np.uint64(1):
        low += 1
    return low, high - low


@njit(nogil=True)
def _numbers(words: Any, mask: Any, out: Any) -> int:
    """Number the runs of keys that are equal in the bits of `mask`; return how many bits that takes."""
    count = np.uint64(0)
    for i in range(1, len(words)):
        differ = np.uint64(0)
        for w in range(words.shape[1]):
            differ |= (words[i, w] ^ words[i - 1, w]) & mask[w]
        count += np.uint64(differ != 0)
        out[i] = count
    bits = 0
    while count >> np.uint64(bits):
        bits += 1
    return bits


@njit(nogil=True, cache=True)
def sort_order(words: Any, group: Any, mask: Any) -> Any:
    """Return the numbers of rows in stable order of the bits of `mask`, int64, where groups stand in order already.

    Parameters
    ----------
    words : (rows, words) uint64
    group : (words,) uint64
        Rows that agree in these bits, more significant than those of `mask`, are neighbours; zeros for one group.
    mask : (words,) uint64
    """
    n = len(words)
    a, b = np.empty(n, np.uint64), np.empty(n, np.uint64)
    low_half = _ones(_HALF)
    for i in range(n):
        a[i] = i
    numbers, n_words = np.zeros(n, np.uint64), words.shape[1]
    total = _numbers(words, group, numbers) if group.any() else 0
    used = 0
    for w in range(n_words - 1, -2, -1):
        low, bits = (0, total)
        if w >= 0:
            low, bits = _span(words, w, mask[w])
        while bits > 0:
            if used == _HALF:
                a, b = _sort_packed(a, b, used)
                used = 0
                for i in range(n):
                    a[i] &= low_half
            taken = min(bits, _HALF - used)
            ones = _ones(taken)
            for i in range(n):
                row = np.int64(a[i] & low_half)
                field = (words[row, w] if w >= 0 else numbers[row]) >> np.uint64(low) & ones
                a[i] |= field << np.uint64(_HALF + used)
            low, bits, used = low + taken, bits - taken, used + taken
    if used:
        a, b = _sort_packed(a, b, used)
    order = np.empty(n, np.int64)
    for i in range(n):
        order[i] = a[i] & low_half
    return order


@njit(nogil=True, cache=True)
def partition(words: Any, values: Any, most: int, out: Any, moved: Any, ends: Any) -> int:
    """Move rows to the places of the first bits in which keys differ, at most `most`; return how many bits.

    Rows of digit k end before ``ends[k]``, which has room for all digits.
    """
    word = low = bits = 0
    every: Any = ~np.uint64(0)
    for w in range(words.shape[1]):
        if bits == 0:
            word = w
            low, bits = _span(words, w, every)
    digits = min(bits, most)
    shift, mask = low + bits - digits, _ones(digits)
    ends[: 1 << digits] = 0
    for i in range(len(words)):
        ends[_digit(words[i, word], shift, mask)] += 1
    _starts_of_digits(ends[: 1 << digits])
    for i in range(len(words)):
        digit = _digit(words[i, word], shift, mask)
        _copy(words, i, out, ends[digit])
        moved[ends[digit]] = values[i]
        ends[digit] += 1
    return digits


@njit(nogil=True, cache=True)
def ascending(words: Any) -> bool:
    """Whether keys stand in ascending order; equal ones may follow each other."""
    i = 1
    while i < len(words) and not _less(words, i, words, i - 1):
        i += 1
    return i >= len(words)


@njit(nogil=True)
def _less(a: Any, i: int, b: Any, j: int) -> bool:
    for w in range(a.shape[1]):
        if a[i, w] != b[j, w]:
            return bool(a[i, w] < b[j, w])
    return False


@njit(nogil=True)
def _equal(a: Any, i: int, b: Any, j: int) -> bool:
    if a.shape[1] == 1:
        return bool(a[i, 0] == b[j, 0])
    differ = np.uint64(0)
    for w in range(a.shape[1]):
        differ |= a[i, w] ^ b[j, w]
    return bool(differ == 0)


@njit(nogil=True)
def _copy(words: Any, i: int, out: Any, n: int) -> None:
    # downwards, or the compiler calls memcpy, which takes longer than all else
    for w in range(words.shape[1] - 1, -1, -1):
        out[n, w] = words[i, w]


@njit(nogil=True)
def _behind(words: Any, at: int, key: Any, i: int, equal: bool) -> int:
    """Return the first place from `at` on whose key is not below ``key[i]``, nor equal to it where that is asked."""
    step, n = 1, len(words)
    while at + step <= n and (_less(words, at + step - 1, key, i) or (equal and _equal(words, at + step - 1, key, i))):
        at += step
        step *= 2
    high = min(at + step - 1, n)
    while at < high:
        middle = (at + high) // 2
        if _less(words, middle, key, i) or (equal and _equal(words, middle, key, i)):
            at = middle + 1
        else:
            high = middle
    return at


@njit(nogil=True, cache=True)
def walk(words: Any, among: Any, first: Any, count: Any) -> None:
    """Find ascending keys among ascending ones: where they begin, and how many there are."""
    at = stop = 0
    for i in range(len(words)):
        if i == 0 or not _equal(words, i, words, i - 1):
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
        while slots[slot] >= 0 and not _equal(words, i, among, slots[slot]):
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
        if counts[level] < _TILE:
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
            if i and _equal(words, head, words, row):
                total = total + values[row] if modulus else min(total, values[row])
                continue
        if i:
            _copy(words, head, out, n)
            total = total % modulus if modulus else total
            sums[n] = total
            n += total != zero
        head, total = row, values[row]
    return n


@njit(nogil=True, cache=True)
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
            if i and _equal(words, head, words, row):
                value = values[row]
                if logs:
                    high = max(total, value)
                    parts = parts * np.exp(total - high) + np.exp(value - high)
                    total = high
                elif tile < _TILE:
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
            _copy(words, head, out, n)
            total = total + np.log(parts) if logs else total
            sums[n] = total
            n += total != zero
        head, total, parts, tile, deep = row, values[row], 1.0, 1, False
    return n
