"""Compiled loops over decision diagrams: merge equal nodes from the bottom, within a budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..machine_code import njit
from .diagram import DONE, FORBIDDEN, FOUND, LEFT_OUT, LEVEL, Merging, Pairing, States
from .hashing import node_of, wider


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
