"""Compiled loops that sort rows: least-significant-digit radix sort, in the bits in which their keys differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.jit import njit
from .join_loops import copy_key, less

#: Bits of one pass of a radix sort: its counts and the ends of its runs stay in the cache.
DIGIT_BITS = 11
_HALF = np.iinfo(np.uint64).bits // 2


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


@njit(nogil=True, makes_arrays=True)
def _sort_packed(a: Any, b: Any, bits: int) -> tuple[Any, Any]:
    """Sort `a` by some bits above the lower half; return both arrays, the one with the result first."""
    passes = -(-bits // DIGIT_BITS)
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


@njit(nogil=True, cache=True, makes_arrays=True)
def sort_order(words: Any, group: Any, mask: Any) -> Any:
    """Return the numbers of rows in stable order of the bits of `mask`, int64, where groups stand in order already.

    Parameters
    ----------
    words : (rows, words) uint64
    group : (words,) uint64
        Rows that agree in these bits, which are more significant than the bits of `mask`, are neighbours; zeros for one
        group.
    mask : (words,) uint64
    """
    n = len(words)
    # A packed row is its number in the lower 32 bits and up to 32 bits of its key above: a sort moves 8 bytes a row,
    # however long the keys are.
    a, b = np.empty(n, np.uint64), np.empty(n, np.uint64)
    low_half = _ones(_HALF)
    for i in range(n):
        a[i] = i
    numbers, n_words = np.zeros(n, np.uint64), words.shape[1]
    total = _numbers(words, group, numbers) if group.any() else 0
    used = 0
    # From the last word to the first, and at last (w = -1) by the number of the group: sorts are stable, so that each
    # keeps the order of the less significant bits.
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
    for digit in range(1 << digits):
        ends[digit] = 0
    for i in range(len(words)):
        ends[_digit(words[i, word], shift, mask)] += 1
    _starts_of_digits(ends[: 1 << digits])
    for i in range(len(words)):
        digit = _digit(words[i, word], shift, mask)
        copy_key(words, i, out, ends[digit])
        moved[ends[digit]] = values[i]
        ends[digit] += 1
    return digits


@njit(nogil=True, cache=True)
def ascending(words: Any) -> bool:
    """Whether keys stand in ascending order; equal ones may follow each other."""
    i = 1
    while i < len(words) and not less(words, i, words, i - 1):
        i += 1
    return i >= len(words)


@njit(nogil=True, cache=True, makes_arrays=True)
def merge_rows(a: Any, a_values: Any, b: Any, b_values: Any) -> tuple[Any, Any]:
    """Merge two ascending runs of keys, ``(rows, words) uint64``, with their values; among equal keys, ``a`` comes
    first.

    Returns
    -------
    tuple
        Keys and values of both.
    """
    n, m = len(a), len(b)
    out, values = np.empty((n + m, a.shape[1]), np.uint64), np.empty(n + m, a_values.dtype)
    i = j = at = 0
    while i < n and j < m:
        # neither run can end within this number of rows, and no branch waits for a comparison
        for _ in range(min(n - i, m - j)):
            p, q, r = np.uint64(i), np.uint64(j), np.uint64(at)
            later = b[q, 0] < a[p, 0]
            for _ in range(1, a.shape[1]):  # of keys of one word no branch
                later = less(b, j, a, i) if b[q, 0] == a[p, 0] else later
            for w in range(a.shape[1]):
                out[r, w] = b[q, w] if later else a[p, w]
            values[r] = b_values[q] if later else a_values[p]
            at, i, j = at + 1, i + 1 - later, j + later
    out[at : at + n - i], values[at : at + n - i] = a[i:], a_values[i:]
    out[at : at + m - j], values[at : at + m - j] = b[j:], b_values[j:]
    return out, values


# Compiled loops that put rows in order again where some fields fall out of their keys: runs are merged in groups.

#: Groups of at most this number of rows are sorted by insertion.
_FEW = 12


@njit(nogil=True)
def agree(keys: Any, mask: Any, p: int, q: int) -> bool:
    """Whether two rows agree in the bits of `mask`."""
    if keys.ndim == 1:
        return bool((keys[np.uint64(p)] ^ keys[np.uint64(q)]) & mask[0] == 0)
    differ = np.uint64(0)
    for w in range(len(mask)):
        differ |= (keys[np.uint64(p), w] ^ keys[np.uint64(q), w]) & mask[w]
    return bool(differ == 0)


@njit(nogil=True)
def group_start(keys: Any, mask: Any, order: Any, at: int) -> int:
    """Return the first position from `at` on where a group of keys begins that are equal in the bits of `mask`."""
    while 0 < at < len(order) and agree(keys, mask, order[at - 1], order[at]):
        at += 1
    return at


@njit(nogil=True)
def _less(keys: Any, mask: Any, p: int, q: int) -> bool:
    """Whether row `p` comes before row `q` by the bits of `mask`; of one word without a branch."""
    if keys.ndim == 1:
        return bool(keys[np.uint64(p)] & mask[0] < keys[np.uint64(q)] & mask[0])
    w = 0
    a, b = keys[np.uint64(p), 0] & mask[0], keys[np.uint64(q), 0] & mask[0]
    while a == b and w + 1 < len(mask):
        w += 1
        a, b = keys[np.uint64(p), np.uint64(w)] & mask[w], keys[np.uint64(q), np.uint64(w)] & mask[w]
    return bool(a < b)


@njit(nogil=True)
def _insert(keys: Any, mask: Any, order: Any, first: int, last: int) -> None:
    """Sort few rows in place; ties keep their order."""
    for i in range(first + 1, last):
        row, j = order[i], i
        while j > first and _less(keys, mask, row, order[j - 1]):
            order[j] = order[j - 1]
            j -= 1
        order[j] = row


@njit(nogil=True)
def _merge(keys: Any, mask: Any, source: Any, first: int, middle: int, last: int, target: Any) -> None:
    """Merge ``source[first:middle]`` and ``source[middle:last]`` into ``target[first:last]``; ties keep their order.

    From both ends at once, as far as the shorter run cannot end: two chains of comparisons that do not wait for each
    other.
    """
    i, j, at = first, middle, first
    k, m, end = middle - 1, last - 1, last - 1
    for _ in range(min(middle - first, last - middle)):
        p, q = source[np.uint64(i)], source[np.uint64(j)]
        later = int(_less(keys, mask, q, p))
        target[np.uint64(at)] = q if later else p
        at, i, j = at + 1, i + 1 - later, j + later
        p, q = source[np.uint64(k)], source[np.uint64(m)]
        later = int(_less(keys, mask, q, p))
        target[np.uint64(end)] = p if later else q
        end, k, m = end - 1, k - later, m - 1 + later
    while at <= end:
        if i > k or (j <= m and _less(keys, mask, source[j], source[i])):
            target[at] = source[j]
            j += 1
        else:
            target[at] = source[i]
            i += 1
        at += 1


@njit(nogil=True)
def _merge_runs(keys: Any, mask: Any, order: Any, spare: Any, starts: Any, runs: int, last: int) -> None:
    """Merge the runs that begin at ``starts[:runs]`` and end before `last` pairwise, until one is left in `order`."""
    first = starts[0]
    there = False
    while runs > 1:
        a, b = (spare, order) if there else (order, spare)
        merged = 0
        for k in range(0, runs, 2):
            low, middle = starts[k], starts[k + 1] if k + 1 < runs else last
            high = starts[k + 2] if k + 2 < runs else last
            _merge(keys, mask, a, low, middle, high, b)
            starts[merged] = low
            merged += 1
        runs = merged
        there = not there
    if there:
        for i in range(first, last):
            order[i] = spare[i]


@njit(nogil=True, cache=True)
def merge_groups(keys: Any, group: Any, mask: Any, order: Any, spare: Any, starts: Any, start: int, stop: int) -> None:
    """Sort rows by the bits of `mask`, where rows that agree in `group` (more significant bits) stand together.

    Parameters
    ----------
    keys : (rows, words) uint64
    group, mask : (words,) uint64
    order : (rows,) int32
        Numbers of rows in their order, before and after.
    spare, starts : (rows,) int32, (rows,) int64
        Scratch.
    start, stop : int
        Rows that stand together from these positions on are sorted.
    """
    if keys.shape[1] == 1:
        _sort_groups(keys.reshape(-1), group, mask, order, spare, starts, start, stop)
    else:
        _sort_groups(keys, group, mask, order, spare, starts, start, stop)


@njit(nogil=True)
def _sort_groups(keys: Any, group: Any, mask: Any, order: Any, spare: Any, starts: Any, start: int, stop: int) -> None:
    """Sort groups like :func:`merge_groups`; keys of one word are ``(rows,) uint64``."""
    n = len(order)
    i, stop = group_start(keys, group, order, start), group_start(keys, group, order, stop)
    falls = i + 1
    for j in range(i + 1, stop):
        p, q = order[np.uint64(j - 1)], order[np.uint64(j)]
        starts[np.uint64(falls)] = j
        falls += int(_less(keys, mask, q, p) & agree(keys, group, p, q))
    at = i + 1
    while at < falls:
        first, last, runs = starts[at] - 1, starts[at] + 1, 1
        row = order[first]
        while first > i and agree(keys, group, order[first - 1], row):
            first -= 1
        while at < falls and (starts[at] < last or agree(keys, group, order[starts[at]], row)):
            last = starts[at] + 1
            at, runs = at + 1, runs + 1
        while last < n and agree(keys, group, order[last], row):
            last += 1
        if last - first <= _FEW:
            _insert(keys, mask, order, first, last)
        else:
            starts[at - runs] = first
            _merge_runs(keys, mask, order, spare, starts[at - runs :], runs, last)
