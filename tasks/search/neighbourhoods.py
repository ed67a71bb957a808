"""Neighbourhoods of an assignment: variables that are free together, in an order that keeps their buckets small."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..networks.flat import Flat
from .annealing import draw

#: No more variables are looked at for a neighbourhood; a context holds no more of them.
LARGEST, WIDEST = 2048, 40
#: Fixed time in units of cells: of a member, without its comparison with the others, or of a table, without its cells.
BESIDES = 200


class Free(NamedTuple):
    """The variables that are free, and working memory.

    Parameters
    ----------
    order : NDArray
        Free variables in elimination order, the first ``counters[0]``.
    position : NDArray
        Of each variable in the order; -1 = fixed.
    context, contexts : NDArray
        How many variables were in the bucket besides its own, and which; some may have been fixed later.
    counters : NDArray
        Variables free.
    members, local : NDArray
        Variables looked at, and the place of each variable among them, -1 = not there.
    linked, bits, open : NDArray
        Which members share a bucket, log2 of the cells of the bucket of each, whether it is neither fixed nor free yet.
    """

    order: Any
    position: Any
    context: Any
    contexts: Any
    counters: Any
    members: Any
    local: Any
    linked: Any
    bits: Any
    open: Any


def no_variables(flat: Flat) -> Free:
    """Return working memory for neighbourhoods of a network."""
    n = len(flat.dims)
    most = min(n, LARGEST)
    return Free(
        np.zeros(most, np.int64),
        np.full(n, -1),
        np.zeros(most, np.int64),
        np.zeros((most, WIDEST), np.int64),
        np.zeros(1, np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1),
        np.zeros((most, most), np.bool_),
        np.zeros(most),
        np.zeros(most, np.bool_),
    )


@njit(nogil=True)
def choose(flat: Any, random: Any, free: Any, size: int, most_bits: float, most_cells: float) -> int:
    """Free variables near a random one; return the work done.

    Of ``size`` variables in a ball, the variable of the smallest bucket is eliminated next. If its bucket has more than
    ``2**most_bits`` cells, a variable with many neighbours is fixed instead.
    """
    for i in range(free.counters[0]):
        free.position[free.order[i]] = -1
    free.counters[0] = 0
    n = _grow(flat, random, free, min(size, len(free.order)))
    _link(flat, free, n)
    left, cells = n, 0.0
    while left > 0 and cells < most_cells:
        i = _smallest(random, free, n)
        if free.bits[i] > most_bits:
            i = _crowded(random, free, n)
            _take_out(flat, free, n, i, False)
        else:
            cells += 2.0 ** free.bits[i]
            _take_out(flat, free, n, i, True)
        left -= 1
    for i in range(n):
        free.local[free.members[i]] = -1
    return int(n * (n + BESIDES))


@njit(nogil=True)
def _grow(flat: Any, random: Any, free: Any, size: int) -> int:
    """Collect a ball: add a random variable that shares a function with the members, again and again.

    Parameters
    ----------
    flat : Flat
        Read only.
    random : (1,) uint64
        The generator's state; changed in place.
    free : Free
        ``members[:size]`` becomes the ball, and ``local`` the place of each of them, -1 for all other variables.
    size : int
        Variables in the ball; at most the number of variables.

    Returns
    -------
    int
        The variables in the ball: ``size``.
    """
    n = len(free.position)
    free.members[0] = draw(random, n)
    free.local[free.members[0]] = 0
    seen, taken = 1, 0
    while taken < size:
        if seen == taken:  # another connected part
            x = draw(random, n)
            while free.local[x] >= 0:
                x = x + 1 if x + 1 < n else 0
            free.members[seen] = x
            free.local[x] = seen
            seen += 1
        i = taken + draw(random, seen - taken)
        x = free.members[i]
        free.members[i] = free.members[taken]
        free.members[taken] = x
        taken += 1
        for k in range(flat.around[x], flat.around[x + 1]):
            f = flat.function[flat.incident[k]]
            for e in range(flat.edges[f], flat.edges[f + 1]):
                y = flat.scope[e]
                if free.local[y] < 0 and seen < n:
                    free.local[y] = 0
                    free.members[seen] = y
                    seen += 1
    for i in range(seen):
        free.local[free.members[i]] = i if i < taken else -1
    return taken


@njit(nogil=True)
def _bits(flat: Any, x: int) -> float:
    """log2 of the values of a variable; at least 1, so that few fit into a bucket."""
    return math.log2(max(2, flat.first[x + 1] - flat.first[x]))


@njit(nogil=True)
def _link(flat: Any, free: Any, n: int) -> None:
    """Note which members share functions."""
    for i in range(n):
        for j in range(n):
            free.linked[i, j] = False
        free.open[i] = True
    for i in range(n):
        x = free.members[i]
        free.bits[i] = _bits(flat, x)
        for k in range(flat.around[x], flat.around[x + 1]):
            f = flat.function[flat.incident[k]]
            for e in range(flat.edges[f], flat.edges[f + 1]):
                j = free.local[flat.scope[e]]
                if j >= 0 and j != i and not free.linked[i, j]:
                    y = free.members[j]
                    free.linked[i, j] = True
                    free.bits[i] += _bits(flat, y)


@njit(nogil=True)
def _smallest(random: Any, free: Any, n: int) -> int:
    """The member of the smallest bucket, one of them from a random place on."""
    best, i = -1, draw(random, n)
    for _ in range(n):
        if free.open[i] and (best < 0 or free.bits[i] < free.bits[best] - 1e-9):
            best = i
        i = i + 1 if i + 1 < n else 0
    return best


@njit(nogil=True)
def _crowded(random: Any, free: Any, n: int) -> int:
    """The member of the largest bucket among a few random ones."""
    best = -1
    for _ in range(3):
        i = draw(random, n)
        while not free.open[i]:
            i = i + 1 if i + 1 < n else 0
        if best < 0 or free.bits[i] > free.bits[best]:
            best = i
    return best


@njit(nogil=True)
def _take_out(flat: Any, free: Any, n: int, i: int, eliminated: bool) -> None:
    """Fix a member, or eliminate it: its neighbours become neighbours of each other.

    Parameters
    ----------
    flat : Flat
        Read only.
    free : Free
        Changed in place: the member is not open any more, and links and bucket sizes (``bits``, log2 of cells) of its
        open neighbours are updated. If it is eliminated, it is appended to the order with its context.
    n : int
        Number of members.
    i : int
        The member.
    eliminated : bool
        Whether it is eliminated; otherwise it is fixed at its current state.
    """
    free.open[i] = False
    x = free.members[i]
    own = _bits(flat, x)
    # Numba needs an array on both paths; a member that is fixed writes nothing to it.
    row = free.contexts[0]
    if eliminated:
        k = free.counters[0]
        free.order[k] = x
        free.position[x] = k
        free.counters[0] = k + 1
        row = free.contexts[k]
        free.context[k] = 0
    count = 0
    for j in range(n):
        if not (free.open[j] and free.linked[i, j]):
            continue
        free.linked[j, i] = False
        free.bits[j] -= own
        if not eliminated:
            continue
        y = free.members[j]
        more = _bits(flat, y)
        # The fill-in of the elimination graph.
        for m in range(count):
            z = row[m]
            o = free.local[z]
            if not free.linked[o, j]:
                free.linked[o, j] = True
                free.linked[j, o] = True
                free.bits[o] += more
                free.bits[j] += _bits(flat, z)
        row[count] = y
        count += 1
    if eliminated:
        free.context[free.counters[0] - 1] = count
