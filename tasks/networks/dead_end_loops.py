"""Dead-end elimination (Goldstein, Biophysical Journal 1994) on functions of any arity, and arc consistency, compiled.

Let x be a variable with unary costs u and tables f. Its value b dominates its value a if

    u(b) - u(a) + Σ_f max_z (f(b, z) - f(a, z)) ≤ 0.

Here z runs over the assignments of f's other variables that f allows with a. Every assignment with a is then at least
as dear as the same assignment with b, so that a can be removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.jit import njit


@njit(cache=True, nogil=True, makes_arrays=True)
def remove_dominated(flat: Any, pending: Any, most_work: int) -> Any:
    """Remove values that are in no allowed assignment, or never better than another value of their variable.

    The ``pending`` variables are examined, and then the neighbours of variables that lost a value. Costs are moved from
    tables to ``unary`` on the way. At least one optimal assignment is kept.

    Parameters
    ----------
    flat : Flat
        Its ``unary`` and ``costs`` (float64, not negative, inf = forbidden) are changed in place.
    pending : (variables,) bool
        The variables to examine; changed in place. Variables that were not examined in time are still set afterwards.
    most_work : int
        No further variable is examined once about this number of cells was read.

    Returns
    -------
    tuple of int
        Values without support, values dominated, variables left without a value (0 or 1), about the number of cells
        read.
    """
    n = len(flat.first) - 1
    # A ring with one place more than variables: a variable is in the queue at most once, so head = tail means empty.
    queue, head, tail = np.empty(n + 1, np.int64), 0, 0
    for x in range(n):
        if pending[x]:
            queue[tail] = x
            tail += 1
    lost, work = np.zeros(2, np.int64), 0
    while head != tail and work < most_work:
        x = queue[head]
        head = (head + 1) % (n + 1)
        pending[x] = False
        unsupported, spent = _collect(flat, x)
        dominated = _dominated(flat, x)
        work += spent * (1 + (flat.first[x + 1] - flat.first[x]) // 4)
        lost[0] += unsupported
        lost[1] += dominated
        if _left(flat, x) == 0:
            return lost[0], lost[1], 1, work
        if unsupported + dominated > 0:
            for k in range(flat.around[x], flat.around[x + 1]):
                f = flat.function[flat.incident[k]]
                for e in range(flat.edges[f], flat.edges[f + 1]):
                    y = flat.scope[e]
                    if not pending[y] and (y != x or dominated > 0):
                        pending[y] = True
                        queue[tail] = y
                        tail = (tail + 1) % (n + 1)
    return lost[0], lost[1], 0, work


@njit(nogil=True)
def _left(flat: Any, x: int) -> int:
    left = 0
    for p in range(flat.first[x], flat.first[x + 1]):
        left += flat.unary[p] < np.inf
    return left


@njit(nogil=True, makes_arrays=True)
def _collect(flat: Any, x: int) -> Any:
    """Move the least cost of each value from the tables to ``unary``; return how many values died, and the cells."""
    begin, d, died, work = flat.first[x], flat.first[x + 1] - flat.first[x], 0, 0
    for k in range(flat.around[x], flat.around[x + 1]):
        e = flat.incident[k]
        f, inner = flat.function[e], flat.stride[e]
        work += flat.cells[f + 1] - flat.cells[f]
        for a in range(d):
            if flat.unary[begin + a] == np.inf:
                continue
            least = np.inf
            for p in range(flat.cells[f] + a * inner, flat.cells[f + 1], d * inner):
                for q in range(p, p + inner):
                    if flat.costs[q] < least:
                        least = flat.costs[q]
            if least == np.inf:
                died += 1
                _remove(flat, x, a)
            elif least != 0:
                flat.unary[begin + a] += least
                for p in range(flat.cells[f] + a * inner, flat.cells[f + 1], d * inner):
                    for q in range(p, p + inner):
                        flat.costs[q] -= least
    return died, work


@njit(nogil=True)
def _remove(flat: Any, x: int, a: int) -> None:
    """Forbid a value everywhere."""
    d = flat.first[x + 1] - flat.first[x]
    flat.unary[flat.first[x] + a] = np.inf
    for k in range(flat.around[x], flat.around[x + 1]):
        e = flat.incident[k]
        f, inner = flat.function[e], flat.stride[e]
        for p in range(flat.cells[f] + a * inner, flat.cells[f + 1], d * inner):
            for q in range(p, p + inner):
                flat.costs[q] = np.inf


@njit(nogil=True)
def _dominated(flat: Any, x: int) -> int:
    """Remove the dominated values of a variable whose tables hold no cost that a value has anyway."""
    begin, d, died = flat.first[x], flat.first[x + 1] - flat.first[x], 0
    for a in range(d):
        for b in range(d):
            # every table adds at least nothing, so that a dearer value cannot dominate
            if a == b or flat.unary[begin + a] == np.inf or flat.unary[begin + b] > flat.unary[begin + a]:
                continue
            if _excess(flat, x, a, b) <= 0:
                died += 1
                _remove(flat, x, a)
    return died


@njit(nogil=True)
def _excess(flat: Any, x: int, a: int, b: int) -> float:
    """The largest additional cost of choosing ``b`` instead of ``a``, inf as soon as it is positive."""
    d = flat.first[x + 1] - flat.first[x]
    excess = flat.unary[flat.first[x] + b] - flat.unary[flat.first[x] + a]
    for k in range(flat.around[x], flat.around[x + 1]):
        e = flat.incident[k]
        f, inner = flat.function[e], flat.stride[e]
        worst, room = 0.0, -excess
        for p in range(flat.cells[f] + a * inner, flat.cells[f + 1], d * inner):
            other = p + (b - a) * inner
            for i in range(inner):
                if flat.costs[p + i] < np.inf and flat.costs[other + i] - flat.costs[p + i] > worst:
                    worst = flat.costs[other + i] - flat.costs[p + i]
            if worst > room:
                return np.inf
        excess += worst
    return float(excess)
