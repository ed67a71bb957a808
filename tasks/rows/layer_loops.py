"""Compiled loops over rows: one layer of a search in one pass, and the cheapest rows of a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from ..compiler.jit import njit
from .sort_loops import DIGIT_BITS, agree, group_start

#: Costs are first counted in this number of bins.
_BINS = 1 << DIGIT_BITS
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
    """Add the costs of every state:

    ``sums[d + b * d + a]`` from ``base[b]``; costs that were counted before are subtracted.
    """
    for t in range(tables.shape[0]):
        if tables[t, 3] < 0:
            _offsets(keys, parts, tables[t, 1], tables[t, 2], count, offsets)
            for b in range(count):
                base[b] -= _cell(tables[t, 0], offsets[b])
    if d == 2:
        for b in range(count):
            sums[2 + 2 * b] = sums[3 + 2 * b] = base[b]
    else:
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
    upper: float,
    count: int,
    out_keys: Any,
    out_costs: Any,
    out_origin: Any,
) -> int:
    """Append the states of some groups that cost less than `upper`, each as a row; return the number of rows there are
    then.

    Parameters
    ----------
    keys : (words, groups + 1) uint64
        The new keys by group, with room for the state in the last bits.
    sums, owner : ((groups + 1) * d,) float64, int64
        Least cost of each state of each group, and its origin, ``row * d + state``.
    first, last : int
        The first and the last group.
    d : int
        States of the variable.
    upper : float
        The cut-off.
    count : int
        Rows that are written already.
    out_keys, out_costs, out_origin : (room, words) uint64, (room,) float64, (room,) uint32
        Rows of the next layer; written from ``count`` on. The place behind the last row is overwritten too.

    Returns
    -------
    int
        Rows that are written now.
    """
    # Unsigned indices: Numba need not test whether they are negative.
    end = np.uint64(out_keys.shape[1] - 1)
    n = np.uint64(count)
    for b in range(first, last + 1):
        key, at = keys[end, np.uint64(b)], np.uint64(b * d)
        for a in range(np.uint64(d)):
            # Every state is written, and the place advances only if it counts: without a branch the loop does not wait
            # for the comparison.
            cost = sums[at + a]
            for w in range(end):
                out_keys[n, w] = keys[w, np.uint64(b)]
            out_keys[n, end] = key | a
            out_costs[n] = cost
            out_origin[n] = owner[at + a]
            n += np.uint64(cost < upper)
    return int(np.int64(n))


@njit(nogil=True)
def _emit_least(
    keys: Any,
    sums: Any,
    owner: Any,
    first: int,
    last: int,
    d: int,
    upper: float,
    count: int,
    out_keys: Any,
    out_costs: Any,
    out_origin: Any,
) -> int:
    """Append like :func:`_emit` the least cost of all states of a variable that is not in the new keys."""
    for b in range(first, last + 1):
        best = b * d
        for i in range(b * d + 1, b * d + d):
            if sums[i] < sums[best] or (sums[i] == sums[best] and owner[i] < owner[best]):
                best = i
        for w in range(out_keys.shape[1]):
            out_keys[count, w] = keys[w, b]
        out_costs[count] = sums[best]
        out_origin[count] = owner[best]
        count += sums[best] < upper
    return count


@njit(nogil=True, cache=True, makes_arrays=True)
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
        start, stop = group_start(keys, same, order, start), group_start(keys, same, order, stop)
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
        if merging:
            for b in range(size):
                for a in range(d):
                    owner[(b + 1) * d + a] = rows[b] * d + a
        else:
            for i in range(size * d):
                owner[d + i] = at * d + i
        if merging:
            for w in range(new_words):
                moved[w, 0] = moved[w, 1]
            head = _least(local, same, size, d, going_on, offsets, sums, owner)
            group = at + head - 1 if head > 0 else group
            going_on = at + size < stop and agree(keys, same, rows[size - 1], order[at + size])
        if going_on:
            # what is kept back leaves no row behind
            for a in range(d):
                held[a], held_owner[a] = sums[head * d + a], owner[head * d + a]
                sums[head * d + a] = np.inf
        first = 1 - int(merging)
        found = moved, sums, owner, first, size, d, upper, count, out_keys, out_costs, out_origin
        count = _emit(*found) if stays else _emit_least(*found)
        for a in range(d):
            sums[a] = held[a] if going_on else np.inf
            if going_on:
                owner[a] = held_owner[a]
        at += size
    return at, count


@njit(nogil=True, cache=True, makes_arrays=True)
def ranked(costs: Any, rank: int) -> Any:
    """Return the cost that would be at a place if all, which are finite, were sorted, and how many are less."""
    values, less = costs, 0
    while True:
        low = high = values[0]
        for cost in values:
            low, high = min(low, cost), max(high, cost)
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
