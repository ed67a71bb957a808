"""Costs of a depth-first search that change and are restored on backtracking: lower bounds, removals, projections.

A change is saved on the trail, and undone when the search leaves the node. ``lift`` moves the least cost of a variable
to the constant, which is the lower bound. ``project`` moves costs of functions to values of variables.
"""

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
    """Save a block of costs on the trail; ``x`` is its variable, or negative if the block belongs to no variable."""
    at, save = s[SAVED], s[TRAILS] + SAVE * s[TRAIL]
    s[save + PLACE], s[save + KEPT], s[save + LENGTH], s[save + WHOSE] = place, at, length, x
    saved, costs = s[s[SAVES] + at : s[SAVES] + at + length], s[place : place + length]
    for i in range(length):
        saved[i] = costs[i]
    s[SAVED] = at + length
    s[TRAIL] += 1


@njit(nogil=True)
def keep_costs(s: Array, x: int) -> None:
    """Save the costs of a variable's values before their first change at a node."""
    if s[x + CHANGED] != s[STAMP]:
        s[x + CHANGED] = s[STAMP]
        keep(s, s[x + START], s[x + DIM], x)


@njit(nogil=True)
def keep_moved(s: Array, k: int, dim: int) -> None:
    """Save the costs that a pair or an axis moved to its variable, before their first change at a node."""
    if s[k + MOVES] != s[STAMP]:
        s[k + MOVES] = s[STAMP]
        keep(s, s[k + MOVED], dim, -1)


@njit(nogil=True)
def undo(s: Array, trail: int, constant: int) -> None:
    """Restore all costs to their values when the trail had this length; all variables then count as consistent."""
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
    """Count the values of a variable that are not removed."""
    left = 0
    for p in range(s[x + START], s[x + START] + s[x + DIM]):
        if s[p] < INF:
            left += 1
    s[x + LEFT] = left


@njit(nogil=True)
def forget_flags(s: Array) -> None:
    """Mark all variables and functions as consistent."""
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
    """Note that costs of ``x`` rose: its least cost, and the least costs of its neighbours, may have risen."""
    s[x + EXISTENTIAL] = 1
    for k in range(s[x + FIRST], s[x + LAST], PAIR):
        s[s[k + NEIGHBOUR] + EXISTENTIAL] = 1


@njit(nogil=True)
def lift(s: Array, x: int, upper: int) -> bool:
    """Move the least cost of a variable's values to the constant; remove values that reach ``upper``.

    Return False if no value remains, or if the constant reaches ``upper``.
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
    """Return the least sum of an entry of a row and the cost at the same place of ``s`` from ``beside`` on."""
    values, others = entries[row : row + e], s[beside : beside + e]
    least = INF
    for b in range(e):
        least = min(least, values[b] + others[b])
    return least


@njit(nogil=True)
def place_in_row(entries: Array, row: int, s: Array, beside: int, e: int, least: int) -> int:
    """Return the first place in the row whose sum is at most ``least``; see :func:`least_in_row`."""
    for b in range(e):
        if entries[row + b] + s[beside + b] <= least:
            return b
    return 0


# Functions of three or more variables: if few cells remain, their costs are moved to the remaining values.

#: Functions are projected if at most this number of cells remains.
CELLS = 1024


@njit(nogil=True)
def project_wide(s: Array, entries: Array, upper: int) -> bool:
    """Project the functions whose variables lost values; return False if the constant reaches ``upper``."""
    for f in range(s[WIDE], s[AXES], FUNCTION):
        if not s[f + FLAG]:
            continue
        s[f + FLAG] = 0
        if open_cells(s, f) > CELLS:
            continue
        for axis in range(s[f + FROM], s[f + TO], AXIS):
            # a function whose variables are all assigned is projected to its first variable
            wanted = s[s[axis + OF] + LEFT] > 1 or axis == s[f + FROM]
            if wanted and not project(s, entries, f, axis, upper):
                return False
    return True


@njit(nogil=True)
def open_cells(s: Array, f: int) -> int:
    """Return the number of remaining cells of a function, or a number above ``CELLS`` if it is larger."""
    cells = 1
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        cells *= s[s[axis + OF] + LEFT]
        if cells > CELLS:
            break
    return cells


@njit(nogil=True)
def project(s: Array, entries: Array, f: int, axis: int, upper: int) -> bool:
    """Move a function's least cost of each value to one of its variables; return False if ``upper`` is reached."""
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
    """Compute a function's least cost with each value of one of its variables; write them to the work area."""
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
    """Move to the next combination of values of all variables except one; return False after the last combination."""
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
    """Return the first remaining value from ``a`` on, or the domain size."""
    while a < s[x + DIM] and s[s[x + START] + a] == INF:
        a += 1
    return a
