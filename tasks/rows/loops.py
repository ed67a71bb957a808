"""Compiled loops over rows: the order after some fields fall away, and one layer of a search in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from ..machine_code import njit

#: Costs are told apart by so many bins first.
_BINS = 4096
# Numba types the decorated function as its own typer; callers inside kernels see another signature.
intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic


@intrinsic
def _cell(typing: Any, address: Any, index: Any) -> Any:
    """Load one float64 of the array at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        table = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(table, [args[1]]))

    return types.float64(types.int64, types.int64), emit


@njit(nogil=True)
def _same(keys: Any, mask: Any, p: int, q: int) -> bool:
    """Whether two rows agree in the bits of `mask`."""
    differ = np.uint64(0)
    for w in range(len(mask)):
        differ |= (keys[p, w] ^ keys[q, w]) & mask[w]
    return bool(differ == 0)


@njit(nogil=True)
def _less(keys: Any, mask: Any, p: int, q: int) -> bool:
    """Whether row `p` comes before row `q` by the bits of `mask`."""
    for w in range(len(mask)):
        a, b = keys[p, w] & mask[w], keys[q, w] & mask[w]
        if a != b:
            return bool(a < b)
    return False


@njit(nogil=True)
def _merge(keys: Any, mask: Any, source: Any, first: int, middle: int, last: int, target: Any) -> None:
    """Merge ``source[first:middle]`` and ``source[middle:last]`` into ``target[first:last]``; ties keep their order."""
    i, j = first, middle
    for at in range(first, last):
        if j >= last or (i < middle and not _less(keys, mask, source[j], source[i])):
            target[at] = source[i]
            i += 1
        else:
            target[at] = source[j]
            j += 1


@njit(nogil=True)
def _merge_word(words: Any, mask: int, source: Any, first: int, middle: int, last: int, target: Any) -> None:
    """Merge like :func:`_merge`, for keys of one word."""
    i, j, at = first, middle, first
    p, q = source[i], source[j]
    a, b = words[p] & mask, words[q] & mask
    while True:
        if b < a:
            target[at] = q
            at += 1
            j += 1
            if j == last:
                break
            q = source[j]
            b = words[q] & mask
        else:
            target[at] = p
            at += 1
            i += 1
            if i == middle:
                break
            p = source[i]
            a = words[p] & mask
    while i < middle:
        target[at] = source[i]
        at += 1
        i += 1
    while j < last:
        target[at] = source[j]
        at += 1
        j += 1


@njit(nogil=True)
def _merge_runs(keys: Any, mask: Any, source: Any, target: Any, starts: Any, runs: int, last: int) -> None:
    """Merge the runs that begin at ``starts[:runs]`` and end before `last` pairwise, until one is left in `target`."""
    first = starts[0]
    there = False
    while runs > 1:
        a, b = (target, source) if there else (source, target)
        merged = 0
        for k in range(0, runs, 2):
            low, middle = starts[k], starts[k + 1] if k + 1 < runs else last
            high = starts[k + 2] if k + 2 < runs else last
            if middle == high:
                for i in range(low, high):
                    b[i] = a[i]
            elif len(mask) == 1:
                _merge_word(keys[:, 0], mask[0], a, low, middle, high, b)
            else:
                _merge(keys, mask, a, low, middle, high, b)
            starts[merged] = low
            merged += 1
        runs = merged
        there = not there
    if not there:
        for i in range(first, last):
            target[i] = source[i]


@njit(nogil=True)
def _group_start(keys: Any, same: Any, order: Any, at: int) -> int:
    """Return the first position from `at` on where a group of equal keys begins."""
    while 0 < at < len(order) and _same(keys, same, order[at - 1], order[at]):
        at += 1
    return at


@njit(nogil=True, cache=True)
def merge_groups(
    keys: Any, group: Any, mask: Any, source: Any, target: Any, starts: Any, start: int, stop: int
) -> None:
    """Sort rows by the bits of `mask`, where rows that agree in `group` (more significant bits) stand together.

    Parameters
    ----------
    keys : (rows, words) uint64
    group, mask : (words,) uint64
    source, target : (rows,) int32
        Numbers of rows in their order before, which is used up, and after.
    starts : (rows,) int64
        Scratch.
    start, stop : int
        What stands together from these positions on is sorted.
    """
    n = len(source)
    i, stop = _group_start(keys, group, source, start), _group_start(keys, group, source, stop)
    while i < stop:
        starts[i] = i
        runs = 1
        j = i + 1
        while j < n and _same(keys, group, source[j - 1], source[j]):
            if _less(keys, mask, source[j], source[j - 1]):
                starts[i + runs] = j
                runs += 1
            j += 1
        _merge_runs(keys, mask, source, target, starts[i:], runs, j)
        i = j


@njit(nogil=True)
def _offsets(keys: Any, parts: Any, first: int, last: int, count: int, offsets: Any) -> None:
    """Gather the offsets of `count` rows in a table from the parts of their keys."""
    for b in range(count):
        offsets[b] = 0
    for k in range(first, last):
        word, shift, mask, stride = parts[k, 0], parts[k, 1], parts[k, 2], parts[k, 3]
        for b in range(count):
            offsets[b] += (keys[word, b] >> shift & mask) * stride


@njit(nogil=True)
def _evaluate(keys: Any, parts: Any, tables: Any, count: int, d: int, base: Any, offsets: Any, sums: Any) -> None:
    """Add the costs of every state: ``sums[d + b * d + a]`` from ``base[b]``; what was counted before is subtracted."""
    for t in range(tables.shape[0]):
        if tables[t, 3] < 0:
            _offsets(keys, parts, tables[t, 1], tables[t, 2], count, offsets)
            for b in range(count):
                base[b] -= _cell(tables[t, 0], offsets[b])
    for b in range(count):
        for a in range(d):
            sums[d + b * d + a] = base[b]
    for t in range(tables.shape[0]):
        if tables[t, 3] > 0:
            _offsets(keys, parts, tables[t, 1], tables[t, 2], count, offsets)
            if d == 2:
                for b in range(count):
                    sums[2 + 2 * b] += _cell(tables[t, 0], offsets[b])
                    sums[3 + 2 * b] += _cell(tables[t, 0], offsets[b] + 1)
            else:
                for b in range(count):
                    for a in range(d):
                        sums[d + b * d + a] += _cell(tables[t, 0], offsets[b] + a)


@njit(nogil=True)
def _project(keys: Any, moves: Any, count: int, out: Any) -> None:
    """Move the fields of keys to where they stand in the next layer, from place 1 on."""
    for w in range(out.shape[0]):
        for b in range(count):
            out[w, b + 1] = 0
    for k in range(moves.shape[0]):
        word, mask, right, to, left = moves[k, 0], moves[k, 1], moves[k, 2], moves[k, 3], moves[k, 4]
        for b in range(count):
            out[to, b + 1] |= (keys[word, b] & mask) >> right << left


@njit(nogil=True)
def _least(keys: Any, same: Any, count: int, d: int, going_on: bool, differ: Any, sums: Any, owner: Any) -> int:
    """Leave the least cost of every state to the first row of each group, inf to the others; return the last group."""
    differ[0] = np.uint64(not going_on)
    for b in range(1, count):
        differ[b] = 0
    for w in range(len(same)):
        for b in range(1, count):
            differ[b] |= (keys[w, b] ^ keys[w, b - 1]) & same[w]
    head = 0
    for b in range(count):
        if differ[b]:
            head = b + 1
            continue
        for a in range(d):
            if sums[(b + 1) * d + a] < sums[head * d + a]:
                sums[head * d + a] = sums[(b + 1) * d + a]
                owner[head * d + a] = owner[(b + 1) * d + a]
            sums[(b + 1) * d + a] = np.inf
    return head


@njit(nogil=True)
def _emit(
    keys: Any,
    sums: Any,
    owner: Any,
    first: int,
    last: int,
    d: int,
    stays: bool,
    upper: float,
    count: int,
    out_keys: Any,
    out_costs: Any,
    out_origin: Any,
) -> int:
    """Append what is below `upper`; return how many rows there are then. The place behind the last is written to."""
    end = out_keys.shape[1] - 1
    for b in range(first, last + 1):
        if stays:
            for i in range(b * d, b * d + d):
                if d > 4 and not sums[i] < upper:
                    continue
                for w in range(end):
                    out_keys[count, w] = keys[w, b]
                out_keys[count, end] = keys[end, b] | np.uint64(i - b * d)
                out_costs[count] = sums[i]
                out_origin[count] = owner[i]
                count += sums[i] < upper
        else:
            best = b * d
            for i in range(b * d + 1, b * d + d):
                if sums[i] < sums[best] or (sums[i] == sums[best] and owner[i] < owner[best]):
                    best = i
            for w in range(end + 1):
                out_keys[count, w] = keys[w, b]
            out_costs[count] = sums[best]
            out_origin[count] = owner[best]
            count += sums[best] < upper
    return count


@njit(nogil=True, cache=True)
def advance(
    keys: Any,
    costs: Any,
    order: Any,
    same: Any,
    moves: Any,
    parts: Any,
    tables: Any,
    d: int,
    stays: bool,
    constant: float,
    upper: float,
    start: int,
    stop: int,
    block: int,
    out_keys: Any,
    out_costs: Any,
    out_origin: Any,
) -> tuple[int, int]:
    """Give rows every state of a variable, add costs, drop what reaches `upper`, and keep the least of equal keys.

    Parameters
    ----------
    keys, costs : (rows, words) uint64, (rows,) float64
    order : (rows,) int32
        Rows sorted by the bits of `same`, equal ones by their number; empty where they are and no two are equal.
    same : (words,) uint64
        Bits that stay in keys.
    moves : (runs, 5) uint64
        (word, mask, shift right, word of the new key, shift left) of bits that stay.
    parts : (parts, 4) uint64
        (word, shift, mask, stride): what a key adds to the offset in a table.
    tables : (tables, 4) int64
        (address, first part, last part, sign): costs are added with sign 1, ``d`` cells a row; bounds that costs
        already hold are subtracted with sign -1, one cell a row.
    d, stays : int, bool
        States of the variable, and whether its state goes into the last bits of the new keys.
    constant : float
        Subtracted from every cost.
    start, stop : int
        Groups that begin at these positions of the order are taken.
    block : int
        Rows at a time.
    out_keys, out_costs, out_origin : (room, words) uint64, (room,) float64, (room,) uint32
        Rows of the next layer, sorted; ``origin`` is ``row * d + state``. Room is for more than one block.

    Returns
    -------
    next, count : int
        Where to go on (`stop` or more if all are done), and how many rows were written.
    """
    n_words = keys.shape[1]
    room, new_words = out_keys.shape
    merging = len(order) > 0
    if merging:
        start, stop = _group_start(keys, same, order, start), _group_start(keys, same, order, stop)
    rows = np.empty(block, np.int64)
    local = np.empty((n_words, block), np.uint64)
    moved = np.empty((new_words, block + 1), np.uint64)
    offsets = np.empty(block, np.uint64)
    base = np.empty(block)
    # place 0 is for a group that goes on from the block before
    sums = np.empty((block + 1) * d)
    for i in range(d):
        sums[i] = np.inf
    owner = np.empty((block + 1) * d, np.int64)
    held, held_owner = np.empty(d), np.empty(d, np.int64)
    count = head = 0
    at = group = start
    going_on = False
    while at < stop:
        size = min(block, stop - at)
        if count + (size + 1) * d >= room:
            return (group if going_on else at), count
        for b in range(size):
            rows[b] = order[at + b] if merging else at + b
        for w in range(n_words):
            for b in range(size):
                local[w, b] = keys[rows[b], w]
        for b in range(size):
            base[b] = costs[rows[b]] - constant
        _evaluate(local, parts, tables, size, d, base, offsets, sums)
        _project(local, moves, size, moved)
        for b in range(size):
            for a in range(d):
                owner[(b + 1) * d + a] = rows[b] * d + a
        if merging:
            for w in range(new_words):
                moved[w, 0] = moved[w, 1]
            head = _least(local, same, size, d, going_on, offsets, sums, owner)
            group = at + head - 1 if head > 0 else group
            going_on = at + size < stop and _same(keys, same, rows[size - 1], order[at + size])
        if going_on:
            # what is kept back leaves no row behind
            for a in range(d):
                held[a], held_owner[a] = sums[head * d + a], owner[head * d + a]
                sums[head * d + a] = np.inf
        first = 1 - int(merging)
        count = _emit(moved, sums, owner, first, size, d, stays, upper, count, out_keys, out_costs, out_origin)
        for a in range(d):
            sums[a] = held[a] if going_on else np.inf
            if going_on:
                owner[a] = held_owner[a]
        at += size
    return at, count


@njit(nogil=True, cache=True)
def ranked(costs: Any, rank: int) -> Any:
    """Return the cost that would be at a place if all, which are finite, were sorted, and how many are less."""
    values, less = costs, 0
    while True:
        low, high = values.min(), values.max()
        if low == high:
            return low, less
        scale = (_BINS - 1) / (high - low)
        counts = np.zeros(_BINS, np.int64)
        for cost in values:
            counts[int((cost - low) * scale)] += 1
        at = 0
        while counts[at] <= rank:
            rank -= counts[at]
            less += counts[at]
            at += 1
        inside, found = np.empty(counts[at], np.float64), 0
        for cost in values:
            if int((cost - low) * scale) == at:
                inside[found] = cost
                found += 1
        values = inside


@njit(nogil=True, cache=True)
def keep_least(keys: Any, costs: Any, origin: Any, count: int, limit: float, ties: int) -> int:
    """Move rows cheaper than `limit`, and the first `ties` that cost as much, to the front; return their number."""
    kept = 0
    for i in range(count):
        if costs[i] > limit or (costs[i] == limit and ties == 0):
            continue
        ties -= costs[i] == limit
        for w in range(keys.shape[1]):
            keys[kept, w] = keys[i, w]
        costs[kept] = costs[i]
        origin[kept] = origin[i]
        kept += 1
    return kept


@njit(nogil=True, cache=True)
def close_up(keys: Any, costs: Any, origin: Any, count: int, first: int, last: int) -> int:
    """Move rows ``first`` to ``last`` behind the first `count`; return how many there are then."""
    if count == first:
        return last
    for i in range(first, last):
        for w in range(keys.shape[1]):
            keys[count, w] = keys[i, w]
        costs[count] = costs[i]
        origin[count] = origin[i]
        count += 1
    return count
