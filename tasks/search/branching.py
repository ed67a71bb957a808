"""The nodes of a depth-first branch and bound: decide, make consistent, go on or back.

Decisions are a variable and a value that it takes, or later does not. The variable has few values left for the
conflicts that its pairs with open variables were in (Boussemart et al., Boosting systematic search by weighting
constraints, ECAI 2004), the last one whose decision failed comes first (Lecoutre et al. 2009); the value is the
cheapest, among equals one that costs nothing with some values of its neighbours.
"""

from __future__ import annotations

import numpy as np

from ..machine_code import njit
from .consistency import INF, propagate, remove, undo
from .state import BACKTRACKS, CAUSE, DEPTH, LAST_CONFLICT, NODES, STAMP, STARTED, TRAIL, Array, Functions, State

#: More values than these are halved.
MANY = 8

FINISHED, FOUND, PAUSED, FULL = 0, 1, 2, 3


@njit(nogil=True, cache=True)
def choose(functions: Functions, state: State) -> int:
    """Return the variable to branch on, or -1 if every one has a single value."""
    best, best_score, best_span = -1, INF, -1.0
    for x in range(len(functions.dims)):
        if state.left[x] < 2:
            continue
        if x == state.counters[LAST_CONFLICT]:
            return x
        weight = 1.0
        for k in range(functions.first[x], functions.first[x + 1]):
            if state.left[functions.neighbour[k]] > 1:
                weight += state.weight[k]
        score = state.left[x] / weight
        span = 0.0
        for a in range(functions.dims[x]):
            cost = state.costs[functions.start[x] + a]
            if cost < INF:
                span = max(span, cost)
        if score < best_score or (score == best_score and span > best_span):
            best, best_score, best_span = x, score, span
    return best


@njit(nogil=True, cache=True)
def count_left(functions: Functions, state: State) -> None:
    """Count the values that are left of each variable."""
    for x in range(len(functions.dims)):
        left = 0
        for a in range(functions.dims[x]):
            if state.costs[functions.start[x] + a] < INF:
                left += 1
        state.left[x] = left


@njit(nogil=True, cache=True)
def cheapest(functions: Functions, state: State, x: int) -> int:
    """Return the value that costs least; among equals the one with full support, or that of the best assignment."""
    start = functions.start[x]
    value, least = -1, INF
    for a in range(functions.dims[x]):
        cost = state.costs[start + a]
        if cost < least:
            value, least = a, cost
        elif cost < INF and cost == least and value != state.support[x] and a in (state.support[x], state.best[x]):
            value = a
    return value


@njit(nogil=True, cache=True)
def decide(functions: Functions, state: State, x: int) -> None:
    """Leave a variable its cheapest value, or the cheaper half of many; note which, so that they can be denied."""
    counters, start, d = state.counters, functions.start[x], functions.dims[x]
    at = counters[DEPTH]
    first = 0 if at == 0 else state.decision_first[at]
    state.decision_variable[at], state.decision_trail[at] = x, counters[TRAIL]
    state.decision_bound[at] = state.costs[0]
    counters[DEPTH] = at + 1
    counters[STAMP] += 1
    counters[NODES] += 1
    left = 0
    for a in range(d):
        if state.costs[start + a] < INF:
            left += 1
    most = cheapest(functions, state, x)
    count = 1
    state.decision_values[first] = most
    if left > MANY:
        ordered = np.sort(state.costs[start : start + d])
        limit = ordered[left // 2]
        for a in range(d):
            if a != most and count < left // 2 and state.costs[start + a] <= limit:
                state.decision_values[first + count] = a
                count += 1
    state.decision_first[at + 1] = first + count
    for a in range(d):
        if state.costs[start + a] < INF:
            chosen = False
            for k in range(first, first + count):
                if state.decision_values[k] == a:
                    chosen = True
            if not chosen:
                remove(functions, state, x, a)
    state.flags[1, x] = 1


@njit(nogil=True, cache=True)
def backtrack(functions: Functions, state: State, upper: float) -> bool:
    """Take decisions back until one can be denied; False if none is left."""
    counters = state.counters
    while counters[DEPTH] > 0:
        counters[DEPTH] -= 1
        at = counters[DEPTH]
        undo(state, state.decision_trail[at])
        if state.decision_bound[at] >= upper:
            continue
        for k in range(state.decision_first[at], state.decision_first[at + 1]):
            remove(functions, state, state.decision_variable[at], state.decision_values[k])
        counters[BACKTRACKS] += 1
        conflict = propagate(functions, state, upper)
        if conflict < 0:
            return True
        blame(functions, state)
    return False


@njit(nogil=True, cache=True)
def blame(functions: Functions, state: State) -> None:
    """Remember what pair a conflict was found at."""
    k = state.counters[CAUSE]
    if k >= 0:
        state.weight[k] += 1.0
        state.weight[functions.mirror[k]] += 1.0


@njit(nogil=True, cache=True)
def explore(functions: Functions, state: State, upper: float, nodes: int) -> int:
    """Search on for so many nodes.

    Returns
    -------
    int
        FINISHED: nothing below ``upper`` is left. FOUND: ``best`` holds an assignment below it, whose total is the
        constant ``costs[0]``; call again with a smaller ``upper``. PAUSED: the nodes are spent. FULL: the trail or
        the decisions need more room before going on.
    """
    counters = state.counters
    room = len(state.costs) + 1
    if counters[STARTED] == 0:
        counters[STARTED] = 1
        conflict = propagate(functions, state, upper)
        if conflict >= 0:
            return FINISHED
    elif counters[STARTED] == 2:  # an assignment was returned
        counters[STARTED] = 1
        if not backtrack(functions, state, upper):
            return FINISHED
    for _ in range(nodes):
        if len(state.trail_place) - counters[TRAIL] < 2 * room or counters[DEPTH] + 1 >= len(state.decision_bound):
            return FULL
        count_left(functions, state)
        x = choose(functions, state)
        if x < 0:
            for v in range(len(functions.dims)):
                state.best[v] = cheapest(functions, state, v)
            counters[STARTED] = 2
            return FOUND
        decide(functions, state, x)
        conflict = propagate(functions, state, upper)
        if conflict >= 0:
            blame(functions, state)
            counters[LAST_CONFLICT] = x
            if not backtrack(functions, state, upper):
                return FINISHED
    return PAUSED


@njit(nogil=True, cache=True)
def take_open(functions: Functions, state: State, masks: Array, bounds: Array) -> None:
    """Tell what is open here and, closing all decisions, what each leaves open: values of every variable, and a bound.

    Parameters
    ----------
    masks : ndarray of bool, shape (decisions + 1, values)
        Receives which values a node has.
    bounds : ndarray, shape (decisions + 1,)
    """
    counters = state.counters
    bounds[counters[DEPTH]] = state.costs[0]
    for place in range(masks.shape[1]):
        masks[counters[DEPTH], place] = state.costs[1 + place] < INF
    while counters[DEPTH] > 0:
        counters[DEPTH] -= 1
        at = counters[DEPTH]
        undo(state, state.decision_trail[at])
        start = functions.start[state.decision_variable[at]]
        for place in range(masks.shape[1]):
            masks[at, place] = state.costs[1 + place] < INF
        for k in range(state.decision_first[at], state.decision_first[at + 1]):
            masks[at, start - 1 + state.decision_values[k]] = False
        bounds[at] = state.decision_bound[at]


@njit(nogil=True, cache=True)
def begin_at(functions: Functions, state: State, root: Array, mask: Array) -> None:
    """Go to an open node: the root's costs, with only the values of ``mask``."""
    counters = state.counters
    state.costs[:] = root
    counters[TRAIL], counters[DEPTH], counters[STARTED] = 0, 0, 0
    counters[STAMP] += 1
    state.flags[:] = 0
    for x in range(len(functions.dims)):
        for a in range(functions.dims[x]):
            place = functions.start[x] + a
            if not mask[place - 1] and state.costs[place] < INF:
                remove(functions, state, x, a)
