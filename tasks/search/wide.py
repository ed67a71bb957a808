"""Functions of three or more variables: what few open values leave of them is moved to these values."""

from __future__ import annotations

from ..machine_code import njit
from .costs import keep_costs, keep_moved, lift, remove, rose
from .state import (
    AT,
    AXES,
    AXIS,
    CONSTANT,
    DIM,
    DIRECTED,
    ENDLESS,
    FLAG,
    FROM,
    FUNCTION,
    INF,
    LEFT,
    MOVED,
    OF,
    START,
    STRIDE,
    TABLE,
    TO,
    WIDE,
    WORK,
    Array,
)

#: Functions are projected from so few open cells on.
CELLS = 1024


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def open_cells(s: Array, f: int) -> int:
    """Return how many cells the values that are left leave of a function, or a number that is too large."""
    cells = 1
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        cells *= s[s[axis + OF] + LEFT]
        if cells > CELLS:
            break
    return cells


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def least_costs(s: Array, entries: Array, f: int, kept: int) -> None:
    """Find what a function costs at least with each value of one of its variables: at the beginning of the work."""
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def first_value(s: Array, x: int, a: int) -> int:
    """Return the first value from ``a`` on that is left, or the number of values."""
    while a < s[x + DIM] and s[s[x + START] + a] == INF:
        a += 1
    return a
