"""Changes of costs that can be taken back, and the least of them."""

from __future__ import annotations

from ..compiler.jit import njit
from .state import (
    ARC,
    AT,
    AXES,
    AXIS,
    CHANGED,
    CONSTANT,
    DIM,
    DIRECTED,
    ENDLESS,
    EXISTENTIAL,
    FIRST,
    FIRST_WIDE,
    FLAG,
    FROM,
    FUNCTION,
    INF,
    KEPT,
    LAST,
    LAST_WIDE,
    LEFT,
    LENGTH,
    MOVED,
    MOVES,
    NEIGHBOUR,
    OF,
    PAIR,
    PAIRS,
    PLACE,
    SAVE,
    SAVED,
    SAVES,
    STAMP,
    START,
    STRIDE,
    TABLE,
    TO,
    TRAIL,
    TRAILS,
    VARIABLE,
    VARIABLES,
    WHOSE,
    WIDE,
    WORK,
    Array,
)


@njit(nogil=True)
def keep(s: Array, place: int, length: int, x: int) -> None:
    """Write a block of costs on the trail; ``x`` is the variable if it is a variable's."""
    at, save = s[SAVED], s[TRAILS] + SAVE * s[TRAIL]
    s[save + PLACE], s[save + KEPT], s[save + LENGTH], s[save + WHOSE] = place, at, length, x
    saved, costs = s[s[SAVES] + at : s[SAVES] + at + length], s[place : place + length]
    for i in range(length):
        saved[i] = costs[i]
    s[SAVED] = at + length
    s[TRAIL] += 1


@njit(nogil=True)
def keep_costs(s: Array, x: int) -> None:
    """Save the costs of a variable's values, once a node, as they are about to change."""
    if s[x + CHANGED] != s[STAMP]:
        s[x + CHANGED] = s[STAMP]
        keep(s, s[x + START], s[x + DIM], x)


@njit(nogil=True)
def keep_moved(s: Array, k: int, dim: int) -> None:
    """Save what was moved from a pair, or along an axis, to its variable."""
    if s[k + MOVES] != s[STAMP]:
        s[k + MOVES] = s[STAMP]
        keep(s, s[k + MOVED], dim, -1)


@njit(nogil=True)
def undo(s: Array, trail: int, constant: int) -> None:
    """Take back all changes since the trail had this length; nothing is left to be made consistent."""
    for i in range(s[TRAIL] - 1, trail - 1, -1):
        save = s[TRAILS] + SAVE * i
        place, length, x, s[SAVED] = s[save + PLACE], s[save + LENGTH], s[save + WHOSE], s[save + KEPT]
        saved, costs = s[s[SAVES] + s[SAVED] : s[SAVES] + s[SAVED] + length], s[place : place + length]
        for j in range(length):
            costs[j] = saved[j]
        if x >= 0:
            count_left(s, x)
    s[TRAIL] = trail
    s[STAMP] += 1
    s[CONSTANT] = constant
    forget_flags(s)


@njit(nogil=True)
def count_left(s: Array, x: int) -> None:
    """Count the values of a variable."""
    left = 0
    for p in range(s[x + START], s[x + START] + s[x + DIM]):
        if s[p] < INF:
            left += 1
    s[x + LEFT] = left


@njit(nogil=True)
def forget_flags(s: Array) -> None:
    """Take everything for consistent."""
    for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
        s[x + ARC] = s[x + DIRECTED] = s[x + EXISTENTIAL] = 0
    for f in range(s[WIDE], s[AXES], FUNCTION):
        s[f + FLAG] = 0


@njit(nogil=True)
def remove(s: Array, x: int, a: int) -> None:
    """Remove a value."""
    keep_costs(s, x)
    s[s[x + START] + a] = INF
    s[x + LEFT] -= 1
    s[x + ARC] = s[x + DIRECTED] = 1
    for use in range(s[x + FIRST_WIDE], s[x + LAST_WIDE]):
        s[s[use] + FLAG] = 1
    rose(s, x)


@njit(nogil=True)
def rose(s: Array, x: int) -> None:
    """Note that costs of ``x`` rose: it, and variables that it supports, may now have a larger least cost."""
    s[x + EXISTENTIAL] = 1
    for k in range(s[x + FIRST], s[x + LAST], PAIR):
        s[s[k + NEIGHBOUR] + EXISTENTIAL] = 1


@njit(nogil=True)
def lift(s: Array, x: int, upper: int) -> bool:
    """Move the least cost of a variable's values to the constant; remove values that reach ``upper``.

    Returns False if none is left, or the constant reaches ``upper``.
    """
    d = s[x + DIM]
    costs = s[s[x + START] : s[x + START] + d]
    least, most = INF, 0
    for a in range(d):
        least = min(least, costs[a])
        most = max(most, costs[a] if costs[a] < INF else 0)
    if least == INF:
        return False
    if least > 0:
        keep_costs(s, x)
        s[CONSTANT] += least
        for a in range(d):
            costs[a] -= least if costs[a] < INF else 0
    room = upper - s[CONSTANT]
    if room <= 0:
        return False
    if most - least >= room:
        for a in range(d):
            if room <= costs[a] < INF:
                remove(s, x, a)
    return True


@njit(nogil=True)
def least_in_row(entries: Array, row: int, s: Array, beside: int, e: int) -> int:
    """Return the least sum of an entry of a row and what stands beside it."""
    values, others = entries[row : row + e], s[beside : beside + e]
    least = INF
    for b in range(e):
        least = min(least, values[b] + others[b])
    return least


@njit(nogil=True)
def place_in_row(entries: Array, row: int, s: Array, beside: int, e: int, least: int) -> int:
    """Return where that sum is."""
    for b in range(e):
        if entries[row + b] + s[beside + b] <= least:
            return b
    return 0


# Functions of three or more variables: if few values are open, the costs of their cells are moved to these values.

#: Functions are projected when at most this number of cells is open.
CELLS = 1024


@njit(nogil=True)
def project_wide(s: Array, entries: Array, upper: int) -> bool:
    """Project the functions that lost values of their variables; False where ``upper`` is reached."""
    for f in range(s[WIDE], s[AXES], FUNCTION):
        if not s[f + FLAG]:
            continue
        s[f + FLAG] = 0
        if open_cells(s, f) > CELLS:
            continue
        for axis in range(s[f + FROM], s[f + TO], AXIS):
            # a function without open variables goes to its first
            wanted = s[s[axis + OF] + LEFT] > 1 or axis == s[f + FROM]
            if wanted and not project(s, entries, f, axis, upper):
                return False
    return True


@njit(nogil=True)
def open_cells(s: Array, f: int) -> int:
    """Return how many cells the values that are left leave of a function, or a number that is too large."""
    cells = 1
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        cells *= s[s[axis + OF] + LEFT]
        if cells > CELLS:
            break
    return cells


@njit(nogil=True)
def project(s: Array, entries: Array, f: int, axis: int, upper: int) -> bool:
    """Move to the values of one of its variables what a function costs each at least; False if ``upper`` is reached."""
    x, moved = s[axis + OF], s[axis + MOVED]
    start = s[x + START]
    least_costs(s, entries, f, axis)
    raised = False
    for a in range(s[x + DIM]):
        cost = s[start + a]
        rise = s[s[WORK] + a] - s[moved + a]
        if cost == INF or rise <= 0:
            continue
        raised = True
        if rise >= ENDLESS or s[CONSTANT] + cost + rise >= upper:
            remove(s, x, a)
            continue
        keep_costs(s, x)
        keep_moved(s, axis, s[x + DIM])
        s[moved + a] += rise
        s[start + a] += rise
        s[x + DIRECTED] = 1
    if not raised:
        return True
    rose(s, x)
    return lift(s, x, upper)


@njit(nogil=True)
def least_costs(s: Array, entries: Array, f: int, kept: int) -> None:
    """Find the least cost of a function with each value of one of its variables, at the beginning of the work area."""
    x, stride = s[kept + OF], s[kept + STRIDE]
    for a in range(s[x + DIM]):
        s[s[WORK] + a] = INF
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        s[s[axis + OF] + AT] = first_value(s, s[axis + OF], 0)
    more = True
    while more:
        cell, moved = s[f + TABLE], 0
        for axis in range(s[f + FROM], s[f + TO], AXIS):
            if axis != kept:
                a = s[s[axis + OF] + AT]
                cell += a * s[axis + STRIDE]
                moved += s[s[axis + MOVED] + a]
        for a in range(s[x + DIM]):
            s[s[WORK] + a] = min(s[s[WORK] + a], entries[cell + a * stride] - moved)
        more = go_on(s, f, kept)


@njit(nogil=True)
def go_on(s: Array, f: int, kept: int) -> bool:
    """Go to the next combination of values of all variables but one; False after the last."""
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        if axis != kept:
            x = s[axis + OF]
            s[x + AT] = first_value(s, x, s[x + AT] + 1)
            if s[x + AT] < s[x + DIM]:
                return True
            s[x + AT] = first_value(s, x, 0)
    return False


@njit(nogil=True)
def first_value(s: Array, x: int, a: int) -> int:
    """Return the first value from ``a`` on that is left, or the number of values."""
    while a < s[x + DIM] and s[s[x + START] + a] == INF:
        a += 1
    return a
