"""Soft arc consistency: costs are moved until no more of them can be added to the constant.

Existential directional arc consistency (de Givry, Heras, Larrosa & Zytnicki, Existential arc consistency, IJCAI 2005;
Larrosa & Schiex 2003): every move keeps the total of every assignment, so that the constant is a lower bound.
"""

from __future__ import annotations

import numpy as np

from ..machine_code import njit
from .state import CAUSE, STAMP, TRAIL, Functions, State

ARC, DIRECTED, EXISTENTIAL = 0, 1, 2
INF = np.inf


@njit(nogil=True, cache=True)
def put(state: State, place: int, value: float) -> None:
    """Change a cost, remembering on the trail what it was when the current node began."""
    counters = state.counters
    if state.stamps[place] != counters[STAMP]:
        state.stamps[place] = counters[STAMP]
        at = counters[TRAIL]
        state.trail_place[at] = place
        state.trail_value[at] = state.costs[place]
        counters[TRAIL] = at + 1
    state.costs[place] = value


@njit(nogil=True, cache=True)
def undo(state: State, trail: int) -> None:
    """Take back all changes since the trail had this length."""
    for at in range(state.counters[TRAIL] - 1, trail - 1, -1):
        state.costs[state.trail_place[at]] = state.trail_value[at]
    state.counters[TRAIL] = trail
    state.counters[STAMP] += 1
    state.flags[:] = 0


@njit(nogil=True, cache=True)
def remove(functions: Functions, state: State, x: int, a: int) -> None:
    """Remove a value."""
    put(state, functions.start[x] + a, INF)
    state.flags[:, x] = 1
    for k in range(functions.first[x], functions.first[x + 1]):
        state.flags[EXISTENTIAL, functions.neighbour[k]] = 1


@njit(nogil=True, cache=True)
def lift(functions: Functions, state: State, x: int, upper: float) -> bool:
    """Move the least cost of a variable's values to the constant; remove values that reach ``upper``.

    Returns False if none is left, or the constant reaches ``upper``.
    """
    costs, start, d = state.costs, functions.start[x], functions.dims[x]
    least = INF
    for a in range(d):
        least = min(least, costs[start + a])
    if least == INF:
        return False
    if least > 0:
        put(state, 0, costs[0] + least)
        for a in range(d):
            if costs[start + a] < INF:
                put(state, start + a, costs[start + a] - least)
    if costs[0] >= upper:
        return False
    for a in range(d):
        if costs[start + a] < INF and costs[0] + costs[start + a] >= upper:
            remove(functions, state, x, a)
    return True


@njit(nogil=True, cache=True)
def supported(functions: Functions, state: State, x: int, k: int, upper: float) -> bool:
    """Move to the values of ``x`` what the table of its neighbour ``k`` costs each of them at least."""
    costs, entries = state.costs, functions.entries
    y = functions.neighbour[k]
    d, e, start, other = functions.dims[x], functions.dims[y], functions.start[x], functions.start[y]
    moved, back, table = functions.moved[k], functions.moved_back[k], functions.table[k]
    raised = False
    for a in range(d):
        if costs[start + a] == INF:
            continue
        b = state.hints[moved + a]
        if costs[other + b] < INF and entries[table + a * e + b] - costs[back + b] <= costs[moved + a]:
            continue
        least = INF
        for b in range(e):
            if costs[other + b] < INF:
                cost = entries[table + a * e + b] - costs[back + b]
                if cost < least:
                    least = cost
                    state.hints[moved + a] = b
        if least == INF or costs[0] + costs[start + a] + least - costs[moved + a] >= upper:
            remove(functions, state, x, a)
            raised = True
            continue
        least -= costs[moved + a]
        if least > 0:
            if costs[start + a] <= functions.tiny:
                state.flags[DIRECTED, x] = 1
                raised = True
            put(state, moved + a, costs[moved + a] + least)
            put(state, start + a, costs[start + a] + least)
    if not raised:
        return True
    mark_neighbours(functions, state, x)
    state.counters[CAUSE] = k
    return lift(functions, state, x, upper)


@njit(nogil=True, cache=True)
def mark_neighbours(functions: Functions, state: State, x: int) -> None:
    """Costs of ``x`` rose: it and variables that it supports may now have a larger least cost."""
    state.flags[EXISTENTIAL, x] = 1
    for k in range(functions.first[x], functions.first[x + 1]):
        state.flags[EXISTENTIAL, functions.neighbour[k]] = 1


@njit(nogil=True, cache=True)
def fully_supported(functions: Functions, state: State, x: int, k: int, upper: float) -> bool:
    """The same together with the costs of the neighbour's own values, which are moved into the table first."""
    costs, entries = state.costs, functions.entries
    y = functions.neighbour[k]
    d, e, start, other = functions.dims[x], functions.dims[y], functions.start[x], functions.start[y]
    moved, back, table = functions.moved[k], functions.moved_back[k], functions.table[k]
    least, needed = state.work[0], state.work[1]
    for b in range(e):
        needed[b] = 0.0
    any_moved = False
    for a in range(d):
        least[a] = 0.0
        if costs[start + a] == INF:
            continue
        b = state.hints[moved + a]
        if entries[table + a * e + b] - costs[back + b] + costs[other + b] <= costs[moved + a]:
            continue
        best = INF
        for b in range(e):
            cost = entries[table + a * e + b] - costs[back + b] + costs[other + b]
            if cost < best:
                best = cost
                state.hints[moved + a] = b
        best -= costs[moved + a]
        if best == INF or costs[0] + costs[start + a] + best >= upper:
            remove(functions, state, x, a)
            any_moved = True
            continue
        least[a] = best
        if best > 0:
            any_moved = True
            for b in range(e):
                if costs[other + b] < INF:
                    lack = best - (entries[table + a * e + b] - costs[back + b] - costs[moved + a])
                    if lack > needed[b]:
                        needed[b] = lack
    if not any_moved:
        return True
    for b in range(e):
        if needed[b] > 0:
            put(state, other + b, costs[other + b] - needed[b])
            put(state, back + b, costs[back + b] - needed[b])
    for a in range(d):
        if costs[start + a] < INF and least[a] > 0:
            if costs[start + a] <= functions.tiny:
                state.flags[DIRECTED, x] = 1
            put(state, moved + a, costs[moved + a] + least[a])
            put(state, start + a, costs[start + a] + least[a])
    mark_neighbours(functions, state, x)
    state.counters[CAUSE] = k
    return lift(functions, state, x, upper)


@njit(nogil=True, cache=True)
def existential(functions: Functions, state: State, x: int, upper: float) -> bool:
    """Where no value of ``x`` is free of cost given all neighbours, move those costs to ``x``."""
    costs, entries = state.costs, functions.entries
    d, start = functions.dims[x], functions.start[x]
    smallest = INF
    for i in range(d):  # the value that it was last time comes first
        a = (state.support[x] + i) % d
        total = costs[start + a]
        if total >= smallest:
            continue
        for k in range(functions.first[x], functions.first[x + 1]):
            y = functions.neighbour[k]
            if functions.rank[y] > functions.rank[x]:
                continue
            e, other = functions.dims[y], functions.start[y]
            row, back, moved = functions.table[k] + a * e, functions.moved_back[k], functions.moved[k] + a
            b = state.hints[moved]
            if entries[row + b] - costs[back + b] + costs[other + b] <= costs[moved]:
                continue
            least = INF
            for b in range(e):
                cost = entries[row + b] - costs[back + b] + costs[other + b]
                if cost < least:
                    least = cost
                    state.hints[moved] = b
            total += least - costs[moved]
            if total >= smallest:
                break
        smallest = min(smallest, total)
        if smallest <= functions.tiny:
            state.support[x] = a
            return True
    for k in range(functions.first[x], functions.first[x + 1]):
        if functions.rank[functions.neighbour[k]] < functions.rank[x]:
            if not fully_supported(functions, state, x, k, upper):
                return False
            state.flags[DIRECTED, x] = 1
    return True


@njit(nogil=True, cache=True)
def add_wide(functions: Functions, state: State, upper: float) -> int:
    """Add the wide functions that one variable is left open of; return the variable of a conflict or -1."""
    costs = state.costs
    for f in range(len(functions.wide_first) - 1):
        mark = functions.wide_mark + f
        if costs[mark] > 0:
            continue
        open_variable, at, open_stride, several = -1, functions.wide_table[f], 0, False
        for k in range(functions.wide_first[f], functions.wide_first[f + 1]):
            x, stride = functions.wide_scope[k], functions.wide_stride[k]
            value, left = -1, 0
            for a in range(functions.dims[x]):
                if costs[functions.start[x] + a] < INF:
                    value = a
                    left += 1
                    if left > 1:
                        break
            if left == 1:
                at += value * stride
            elif open_variable >= 0:
                several = True
                break
            else:
                open_variable, open_stride = x, stride
        if several:
            continue
        put(state, mark, 1.0)
        if open_variable < 0:
            if costs[0] + functions.entries[at] >= upper:
                return int(functions.wide_scope[functions.wide_first[f]])
            put(state, 0, costs[0] + functions.entries[at])
            continue
        start = functions.start[open_variable]
        for a in range(functions.dims[open_variable]):
            if costs[start + a] < INF:
                cost = costs[start + a] + functions.entries[at + a * open_stride]
                if cost == INF:
                    remove(functions, state, open_variable, a)
                elif cost > costs[start + a]:
                    put(state, start + a, cost)
        state.flags[DIRECTED, open_variable] = 1
        mark_neighbours(functions, state, open_variable)
        if not lift(functions, state, open_variable, upper):
            return int(open_variable)
    return -1


@njit(nogil=True, cache=True)
def propagate(functions: Functions, state: State, upper: float) -> int:
    """Make the problem consistent; return -1, or the variable where it was found to cost ``upper`` or more."""
    n, flags = len(functions.dims), state.flags
    again = True
    while again:
        for i in range(n):
            x = functions.by_rank[i]
            if flags[EXISTENTIAL, x]:
                flags[EXISTENTIAL, x] = 0
                if not existential(functions, state, x, upper):
                    return int(x)
        for i in range(n - 1, -1, -1):
            y = functions.by_rank[i]
            if not flags[DIRECTED, y]:
                continue
            flags[DIRECTED, y] = 0
            for k in range(functions.first[y], functions.first[y + 1]):
                x = functions.neighbour[k]
                smaller = functions.rank[x] < functions.rank[y]
                if smaller and not fully_supported(functions, state, x, functions.mirror[k], upper):
                    return int(x)
        for y in range(n):
            if not flags[ARC, y]:
                continue
            flags[ARC, y] = 0
            for k in range(functions.first[y], functions.first[y + 1]):
                x = functions.neighbour[k]
                if not supported(functions, state, x, functions.mirror[k], upper):
                    return int(x)
        state.counters[CAUSE] = -1
        conflict = add_wide(functions, state, upper)
        if conflict >= 0:
            return conflict
        for x in range(n):
            if not lift(functions, state, x, upper):
                return int(x)
        again = bool(flags.any())
    return -1
