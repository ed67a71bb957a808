"""Cost shifting along an order (SRMP / TRW-S; Kolmogorov, PAMI 2015) on functions of any arity.

Costs move between tables and unary costs, so that the total of every assignment stays what it is, bit for bit: all
costs are multiples of a power of two, and shares are rounded down to such. Nothing is ever negative, so that what has
been taken out is a lower bound, and a cost above the room left below a limit can be forbidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(flat: Any, order: Any, ends: Any, shifts: Any, shift: Any, grain: float, constant: float, limit: float,
          begin: int, count: int) -> Any:  # fmt: skip
    """Sweep ``count`` times, forwards where the number of the sweep is even.

    Parameters
    ----------
    flat : Flat
        Costs are not negative, multiples of ``grain``.
    order : NDArray
        Variables in the order of forward sweeps.
    ends : NDArray
        (edges, 2): whether the edge's variable is the first, the last of its function in the order.
    shifts, shift : NDArray
        What was added to the tables, one entry a value of an edge; where an edge's entries begin.
    grain : float
        A power of two that all costs are multiples of.
    constant, limit : float
        Taken out before; totals above the limit become infinite.

    Returns
    -------
    tuple
        The constant (inf: nothing is left below the limit), values without support, values above the limit.
    """
    share = np.empty(len(flat.unary))
    died = np.zeros(2, np.int64)
    for number in range(begin, begin + count):
        forward = number % 2 == 0
        for i in range(len(order)):
            x = order[i] if forward else order[len(order) - 1 - i]
            constant = _visit(flat, x, ends, 1 if forward else 0, shifts, shift, grain, constant, limit, share, died)
            if constant == np.inf:
                return constant, died[0], died[1]
    return constant, died[0], died[1]


@njit(cache=True, nogil=True, error_model="numpy")
def _visit(flat: Any, x: int, ends: Any, side: int, shifts: Any, shift: Any, grain: float, constant: float,
           limit: float, share: Any, died: Any) -> float:  # fmt: skip
    """Collect the least costs of a variable's values, take out what all have, and share the rest."""
    unary = flat.unary[flat.first[x] : flat.first[x + 1]]
    d, k0, k1 = len(unary), flat.around[x], flat.around[x + 1]
    gathered = np.empty((k1 - k0, d))
    others = np.zeros(2, np.int64)
    for k in range(k0, k1):
        e = flat.incident[k]
        f = flat.function[e]
        others[0] += not ends[e, 0]
        others[1] += not ends[e, 1]
        _least(flat.costs, flat.cells[f], flat.cells[f + 1], flat.stride[e], gathered[k - k0])
        for a in range(d):
            if gathered[k - k0, a] == np.inf and unary[a] < np.inf:
                died[0] += 1
            unary[a] += gathered[k - k0, a]
    least = unary.min()
    constant += least
    if least == np.inf or constant > limit:
        return np.inf
    room = limit - constant
    _share(unary, least, room, max(others[0], others[1]), others[side], grain, share, died)
    for k in range(k0, k1):
        e = flat.incident[k]
        f = flat.function[e]
        change = gathered[k - k0]
        for a in range(d):
            back = -change[a] if change[a] < np.inf else 0.0
            change[a] = back if ends[e, side] else back + share[a]
            shifts[shift[e] + a] += change[a]
        _add(flat.costs, flat.cells[f], flat.cells[f + 1], flat.stride[e], change, room)
    return constant


@njit(cache=True, nogil=True, error_model="numpy")
def _share(unary: Any, least: float, room: float, parts: int, takers: int, grain: float, share: Any,
           died: Any) -> None:  # fmt: skip
    """Take out the least cost, forbid what does not fit, and split off what each table takes."""
    for a in range(len(unary)):
        share[a] = np.inf
        if unary[a] == np.inf:
            continue
        unary[a] -= least
        if unary[a] > room:
            unary[a] = np.inf
            died[1] += 1
        elif takers > 0:
            share[a] = np.floor(unary[a] / parts / grain) * grain
            unary[a] -= share[a] * takers


@njit(cache=True, nogil=True, error_model="numpy")
def _least(costs: Any, begin: int, end: int, inner: int, least: Any) -> None:
    """The least cost of each value of an axis."""
    least[:] = np.inf
    p = begin
    while p < end:
        for a in range(len(least)):
            lowest = least[a]
            for q in range(p, p + inner):
                lowest = min(lowest, costs[q])
            least[a] = lowest
            p += inner


@njit(cache=True, nogil=True, error_model="numpy")
def _add(costs: Any, begin: int, end: int, inner: int, change: Any, room: float) -> None:
    """Add to each value of an axis; forbid what is then above the room."""
    p = begin
    while p < end:
        for a in range(len(change)):
            extra = change[a]
            for q in range(p, p + inner):
                cost = costs[q] + extra
                costs[q] = cost if cost <= room else np.inf
            p += inner


@njit(cache=True, nogil=True)
def take_out(flat: Any) -> float:
    """Take the least cost out of every table and of every variable's unary costs; return the sum."""
    taken = 0.0
    for f in range(len(flat.cells) - 1):
        taken += _take(flat.costs[flat.cells[f] : flat.cells[f + 1]])
    for x in range(len(flat.first) - 1):
        taken += _take(flat.unary[flat.first[x] : flat.first[x + 1]])
    return taken


@njit(cache=True, nogil=True)
def _take(costs: Any) -> float:
    least: float = costs.min()
    if least < np.inf and least != 0:
        costs -= least
    return least


@njit(cache=True, nogil=True)
def shift_back(flat: Any, shifts: Any, shift: Any) -> None:
    """Add whole shifts to the tables, and take them from the unary costs."""
    for x in range(len(flat.first) - 1):
        d = flat.first[x + 1] - flat.first[x]
        for k in range(flat.around[x], flat.around[x + 1]):
            e = flat.incident[k]
            f = flat.function[e]
            change = shifts[shift[e] : shift[e] + d]
            _add(flat.costs, flat.cells[f], flat.cells[f + 1], flat.stride[e], change, np.inf)
            flat.unary[flat.first[x] : flat.first[x + 1]] -= change


@njit(cache=True, nogil=True)
def forbid_tuples(flat: Any, room: float) -> int:
    """Forbid the cells that cost more than the room together with the unary costs of their values; return how many."""
    state, gone = np.zeros(64, np.int64), 0
    for f in range(len(flat.cells) - 1):
        begin, arity = flat.edges[f], flat.edges[f + 1] - flat.edges[f]
        total = 0.0
        for j in range(arity):
            state[j] = 0
        for p in range(flat.cells[f], flat.cells[f + 1]):
            if flat.costs[p] < np.inf:
                total = flat.costs[p]
                for j in range(arity):
                    total += flat.unary[flat.first[flat.scope[begin + j]] + state[j]]
                if total > room:
                    flat.costs[p] = np.inf
                    gone += 1
            for j in range(arity - 1, -1, -1):
                x = flat.scope[begin + j]
                state[j] += 1
                if state[j] < flat.first[x + 1] - flat.first[x]:
                    break
                state[j] = 0
    return gone


@njit(cache=True, nogil=True)
def decode(flat: Any, order: Any, states: Any) -> None:
    """Assign the variables in an order, each the value that is cheapest with those before it."""
    states[:] = -1
    state, score = np.zeros(64, np.int64), np.empty(len(flat.unary))
    for x in order:
        d = flat.first[x + 1] - flat.first[x]
        score[:d] = flat.unary[flat.first[x] : flat.first[x + 1]]
        for k in range(flat.around[x], flat.around[x + 1]):
            _condition(flat, flat.incident[k], states, state, score[:d])
        states[x] = np.argmin(score[:d])


@njit(cache=True, nogil=True)
def _condition(flat: Any, edge: int, states: Any, state: Any, score: Any) -> None:
    """Add to each value of an edge the least cost of its table that goes with the variables assigned."""
    f = flat.function[edge]
    begin, arity = flat.edges[f], flat.edges[f + 1] - flat.edges[f]
    least = np.full(len(score), np.inf)
    for j in range(arity):
        state[j] = 0
    for p in range(flat.cells[f], flat.cells[f + 1]):
        own = state[edge - begin]
        if flat.costs[p] < least[own]:
            fits = True
            for j in range(arity):
                s = states[flat.scope[begin + j]]
                fits = fits and (s < 0 or s == state[j])
            if fits:
                least[own] = flat.costs[p]
        for j in range(arity - 1, -1, -1):
            x = flat.scope[begin + j]
            state[j] += 1
            if state[j] < flat.first[x + 1] - flat.first[x]:
                break
            state[j] = 0
    score += least
