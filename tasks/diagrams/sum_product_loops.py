"""Compiled loops over decision diagrams whose weights are multiplied along a path, and added up where they part.

A node is a set of rows with equal continuations up to a factor. Weights are float64. With a ``modulus`` they are
residues below 2**31, and nodes are divided by their first nonzero weight. Without one, nodes are divided by their
greatest weight, and quotients that differ by a few units in the last place are made equal, because rounding would
otherwise hide equal nodes. No weight is negative, so relative errors at most add up, and they are counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..steps.number_limits import LEAST_FACTOR
from .diagram import Diagram, Pairing, crossing, filled, longer, node_of, place, rehashed, wider

# Entries of the loops' counts: the next level, states on it, edges before it, whether memory or work was exhausted,
# whether a product is too small for a float, the total change of weights in units in the last place, and the number of
# different weights of the level.
LEVEL, FRONT, EDGES, EXHAUSTED, VANISHED, MOVED, KNOWN, N_COUNTS = range(8)

# Floats whose bits are nearer than this, as integers, are one; they are looked up by cells twice as wide.
_NEAR = 64
_CELL = _NEAR.bit_length()
_ONE = int(np.float64(1.0).view(np.int64))
# Units in the last place by which the operations between two levels round.
_ROUNDED = 4


class Reached(NamedTuple):
    """Pairs of nodes that are reached, level after level; the arrays have room to grow.

    ``child`` (int32, -1 for edges of weight 0) and ``weight`` (float64) by edge; ``pairs`` (int64) of the level that is
    expanded next.
    """

    child: Any
    weight: Any
    pairs: Any


@njit(nogil=True, error_model="numpy")
def _times(a: Any, b: Any, modulus: int, counts: Any) -> Any:
    """Multiply two weights; tell if the product of floats is too small to be right."""
    if modulus:
        return np.float64((np.int64(a) * np.int64(b)) % modulus)
    product = a * b
    if product < LEAST_FACTOR and a > 0.0 and b > 0.0:
        counts[VANISHED] = 1
    return product


@njit(nogil=True, makes_arrays=True)
def _expand_level(
    a: Diagram,
    b: Diagram,
    pairing: Pairing,
    reached: Reached,
    counts: Any,
    most_bytes: int,
    most_edges: int,
    modulus: int,
    scatter: Any,
) -> Reached:
    """Expand all states of the current level. ``counts[EXHAUSTED]`` is set if a limit does not suffice.

    Parameters
    ----------
    a, b : Diagram
        The diagrams that are joined.
    pairing : Pairing
        Levels of both; receives the first edge and state of each level.
    reached : Reached
        Pairs of nodes of this level, and all edges so far.
    counts : int64 array
        Level, front, edges and marks of the expansion; moved on in place.
    most_bytes : int
        Bytes that the arrays may take while one of them grows.
    most_edges : int
        Number of edges at which to give up.
    modulus : int
        Prime of residues, or 0 for floats.
    scatter : int64 array
        Random words of the hash tables.
    """
    i, n, at = counts[LEVEL], counts[FRONT], counts[EDGES]
    d = pairing.sizes[i]
    in_a, in_b, base_a, base_b, below_b, room = crossing(a, b, pairing, i)
    direct = room <= 4 * n * d + 1024
    child, weight = reached.child, reached.weight
    if at + n * d > most_edges:
        counts[EXHAUSTED] = 1
        return reached
    if at + n * d > len(child):
        length = max(at + n * d, 2 * len(child))
        if 12 * (len(child) + length) + 8 * n + (4 * room if direct else 0) > most_bytes:
            counts[EXHAUSTED] = 1
            return reached
        child, weight = longer(child, length), longer(weight, length)
    # room for the next level's states grows with them
    pairs = np.empty(min(n * d, 1024), np.int64)
    table = filled(room if direct else 4096)
    count = 0
    edge = at
    for s in range(n):
        pair = reached.pairs[s]
        node_a, node_b = pair >> 32, pair & 0xFFFFFFFF
        for v in range(d):
            w = 1.0
            to_a, to_b = node_a, node_b
            if in_a:
                e = base_a + node_a * d + v
                w = a.weight[e]
                to_a = np.int64(a.child[e])
            if in_b:
                e = base_b + node_b * d + v
                w = _times(w, b.weight[e], modulus, counts) if in_a else b.weight[e]
                to_b = np.int64(b.child[e])
            weight[edge] = w
            if w == 0.0:
                child[edge] = -1
                edge += 1
                continue
            to = (to_a << 32) | to_b
            p = to_a * below_b + to_b if direct else place(table, pairs, to, scatter)
            t: Any = np.int64(table[p])
            if t < 0:
                if count == len(pairs):
                    length = min(2 * count, n * d)
                    if 12 * len(child) + 8 * n + 64 * length > most_bytes:
                        counts[EXHAUSTED] = 1
                        return reached
                    pairs = longer(pairs, length)
                    if not direct:
                        table = rehashed(pairs, count, scatter)
                        p = place(table, pairs, to, scatter)
                t = count
                table[p] = t
                pairs[t] = to
                count += 1
            child[edge] = t
            edge += 1
    counts[LEVEL] = i + 1
    counts[FRONT] = count
    counts[EDGES] = edge
    pairing.edges[i + 1] = edge
    return Reached(child, weight, pairs)


@njit(cache=True, nogil=True, makes_arrays=True)
def expand(
    a: Diagram,
    b: Diagram,
    pairing: Pairing,
    reached: Reached,
    counts: Any,
    last: int,
    most_bytes: int,
    most_edges: int,
    quota: int,
    modulus: int,
    scatter: Any,
) -> Reached:
    """Expand level after level up to ``last``, until about ``quota`` edges were made or memory or work is exhausted.

    Call again with the returned value until ``counts[LEVEL]`` is ``last``.
    """
    begun = counts[EDGES]
    while counts[LEVEL] < last and counts[EDGES] - begun <= quota and not counts[EXHAUSTED]:
        reached = _expand_level(a, b, pairing, reached, counts, most_bytes, most_edges, modulus, scatter)
    return reached


@njit(cache=True, nogil=True, error_model="numpy", makes_arrays=True)
def sum_last(a: Diagram, b: Diagram, pairing: Pairing, reached: Reached, counts: Any, modulus: int) -> Any:
    """Return for each state of the last level the sum of the weights of its edges."""
    i, n = counts[LEVEL], counts[FRONT]
    d = pairing.sizes[i]
    in_a, in_b, base_a, base_b, _, _ = crossing(a, b, pairing, i)
    sums = np.empty(n)
    for s in range(n):
        pair = reached.pairs[s]
        at_a, at_b = base_a + (pair >> 32) * d, base_b + (pair & 0xFFFFFFFF) * d
        total = 0.0
        for v in range(d):
            w = a.weight[at_a + v] if in_a else 1.0
            if in_b:
                w = _times(w, b.weight[at_b + v], modulus, counts)
            total += w
        sums[s] = np.float64(np.int64(total) % modulus) if modulus else total
    counts[MOVED] += d + _ROUNDED
    return sums


@njit(nogil=True, makes_arrays=True)
def _inverses(values: Any, modulus: int, counts: Any) -> Any:
    """Return inverses modulo a prime, of all values but 0, by one power (Montgomery's trick)."""
    inverses = np.empty(len(values))
    product = 1.0
    for s in range(len(values)):
        inverses[s] = product
        if values[s] != 0.0:
            product = _times(product, values[s], modulus, counts)
    back, exponent = 1.0, modulus - 2
    while exponent:
        if exponent & 1:
            back = _times(back, product, modulus, counts)
        product = _times(product, product, modulus, counts)
        exponent >>= 1
    for s in range(len(values) - 1, -1, -1):
        if values[s] != 0.0:
            inverses[s] = _times(inverses[s], back, modulus, counts)
            back = _times(back, values[s], modulus, counts)
    return inverses


@njit(nogil=True)
def _cell(classes: Any, bits: int, scatter: Any) -> Any:
    """Where the cell of a float is in a hash table, or where it belongs."""
    mask = len(classes) - 1
    cell = bits >> _CELL
    p = np.int64((np.uint64(cell) * scatter) >> np.uint64(24)) & mask
    while classes[p] >= 0 and classes[p] >> _CELL != cell:
        p = (p + 1) & mask
    return p


@njit(nogil=True, makes_arrays=True)
def _roomier(classes: Any, scatter: Any) -> Any:
    """Twice as large a hash table of floats."""
    grown = np.full(2 * len(classes), -1, np.int64)
    for bits in classes:
        if bits >= 0:
            grown[_cell(grown, bits, scatter)] = bits
    return grown


@njit(nogil=True)
def _representative(classes: Any, bits: int, counts: Any, scatter: Any) -> Any:
    """The float, by its bits, that stands for all near this one; this one, if there is none yet."""
    p = _cell(classes, bits, scatter)
    if classes[p] < 0:
        beside = bits + _NEAR if bits & (2 * _NEAR - 1) >= _NEAR else bits - _NEAR
        q = _cell(classes, beside, scatter)
        if classes[q] < 0 or abs(classes[q] - bits) >= _NEAR:
            classes[p] = bits
            counts[KNOWN] += 1
        else:
            p = q
    return classes[p]


@njit(nogil=True, makes_arrays=True)
def _weigh(child: Any, weight: Any, n: int, d: int, low: Any, modulus: int, counts: Any) -> Any:
    """Multiply edges by the factors below, in place; return the divisors of the states, 0 for dead ones."""
    leads = np.empty(n)
    for s in range(n):
        lead = 0.0
        for edge in range(s * d, s * d + d):
            to = child[edge]
            w = _times(weight[edge], low[to], modulus, counts) if to >= 0 else 0.0
            weight[edge] = w
            if lead == 0.0 or (w > lead and not modulus):
                lead = w
        leads[s] = lead
    return leads


@njit(nogil=True, makes_arrays=True)
def _merge_level(
    child: Any, weight: Any, bits: Any, d: int, ids: Any, low: Any, counts: Any, modulus: int, scatter: Any
) -> Any:
    """Turn the states of one level into nodes, in place.

    States without a way to the bottom get node -1 and factor 0.

    Parameters
    ----------
    child, weight : int32 and float64 arrays, shape (states * d,)
        Edges of the states of this level; rewritten as edges of nodes.
    bits : int64 array
        The weights as bit patterns: the same memory as ``weight``.
    d : int
        Edges of a state.
    ids, low : arrays
        Node and factor of each state of the level below.
    counts : int64 array
        Marks and rounding; moved on in place.
    modulus : int
        Prime of residues, or 0 for floats.
    scatter : int64 array
        Random words of the hash tables.

    Returns
    -------
    ids, low, number of nodes
        The same of this level.
    """
    n = len(child) // d
    my_ids = np.empty(n, np.int32)
    my_low = _weigh(child, weight, n, d, low, modulus, counts)
    inverses = _inverses(my_low, modulus, counts) if modulus else my_low
    table = np.full(64, -1, np.int64)
    classes = np.full(64, -1, np.int64)
    classes[_cell(classes, _ONE, scatter)] = _ONE
    counts[KNOWN] = 1
    count = moved = 0
    for s in range(n):
        edge, row = s * d, count * d
        my_ids[s] = -1
        if my_low[s] == 0.0:
            continue
        while 2 * (counts[KNOWN] + d) >= len(classes):
            classes = _roomier(classes, scatter)
        for v in range(d):
            w = weight[edge + v]
            child[row + v] = ids[child[edge + v]] if w != 0.0 else 0
            if modulus:
                w = _times(w, inverses[s], modulus, counts)
            elif w != 0.0:
                w /= my_low[s]
                if w < LEAST_FACTOR:
                    counts[VANISHED] = 1
            weight[row + v] = w
            if not modulus and w != 0.0 and w != 1.0:
                own = bits[row + v]
                # weights that differ only by rounding become equal, or nodes that are equal in exact arithmetic would
                # not merge
                bits[row + v] = _representative(classes, own, counts, scatter)
                moved = max(moved, abs(bits[row + v] - own))
        my_ids[s] = node_of(child, bits, count, d, table, scatter)
        if my_ids[s] == count:
            count += 1
        if 2 * count >= len(table):
            table = wider(table)
    counts[MOVED] += moved + _ROUNDED
    return my_ids, my_low, count


@njit(cache=True, nogil=True, makes_arrays=True)
def merge(
    pairing: Pairing,
    reached: Reached,
    nodes: Any,
    ids: Any,
    low: Any,
    counts: Any,
    quota: int,
    modulus: int,
    scatter: Any,
) -> Any:
    """Merge level after level from the bottom, in place, until about ``quota`` edges were seen.

    Parameters
    ----------
    pairing : Pairing
    reached : Reached
        All states and edges of the expansion; rewritten in place.
    nodes : int64 array
        Receives the number of nodes of each level.
    ids, low : arrays
        Nodes and factors of the level below; at first of the terminal.
    counts : int64 array
        ``counts[LEVEL]`` levels remain.
    quota : int
        Number of edges at which to pause.
    modulus : int
        Prime of residues, or 0 for floats.
    scatter : int64 array
        Random words of the hash tables.

    Returns
    -------
    ids, low
        For the next call, until no level remains; ``low`` then holds the factor of the whole sum.
    """
    done = 0
    while counts[LEVEL] > 0 and done <= quota:
        i = counts[LEVEL] - 1
        first, last = pairing.edges[i], pairing.edges[i + 1]
        # the two views share memory: floats for products, bit patterns for hashing
        weight = reached.weight[first:last]
        ids, low, nodes[i] = _merge_level(
            reached.child[first:last],
            weight,
            weight.view(np.int64),
            pairing.sizes[i],
            ids,
            low,
            counts,
            modulus,
            scatter,
        )
        done += last - first
        counts[LEVEL] = i
    return ids, low
