"""Russian doll search (RDS): the optimum of the last variables bounds their cost after any decision on the others.

Variables are decided in a fixed order. The problem of the last variable is solved first, then that of the last two, and
so on; a doll is the problem of the variables from one on, with the functions that have no other (Verfaillie, Lemaitre &
Schiex, Russian doll search for solving constraint optimization problems, AAAI 1996). Decided variables add their costs
to the values of later ones (forward checking), so that with the first variables decided, no way to go on is below

    cost so far + least costs of the next ones + the doll after these + what values of that doll have risen at least,

for any number of next ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from .state import INF

#: The first variable of the doll, the variable to decide, the number of decisions, the length of the trail and of its
#: saved costs, the cut-off, whether an assignment was found, the least rise of all later variables together, and 1 if
#: everything below the cut-off is wanted.
DOLL, AT, NODES, TRAIL, SAVED, UPPER, FOUND, RISEN, EVERY, NUMBERS = range(10)


class DollState(NamedTuple):
    """A problem over variables in the order of their decisions, and its search; all arrays are of int64.

    Parameters
    ----------
    first : ndarray
        The start of the values of each variable, and the end of the values of the last variable.
    unary : ndarray
        The cost of each value by itself.
    rows, row : ndarray
        Where the rows of each value begin; a row is a later variable and the place of its costs in the entries.
    wide, function : ndarray
        For each variable, the start of the functions of three or more variables of which it is the last but one. A
        function is the place of its axes, its last variable, and the place of its table.
    axes : ndarray
        Variable and stride of all axes but the last, ascending.
    entries : ndarray
        Costs of all tables.
    doll : ndarray
        Least cost of the variables from each one on, for solved dolls; 0 at the end.
    costs : ndarray
        The cost of each value with the current decisions.
    least, rise : ndarray
        The least of these costs by variable, and the least rise of the remaining values.
    before, risen, marks : ndarray
        The cost of the decisions before a variable, the rises of all variables after it, and the length of the trail.
    values, tried : ndarray
        Values of each variable, cheapest first, and how many were tried.
    states, best : ndarray
        Decisions, and the best of the last doll.
    trail, saved : ndarray
        Changes (variable, its least cost, its rise), and costs of its values before.
    numbers : ndarray
        By the names above.
    """

    first: Any
    unary: Any
    rows: Any
    row: Any
    wide: Any
    function: Any
    axes: Any
    entries: Any
    doll: Any
    costs: Any
    least: Any
    rise: Any
    before: Any
    risen: Any
    marks: Any
    values: Any
    tried: Any
    states: Any
    best: Any
    trail: Any
    saved: Any
    numbers: Any


@njit(nogil=True)
def add(s: Any, w: int, at: int) -> bool:
    """Add a row of entries to the costs of a later variable's values; False if none is left."""
    begin, end, numbers = s.first[w], s.first[w + 1], s.numbers
    trail, saved = numbers[TRAIL], numbers[SAVED]
    s.trail[trail, 0], s.trail[trail, 1], s.trail[trail, 2] = w, s.least[w], s.rise[w]
    numbers[TRAIL], numbers[SAVED] = trail + 1, saved + end - begin
    least, rise = INF, INF
    for i in range(begin, end):
        cost = s.costs[i]
        s.saved[saved + i - begin] = cost
        cost = min(cost + s.entries[at + i - begin], INF)
        s.costs[i] = cost
        if cost < INF:
            least, rise = min(least, cost), min(rise, cost - s.unary[i])
    numbers[RISEN] += rise - s.rise[w]
    s.least[w], s.rise[w] = least, rise
    return bool(least < INF)


@njit(nogil=True)
def decide(s: Any, x: int, a: int) -> bool:
    """Give a variable a value, and add what it costs with later ones; False if one of them has no value left."""
    s.states[x] = a
    for k in range(s.rows[s.first[x] + a], s.rows[s.first[x] + a + 1]):
        if not add(s, s.row[k, 0], s.row[k, 1]):
            return False
    for f in range(s.wide[x], s.wide[x + 1]):
        begin, at = s.function[f, 0], s.function[f, 2]
        if s.axes[begin, 0] < s.numbers[DOLL]:
            continue
        for axis in range(begin, s.function[f + 1, 0]):
            at += s.states[s.axes[axis, 0]] * s.axes[axis, 1]
        if not add(s, s.function[f, 1], at):
            return False
    return True


@njit(nogil=True)
def take_back(s: Any, x: int) -> None:
    """Take back what was added since the variable was to be decided."""
    numbers = s.numbers
    for k in range(numbers[TRAIL] - 1, s.marks[x] - 1, -1):
        w = s.trail[k, 0]
        begin, end = s.first[w], s.first[w + 1]
        numbers[SAVED] -= end - begin
        for i in range(end - begin):
            s.costs[begin + i] = s.saved[numbers[SAVED] + i]
        s.least[w], s.rise[w] = s.trail[k, 1], s.trail[k, 2]
    numbers[TRAIL] = s.marks[x]
    numbers[RISEN] = s.risen[x]


@njit(nogil=True)
def reaches(s: Any, x: int, cost: int, upper: int) -> bool:
    """Whether all completions cost at least ``upper`` if the variables before ``x`` are decided at cost ``cost``."""
    risen = s.numbers[RISEN]
    for y in range(x, len(s.states)):
        if cost + s.doll[y] + risen >= upper:
            return True
        cost += s.least[y]
        risen -= s.rise[y]
    return bool(cost >= upper)


@njit(nogil=True)
def enter(s: Any, x: int, cost: int) -> None:
    """Go to the next variable: order its values, cheapest first, among equals the best assignment's value first."""
    first, d = s.first[x], s.first[x + 1] - s.first[x]
    s.before[x], s.marks[x], s.tried[x] = cost, s.numbers[TRAIL], 0
    s.numbers[RISEN] -= s.rise[x]
    s.risen[x] = s.numbers[RISEN]
    for i in range(d):
        own, at = 2 * s.costs[first + i] + (i != s.best[x]), first + i
        while at > first and 2 * s.costs[first + s.values[at - 1]] + (s.values[at - 1] != s.best[x]) > own:
            s.values[at] = s.values[at - 1]
            at -= 1
        s.values[at] = i
    s.numbers[AT] = x


@njit(nogil=True, cache=True)
def begin_doll(s: Any, x: int, upper: int) -> None:
    """Begin with the doll of the variables from ``x`` on, below ``upper``, or below what the best of the last costs."""
    numbers, n = s.numbers, len(s.states)
    numbers[DOLL], numbers[FOUND], numbers[TRAIL], numbers[SAVED], numbers[RISEN] = x, 0, 0, 0, 0
    begin, cheapest = s.first[x], INF
    s.marks[x], s.risen[x] = 0, 0
    for a in range(s.first[x + 1] - begin):
        s.best[x] = a
        cost, y, possible = 0, x, True
        while y < n and possible:
            cost += s.costs[s.first[y] + s.best[y]]
            possible = cost < upper and decide(s, y, s.best[y])
            y += 1
        if possible and cost < upper:
            upper, cheapest, numbers[FOUND] = cost, a, 1
        take_back(s, x)
    s.best[x] = cheapest if numbers[FOUND] else 0
    numbers[UPPER] = upper
    enter(s, x, 0)
    numbers[RISEN] = 0


@njit(nogil=True, cache=True)
def explore(s: Any, nodes: int) -> bool:
    """Continue for ``nodes`` decisions; True once the doll is finished: its best costs the cut-off if one was found.

    Where EVERY is set, it also returns with each that is found, the cut-off stays, and the next call goes on after it.

    Parameters
    ----------
    s : DollState
        Moved on; where decisions run out, the next call goes on from there.
    nodes : int
        Decisions at most.
    """
    n, numbers = len(s.states), s.numbers
    x, stop = numbers[AT], numbers[NODES] + nodes
    while x >= numbers[DOLL]:
        first = s.first[x]
        if numbers[TRAIL] > s.marks[x]:
            take_back(s, x)
        tried = s.tried[x]
        a = s.values[first + tried] if tried < s.first[x + 1] - first else -1
        cost = s.before[x] + s.costs[first + a] if a >= 0 else INF
        # Values are sorted by cost (:func:`enter`): no later value is below the cut-off either.
        if cost >= numbers[UPPER]:
            x -= 1
            continue
        if numbers[NODES] >= stop:
            numbers[AT] = x
            return False
        s.tried[x] = tried + 1
        numbers[NODES] += 1
        if not decide(s, x, a) or reaches(s, x + 1, cost, numbers[UPPER]):
            continue
        if x == n - 1:
            numbers[FOUND] = 1
            for y in range(numbers[DOLL], n):
                s.best[y] = s.states[y]
            # The cut-off stays, so that all assignments below it are found; the next call takes the next value here.
            if numbers[EVERY]:
                numbers[AT] = x
                return False
            numbers[UPPER] = cost
            continue
        x += 1
        enter(s, x, cost)
    return True


# Tables that are sums of costs of single values, apart from forbidden entries.

#: Sums of this number of entries stay exact.
_MOST = float(1 << 50)


@njit(nogil=True, cache=True, makes_arrays=True)
def separate(costs: Any, shape: Any, found: Any) -> bool:
    """Write a cost for each value of each axis whose sums are a table's finite entries; False if there are none.

    Parameters
    ----------
    costs : ndarray of float64
        Flat; infinite where forbidden, otherwise integers.
    shape : ndarray of int64
    found : ndarray of float64
        Values of the first axis, of the second, …
    """
    k, n = len(shape), len(costs)
    known = np.zeros(len(found), dtype=np.bool_)
    places = np.empty(k, dtype=np.int64)
    for cell in range(len(found)):
        found[cell] = 0.0
    while True:
        changed, free = False, -1
        for cell in range(n):
            if costs[cell] == np.inf:
                continue
            rest, unknown, begin = costs[cell], 0, len(found)
            at = cell
            for axis in range(k - 1, -1, -1):
                begin -= shape[axis]
                places[axis] = begin + at % shape[axis]
                at //= shape[axis]
                rest -= found[places[axis]]
                unknown += not known[places[axis]]
            if unknown == 0 and rest != 0.0:
                return False
            if abs(rest) > _MOST:
                return False
            for axis in range(k):
                if not known[places[axis]]:
                    free = places[axis]
                    if unknown == 1:
                        found[free], known[free], changed = rest, True, True
                        break
        if not changed:
            if free < 0:
                return True
            # The decomposition is unique up to constants that axes exchange: one unknown cost is free, and 0 is chosen.
            known[free] = True
