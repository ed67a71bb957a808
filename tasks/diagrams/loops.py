"""Compiled loops over decision diagrams: pair nodes of two diagrams from the top, merge equal ones from the bottom.

A diagram has a level a variable and a node a set of rows that continue alike up to a constant; the entry of an
assignment is the sum of the weights along its path from the only node on top. Weights are non-negative integers and
one edge of every node weighs 0, so that what was summed so far is a lower bound: edges whose bound exceeds a budget are
left out while they are paired, and the least bound that was left out is returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..machine_code import njit

#: Weight of an edge that no assignment may take; the sum of two still fits int64.
FORBIDDEN = 1 << 61
#: Multiplier of hashes.
SCATTER = np.uint64(0x9E3779B97F4A7C15)


class Diagram(NamedTuple):
    """A diagram; ``scope`` int64 ascending, top first.

    ``nodes[i]`` (int64) nodes stand on level i, one on the level below the last; edge ``start[i] + node * size + v``
    leads from a node of level i to node ``child`` (int32) of the next, at ``weight`` (int64).
    """

    scope: Any
    nodes: Any
    start: Any
    child: Any
    weight: Any


class Pairing(NamedTuple):
    """Levels of two diagrams, aligned: ``passed_a[i]`` levels of the first are above level i of the union.

    ``edges`` and ``states`` are filled in while they are expanded: how many there are above each level.
    """

    scope: Any
    sizes: Any
    passed_a: Any
    passed_b: Any
    edges: Any
    states: Any


class States(NamedTuple):
    """Pairs of nodes that are reached, level after level; the arrays have room to grow.

    ``child`` (int32, -1 for edges left out) and ``weight`` (int64) by edge; ``reach`` (int64), the least sum on a way
    there, by state; ``pairs`` (int64) of the level that is expanded; of the next one ``following`` and ``table``
    (int32), which finds a pair's place in it.
    """

    child: Any
    weight: Any
    reach: Any
    pairs: Any
    following: Any
    table: Any


class Merging(NamedTuple):
    """The node (int32) and the least sum from there on (int64) of each state: of the level below, and of the one that
    is merged; ``table`` (int64) finds a node of it.
    """

    ids: Any
    low: Any
    own_ids: Any
    own_low: Any
    table: Any


# Entries of the counts that the loops keep: level to go on with, states on it, edges so far, states before it,
# least bound that was left out, whether the memory was exhausted, states of the level that are done, and what these
# led to: states of the next level, or nodes of this one.
LEVEL, FRONT, EDGES, SEEN, LEFT_OUT, EXHAUSTED, DONE, FOUND = 0, 1, 2, 3, 4, 5, 6, 7


@njit(cache=True, nogil=True)
def align(a: Any, b: Any, sizes: Any) -> Pairing:
    """Merge two scopes; ``sizes`` are by variable."""
    scope = np.empty(len(a) + len(b), np.int64)
    passed_a = np.zeros(len(a) + len(b) + 1, np.int64)
    passed_b = np.zeros(len(a) + len(b) + 1, np.int64)
    i = j = k = 0
    while i < len(a) or j < len(b):
        v = a[i] if j == len(b) or (i < len(a) and a[i] <= b[j]) else b[j]
        i += i < len(a) and a[i] == v
        j += j < len(b) and b[j] == v
        scope[k] = v
        k += 1
        passed_a[k] = i
        passed_b[k] = j
    begins = np.zeros((2, k + 2), np.int64)
    return Pairing(scope[:k], sizes[scope[:k]], passed_a[: k + 1], passed_b[: k + 1], begins[0], begins[1])


@njit(cache=True, nogil=True)
def longer(array: Any, length: int) -> Any:
    grown = np.empty(length, array.dtype)
    grown[: len(array)] = array
    return grown


@njit(cache=True, nogil=True)
def filled(length: int) -> Any:
    return np.full(length, -1, np.int32)


@njit(cache=True, nogil=True)
def place(table: Any, pairs: Any, pair: int, scatter: Any) -> Any:
    """Where a pair is in a hash table of indices, or where it belongs."""
    mask = len(table) - 1
    h = np.uint64(pair) * scatter
    p = np.int64(h >> np.uint64(24)) & mask
    while table[p] >= 0 and pairs[table[p]] != pair:
        p = (p + 1) & mask
    return p


@njit(cache=True, nogil=True)
def rehashed(pairs: Any, count: int, scatter: Any) -> Any:
    """A hash table, a power of two long, that stays at most half full until ``pairs`` is full."""
    length = 4096
    while length < 2 * len(pairs):
        length *= 2
    table = filled(length)
    for t in range(count):
        table[place(table, pairs, pairs[t], scatter)] = t
    return table


@njit(cache=True, nogil=True)
def _expand_level(
    a: Diagram,
    b: Diagram,
    pairing: Pairing,
    states: States,
    counts: Any,
    budget: int,
    most_bytes: int,
    quota: int,
    scatter: Any,
) -> States:
    """Expand states of one level until about ``quota`` edges were made; ``counts`` says which, and is moved on."""
    i, n, edge, seen = counts[LEVEL], counts[FRONT], counts[EDGES], counts[SEEN]
    d = pairing.sizes[i]
    la, lb = pairing.passed_a[i], pairing.passed_b[i]
    in_a, in_b = pairing.passed_a[i + 1] > la, pairing.passed_b[i + 1] > lb
    below_b = b.nodes[pairing.passed_b[i + 1]]
    room = a.nodes[pairing.passed_a[i + 1]] * below_b
    direct = room <= 4 * n * d + 1024
    child, weight, reach = states.child, states.weight, states.reach
    pairs, table = states.following, states.table
    done, count = counts[DONE], counts[FOUND]
    if done == 0:
        # room for the next level's states grows with them
        first = min(n * d, 1024)
        length = max(edge + n * d, 2 * len(child)) if edge + n * d > len(child) else 0
        longest = 2 * (seen + n + first) if seen + n + first > len(reach) else 0
        held = 12 * len(child) + 8 * (len(reach) + n + first) + (4 * room if direct else 0)
        if held + 12 * length + 8 * longest > most_bytes:
            counts[EXHAUSTED] = 1
            return states
        if length:
            child, weight = longer(child, length), longer(weight, length)
        pairs = np.empty(first, np.int64)
        if longest:
            reach = longer(reach, longest)
        table = filled(room if direct else 4096)
    until = min(n, done + 1 + quota // d)
    base_a = a.start[la] if in_a else 0
    base_b = b.start[lb] if in_b else 0
    for s in range(done, until):
        pair = states.pairs[s]
        node_a, node_b = pair >> 32, pair & 0xFFFFFFFF
        so_far = reach[seen + s]
        for v in range(d):
            w = np.int64(0)
            to_a, to_b = node_a, node_b
            if in_a:
                e = base_a + node_a * d + v
                w += a.weight[e]
                to_a = np.int64(a.child[e])
            if in_b:
                e = base_b + node_b * d + v
                w += b.weight[e]
                to_b = np.int64(b.child[e])
            weight[edge] = w
            total = so_far + w
            if total > budget:
                child[edge] = -1
                if w < FORBIDDEN and total < counts[LEFT_OUT]:
                    counts[LEFT_OUT] = total
                edge += 1
                continue
            to = (to_a << 32) | to_b
            p = to_a * below_b + to_b if direct else place(table, pairs, to, scatter)
            t: Any = np.int64(table[p])
            if t >= 0:
                if total < reach[seen + n + t]:
                    reach[seen + n + t] = total
            else:
                if count == len(pairs):
                    length = min(2 * count, n * d)
                    # a longer copy of all that grows is made
                    if 12 * len(child) + 20 * len(reach) + 8 * n + 64 * length > most_bytes:
                        counts[EXHAUSTED] = 1
                        return states
                    pairs = longer(pairs, length)
                    if seen + n + length > len(reach):
                        reach = longer(reach, max(seen + n + length, len(reach) * 3 // 2))
                    if not direct:
                        table = rehashed(pairs, count, scatter)
                        p = place(table, pairs, to, scatter)
                t = count
                table[p] = t
                pairs[t] = to
                reach[seen + n + t] = total
                count += 1
            child[edge] = t
            edge += 1
    counts[EDGES] = edge
    if until < n:
        counts[DONE] = until
        counts[FOUND] = count
        return States(child, weight, reach, states.pairs, pairs, table)
    counts[LEVEL] = i + 1
    counts[FRONT] = count
    counts[SEEN] = seen + n
    counts[DONE] = 0
    counts[FOUND] = 0
    pairing.edges[i + 1] = edge
    pairing.states[i + 1] = seen + n
    return States(child, weight, reach, pairs, pairs, np.empty(0, np.int32))


@njit(cache=True, nogil=True)
def expand(
    a: Diagram,
    b: Diagram,
    pairing: Pairing,
    states: States,
    counts: Any,
    last: int,
    budget: int,
    most_bytes: int,
    quota: int,
    scatter: Any,
) -> States:
    """Expand level after level up to ``last``, until about ``quota`` edges were made or memory is exhausted.

    Call again with what is returned until ``counts[LEVEL]`` is ``last``; the budget may have become less.
    """
    end = counts[EDGES] + quota
    while counts[LEVEL] < last and counts[EDGES] <= end and not counts[EXHAUSTED]:
        left = end - counts[EDGES]
        states = _expand_level(a, b, pairing, states, counts, budget, most_bytes, left, scatter)
    return states


@njit(cache=True, nogil=True)
def minimise_last(a: Diagram, b: Diagram, pairing: Pairing, states: States, counts: Any, budget: int) -> Any:
    """Return for each state of the last level the least weight of its edges, within the budget."""
    i, n = counts[LEVEL], counts[FRONT]
    d = pairing.sizes[i]
    la, lb = pairing.passed_a[i], pairing.passed_b[i]
    in_a, in_b = pairing.passed_a[i + 1] > la, pairing.passed_b[i + 1] > lb
    low = np.empty(n, np.int64)
    for s in range(n):
        pair = states.pairs[s]
        at_a = a.start[la] + (pair >> 32) * d if in_a else 0
        at_b = b.start[lb] + (pair & 0xFFFFFFFF) * d if in_b else 0
        least = np.int64(FORBIDDEN)
        for v in range(d):
            w = np.int64(0)
            if in_a:
                w += a.weight[at_a + v]
            if in_b:
                w += b.weight[at_b + v]
            least = min(least, w)
        if least < FORBIDDEN and states.reach[counts[SEEN] + s] + least > budget:
            counts[LEFT_OUT] = min(counts[LEFT_OUT], states.reach[counts[SEEN] + s] + least)
            least = np.int64(FORBIDDEN)
        low[s] = least
    return low


@njit(cache=True, nogil=True)
def same(child: Any, weight: Any, x: int, y: int, d: int) -> bool:
    v = 0
    while v < d and weight[x + v] == weight[y + v] and child[x + v] == child[y + v]:
        v += 1
    return v == d


@njit(cache=True, nogil=True)
def hash_row(child: Any, weight: Any, at: int, d: int, scatter: Any) -> Any:
    h = np.uint64(0x243F6A8885A308D3)
    for v in range(d):
        h = (h ^ np.uint64(weight[at + v])) * scatter
        h = (h ^ (h >> np.uint64(29)) ^ np.uint64(child[at + v])) * scatter
    return np.int64(h >> np.uint64(33))


@njit(cache=True, nogil=True)
def wider(table: Any) -> Any:
    """Twice as large a hash table; entries hold 31 bits of hash above the index."""
    grown = np.full(2 * len(table), -1, np.int64)
    mask = len(grown) - 1
    for entry in table:
        if entry >= 0:
            p = (entry >> 32) & mask
            while grown[p] >= 0:
                p = (p + 1) & mask
            grown[p] = entry
    return grown


@njit(cache=True, nogil=True)
def node_of(child: Any, content: Any, count: int, d: int, table: Any, scatter: Any) -> Any:
    """Return the first of ``count`` nodes that equals the row behind them, or that row's number: it is kept then."""
    row = count * d
    h = hash_row(child, content, row, d, scatter)
    p = h & (len(table) - 1)
    while table[p] >= 0:
        entry = table[p]
        if entry >> 32 == h and same(child, content, (entry & 0xFFFFFFFF) * d, row, d):
            return entry & 0xFFFFFFFF
        p = (p + 1) & (len(table) - 1)
    table[p] = (h << 32) | count
    return count


@njit(cache=True, nogil=True)
def _merge_level(
    child: Any,
    weight: Any,
    reach: Any,
    d: int,
    merging: Merging,
    nodes: Any,
    counts: Any,
    budget: int,
    quota: int,
    scatter: Any,
) -> Merging:
    """Turn states of one level into nodes, in place, until about ``quota`` edges were seen; ``counts`` is moved on.

    States without any way down get node -1.
    """
    n = len(reach)
    ids, low = merging.ids, merging.low
    my_ids, my_low, table = merging.own_ids, merging.own_low, merging.table
    done, count = counts[DONE], counts[FOUND]
    if done == 0:
        my_ids, my_low = np.empty(n, np.int32), np.empty(n, np.int64)
        table = np.full(64, -1, np.int64)
    until = min(n, done + 1 + quota // d)
    for s in range(done, until):
        edge, row = s * d, count * d
        least = np.int64(FORBIDDEN)
        for v in range(d):
            to = child[edge + v]
            w = np.int64(FORBIDDEN)
            if to >= 0 and low[to] < FORBIDDEN:
                w = weight[edge + v] + low[to]
                if reach[s] + w > budget:
                    counts[LEFT_OUT] = min(counts[LEFT_OUT], reach[s] + w)
                    w = np.int64(FORBIDDEN)
            child[row + v] = ids[to] if w < FORBIDDEN else 0
            weight[row + v] = w
            least = min(least, w)
        my_low[s] = least
        my_ids[s] = -1
        if least == FORBIDDEN:
            continue
        for v in range(d):
            if weight[row + v] < FORBIDDEN:
                weight[row + v] -= least
        my_ids[s] = node_of(child, weight, count, d, table, scatter)
        if my_ids[s] == count:
            count += 1
        if 2 * count >= len(table):
            table = wider(table)
    if until < n:
        counts[DONE] = until
        counts[FOUND] = count
        return Merging(ids, low, my_ids, my_low, table)
    i = counts[LEVEL] - 1
    nodes[i] = count
    counts[LEVEL] = i
    counts[DONE] = 0
    counts[FOUND] = 0
    return Merging(my_ids, my_low, my_ids, my_low, np.empty(0, np.int64))


@njit(cache=True, nogil=True)
def merge(
    pairing: Pairing,
    states: States,
    nodes: Any,
    merging: Merging,
    counts: Any,
    budget: int,
    quota: int,
    scatter: Any,
) -> Merging:
    """Merge level after level from the bottom, in place, until about ``quota`` edges were seen.

    ``counts[LEVEL]`` levels are left to do; ``nodes`` takes their numbers of nodes. Call again with what is returned
    until there are none; ``low`` is then the least sum of all. The budget may have become less.
    """
    left = quota
    while counts[LEVEL] > 0 and left >= 0:
        i, done = counts[LEVEL] - 1, counts[DONE]
        first, last = pairing.edges[i], pairing.edges[i + 1]
        merging = _merge_level(
            states.child[first:last],
            states.weight[first:last],
            states.reach[pairing.states[i] : pairing.states[i + 1]],
            pairing.sizes[i],
            merging,
            nodes,
            counts,
            budget,
            left,
            scatter,
        )
        left -= (last - first) - done * pairing.sizes[i]
    return merging


@njit(cache=True, nogil=True)
def packed(pairing: Pairing, states: Any, nodes: Any) -> Diagram:
    """Copy the nodes of all levels, and nothing else."""
    k = len(nodes) - 1
    start = np.zeros(k, np.int64)
    total = 0
    for i in range(k):
        start[i] = total
        total += nodes[i] * pairing.sizes[i]
    child, weight = np.empty(total, np.int32), np.empty(total, states.weight.dtype)
    for i in range(k):
        at, count = pairing.edges[i], nodes[i] * pairing.sizes[i]
        child[start[i] : start[i] + count] = states.child[at : at + count]
        weight[start[i] : start[i] + count] = states.weight[at : at + count]
    return Diagram(pairing.scope[:k].copy(), nodes, start, child, weight)


@njit(cache=True, nogil=True)
def last_weights(a: Diagram, sizes: Any, states: Any, sums: Any) -> None:
    """Add to ``sums`` the entries for each value of the last variable, the others being in the ``states`` given."""
    node = np.int64(0)
    k = len(a.scope) - 1
    so_far: Any = np.int64(0)
    for i in range(k):
        e = a.start[i] + node * sizes[a.scope[i]] + states[a.scope[i]]
        so_far = min(so_far + a.weight[e], FORBIDDEN)
        node = np.int64(a.child[e])
    d = sizes[a.scope[k]]
    for v in range(d):
        sums[v] = min(sums[v] + so_far + a.weight[a.start[k] + node * d + v], FORBIDDEN)
