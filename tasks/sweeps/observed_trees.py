"""The elimination order and junction tree of one case: its observed variables are removed from the functions.

The greedy order (least join next) of the remaining variables makes a tree that is far smaller than a tree for all
cases, because observed variables join no others. In a clique's table the eliminated variable is the last axis. The
others stand in reverse order of elimination, so that a message has the axis order of the clique that receives it.

Arguments are addresses, of float64 values and int64 words.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..compiler.jit import njit
from ..compiler.vectors import number, put_number, put_word, word


class CaseFunctions(NamedTuple):
    """Functions of a model.

    Attributes
    ----------
    variables, amount, joints
        Number of variables, of functions, and of requested joint posteriors of several variables.
    dims, places
        Of each variable its states, and where its posterior is written; -1 where none is asked for.
    start, scope, stride
        Where the axes of each function begin; their variables and strides.
    base
        Where the entries of each function begin.
    joint_start, joint_scope, joint_stride, joint_place
        The same for each joint, and where it is written.
    values
        All entries of functions, at most 1.
    least
        The least positive entry of each function.
    """

    variables: int
    amount: int
    joints: int
    dims: int
    places: int
    start: int
    scope: int
    stride: int
    base: int
    joint_start: int
    joint_scope: int
    joint_stride: int
    joint_place: int
    values: int
    least: int


class CaseRoom(NamedTuple):
    """Where one thread works; a word or number for each variable where nothing else is said.

    Attributes
    ----------
    near
        Neighbours of each variable, a bit each, in rows of ``row`` words.
    order, position
        Variables in the order in which they are eliminated, and where each stands in it.
    starts, axes, most_axes
        Where the axes of each clique begin (one more than variables), the axes, and how many there may be.
    parent, child, sibling, leaf, after
        Of each clique: the one above; the first below, and the next one of the same parent; its first function, and for
        each function the next one.
    clique, message
        Where the tables of a clique and of its message begin.
    found, other, size, move, indices
        For lists.
    strides
        Strides of a table, by variable; zeros in between.
    weights, joined, low, sent
        log2 of states, of the join with all neighbours; lower bounds of the positive entries of cliques and messages.
    tables, cells
        Tables of a case, and how many entries there may be.
    """

    near: int
    row: int
    order: int
    position: int
    starts: int
    axes: int
    most_axes: int
    parent: int
    child: int
    sibling: int
    leaf: int
    after: int
    clique: int
    message: int
    found: int
    other: int
    size: int
    move: int
    indices: int
    strides: int
    weights: int
    joined: int
    low: int
    sent: int
    tables: int
    cells: int


@njit(nogil=True, error_model="numpy")
def _bits(row: int, words: int, found: int) -> int:
    """Write the numbers of the bits that are set; return how many."""
    n = 0
    for w in range(words):
        left = word(row, w)
        while left:
            low = left & -left
            at, half = 0, 32
            while half:
                if low >> (at + half):
                    at += half
                half >>= 1
            put_word(found, n, 64 * w + at)
            n += 1
            left ^= low
    return n


@njit(nogil=True, error_model="numpy")
def _join_of(room: Any, v: int) -> float:
    total: float = number(room.weights, v)
    for i in range(_bits(room.near + 8 * room.row * v, room.row, room.other)):
        total += number(room.weights, word(room.other, i))
    return total


@njit(nogil=True, error_model="numpy")
def case_graph(functions: Any, state: int, room: Any) -> None:
    """Join the unobserved variables of every function."""
    for i in range(functions.variables * room.row):
        put_word(room.near, i, 0)
    for f in range(functions.amount):
        first, stop = word(functions.start, f), word(functions.start, f + 1)
        for p in range(first, stop):
            v = word(functions.scope, p)
            if word(state, v) < 0:
                for q in range(first, stop):
                    u = word(functions.scope, q)
                    if u != v and word(state, u) < 0:
                        at = room.row * v + (u >> 6)
                        put_word(room.near, at, word(room.near, at) | (1 << (u & 63)))
    for v in range(functions.variables):
        put_number(room.joined, v, _join_of(room, v) if word(state, v) < 0 else math.inf)


@njit(nogil=True, error_model="numpy")
def case_order(variables: int, room: Any) -> int:
    """Eliminate the variable with the smallest join until none remains; write each variable's neighbors, then itself.

    Parameters
    ----------
    variables : int
        Number of variables of the model.
    room : CaseRoom
        ``near`` holds bit sets of neighbors, ``joined`` the cells of each join; receives ``order`` and ``axes``.
    """
    k = begin = 0
    while True:
        v, least = -1, math.inf
        for u in range(variables):
            if number(room.joined, u) < least:
                v, least = u, number(room.joined, u)
        if v < 0:
            return k
        n = _bits(room.near + 8 * room.row * v, room.row, room.found)
        if begin + n + 1 > room.most_axes:
            return -1
        put_word(room.order, k, v)
        put_word(room.position, v, k)
        put_word(room.starts, k, begin)
        put_number(room.joined, v, math.inf)
        for i in range(n):
            u = word(room.found, i)
            put_word(room.axes, begin + i, u)
            for w in range(room.row):
                at = room.row * u + w
                both = word(room.near, at) | word(room.near, room.row * v + w)
                # neighbors of an eliminated variable become neighbors of each other, without u and v themselves
                both &= ~(1 << (u & 63)) if w == u >> 6 else -1
                both &= ~(1 << (v & 63)) if w == v >> 6 else -1
                put_word(room.near, at, both)
        put_word(room.axes, begin + n, v)
        begin, k = begin + n + 1, k + 1
        put_word(room.starts, k, begin)
        for i in range(n):
            put_number(room.joined, word(room.found, i), _join_of(room, word(room.found, i)))


@njit(nogil=True, error_model="numpy")
def lay_out_cliques(functions: Any, room: Any, n: int) -> int:
    """Order the axes of every clique, and find a place for its table and its message.

    Returns
    -------
    int
        Entries of all tables; -1 where there is no room for them and a message more.
    """
    free = widest = 0
    for k in range(n):
        begin, end = word(room.starts, k), word(room.starts, k + 1) - 1
        for i in range(begin + 1, end):
            v, j = word(room.axes, i), i
            while j > begin and word(room.position, word(room.axes, j - 1)) < word(room.position, v):
                put_word(room.axes, j, word(room.axes, j - 1))
                j -= 1
            put_word(room.axes, j, v)
        cells = 1
        for i in range(begin, end):
            cells *= word(functions.dims, word(room.axes, i))
            if cells > room.cells:
                return -1
        whole, widest = cells * word(functions.dims, word(room.order, k)), max(widest, cells)
        if free + whole + cells + widest > room.cells:
            return -1
        put_word(room.clique, k, free)
        put_word(room.message, k, free + whole)
        free += whole + cells
        put_word(room.parent, k, word(room.position, word(room.axes, end - 1)) if end > begin else -1)
    return free


@njit(nogil=True, error_model="numpy")
def share_out_functions(functions: Any, state: int, room: Any, n: int) -> float:
    """Give functions and cliques to the cliques that multiply them; return ln of the fully observed functions."""
    log = 0.0
    for k in range(n):
        put_word(room.leaf, k, -1)
        put_word(room.child, k, -1)
    for k in range(n):
        up = word(room.parent, k)
        if up >= 0:
            put_word(room.sibling, k, word(room.child, up))
            put_word(room.child, up, k)
    for f in range(functions.amount):
        home, place = n, word(functions.base, f)
        for p in range(word(functions.start, f), word(functions.start, f + 1)):
            v = word(functions.scope, p)
            if word(state, v) < 0:
                home = min(home, word(room.position, v))
            else:
                place += word(state, v) * word(functions.stride, p)
        if home < n:
            put_word(room.after, f, word(room.leaf, home))
            put_word(room.leaf, home, f)
        else:
            log += math.log(number(functions.values, place))
    return log
