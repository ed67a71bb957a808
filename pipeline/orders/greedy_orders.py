"""Randomised greedy elimination orders on bit-set adjacency matrices, compiled with Numba.

Only values that an elimination changes are recomputed: a fill edge (a, b) lowers the fill count of the common
neighbours of a and b, and gives a the new missing pairs (b, x) for x adjacent to a and not to b.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...tasks.compiler.jit import njit

#: Rules in the order of their codes.
MIN_FILL, WEIGHTED_MIN_FILL, MIN_DEGREE, MIN_WEIGHT, MIXED = range(5)

_ONE = np.uint64(1)


def _unary(name: str) -> Any:
    """Make a Numba intrinsic of an LLVM integer function of one 64-bit argument."""

    @intrinsic
    def function(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args, *([ir.Constant(ir.IntType(1), 1)] if name == "cttz" else []))

        return types.uint64(types.uint64), codegen

    return function


popcount = _unary("ctpop")
trailing_zeros = _unary("cttz")


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: times an odd number it makes a first state for `random_unit` (Knuth 1998,
section 6.4)."""


@njit(cache=True, nogil=True, inline="always")
def random_unit(state: NDArray[np.uint64]) -> float:
    """Draw from [0, 1) by xorshift64* (Vigna 2016); ``state`` holds one non-zero word."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(nogil=True)
def _outside(a: NDArray[np.uint64], b: NDArray[np.uint64], weights: NDArray[np.float64], even: bool) -> float:
    """Sum the weights of the bits of ``a`` that are not in ``b`` (their number, if ``even``)."""
    total = 0.0
    for w in range(a.shape[0]):
        bits = a[w] & ~b[w]
        if even:
            total += np.float64(popcount(bits))
        else:
            while bits:
                total += weights[w * 64 + np.int64(trailing_zeros(bits))]
                bits &= bits - _ONE
    return total


@njit(nogil=True)
def count_fill(
    adjacency: NDArray[np.uint64], weights: NDArray[np.float64], even: bool, fill: NDArray[np.float64]
) -> None:
    """Write the weight of the missing pairs among each vertex's neighbours to ``fill``; see :func:`initial_fill`."""
    for v in range(adjacency.shape[0]):
        total = 0.0
        for w in range(adjacency.shape[1]):
            bits = adjacency[v, w]
            while bits:
                u = w * 64 + np.int64(trailing_zeros(bits))
                bits &= bits - _ONE
                # u itself is no neighbour of u: not a missing pair
                total += weights[u] * (_outside(adjacency[v], adjacency[u], weights, even) - weights[u])
        fill[v] = total / 2


@njit(cache=True, nogil=True, makes_arrays=True)
def initial_fill(adjacency: NDArray[np.uint64], weights: NDArray[np.float64], even: bool) -> NDArray[np.float64]:
    """Count the missing pairs among the neighbours of each vertex, each weighing the product of its ends."""
    fill = np.empty(adjacency.shape[0])
    count_fill(adjacency, weights, even, fill)
    return fill


@njit(nogil=True)
def _connect(
    a: int,
    b: int,
    adjacency: NDArray[np.uint64],
    fill: NDArray[np.float64],
    weights: NDArray[np.float64],
    even: bool,
    stale: NDArray[np.bool_],
) -> None:
    """Add the edge (a, b) and correct the fill of a, b and their common neighbours."""
    gain = weights[a] * weights[b]
    for w in range(adjacency.shape[1]):
        bits = adjacency[a, w] & adjacency[b, w]
        while bits:
            c = w * 64 + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            fill[c] -= gain
            stale[c] = True
    fill[a] += weights[b] * _outside(adjacency[a], adjacency[b], weights, even)
    fill[b] += weights[a] * _outside(adjacency[b], adjacency[a], weights, even)
    adjacency[a, b >> 6] |= _ONE << np.uint64(b & 63)
    adjacency[b, a >> 6] |= _ONE << np.uint64(a & 63)


@njit(nogil=True)
def eliminate(
    v: int,
    neighbours: NDArray[np.int64],
    adjacency: NDArray[np.uint64],
    fill: NDArray[np.float64],
    clique: NDArray[np.float64],
    logs: NDArray[np.float64],
    weights: NDArray[np.float64],
    even: bool,
    stale: NDArray[np.bool_],
) -> tuple[int, int]:
    """Connect the neighbours of ``v`` and remove it; return the degree of ``v`` and the words touched.

    Parameters
    ----------
    neighbours : ndarray, shape (n,), int64
        Receives the neighbours of ``v``.
    adjacency : ndarray, shape (n, words), uint64
        Bit sets of neighbours, changed in place.
    fill, clique : ndarray, shape (n,), float64
        Weight of the missing pairs around each vertex, and the sum of ``logs`` over it and its neighbours; in place.
    logs, weights : ndarray, shape (n,), float64
        Contribution of a vertex to a clique, and to the weight of a missing pair.
    even : bool
        Whether all weights are 1.
    stale : ndarray, shape (n,), bool
        Is set for the vertices whose score changed.
    """
    words = adjacency.shape[1]
    degree = 0
    for w in range(words):
        bits = adjacency[v, w]
        while bits:
            neighbours[degree] = w * 64 + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            degree += 1
    work = words * (degree + 1)
    for i in range(degree):
        a = neighbours[i]
        for w in range(a >> 6, words):
            bits = adjacency[v, w] & ~adjacency[a, w]
            if w == a >> 6:  # only partners above a
                bits &= ~((_ONE << np.uint64(a & 63)) | ((_ONE << np.uint64(a & 63)) - _ONE))
            while bits:
                b = w * 64 + int(trailing_zeros(bits))
                bits &= bits - _ONE
                _connect(a, b, adjacency, fill, weights, even, stale)
                clique[a] += logs[b]
                clique[b] += logs[a]
                work += 4 * words
    for i in range(degree):
        u = neighbours[i]
        adjacency[u, v >> 6] &= ~(_ONE << np.uint64(v & 63))
        # the neighbours of v are a clique now: the missing pairs (v, x) at u have x outside of it
        outside = _outside(adjacency[u], adjacency[v], weights, even)
        fill[u] -= weights[v] * outside
        clique[u] -= logs[v]
        stale[u] = True
    return degree, work


@njit(nogil=True)
def score_of(rule: int, fill: float, clique: float, own: float, mix: float) -> float:
    """Rate a vertex; the lowest goes next."""
    if rule <= WEIGHTED_MIN_FILL:
        return fill + 0.5
    if rule == MIXED:
        return float(np.exp2(0.5 * (np.log2(fill + 0.5) + mix * (clique - own))))
    return clique


@njit(nogil=True)
def least_key(
    left: NDArray[np.int64],
    rule: int,
    mix: float,
    fill: NDArray[np.float64],
    clique: NDArray[np.float64],
    own: NDArray[np.float64],
    jitter: NDArray[np.float64],
    key: NDArray[np.float64],
    stale: NDArray[np.bool_],
) -> int:
    """Return the place in ``left`` of the vertex with the least score, or of the first vertex that adds no edge.

    Parameters
    ----------
    left : ndarray, int64
        Vertices to choose from.
    rule, mix, fill, clique, own
        As for :func:`score_of`, by vertex.
    jitter, key : ndarray of float64
        By vertex: the random factor of its score, and the score of vertices that are not ``stale``.
    stale : ndarray of bool
        Vertices whose score is to be computed again; cleared.
    """
    best, at = np.inf, 0
    for i in range(left.shape[0]):
        v = left[i]
        if stale[v]:
            key[v] = jitter[v] * score_of(rule, fill[v], clique[v], own[v], mix)
            stale[v] = False
        if key[v] < best:
            best, at = key[v], i
            if fill[v] < 1e-6:
                break
    return at


@njit(cache=True, nogil=True, makes_arrays=True)
def greedy_order(
    adjacency: NDArray[np.uint64],
    start_fill: NDArray[np.float64],
    logs: NDArray[np.float64],
    weights: NDArray[np.float64],
    rule: int,
    mix: float,
    noise: float,
    seed: int,
    limit: float,
    order: NDArray[np.int64],
) -> tuple[float, int]:
    """Eliminate all vertices greedily; return the cells of the buckets (inf if above ``limit``) and work.

    Iterative greedy variable ordering (Kask, Gelfand, Otten and Dechter, AAAI 2011): an order above the limit ends
    early.

    Parameters
    ----------
    adjacency : ndarray, shape (n, words), uint64
        Bit sets of neighbours.
    start_fill : ndarray, shape (n,)
        Of :func:`initial_fill` with the same weights.
    logs, weights : ndarray, shape (n,)
        log2 of the domain sizes, and the weight of a vertex in a missing pair.
    mix : float
        Weight of the message size in the mixed rule.
    noise : float
        Each vertex's score is multiplied by a random number in [1, 1 + noise).
    limit : float
        Give up as soon as the cells exceed this.
    order : ndarray, shape (n,)
        Receives the elimination order.
    """
    n, words = adjacency.shape
    adjacency, fill = adjacency.copy(), start_fill.copy()
    clique, jitter, unit, left = np.empty(n), np.empty(n), np.empty(n), np.empty(n, dtype=np.int64)
    state = np.empty(1, dtype=np.uint64)
    state[0] = np.uint64(seed * 2 + 1) * GOLDEN
    even = True
    for v in range(n):
        even &= weights[v] == 1.0
        unit[v] = 1.0 if rule == MIN_DEGREE else logs[v]
        left[v] = v
    for v in range(n):
        clique[v] = unit[v]
        for w in range(words):
            bits = adjacency[v, w]
            while bits:
                clique[v] += unit[w * 64 + np.int64(trailing_zeros(bits))]
                bits &= bits - _ONE
        jitter[v] = 1.0 + noise * random_unit(state)
    key, stale = np.empty(n), np.ones(n, dtype=np.bool_)
    neighbours = np.empty(n, dtype=np.int64)
    cells, work = 0.0, n * words
    for step in range(n):
        at = least_key(left[: n - step], rule, mix, fill, clique, unit, jitter, key, stale)
        work += n - step
        v = left[at]
        left[at] = left[n - step - 1]
        order[step] = v
        swept = logs[v]
        for w in range(words):
            bits = adjacency[v, w]
            while bits:
                swept += logs[w * 64 + np.int64(trailing_zeros(bits))]
                bits &= bits - _ONE
        cells += np.exp2(min(swept, 1000.0))
        if cells > limit:
            return np.inf, work
        degree, more = eliminate(v, neighbours, adjacency, fill, clique, unit, weights, even, stale)
        work += more
        if degree == n - step - 1:
            # the remaining variables form one clique
            for i in range(degree):
                order[step + 1 + i] = left[i]
            break
    return cells, work
