"""Compiled loops over decision diagrams: pairs of nodes and nodes of equal content, found in hash tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.jit import njit
from ..steps.policy import Policy

# Tuned numbers of decision diagrams. Pure.


@dataclass(frozen=True)
class DiagramPolicy(Policy):
    """The numbers behind diagrams.

    Parameters
    ----------
    turn_edges : int
        Edges that loops make, or merge, between two looks at the clock.
    hash_factor : int
        Factor that hashes pairs and rows: 2^64 divided by the golden ratio, odd (Knuth, The Art of Computer Programming
        3, section 6.4). With 0 all keys collide, and answers are unchanged.
    """

    turn_edges: int = 1 << 18
    hash_factor: int = 0x9E3779B97F4A7C15


def turn() -> tuple[int, np.uint64]:
    """Return how many edges loops look at before they come back, and what they hash by."""
    policy = DiagramPolicy.current()
    return policy.turn_edges, np.uint64(policy.hash_factor)


@njit(nogil=True, makes_arrays=True)
def longer(array: Any, length: int) -> Any:
    grown = np.empty(length, array.dtype)
    for i in range(len(array)):
        grown[i] = array[i]
    return grown


@njit(nogil=True, makes_arrays=True)
def filled(length: int) -> Any:
    return np.full(length, -1, np.int32)


@njit(nogil=True)
def place(table: Any, pairs: Any, pair: int, scatter: Any) -> Any:
    """Where a pair is in a hash table of indices, or where it belongs."""
    mask = len(table) - 1
    h = np.uint64(pair) * scatter
    p = np.int64(h >> np.uint64(24)) & mask
    while table[p] >= 0 and pairs[table[p]] != pair:
        p = (p + 1) & mask
    return p


@njit(nogil=True, makes_arrays=True)
def rehashed(pairs: Any, count: int, scatter: Any) -> Any:
    """A hash table, a power of two long, that stays at most half full until ``pairs`` is full."""
    length = 4096
    while length < 2 * len(pairs):
        length *= 2
    table = filled(length)
    for t in range(count):
        table[place(table, pairs, pairs[t], scatter)] = t
    return table


@njit(nogil=True)
def same(child: Any, weight: Any, x: int, y: int, d: int) -> bool:
    v = 0
    while v < d and weight[x + v] == weight[y + v] and child[x + v] == child[y + v]:
        v += 1
    return v == d


@njit(nogil=True)
def hash_row(child: Any, weight: Any, at: int, d: int, scatter: Any) -> Any:
    h = np.uint64(0x243F6A8885A308D3)
    for v in range(d):
        h = (h ^ np.uint64(weight[at + v])) * scatter
        h = (h ^ (h >> np.uint64(29)) ^ np.uint64(child[at + v])) * scatter
    return np.int64(h >> np.uint64(33))


@njit(nogil=True, makes_arrays=True)
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


@njit(nogil=True)
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
