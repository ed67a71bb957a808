"""Compiled loops that sort rows: by radix, in the bits in which their keys differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...machine_code import njit
from .loops import copy_key, less

#: Bits of one pass of a radix sort, where all that is sorted fits the cache or not.
_SMALL, _SMALL_BITS, _LARGE_BITS = 1 << 17, 11, 8
_HALF = 32


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
