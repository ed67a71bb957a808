"""The loop over cases in which states are observed: each case has an elimination order and a junction tree of its own.

What a case observes is cut out of the functions, and a greedy order (least join next) of what is left makes a tree that
is far smaller than one for all cases: observed variables separate others. A case goes up and down its tree as in Jensen,
Lauritzen and Olesen 1990: the clique of a variable has its functions and the messages of its children, a message down is
divided by the one that came up. Tables of a case are written one after the other into one array; in a clique's the
eliminated variable is the last axis, and others stand in the order in which they go, the last to go first.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiler.jit import njit

Words = NDArray[np.int64]

FINE, IMPOSSIBLE, LEFT = 0, 1, 2
# A product of two entries above this is a normal number, as are sums of such.
LEAST: Final = 1e-280
_LN2: Final = math.log(2.0)
_ASSIGN, _MULTIPLY, _ADD_TO = 0, 1, 2
# Axes of all cliques together, by variable, at most.
_AXES: Final = 24


class CaseFunctions(NamedTuple):
    """Functions of a model, as words and one array.

    Attributes
    ----------
    dims
        States of each variable.
    start, scope, stride
        Where the axes of each function begin; their variables and strides.
    base
        Where the entries of each function begin.
    places
        Where the posterior of each variable is written; -1 where none is asked for.
    values
        Entries of all functions, float64, at most 1.
    least
        The least positive entry of each function.
    """

    dims: Words
    start: Words
    scope: Words
    stride: Words
    base: Words
    places: Words
    values: NDArray[np.float64]
    least: NDArray[np.float64]


@njit(nogil=True, error_model="numpy")
def _bits(row: Any, found: Any) -> int:
    """Write the numbers of the bits that are set; return how many."""
    n = 0
    for w in range(len(row)):
        left = row[w]
        while left:
            low = left & (~left + np.uint64(1))
            at = 0
            rest = low
            if rest >> np.uint64(32):
                at += 32
                rest >>= np.uint64(32)
            if rest >> np.uint64(16):
                at += 16
                rest >>= np.uint64(16)
            if rest >> np.uint64(8):
                at += 8
                rest >>= np.uint64(8)
            if rest >> np.uint64(4):
                at += 4
                rest >>= np.uint64(4)
            if rest >> np.uint64(2):
                at += 2
                rest >>= np.uint64(2)
            if rest >> np.uint64(1):
                at += 1
            found[n] = 64 * w + at
            n += 1
            left ^= low
    return n


@njit(nogil=True, error_model="numpy")
def _along(
    mode: int, n: int, size: Any, move: Any, index: Any, clique: Any, c: int, row: int, other: Any, o: int, to: int
) -> None:
    """Go through a clique's table beside another one: assign it, multiply by it, or add to it.

    ``size`` and ``move`` have the clique's axes before the last and the other's strides, ``row`` and ``to`` the last.
    """
    while n > 0 and move[n - 1] == row * to:
        n -= 1
        row *= size[n]
    index[:n] = 0
    while True:
        if mode == _ADD_TO:
            if to == 0:
                total = 0.0
                for i in range(row):
                    total += clique[c + i]
                other[o] += total
            else:
                for i in range(row):
                    other[o + i * to] += clique[c + i]
        elif mode == _MULTIPLY:
            for i in range(row):
                clique[c + i] *= other[o + i * to]
        else:
            for i in range(row):
                clique[c + i] = other[o + i * to]
        c += row
        d = n - 1
        while d >= 0:
            index[d] += 1
            o += move[d]
            if index[d] < size[d]:
                break
            o -= move[d] * size[d]
            index[d] = 0
            d -= 1
        if d < 0:
            return


@njit(nogil=True, error_model="numpy")
def _scaled(table: Any, first: int, stop: int) -> tuple[int, float]:
    """Scale a table by a power of two to a maximum in [0.5, 1); return the power and the least positive entry."""
    top, least = 0.0, math.inf
    for i in range(first, stop):
        top = max(top, table[i])
        if table[i] > 0.0:
            least = min(least, table[i])
    if top == 0.0:
        return 0, 0.0
    power = math.frexp(top)[1]
    if power != 0:
        factor = math.ldexp(1.0, -power)
        least *= factor
        for i in range(first, stop):
            table[i] *= factor
    return power, least


@njit(nogil=True, error_model="numpy")
def _graph(functions: Any, state: Any, near: Any, joined: Any, weights: Any, found: Any) -> None:
    """Join the unobserved variables of every function; set what the join of each with its neighbours takes, as log2."""
    near[:] = np.uint64(0)
    one = np.uint64(1)
    for f in range(len(functions.base)):
        for p in range(functions.start[f], functions.start[f + 1]):
            v = functions.scope[p]
            if state[v] < 0:
                for q in range(functions.start[f], functions.start[f + 1]):
                    u = functions.scope[q]
                    if u != v and state[u] < 0:
                        near[v, u >> 6] |= one << np.uint64(u & 63)
    for v in range(len(state)):
        joined[v] = _join_of(near[v], weights, found) + weights[v] if state[v] < 0 else math.inf


@njit(nogil=True, error_model="numpy")
def _join_of(row: Any, weights: Any, found: Any) -> float:
    total = 0.0
    for i in range(_bits(row, found)):
        total += weights[found[i]]
    return total


@njit(nogil=True, error_model="numpy")
def _order(near: Any, joined: Any, weights: Any, order: Any, position: Any, starts: Any, axes: Any, found: Any,
           other: Any) -> int:  # fmt: skip
    """Eliminate the variable of the least join until none is left; write each one's neighbours, then itself.

    Returns
    -------
    int
        How many were eliminated; -1 where the cliques have too many axes.
    """
    one, k = np.uint64(1), 0
    starts[0] = 0
    while True:
        v = -1
        for u in range(len(joined)):
            if joined[u] < math.inf and (v < 0 or joined[u] < joined[v]):
                v = u
        if v < 0:
            return k
        n = _bits(near[v], found)
        if starts[k] + n + 1 > len(axes):
            return -1
        for i in range(n):
            axes[starts[k] + i] = found[i]
        axes[starts[k] + n] = v
        order[k], position[v], joined[v] = v, k, math.inf
        starts[k + 1] = starts[k] + n + 1
        for i in range(n):
            u = found[i]
            near[u] |= near[v]
            near[u, u >> 6] &= ~(one << np.uint64(u & 63))
            near[u, v >> 6] &= ~(one << np.uint64(v & 63))
        for i in range(n):
            joined[found[i]] = _join_of(near[found[i]], weights, other) + weights[found[i]]
        k += 1


@njit(cache=True, nogil=True, error_model="numpy")
def answer_cases(functions: Any, states: Any, first: int, stop: int, work: Any, answers: Any, totals: Any,
                 status: Any) -> None:  # fmt: skip
    """Answer some cases one after the other.

    Parameters
    ----------
    functions : CaseFunctions
    states : ndarray of int64, (cases, variables)
        -1 where a variable is not observed, -2 in a state that is not left.
    first, stop : int
        Which cases.
    work : ndarray of float64
        Room for the tables of one case.
    answers : ndarray, (cases, answer cells)
        Posteriors; zeros before.
    totals : ndarray, (cases,)
        ln of the sums over everything that agrees with a case.
    status : ndarray, (cases,)
        ``FINE``, ``IMPOSSIBLE``, or ``LEFT`` to be answered alone: where tables do not fit into ``work``, or products
        might leave the range of float64.
    """
    dims, count = functions.dims, len(functions.dims)
    near = np.zeros((count, (count + 63) >> 6), np.uint64)
    weights, joined = np.log2(dims.astype(np.float64)), np.empty(count)
    order, position, starts = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count + 1, np.int64)
    axes, found, other = np.empty(_AXES * count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    size, move, index = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    strides = np.zeros(count, np.int64)
    leaf, after = np.empty(count, np.int64), np.empty(len(functions.base), np.int64)
    parent, clique, message = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    child, sibling = np.empty(count, np.int64), np.empty(count, np.int64)
    low, low_sent = np.empty(count), np.empty(count)
    for case in range(first, stop):
        state = states[case]
        status[case], totals[case] = FINE, 0.0
        for v in range(count):
            if state[v] < -1:
                status[case] = IMPOSSIBLE
        if status[case] == IMPOSSIBLE:
            totals[case] = -math.inf
            continue
        _graph(functions, state, near, joined, weights, found)
        n = _order(near, joined, weights, order, position, starts, axes, found, other)
        if n < 0:
            status[case] = LEFT
            continue
        # the last to go first, so that a message has its axes in the order of the clique that it goes to
        free = 0
        for k in range(n):
            begin, end = starts[k], starts[k + 1] - 1
            for i in range(begin + 1, end):
                v, j = axes[i], i
                while j > begin and position[axes[j - 1]] < position[v]:
                    axes[j] = axes[j - 1]
                    j -= 1
                axes[j] = v
            cells = 1
            for i in range(begin, end):
                cells *= dims[axes[i]]
                if cells > len(work):
                    break
            if free + cells * (dims[order[k]] + 1) > len(work):
                status[case] = LEFT
                break
            clique[k], message[k] = free, free + cells * dims[order[k]]
            free = message[k] + cells
            parent[k] = position[axes[end - 1]] if end > begin else -1
            leaf[k], child[k] = -1, -1
        if status[case] == LEFT:
            continue
        for f in range(len(functions.base)):
            home, place = n, functions.base[f]
            for p in range(functions.start[f], functions.start[f + 1]):
                v = functions.scope[p]
                if state[v] < 0:
                    home = min(home, position[v])
                else:
                    place += state[v] * functions.stride[p]
            if home < n:
                after[f], leaf[home] = leaf[home], f
            elif functions.values[place] > 0.0:
                totals[case] += math.log(functions.values[place])
            else:
                status[case] = IMPOSSIBLE
        for k in range(n):
            if parent[k] >= 0:
                sibling[k], child[parent[k]] = child[parent[k]], k
        for k in range(n):
            if status[case] != FINE:
                break
            begin, end, v = starts[k], starts[k + 1] - 1, order[k]
            outer = end - begin
            for i in range(outer):
                size[i] = dims[axes[begin + i]]
            mode, low[k] = _ASSIGN, 1.0
            f = leaf[k]
            while f >= 0:
                place = functions.base[f]
                for p in range(functions.start[f], functions.start[f + 1]):
                    u = functions.scope[p]
                    if state[u] < 0:
                        strides[u] = functions.stride[p]
                    else:
                        place += state[u] * functions.stride[p]
                for i in range(outer):
                    move[i] = strides[axes[begin + i]]
                _along(mode, outer, size, move, index, work, clique[k], dims[v], functions.values, place, strides[v])
                for p in range(functions.start[f], functions.start[f + 1]):
                    strides[functions.scope[p]] = 0
                mode = _MULTIPLY
                low[k] *= functions.least[f]
                if low[k] < LEAST:
                    status[case] = LEFT
                f = after[f]
            c = child[k]
            while c >= 0:
                _strides_of(axes, starts[c], starts[c + 1] - 1, dims, strides)
                for i in range(outer):
                    move[i] = strides[axes[begin + i]]
                _along(mode, outer, size, move, index, work, clique[k], dims[v], work, message[c], strides[v])
                for i in range(starts[c], starts[c + 1] - 1):
                    strides[axes[i]] = 0
                mode = _MULTIPLY
                low[k] *= low_sent[c]
                if low[k] < LEAST:
                    status[case] = LEFT
                c = sibling[c]
            row, at = dims[v], clique[k]
            cells = (message[k] - at) // row
            for s in range(cells):
                total = 0.0
                for i in range(row):
                    total += work[at + s * row + i]
                work[message[k] + s] = total
            power, low_sent[k] = _scaled(work, message[k], message[k] + cells)
            totals[case] += power * _LN2
            if low_sent[k] == 0.0 and status[case] == FINE:
                status[case] = IMPOSSIBLE
            elif parent[k] < 0:
                totals[case] += math.log(work[message[k]])
        if status[case] == IMPOSSIBLE:
            totals[case] = -math.inf
        for k in range(n - 1, -1, -1):
            if status[case] != FINE:
                break
            v, at = order[k], clique[k]
            row = dims[v]
            cells = (message[k] - at) // row
            up = parent[k]
            if up >= 0:
                begin, outer = starts[up], starts[up + 1] - 1 - starts[up]
                for i in range(outer):
                    size[i] = dims[axes[begin + i]]
                _strides_of(axes, starts[k], starts[k + 1] - 1, dims, strides)
                for i in range(outer):
                    move[i] = strides[axes[begin + i]]
                # behind all tables of the case there is room for the largest message
                new = free
                work[new : new + cells] = 0.0
                along = strides[order[up]]
                _along(_ADD_TO, outer, size, move, index, work, clique[up], dims[order[up]], work, new, along)
                for i in range(starts[k], starts[k + 1] - 1):
                    strides[axes[i]] = 0
                for s in range(cells):
                    before = work[message[k] + s]
                    work[message[k] + s] = work[new + s] / before if before > 0.0 else 0.0
                _, least = _scaled(work, message[k], message[k] + cells)
                low[k] *= least
                if low[k] < LEAST:
                    status[case] = LEFT
                    break
                for s in range(cells):
                    ratio = work[message[k] + s]
                    for i in range(row):
                        work[at + s * row + i] *= ratio
            to = functions.places[v]
            if to < 0:
                continue
            for s in range(cells):
                for i in range(row):
                    answers[case, to + i] += work[at + s * row + i]
            total = 0.0
            for i in range(row):
                total += answers[case, to + i]
            for i in range(row):
                answers[case, to + i] /= total
        for v in range(count):
            if functions.places[v] >= 0 and state[v] >= 0 and status[case] == FINE:
                answers[case, functions.places[v] + state[v]] = 1.0


@njit(nogil=True, error_model="numpy")
def _strides_of(axes: Any, begin: int, end: int, dims: Any, strides: Any) -> None:
    """Set the strides of a message by variable; its axes stand from ``begin`` to ``end``."""
    stride = 1
    for i in range(end - 1, begin - 1, -1):
        strides[axes[i]] = stride
        stride *= dims[axes[i]]
