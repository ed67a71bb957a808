"""Cost shifting along an order (SRMP / TRW-S; Kolmogorov, PAMI 2015) on functions of any arity.

Costs move between tables and unary costs, so that the total of every assignment stays what it is, bit for bit: all
costs are multiples of a power of two, and shares are rounded down to such. Nothing is ever negative, so that what has
been taken out is a lower bound, and a cost above the room left below a limit can be forbidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.jit import njit


@njit(cache=True, nogil=True, error_model="numpy", makes_arrays=True)
def sweep(flat: Any, order: Any, ends: Any, shifts: Any, shift: Any, grain: float, constant: float, limit: float,
          count: int) -> Any:  # fmt: skip
    """Sweep ``count`` times, forwards first, then back and so on.

    Parameters
    ----------
    flat : Flat
        Costs are not negative, multiples of ``grain``.
    order : NDArray
        Variables in the order of forward sweeps.
    ends : NDArray
        (2, edges): whether the edge's variable is the first, the last of its function in the order.
    shifts, shift : NDArray
        The costs that were added to the tables, one entry for each value of an edge; the start of each edge's entries.
    grain : float
        A power of two that all costs are multiples of.
    constant, limit : float
        Taken out before; totals above the limit become infinite.

    Returns
    -------
    tuple
        The constant (inf: nothing is left below the limit), values without support, values above the limit.
    """
    first, unary, cells, costs, stride, function = (
        flat.first,
        flat.unary,
        flat.cells,
        flat.costs,
        flat.stride,
        flat.function,
    )
    around, incident = flat.around, flat.incident
    widest, most = 0, 0
    for x in range(len(first) - 1):
        widest = max(widest, first[x + 1] - first[x])
        most = max(most, (around[x + 1] - around[x]) * (first[x + 1] - first[x]))
    share, gathered = np.empty(widest), np.empty(most)
    unsupported, dear = 0, 0
    for number in range(count):
        side, room = 1 if number % 2 == 0 else 0, limit - constant
        for i in range(len(order)):
            x = order[i] if side == 1 else order[len(order) - 1 - i]
            b, d, k0, k1 = first[x], first[x + 1] - first[x], around[x], around[x + 1]
            alive = 0
            for a in range(d):
                alive += unary[b + a] < np.inf
            after, before = 0, 0
            for k in range(k0, k1):
                e = incident[k]
                f, at = function[e], (k - k0) * d
                before += not ends[0, e]
                after += not ends[1, e]
                _least(costs, cells[f], cells[f + 1], stride[e], d, gathered, at)
                for a in range(d):
                    unary[b + a] += gathered[at + a]
            least = np.inf
            for a in range(d):
                least = min(least, unary[b + a])
                alive -= unary[b + a] < np.inf
            unsupported += alive
            constant += least
            if not constant <= limit:
                return np.inf, unsupported, dear
            dear += share_out(
                unary, b, d, least, room, max(before, after), after if side == 1 else before, grain, share
            )
            for k in range(k0, k1):
                e = incident[k]
                f, at = function[e], (k - k0) * d
                for a in range(d):
                    back = -gathered[at + a] if gathered[at + a] < np.inf else 0.0
                    gathered[at + a] = back if ends[side, e] else back + share[a]
                if len(shifts):
                    for a in range(d):
                        shifts[shift[e] + a] += gathered[at + a]
                _add(costs, cells[f], cells[f + 1], stride[e], d, gathered, at, room)
    return constant, unsupported, dear


@njit(nogil=True, error_model="numpy")
def share_out(unary: Any, b: int, d: int, least: float, room: float, parts: int, takers: int, grain: float,
              share: Any) -> int:  # fmt: skip
    """Take out the least cost, forbid what does not fit, and split off what each table takes; count the forbidden.

    Costs begin at ``b``; ``share`` is set for the remaining values, if there are takers.
    """
    dear = 0
    for a in range(d):
        share[a] = np.inf
        if unary[b + a] == np.inf:
            continue
        unary[b + a] -= least
        if unary[b + a] > room:
            unary[b + a] = np.inf
            dear += 1
        elif takers > 0:
            share[a] = np.floor(unary[b + a] / (parts * grain)) * grain
            unary[b + a] -= share[a] * takers
    return dear


@njit(nogil=True, error_model="numpy")
def _least(costs: Any, begin: int, end: int, inner: int, d: int, least: Any, at: int) -> None:
    """Write the least cost of each value of an axis to ``least[at:]``."""
    for a in range(d):
        least[at + a] = np.inf
    p = begin
    while p < end:
        for a in range(d):
            lowest = least[at + a]
            for q in range(p, p + inner):
                lowest = costs[q] if costs[q] < lowest else lowest
            least[at + a] = lowest
            p += inner


@njit(nogil=True, error_model="numpy")
def _add(costs: Any, begin: int, end: int, inner: int, d: int, change: Any, at: int, room: float) -> None:
    """Add ``change[at:]`` to the values of an axis; forbid what is then above the room."""
    p = begin
    while p < end:
        for a in range(d):
            extra = change[at + a]
            for q in range(p, p + inner):
                cost = costs[q] + extra
                costs[q] = cost if cost <= room else np.inf
            p += inner


@njit(cache=True, nogil=True)
def shift_back(flat: Any, shifts: Any, shift: Any) -> None:
    """Add whole shifts to the tables, and take them from the unary costs."""
    for x in range(len(flat.first) - 1):
        d = flat.first[x + 1] - flat.first[x]
        for k in range(flat.around[x], flat.around[x + 1]):
            e = flat.incident[k]
            f = flat.function[e]
            _add(flat.costs, flat.cells[f], flat.cells[f + 1], flat.stride[e], d, shifts, shift[e], np.inf)
            for a in range(d):
                flat.unary[flat.first[x] + a] -= shifts[shift[e] + a]


@njit(cache=True, nogil=True, makes_arrays=True)
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


@njit(cache=True, nogil=True, makes_arrays=True)
def decode(flat: Any, order: Any, states: Any) -> None:
    """Assign the variables in an order, each the value that is cheapest with those before it.

    Variables that have a state already, not -1, are assigned again with all others as they are.
    """
    widest = 0
    for x in order:
        widest = max(widest, flat.first[x + 1] - flat.first[x])
    state, score, least = np.zeros(64, np.int64), np.empty(widest), np.empty(widest)
    for x in order:
        begin, d = flat.first[x], flat.first[x + 1] - flat.first[x]
        for a in range(d):
            score[a] = flat.unary[begin + a]
        for k in range(flat.around[x], flat.around[x + 1]):
            e = flat.incident[k]
            _condition(flat, flat.function[e], x, states, state, least)
            for a in range(d):
                score[a] += least[a]
        best = max(states[x], 0)
        for a in range(d):
            if score[a] < score[best]:
                best = a
        states[x] = best


@njit(nogil=True)
def _condition(flat: Any, f: int, x: int, states: Any, state: Any, least: Any) -> None:
    """The least cost of each value of ``x`` in a function, of the cells that agree with the states of others.

    Parameters
    ----------
    flat : Flat
    f, x : int
        A function, and a variable of it.
    states : (variables,) int64
        The states of the assigned variables; -1 for others.
    state : (arity,) int64
        Written to: the cell that is looked at.
    least : (values of x,) float64
        Written to.
    """
    begin, arity, own = flat.edges[f], flat.edges[f + 1] - flat.edges[f], 0
    p, cells = flat.cells[f], 1
    for j in range(arity):
        y = flat.scope[begin + j]
        state[j] = 0
        if y == x:
            own = j
        elif states[y] >= 0:
            p += states[y] * flat.stride[begin + j]
            continue
        cells *= flat.first[y + 1] - flat.first[y]
    # An odometer over the free axes: ``p`` follows ``state``, so that no index is computed from all axes for each cell.
    for a in range(flat.first[x + 1] - flat.first[x]):
        least[a] = np.inf
    for _ in range(cells):
        if flat.costs[p] < least[state[own]]:
            least[state[own]] = flat.costs[p]
        for j in range(arity - 1, -1, -1):
            y, stride = flat.scope[begin + j], flat.stride[begin + j]
            if y != x and states[y] >= 0:
                continue
            state[j] += 1
            p += stride
            if state[j] < flat.first[y + 1] - flat.first[y]:
                break
            p -= stride * state[j]
            state[j] = 0
