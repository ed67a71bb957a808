"""The nodes of a depth-first branch and bound: decide, make consistent, go on or back.

A decision is a variable and values that it takes, or later does not take. The variable has few values left in relation
to the conflicts of its pairs with open variables (Boussemart et al., Boosting systematic search by weighting
constraints, ECAI 2004); the last variable whose decision failed comes first (Lecoutre et al. 2009). The value is the
cheapest; among equally cheap values, a value that costs nothing with some values of its neighbours is preferred.
"""

from __future__ import annotations

import numpy as np

from ..compiler.jit import njit
from .consistency import propagate
from .costs import count_left, forget_flags, remove, undo
from .enumeration import BEST_OF_REST, BETTER, NOTHING, solve_rest
from .state import (
    BACKTRACKS,
    BEFORE,
    BEST,
    BOUND,
    CAUSE,
    CHOSEN,
    CONSTANT,
    COSTS,
    DECIDED,
    DECISION,
    DECISIONS,
    DEPTH,
    DIM,
    END,
    EVERY,
    FIRST,
    HEAD,
    HINTS,
    INF,
    LAST,
    LAST_CONFLICT,
    LEFT,
    MIRROR,
    NEIGHBOUR,
    NODES,
    ONE,
    OTHERS,
    PAIR,
    PAIRS,
    SAVE,
    SAVED,
    SAVES,
    SHARE,
    STAMP,
    START,
    STARTED,
    SUPPORT,
    TRAIL,
    TRAILS,
    VARIABLE,
    VARIABLES,
    WEIGHT,
    WIDE,
    Array,
)

#: More values than these are halved.
MANY = 8

FINISHED, FOUND, PAUSED, FULL = range(4)
#: The beginning of a call: propagation, nothing, or going back from an assignment that was returned.
NEW, GOING_ON, SOLVED = range(3)


@njit(nogil=True)
def choose(s: Array) -> int:
    """Return the variable to branch on, or -1 if every one has a single value."""
    best, best_score, best_span = -1, np.inf, -1
    if s[LAST_CONFLICT] >= 0 and s[s[LAST_CONFLICT] + LEFT] > 1:
        return int(s[LAST_CONFLICT])
    for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
        if s[x + LEFT] < 2:
            continue
        weight = 1
        for k in range(s[x + FIRST], s[x + LAST], PAIR):
            if s[s[k + NEIGHBOUR] + LEFT] > 1:
                weight += s[k + WEIGHT]
        score = s[x + LEFT] / weight
        if score > best_score:
            continue
        span = largest(s, x)
        if score < best_score or span > best_span:
            best, best_score, best_span = x, score, span
    return best


@njit(nogil=True)
def largest(s: Array, x: int) -> int:
    """Return the largest cost of a value that is left."""
    most = 0
    for p in range(s[x + START], s[x + START] + s[x + DIM]):
        if s[p] < INF:
            most = max(most, s[p])
    return most


@njit(nogil=True)
def cheapest(s: Array, x: int) -> int:
    """Return the cheapest value; among equals the value with full support, or the value of the best assignment."""
    value, least, support, best = -1, INF, s[x + SUPPORT], s[x + BEST]
    for a in range(s[x + DIM]):
        cost = s[s[x + START] + a]
        if cost < least:
            value, least = a, cost
        elif cost < INF and cost == least and value != support and a in (support, best):
            value = a
    return value


@njit(nogil=True)
def decide(s: Array, x: int) -> None:
    """Leave a variable its cheapest value, or the half of many values with it; note them, to deny them later."""
    at = s[DECISIONS] + DECISION * s[DEPTH]
    s[at + DECIDED], s[at + BEFORE], s[at + BOUND] = x, s[TRAIL], s[CONSTANT]
    s[DEPTH] += 1
    s[STAMP] += 1
    s[NODES] += 1
    chosen = s[CHOSEN] + s[at + HEAD]
    start, d = s[x + START], s[x + DIM]
    s[chosen] = cheapest(s, x)
    count = 1
    if s[x + LEFT] > MANY:
        count = take_half(s, x, chosen)
    s[at + DECISION + HEAD] = s[at + HEAD] + count
    taken = s[SHARE] // s[x + LEFT] * count
    s[at + OTHERS], s[SHARE] = s[SHARE] - taken, taken
    for a in range(d):
        if s[start + a] < INF:
            left = False
            for k in range(count):
                left |= s[chosen + k] == a
            if not left:
                remove(s, x, a)


@njit(nogil=True)
def take_half(s: Array, x: int, chosen: int) -> int:
    """Write the values of the half that the first chosen one is in; return how many there are."""
    start, first, half = s[x + START], s[chosen], s[x + LEFT] // 2
    middle, seen = 0, 0
    while seen < half:
        seen += s[start + middle] < INF
        middle += 1
    begin, end = (0, middle) if first < middle else (middle, s[x + DIM])
    taken = 0
    for a in range(begin, end):
        if s[start + a] < INF:
            s[chosen + taken] = a
            taken += 1
    return taken


@njit(nogil=True)
def backtrack(s: Array, entries: Array, upper: int) -> bool:
    """Take decisions back until one can be denied; False if none is left."""
    while s[DEPTH] > 0:
        s[DEPTH] -= 1
        at = s[DECISIONS] + DECISION * s[DEPTH]
        undo(s, s[at + BEFORE], s[at + BOUND])
        s[SHARE] = s[at + OTHERS]
        if s[at + BOUND] >= upper:
            continue
        for k in range(s[at + HEAD], s[at + DECISION + HEAD]):
            remove(s, s[at + DECIDED], s[s[CHOSEN] + k])
        s[BACKTRACKS] += 1
        if propagate(s, entries, upper):
            return True
        blame(s)
    return False


@njit(nogil=True)
def blame(s: Array) -> None:
    """Remember what pair a conflict was found at."""
    k = s[CAUSE]
    if k >= 0:
        s[k + WEIGHT] += 1
        s[s[k + MIRROR] + WEIGHT] += 1


@njit(nogil=True)
def has_room(s: Array) -> bool:
    """Whether another node, and another two propagations, fit into the trails."""
    blocks = (s[PAIRS] - s[VARIABLES]) // VARIABLE + (s[WIDE] - s[PAIRS]) // PAIR + (s[COSTS] - s[WIDE])
    return bool(
        s[SAVES] - s[TRAILS] >= SAVE * (s[TRAIL] + 2 * blocks)
        and s[END] - s[SAVES] >= s[SAVED] + 2 * (s[HINTS] - s[COSTS])
        and s[CHOSEN] - s[DECISIONS] > DECISION * (s[DEPTH] + 2)
    )


@njit(nogil=True, cache=True, branches=True)
def explore(s: Array, entries: Array, upper: int, nodes: int) -> int:
    """Continue the search for ``nodes`` nodes.

    Parameters
    ----------
    s : (words,) int64
        The state of the search (:mod:`.state`); changed in place, so that the next call continues from it.
    entries : (cells,) int64
        Costs of all tables; read only.
    upper : int
        The cut-off: only assignments whose cost is below it are looked for.
    nodes : int
        Number of decisions after which the call returns ``PAUSED``.

    Returns
    -------
    int
        FINISHED: nothing below ``upper`` is left. FOUND: the variables' BEST is an assignment below it; call again with
        its total as ``upper``, or, where EVERY is set, with any cut-off that is not above the last one. PAUSED: the
        nodes are spent. FULL: the trails or the decisions need more room before going on.
    """
    if s[STARTED] == NEW and not propagate(s, entries, upper):
        return FINISHED
    # The assignment that the last call returned closes its leaf.
    if s[STARTED] == SOLVED and not backtrack(s, entries, upper):
        return FINISHED
    s[STARTED] = GOING_ON
    for _ in range(nodes):
        if not has_room(s):
            return FULL
        known = solve_rest(s, entries, upper)
        if known in (BEST_OF_REST, BETTER) and not s[EVERY]:
            # BETTER may not be the best of the rest: the next call enumerates the same node again, below the new
            # cut-off.
            s[STARTED] = SOLVED if known == BEST_OF_REST else GOING_ON
            return FOUND
        if known == NOTHING:
            if not backtrack(s, entries, upper):
                return FINISHED
            continue
        x = choose(s)
        if x < 0:
            for y in range(s[VARIABLES], s[PAIRS], VARIABLE):
                s[y + BEST] = cheapest(s, y)
            s[STARTED] = SOLVED
            return FOUND
        decide(s, x)
        if not propagate(s, entries, upper):
            blame(s)
            s[LAST_CONFLICT] = x
            if not backtrack(s, entries, upper):
                return FINISHED
    return PAUSED


@njit(nogil=True, cache=True)
def take_open(s: Array, masks: Array, bounds: Array, shares: Array) -> None:
    """Report the open values here and, closing all decisions, after each of them: values of every variable, and a
    bound.

    Parameters
    ----------
    masks : ndarray of bool, shape (decisions + 1, values)
        Receives which values a node has.
    bounds : ndarray of int64, shape (decisions + 1,)
    shares : ndarray of int64, shape (decisions + 1,)
        Receives each node's part of the tree where this search began, in parts of ONE.
    """
    bounds[s[DEPTH]], shares[s[DEPTH]] = s[CONSTANT], s[SHARE]
    for i in range(masks.shape[1]):
        masks[s[DEPTH], i] = s[s[COSTS] + i] < INF
    while s[DEPTH] > 0:
        s[DEPTH] -= 1
        depth, at = s[DEPTH], s[DECISIONS] + DECISION * s[DEPTH]
        undo(s, s[at + BEFORE], s[at + BOUND])
        for i in range(masks.shape[1]):
            masks[depth, i] = s[s[COSTS] + i] < INF
        first = s[s[at + DECIDED] + START] - s[COSTS]
        for k in range(s[at + HEAD], s[at + DECISION + HEAD]):
            masks[depth, first + s[s[CHOSEN] + k]] = False
        bounds[depth], shares[depth] = s[at + BOUND], s[at + OTHERS]


@njit(nogil=True, cache=True)
def begin_at(s: Array, root: Array, mask: Array) -> None:
    """Go to an open node: the root's constant and costs, with only the values of ``mask``."""
    s[CONSTANT] = root[0]
    for i in range(len(root) - 1):
        s[s[COSTS] + i] = root[1 + i]
    s[TRAIL] = s[SAVED] = s[DEPTH] = s[STARTED] = 0
    s[SHARE] = ONE
    s[STAMP] += 1
    forget_flags(s)
    for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
        count_left(s, x)
        first = s[x + START] - s[COSTS]
        for a in range(s[x + DIM]):
            if not mask[first + a] and s[s[x + START] + a] < INF:
                remove(s, x, a)
