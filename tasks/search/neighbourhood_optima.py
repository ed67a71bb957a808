"""Exact optima of neighbourhoods: bucket elimination on the functions that see a free variable, the others fixed.

The message of a bucket of variable x is min_x (unary costs + Σ functions + Σ messages of children). Variables that are
not free keep their states. It is the large-neighbourhood move of a variable neighbourhood search (VNS; Mladenović &
Hansen, Computers & Operations Research 1997).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from .annealing import draw, go
from .neighbourhoods import BESIDES, WIDEST, choose

#: Places of cells in a table are computed once for all blocks of this number of cells.
_BLOCK = 64


class Buckets(NamedTuple):
    """Messages and working memory.

    Parameters
    ----------
    messages : NDArray
        One after the other.
    first : NDArray
        Where the message of each bucket begins.
    child, sibling : NDArray
        The last message that a bucket takes, and the one before; -1 = none.
    joint, row : NDArray
        The sum of a bucket's functions; the sum for one of its rows.
    sizes, steps, count : NDArray
        Of the axes of a sum: values, places between them in the table that is added, and a counter of each.
    shift : NDArray
        Where the cells of a block are in that table.
    """

    messages: Any
    first: Any
    child: Any
    sibling: Any
    joint: Any
    row: Any
    sizes: Any
    steps: Any
    count: Any
    shift: Any


def buckets_for(n_free: int, widest_domain: int, most_bits: float, most_cells: float) -> Buckets:
    """Return working memory for neighbourhoods of these limits."""
    joint = int(2.0**most_bits) + 1
    return Buckets(
        np.empty(int(most_cells) + joint + n_free),
        np.zeros(n_free, np.int64),
        np.zeros(n_free, np.int64),
        np.zeros(n_free, np.int64),
        np.empty(joint),
        np.empty(widest_domain),
        np.zeros(WIDEST + 2, np.int64),
        np.zeros(WIDEST + 2, np.int64),
        np.zeros(WIDEST + 2, np.int64),
        np.zeros(_BLOCK * max(widest_domain, 1), np.int64),
    )


@njit(cache=True, nogil=True)
def resolve(flat: Any, place: Any, free: Any, buckets: Any, limits: Any, most_work: int) -> int:
    """Solve neighbourhoods around random variables, and go to a best assignment of each, a random one of equals.

    Parameters
    ----------
    limits : tuple
        Variables to look at, log2 of the cells of a bucket, cells of all.

    Returns
    -------
    int
        The work done.
    """
    work = 0
    while work < most_work:
        work += choose(flat, place.random, free, limits[0], limits[1], limits[2])
        work += _eliminate(flat, place, free, buckets)
        _decode(flat, place, free, buckets)
    return work


@njit(nogil=True)
def _eliminate(flat: Any, place: Any, free: Any, buckets: Any) -> int:
    """Compute the message of every bucket in the order of elimination; return the work.

    Parameters
    ----------
    flat : Flat
        Read only.
    place : Place
        The current assignment and each table's place in it (:mod:`.annealing`); read only.
    free : Free
        The free variables in their order. Its ``context`` and ``contexts`` are sorted in place, without fixed
        variables.
    buckets : Buckets
        Its messages (float64), their places and their links are written.

    Returns
    -------
    int
        The work: for each bucket, the sum of its cells and ``BESIDES``, multiplied by 2 plus the number of its tables.
    """
    n, work, begin = free.counters[0], 0, 0
    for i in range(n):
        buckets.child[i] = -1
    for i in range(n):
        axes = _axes(flat, free, buckets, i)
        cells = 1
        for k in range(axes):
            cells *= buckets.sizes[k]
        work += (cells + BESIDES) * (2 + _join(flat, place, free, buckets, i, axes, cells))
        d = buckets.sizes[axes - 1]
        buckets.first[i] = begin
        p = 0
        for m in range(cells // d):
            least = buckets.joint[p]
            for q in range(p + 1, p + d):
                least = min(least, buckets.joint[q])
            buckets.messages[begin + m] = least
            p += d
        begin += cells // d
        if axes > 1:
            # :func:`_axes` sorted the context by elimination, the next one last: its bucket reads this message.
            parent = free.position[free.contexts[i, free.context[i] - 1]]
            buckets.sibling[i] = buckets.child[parent]
            buckets.child[parent] = i
    return work


@njit(nogil=True)
def _axes(flat: Any, free: Any, buckets: Any, i: int) -> int:
    """Put the sizes of a bucket's axes in place, the variable eliminated first last; return how many there are."""
    row, count = free.contexts[i], 0
    for k in range(free.context[i]):
        x = row[k]
        if free.position[x] < 0:
            continue
        j = count
        while j > 0 and free.position[row[j - 1]] < free.position[x]:
            row[j] = row[j - 1]
            j -= 1
        row[j] = x
        count += 1
    free.context[i] = count
    for k in range(count):
        buckets.sizes[k] = flat.first[row[k] + 1] - flat.first[row[k]]
    x = free.order[i]
    buckets.sizes[count] = flat.first[x + 1] - flat.first[x]
    return count + 1


@njit(nogil=True)
def _clear(numbers: Any, count: int) -> None:
    """Set the first of some numbers to 0; a slice would be compiled with an error message for a wrong length."""
    for k in range(count):
        numbers[k] = 0


@njit(nogil=True)
def _is_first(flat: Any, free: Any, f: int, i: int) -> bool:
    """Whether no variable of a function is eliminated before."""
    before = 0
    for e in range(flat.edges[f], flat.edges[f + 1]):
        before += 0 <= free.position[flat.scope[e]] < i
    return before == 0


@njit(nogil=True)
def _join(flat: Any, place: Any, free: Any, buckets: Any, i: int, axes: int, cells: int) -> int:
    """Add up the functions and messages of a bucket in ``buckets.joint``.

    Parameters
    ----------
    flat : Flat
        Read only.
    place : Place
        The current assignment, and for each function the place of its current cell among all costs; read only.
    free : Free
        The free variables.
    buckets : Buckets
        ``joint`` is written: C-ordered over the bucket's axes, its own variable last. ``steps`` is overwritten.
    i : int
        The bucket's number in the order of elimination.
    axes, cells : int
        Number of axes, and of cells, of the bucket.

    Returns
    -------
    int
        The number of functions and messages that were added.
    """
    x, count = free.order[i], 0
    d = buckets.sizes[axes - 1]
    for p in range(0, cells, d):
        for a in range(d):
            buckets.joint[p + a] = flat.unary[flat.first[x] + a]
    for k in range(flat.around[x], flat.around[x + 1]):
        f = flat.function[flat.incident[k]]
        # A function belongs to the bucket of its first eliminated variable; buckets of later variables see it in a
        # message.
        if not _is_first(flat, free, f, i):
            continue
        begin = place.at[f]
        _clear(buckets.steps, axes)
        for e in range(flat.edges[f], flat.edges[f + 1]):
            y = flat.scope[e]
            if free.position[y] < 0:
                continue
            # From the current cell back to the cell where all free variables have state 0; fixed variables keep their
            # states.
            begin -= place.states[y] * flat.stride[e]
            buckets.steps[_axis(free, i, y, axes)] = flat.stride[e]
        _add(buckets, flat.costs, begin, axes, cells)
        count += 1
    j = buckets.child[i]
    while j >= 0:
        _clear(buckets.steps, axes)
        step = 1
        for k in range(free.context[j] - 1, -1, -1):
            y = free.contexts[j, k]
            buckets.steps[_axis(free, i, y, axes)] = step
            step *= flat.first[y + 1] - flat.first[y]
        _add(buckets, buckets.messages, buckets.first[j], axes, cells)
        count += 1
        j = buckets.sibling[j]
    return count


@njit(nogil=True)
def _axis(free: Any, i: int, y: int, axes: int) -> int:
    """The axis of a variable in a bucket."""
    for k in range(axes - 1):
        if free.contexts[i, k] == y:
            return k
    return axes - 1


@njit(nogil=True)
def _add(buckets: Any, source: Any, begin: int, axes: int, cells: int) -> None:
    """Add a table to the joint one, block by block."""
    block, inner = 1, axes
    while inner > 0 and block < _BLOCK:
        inner -= 1
        block = _spread(buckets, block, inner)
    _clear(buckets.count, inner)
    p = begin
    for start in range(0, cells, block):
        for q in range(block):
            buckets.joint[start + q] += source[p + buckets.shift[q]]
        for k in range(inner - 1, -1, -1):
            buckets.count[k] += 1
            p += buckets.steps[k]
            if buckets.count[k] < buckets.sizes[k]:
                break
            p -= buckets.steps[k] * buckets.sizes[k]
            buckets.count[k] = 0


@njit(nogil=True)
def _spread(buckets: Any, block: int, axis: int) -> int:
    """Repeat the places of a block for every value of the axis before; return the cells of the larger block."""
    if block == 1:
        buckets.shift[0] = 0
    for a in range(1, buckets.sizes[axis]):
        for q in range(block):
            buckets.shift[a * block + q] = buckets.shift[q] + a * buckets.steps[axis]
    return int(block * buckets.sizes[axis])


@njit(nogil=True)
def _decode(flat: Any, place: Any, free: Any, buckets: Any) -> None:
    """Go to a best assignment, variable by variable."""
    for i in range(free.counters[0] - 1, -1, -1):
        x = free.order[i]
        begin, d, own = flat.first[x], flat.first[x + 1] - flat.first[x], place.states[x]
        row = buckets.row
        for a in range(d):
            row[a] = flat.unary[begin + a]
        for k in range(flat.around[x], flat.around[x + 1]):
            e = flat.incident[k]
            f = flat.function[e]
            if _is_first(flat, free, f, i):
                for a in range(d):
                    row[a] += flat.costs[place.at[f] + (a - own) * flat.stride[e]]
        _add_messages(flat, place, free, buckets, i, d)
        best, equal = 0, 1
        for a in range(1, d):
            if row[a] < row[best]:
                best, equal = a, 1
            elif row[a] == row[best]:
                equal += 1
                if draw(place.random, equal) == 0:
                    best = a
        go(flat, place, x, best)


@njit(nogil=True)
def _add_messages(flat: Any, place: Any, free: Any, buckets: Any, i: int, d: int) -> None:
    """Add the messages of a bucket to its row."""
    j = buckets.child[i]
    while j >= 0:
        p, step = buckets.first[j], 1
        for k in range(free.context[j] - 1, -1, -1):
            y = free.contexts[j, k]
            if y != free.order[i]:
                p += place.states[y] * step
            step *= flat.first[y + 1] - flat.first[y]
        # the bucket's own variable is the last axis of its messages
        for a in range(d):
            buckets.row[a] += buckets.messages[p + a]
        j = buckets.sibling[j]
