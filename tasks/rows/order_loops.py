"""Compiled loops that put rows in order again where some fields fall out of their keys: runs are merged in groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..machine_code import njit

#: Groups of so few rows are sorted by insertion.
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
        What stands together from these positions on is sorted.
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
