"""Compiled loops over decision diagrams: pair nodes of two diagrams from the top, within a budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.jit import njit
from .diagram import (
    DONE,
    EDGES,
    EXHAUSTED,
    FORBIDDEN,
    FOUND,
    FRONT,
    LEFT_OUT,
    LEVEL,
    SEEN,
    Diagram,
    Merging,
    Pairing,
    States,
    crossing,
    filled,
    longer,
    node_of,
    place,
    rehashed,
    wider,
)


@njit(nogil=True, makes_arrays=True)
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
    """Expand states of the current level until about ``quota`` edges were made.

    Parameters
    ----------
    a, b : Diagram
        The diagrams that are joined.
    pairing : Pairing
        Levels of both; receives the first edge and state of each level.
    states : States
        Pairs of nodes of this level, their edges, and the least sum from the root to each.
    counts : int64 array
        Level, front, edges and marks of the expansion; moved on in place.
    budget : int
        Sums above it are left out.
    most_bytes : int
        Bytes that the arrays may take while one of them grows.
    quota : int
        Number of edges at which to pause.
    scatter : int64 array
        Random words of the hash tables.
    """
    i, n, edge, seen = counts[LEVEL], counts[FRONT], counts[EDGES], counts[SEEN]
    d = pairing.sizes[i]
    in_a, in_b, base_a, base_b, below_b, room = crossing(a, b, pairing, i)
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


@njit(cache=True, nogil=True, makes_arrays=True)
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

    Call again with the returned states until ``counts[LEVEL]`` is ``last``; the budget may decrease.
    """
    end = counts[EDGES] + quota
    while counts[LEVEL] < last and counts[EDGES] <= end and not counts[EXHAUSTED]:
        left = end - counts[EDGES]
        states = _expand_level(a, b, pairing, states, counts, budget, most_bytes, left, scatter)
    return states


@njit(cache=True, nogil=True, makes_arrays=True)
def minimise_last(a: Diagram, b: Diagram, pairing: Pairing, states: States, counts: Any, budget: int) -> Any:
    """Return for each state of the last level the least weight of its edges, within the budget."""
    i, n = counts[LEVEL], counts[FRONT]
    d = pairing.sizes[i]
    in_a, in_b, base_a, base_b, _, _ = crossing(a, b, pairing, i)
    low = np.empty(n, np.int64)
    for s in range(n):
        pair = states.pairs[s]
        at_a, at_b = base_a + (pair >> 32) * d, base_b + (pair & 0xFFFFFFFF) * d
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


# Compiled loops over decision diagrams: merge equal nodes from the bottom, within a budget.


@njit(nogil=True, makes_arrays=True)
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
    """Turn the states of one level into nodes, in place, until about ``quota`` edges were seen.

    States without a way to the bottom get node -1.

    Parameters
    ----------
    child, weight : int32 and int64 arrays, shape (states * d,)
        Edges of the states of this level; rewritten as edges of nodes.
    reach : int64 array, shape (states,)
        Least sum from the root to each state.
    d : int
        Edges of a state.
    merging : Merging
        Nodes and least sums of the level below, and the nodes of this level so far.
    nodes : int64 array
        Receives the number of nodes of the level.
    counts : int64 array
        Level and progress; moved on in place.
    budget : int
        Sums above it are left out.
    quota : int
        Number of edges at which to pause.
    scatter : int64 array
        Random words of the hash tables.
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
                # edges are reduced by the least sum below a state, so that equal functions up to a constant become
                # one node
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


@njit(cache=True, nogil=True, makes_arrays=True)
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

    Parameters
    ----------
    pairing : Pairing
    states : States
        All states and edges of the expansion; rewritten in place.
    nodes : int64 array
        Receives the number of nodes of each level.
    merging : Merging
        The level below; at first the terminal.
    counts : int64 array
        ``counts[LEVEL]`` levels remain.
    budget : int
        Sums above it are left out; it may decrease between calls.
    quota : int
        Number of edges at which to pause.
    scatter : int64 array
        Random words of the hash tables.

    Returns
    -------
    Merging
        For the next call, until no level remains; ``low`` is then the least sum of all.
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
        # edges seen by the last call are not counted again
        left -= (last - first) - done * pairing.sizes[i]
    return merging
