"""Decision diagrams as arrays, and what is known of two of them while they are joined, for compiled loops.

A diagram has a level a variable and a node a set of rows that continue alike up to a constant; the entry of an
assignment is the sum of the weights along its path from the only node on top. Weights are non-negative integers and
one edge of every node weighs 0, so that what was summed so far is a lower bound: edges whose bound exceeds a budget are
left out while they are paired, and the least bound that was left out is returned.

Hash tables find pairs of nodes, and nodes of equal content.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..steps.number_limits import FAR_INTEGER, ordered_sum
from ..steps.policy import Policy

#: Weight of an edge that no assignment may take; the sum of two still fits int64.
FORBIDDEN = FAR_INTEGER // 2
# Entries of the loops' counts: the next level, states on it, edges so far, states before it, the least pruned bound,
# whether the memory was exhausted, finished states of the level, and their results: states of the next level, or nodes
# of this one.
LEVEL, FRONT, EDGES, SEEN, LEFT_OUT, EXHAUSTED, DONE, FOUND = range(8)


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
    """The node (int32) and the least sum from it on (int64) of each state, for the level below and the level being
    merged; ``table`` (int64) finds nodes of the latter.
    """

    ids: Any
    low: Any
    own_ids: Any
    own_low: Any
    table: Any


@njit(cache=True, nogil=True, makes_arrays=True)
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


class Crossing(NamedTuple):
    """A level of two aligned diagrams: which have it, where its edges begin in each, and what is below.

    ``below_b`` nodes of the second stand on the next level, ``pairs`` pairs of nodes of both.
    """

    in_a: Any
    in_b: Any
    base_a: Any
    base_b: Any
    below_b: Any
    pairs: Any


@njit(nogil=True)
def crossing(a: Diagram, b: Diagram, pairing: Pairing, i: int) -> Crossing:
    """Return level ``i`` of the union of two diagrams."""
    la, lb, next_a, next_b = pairing.passed_a[i], pairing.passed_b[i], pairing.passed_a[i + 1], pairing.passed_b[i + 1]
    base_a, base_b = a.start[la] if next_a > la else 0, b.start[lb] if next_b > lb else 0
    return Crossing(next_a > la, next_b > lb, base_a, base_b, b.nodes[next_b], a.nodes[next_a] * b.nodes[next_b])


@njit(cache=True, nogil=True, makes_arrays=True)
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
        for e in range(count):  # a slice that is assigned takes three seconds to compile
            child[start[i] + e] = states.child[at + e]
            weight[start[i] + e] = states.weight[at + e]
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


# The two functions to add first: the pair with the fewest joint variables.

#: Of more functions only the smallest are looked at.
_MOST = 12


class Spaces:
    """How many rows a set of variables has, by powers of two; sets are integers with a bit a variable."""

    def __init__(self, sizes: Sequence[int]) -> None:
        of_size: dict[int, int] = {}
        for v, d in enumerate(sizes):
            of_size[int(d)] = of_size.get(int(d), 0) | 1 << v
        self._classes = [(math.log2(d), members) for d, members in of_size.items()]

    def rows(self, variables: int) -> float:
        """Return log2 of how many rows the variables have."""
        return ordered_sum(weight * (variables & members).bit_count() for weight, members in self._classes)

    def closest(self, scopes: Sequence[int]) -> tuple[int, int]:
        """Return the two whose union has the fewest rows, the earliest of several; scopes by ascending size."""
        few = range(min(len(scopes), _MOST))
        _, b, a = min((self.rows(scopes[a] | scopes[b]), b, a) for b in few for a in range(b))
        return a, b


def as_bits(variables: Iterable[int]) -> int:
    """Return a set of variables as an integer with a bit each."""
    return sum(1 << int(v) for v in variables)


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
