"""The rest of a problem with few open values: enumerated depth first, adding the costs of one row at a time.

Propagation costs as much as thousands of such steps. Values of open variables are copied one after the other, beginning
with the variable with the fewest values, with a dense table of all pairs of values. Going one variable down adds a row
of the table to the costs of the values below, whose least sums are the bound (forward checking).
"""

from __future__ import annotations

from ..compiler.jit import njit
from .state import (
    AT,
    AXES,
    AXIS,
    BACK,
    BEST,
    CONSTANT,
    DIM,
    FIRST,
    FROM,
    FUNCTION,
    INF,
    LAST,
    LEFT,
    MOVED,
    NEIGHBOUR,
    OF,
    PAIR,
    PAIRS,
    REST,
    REST_CELLS,
    REST_VALUES,
    REST_VARIABLES,
    START,
    TABLE,
    TO,
    VARIABLE,
    VARIABLES,
    WIDE,
    Array,
)

#: The outcome: the enumeration would take long, nothing below the cut-off is left, the best of the rest was found, or
#: something better was found that may not be the best.
UNKNOWN, NOTHING, BEST_OF_REST, BETTER = range(4)
#: Sums of the table's entries are given up after this number of entries.
WORK_CELLS = 50_000
#: A forbidden entry. A sum of forbidden entries, one for each variable, stays below INF.
FAR = INF // 32
#: The largest product of domains that is tried is at least this.
LEAST_CELLS = 256


@njit(nogil=True)
def solve_rest(s: Array, entries: Array, upper: int) -> int:
    """Find the best assignment of the rest below ``upper``, if it is likely to be found quickly."""
    n = gather(s)
    if n < 2 or any_wide(s):
        return UNKNOWN
    copy_costs(s, entries, n)
    found = enumerate_rest(s, n, min(upper, FAR))
    if found >= BEST_OF_REST:
        note_assigned(s)
    step = -(s[REST_CELLS] // 4) if found in (UNKNOWN, BETTER) else s[REST_CELLS] // 16
    s[REST_CELLS] = min(max(s[REST_CELLS] + step, LEAST_CELLS), INF)
    return found


@njit(nogil=True)
def gather(s: Array) -> int:
    """List the open variables, fewest values first, and where their values begin; 0 if they are too many."""
    n, cells, values = 0, 1.0, 0
    for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
        left = s[x + LEFT]
        if left < 2:
            continue
        cells *= left
        values += left
        if cells > s[REST_CELLS] or values > REST_VALUES or n == REST_VARIABLES:
            return 0
        at = s[REST] + n
        while at > s[REST] and s[s[at - 1] + LEFT] > left:
            s[at] = s[at - 1]
            at -= 1
        s[at] = x
        n += 1
    return n


@njit(nogil=True)
def any_wide(s: Array) -> bool:
    """Whether a function of three or more variables has two that are open."""
    for f in range(s[WIDE], s[AXES], FUNCTION):
        n = 0
        for axis in range(s[f + FROM], s[f + TO], AXIS):
            if s[s[axis + OF] + LEFT] > 1:
                n += 1
        if n > 1:
            return True
    return False


@njit(nogil=True)
def copy_costs(s: Array, entries: Array, n: int) -> None:
    """Copy the remaining values, the cost of each value, and the cost of each pair of values.

    Parameters
    ----------
    s : (words,) int64
        The state of the search (:mod:`.state`); its rest area is written from :func:`places` on, and ``AT`` of the open
        variables is set to their place in the list. Costs do not change.
    entries : (cells,) int64
        Costs of all tables; read only.
    n : int
        Open variables, listed at ``s[REST]`` by :func:`gather`.
    """
    ends, values, sums, table = places(s)
    m = 0
    for i in range(n):
        x = s[s[REST] + i]
        s[x + AT] = i
        s[ends + i] = m
        for a in range(s[x + DIM]):
            if s[s[x + START] + a] < INF:
                at, cost = m, s[s[x + START] + a]
                # Values are sorted by cost, so that the enumeration finds a good assignment early and prunes the others
                # by it.
                while at > s[ends + i] and s[sums + at - 1] > cost:
                    s[values + at], s[sums + at] = s[values + at - 1], s[sums + at - 1]
                    at -= 1
                s[values + at], s[sums + at] = a, cost
                m += 1
    s[ends + n] = m
    for i in range(n):
        for u in range(s[ends + i], s[ends + i + 1]):
            # Only pairs with later variables are read: a row is added to the costs of the levels below.
            for v in range(s[ends + i + 1], m):
                s[table + u * REST_VALUES + v] = 0
        x = s[s[REST] + i]
        for k in range(s[x + FIRST], s[x + LAST], PAIR):
            y = s[k + NEIGHBOUR]
            if s[y + LEFT] == 1:
                add_assigned(s, entries, k, y, s[ends + i], s[ends + i + 1])
            elif s[y + AT] > i:
                copy_pair(s, entries, k, i, s[y + AT])


@njit(nogil=True)
def note_assigned(s: Array) -> None:
    """Note the values of the other variables."""
    for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
        if s[x + LEFT] == 1:
            a = 0
            while s[s[x + START] + a] == INF:
                a += 1
            s[x + BEST] = a


@njit(nogil=True)
def places(s: Array) -> tuple[int, int, int, int]:
    """Return where the variables' ends, the values, their costs a level, and the table of pairs begin."""
    ends = s[REST] + REST_VARIABLES
    values = ends + REST_VARIABLES + 1
    sums = values + REST_VALUES
    return ends, values, sums, sums + REST_VALUES * REST_VARIABLES


@njit(nogil=True)
def add_assigned(s: Array, entries: Array, k: int, y: int, begin: int, end: int) -> None:
    """Add what a pair with a variable of one value costs."""
    _, values, sums, _ = places(s)
    b = 0
    while s[s[y + START] + b] == INF:
        b += 1
    for u in range(begin, end):
        a = s[values + u]
        cost = entries[s[k + TABLE] + a * s[y + DIM] + b] - s[s[k + MOVED] + a] - s[s[k + BACK] + b]
        s[sums + u] = min(s[sums + u] + min(cost, FAR), FAR)


@njit(nogil=True)
def copy_pair(s: Array, entries: Array, k: int, i: int, j: int) -> None:
    """Copy what the values of two open variables cost together."""
    ends, values, _, table = places(s)
    e, moved, back = s[s[k + NEIGHBOUR] + DIM], s[k + MOVED], s[k + BACK]
    for u in range(s[ends + i], s[ends + i + 1]):
        row = s[k + TABLE] + s[values + u] * e
        to, free = table + u * REST_VALUES, s[moved + s[values + u]]
        for v in range(s[ends + j], s[ends + j + 1]):
            b = s[values + v]
            s[to + v] = min(entries[row + b] - free - s[back + b], FAR)


@njit(nogil=True)
def enumerate_rest(s: Array, n: int, upper: int) -> int:
    """Try the combinations of values below ``upper``; note the best.

    Parameters
    ----------
    s : (words,) int64
        The state of a search with ``n`` open variables, whose costs :func:`copy_costs` has collected.
    n : int
        Open variables; at most ``REST_VARIABLES``, of ``REST_VALUES`` values together.
    upper : int
        The cut-off.
    """
    ends, values, sums, table = places(s)
    # by level: the next value, the cost of the levels above, the least cost that the levels below add
    nexts = table + REST_VALUES * REST_VALUES
    above, below = nexts + REST_VARIABLES, nexts + 2 * REST_VARIABLES
    m, work, found = s[ends + n], 0, NOTHING
    least = 0
    for i in range(1, n):
        least += least_between(s, sums, s[ends + i], s[ends + i + 1])
    level = 0
    s[nexts], s[above], s[below] = 0, s[CONSTANT], least
    while level >= 0:
        u = s[nexts + level]
        if u == s[ends + level + 1]:
            level -= 1
            continue
        s[nexts + level] = u + 1
        own = sums + level * REST_VALUES
        cost = s[above + level] + s[own + u]
        if cost + s[below + level] >= upper:
            continue
        if level == n - 1:
            upper, found = cost, BEST_OF_REST
            for i in range(n):
                s[s[s[REST] + i] + BEST] = s[values + s[nexts + i] - 1]
            continue
        work += m - s[ends + level + 1]
        if work > WORK_CELLS:
            return UNKNOWN if found == NOTHING else BETTER
        least = add_row(s, own, table + u * REST_VALUES, ends + level + 1, ends + n, upper - cost)
        if cost + least < upper:
            level += 1
            s[nexts + level], s[above + level] = s[ends + level], cost
            s[below + level] = least - least_between(s, own + REST_VALUES, s[ends + level], s[ends + level + 1])
    return found


@njit(nogil=True)
def least_between(s: Array, sums: int, begin: int, end: int) -> int:
    """Return the least of some costs."""
    costs = s[sums + begin : sums + end]
    least = costs[0]
    for i in range(len(costs)):
        least = min(least, costs[i])
    return int(least)


@njit(nogil=True)
def add_row(s: Array, own: int, row: int, end: int, last: int, room: int) -> int:
    """Write the costs one level down; return the least cost of the variables there, or any number from ``room`` on."""
    total = 0
    for at in range(end, last):
        begin, stop = s[at], s[at + 1]
        costs, rises = s[own + begin : own + stop], s[row + begin : row + stop]
        sums = s[own + REST_VALUES + begin : own + REST_VALUES + stop]
        least = INF
        for i in range(stop - begin):
            cost = costs[i] + rises[i]
            sums[i] = cost
            least = min(least, cost)
        total += least
        if total >= room:
            return int(total)
    return int(total)
