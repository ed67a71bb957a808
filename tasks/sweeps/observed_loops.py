"""The compiled loop over cases with observed states: each case is propagated in a junction tree of its own.

The greedy order (least join next) of the variables that are not observed makes a tree that is far smaller than a tree
for all cases, because observed variables join no others. In a clique's table the eliminated variable is the last axis.
The others stand in reverse order of elimination, so that a message has the axis order of the clique that receives it.

As in Jensen, Lauritzen and Olesen 1990, the clique of a variable has its functions and the messages of its children,
and a downward message is divided by the upward message. Arguments are addresses of float64 values and int64 words.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..compiler.jit import njit
from ..compiler.vectors import number, put_number, put_word, word
from ..steps.number_limits import LEAST_FACTOR


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


FINE, IMPOSSIBLE, LEFT = range(3)
_LN2: Final = math.log(2.0)
_ASSIGN, _MULTIPLY, _ADD_TO = range(3)


@njit(nogil=True, error_model="numpy")
def _along(mode: int, functions: Any, room: Any, k: int, other: int) -> None:
    """Traverse the table of a clique together with another table: assign it, multiply by it, or add the clique to it.

    Parameters
    ----------
    mode : int
        ``_ASSIGN``, ``_MULTIPLY`` or ``_ADD_TO``.
    functions : CaseFunctions
    room : CaseRoom
        ``strides`` holds the strides of the other table, and zeros afterwards.
    k : int
        Number of the clique.
    other : int
        Address of the other table.
    """
    begin = word(room.starts, k)
    n, v = word(room.starts, k + 1) - 1 - begin, word(room.order, k)
    row, to, clique = word(functions.dims, v), word(room.strides, v), room.tables + 8 * word(room.clique, k)
    put_word(room.strides, v, 0)
    for d in range(n):
        u = word(room.axes, begin + d)
        put_word(room.size, d, word(functions.dims, u))
        put_word(room.move, d, word(room.strides, u))
        put_word(room.indices, d, 0)
        put_word(room.strides, u, 0)
    # axes that both tables store in the same order become one long row
    while n > 0 and word(room.move, n - 1) == row * to:
        n -= 1
        row *= word(room.size, n)
    while True:
        if mode == _ADD_TO:
            for i in range(row):
                put_number(other, i * to, number(other, i * to) + number(clique, i))
        elif mode == _MULTIPLY:
            for i in range(row):
                put_number(clique, i, number(clique, i) * number(other, i * to))
        else:
            for i in range(row):
                put_number(clique, i, number(other, i * to))
        clique += 8 * row
        d = n - 1
        while d >= 0:
            index, move = word(room.indices, d) + 1, word(room.move, d)
            other += 8 * move
            if index < word(room.size, d):
                put_word(room.indices, d, index)
                break
            other -= 8 * move * index
            put_word(room.indices, d, 0)
            d -= 1
        if d < 0:
            return


@njit(nogil=True, error_model="numpy")
def _scaled(table: int, cells: int) -> tuple[int, float]:
    """Scale a table by a power of two to a maximum in [0.5, 1); return the power and the least positive entry."""
    top, least = 0.0, math.inf
    for i in range(cells):
        value = number(table, i)
        top = max(top, value)
        least = min(least, value if value > 0.0 else math.inf)
    if top == 0.0:
        return 0, 0.0
    power = math.frexp(top)[1]
    if power != 0:
        factor = math.ldexp(1.0, -power)
        least *= factor
        for i in range(cells):
            put_number(table, i, number(table, i) * factor)
    return power, least


@njit(nogil=True, error_model="numpy")
def _function_strides(functions: Any, state: int, room: Any, f: int) -> int:
    """Set the strides of a function by variable; return the address of the first entry that agrees with a case."""
    place: int = word(functions.base, f)
    for p in range(word(functions.start, f), word(functions.start, f + 1)):
        u = word(functions.scope, p)
        if word(state, u) < 0:
            put_word(room.strides, u, word(functions.stride, p))
        else:
            place += word(state, u) * word(functions.stride, p)
    address: int = functions.values + 8 * place
    return address


@njit(nogil=True, error_model="numpy")
def _message_strides(functions: Any, room: Any, k: int) -> None:
    """Set the strides of a clique's message by variable."""
    stride = 1
    for i in range(word(room.starts, k + 1) - 2, word(room.starts, k) - 1, -1):
        v = word(room.axes, i)
        put_word(room.strides, v, stride)
        stride *= word(functions.dims, v)


@njit(nogil=True, error_model="numpy")
def _up(functions: Any, state: int, room: Any, n: int) -> tuple[int, float]:
    """Compute cliques and messages upwards (collection).

    Parameters
    ----------
    functions : CaseFunctions
    state : int
        Address of the states of the case.
    room : CaseRoom
    n : int
        Number of cliques.

    Returns
    -------
    int, float
        ``FINE``, ``IMPOSSIBLE`` or ``LEFT``, and the natural logarithm of the total.
    """
    log = 0.0
    for k in range(n):
        mode, low = _ASSIGN, 1.0
        f, c = word(room.leaf, k), word(room.child, k)
        while f >= 0 or c >= 0:
            if f >= 0:
                other = _function_strides(functions, state, room, f)
                low *= number(functions.least, f)
                f = word(room.after, f)
            else:
                other = room.tables + 8 * word(room.message, c)
                _message_strides(functions, room, c)
                low *= number(room.sent, c)
                c = word(room.sibling, c)
            _along(mode, functions, room, k, other)
            mode = _MULTIPLY
            # a product of the least entries below this may underflow: the case is answered alone
            if low < LEAST_FACTOR:
                return LEFT, log
        put_number(room.low, k, low)
        row, table = word(functions.dims, word(room.order, k)), room.tables + 8 * word(room.clique, k)
        cells = (word(room.message, k) - word(room.clique, k)) // row
        message = room.tables + 8 * word(room.message, k)
        for s in range(cells):
            total = 0.0
            for i in range(row):
                total += number(table, s * row + i)
            put_number(message, s, total)
        power, least = _scaled(message, cells)
        if least == 0.0:
            return IMPOSSIBLE, -math.inf
        put_number(room.sent, k, least)
        log += power * _LN2
        if word(room.parent, k) < 0:
            log += math.log(number(message, 0))
    return FINE, log


@njit(nogil=True, error_model="numpy")
def _down(functions: Any, room: Any, n: int, free: int, answers: int) -> int:
    """Compute messages downwards and posteriors (distribution).

    Parameters
    ----------
    functions : CaseFunctions
    room : CaseRoom
    n : int
        Number of cliques.
    free : int
        Place of the room for one message, counted in numbers from ``room.tables``.
    answers : int
        Address of the posteriors of the case.

    Returns
    -------
    int
        ``FINE`` or ``LEFT``.
    """
    new = room.tables + 8 * free
    for k in range(n - 1, -1, -1):
        v, up = word(room.order, k), word(room.parent, k)
        row, table = word(functions.dims, v), room.tables + 8 * word(room.clique, k)
        cells = (word(room.message, k) - word(room.clique, k)) // row
        if up >= 0:
            message = room.tables + 8 * word(room.message, k)
            for s in range(cells):
                put_number(new, s, 0.0)
            _message_strides(functions, room, k)
            _along(_ADD_TO, functions, room, up, new)
            for s in range(cells):
                before = number(message, s)
                # a separator is divided by the message that went up, as in Lauritzen and Spiegelhalter (1988); 0/0 is
                # 0
                put_number(new, s, number(new, s) / before if before > 0.0 else 0.0)
            least = _scaled(new, cells)[1] * number(room.low, k)
            if least < LEAST_FACTOR:
                return LEFT
            for s in range(cells):
                ratio = number(new, s)
                for i in range(s * row, (s + 1) * row):
                    put_number(table, i, number(table, i) * ratio)
        place = word(functions.places, v)
        if place < 0:
            continue
        found, total = answers + 8 * place, 0.0
        for s in range(cells):
            for i in range(row):
                put_number(found, i, number(found, i) + number(table, s * row + i))
        for i in range(row):
            total += number(found, i)
        for i in range(row):
            put_number(found, i, number(found, i) / total)
    return FINE


@njit(nogil=True, error_model="numpy")
def _joints(functions: Any, state: int, room: Any, answers: int) -> None:
    """Sum the joints of several variables out of the cliques, and normalise them.

    A variable is open if it is not observed. The clique of the open variable that is eliminated first contains all open
    variables of the joint. Entries that contradict the case stay 0, so that the sum over a joint is the sum over its
    open variables.
    """
    for t in range(functions.joints):
        home, first = functions.variables, word(functions.joint_place, t)
        place, cells = first, 1
        for p in range(word(functions.joint_start, t), word(functions.joint_start, t + 1)):
            v, stride = word(functions.joint_scope, p), word(functions.joint_stride, p)
            cells *= word(functions.dims, v)
            if word(state, v) < 0:
                home = min(home, word(room.position, v))
                put_word(room.strides, v, stride)
            else:
                place += word(state, v) * stride
        if home == functions.variables:
            put_number(answers, place, 1.0)
            continue
        _along(_ADD_TO, functions, room, home, answers + 8 * place)
        total = 0.0
        for i in range(first, first + cells):
            total += number(answers, i)
        for i in range(first, first + cells):
            put_number(answers, i, number(answers, i) / total)


@njit(cache=True, nogil=True, error_model="numpy")
def answer_cases(
    functions: Any, room: Any, states: int, first: int, stop: int, answers: int, width: int, totals: int, status: int
) -> None:
    """Answer some cases one after the other.

    Parameters
    ----------
    functions : CaseFunctions
    room : CaseRoom
    states : int
        (cases, variables) words: -1 for a variable that is not observed, -2 for a state that preprocessing removed,
        which makes the case impossible.
    first, stop : int
        Range of the cases.
    answers, width : int
        (cases, width) numbers, initially zeros: the posteriors. Numbers of cases that are not ``FINE`` have no meaning.
    totals : int
        For each case, ln of the sum over all assignments that agree with it.
    status : int
        For each case ``FINE``, ``IMPOSSIBLE`` or ``LEFT``. The caller answers a case that is ``LEFT`` by itself: there
        is no room for the tables of the case, or products might leave the range of float64.
    """
    for case in range(first, stop):
        state, ended, log, impossible = states + 8 * case * functions.variables, LEFT, 0.0, False
        for v in range(functions.variables):
            impossible = impossible or word(state, v) < -1
        n = free = -1
        if not impossible:
            case_graph(functions, state, room)
            n = case_order(functions.variables, room)
        if n >= 0:
            free = lay_out_cliques(functions, room, n)
        if free >= 0:
            log = share_out_functions(functions, state, room, n)
            impossible = log == -math.inf
        if impossible:
            ended, log = IMPOSSIBLE, -math.inf
        elif free >= 0:
            ended, summed = _up(functions, state, room, n)
            log += summed
            found = answers + 8 * case * width
            if ended == FINE:
                ended = _down(functions, room, n, free, found)
            if ended == FINE:
                _joints(functions, state, room, found)
            for v in range(functions.variables):
                place = word(functions.places, v)
                if place >= 0 and word(state, v) >= 0:
                    # an observed variable has the posterior 1 at its state
                    put_number(found, place + word(state, v), 1.0)
        put_number(totals, case, log)
        put_word(status, case, ended)
