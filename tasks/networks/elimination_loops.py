"""Bucket elimination of variables with few neighbours on functions of any arity, compiled.

Let x be a variable with unary costs u and tables f. Eliminating x replaces these by one table over its neighbours y:

    g(y) = min over x of (u(x) + Σ_f f(x, y)).

The table goes to the constant, to the unary costs, or into a function that has all its variables. Its best states of x
are kept, which gives x its state back once y is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit


class Eliminated(NamedTuple):
    """The variables that were eliminated, and the functions that replace theirs.

    Parameters
    ----------
    constant : float
        Costs that all assignments have.
    alive : NDArray
        Whether each function of the network is left.
    arities, scope, costs : NDArray
        Of the new functions: numbers of axes, variables, and tables in C order, one function after the other.
    variables : NDArray
        The eliminated variables, the first one first.
    edges, near : NDArray
        (eliminated + 1,) where the neighbours of each begin in ``near``, ascending.
    begins, best : NDArray
        (eliminated + 1,) where the best states of each, for the states of its neighbours in C order, begin in ``best``.
    """

    constant: Any
    alive: Any
    arities: Any
    scope: Any
    costs: Any
    variables: Any
    edges: Any
    near: Any
    begins: Any
    best: Any


@njit(cache=True, nogil=True, makes_arrays=True)
def eliminate(flat: Any, unary: Any, waiting: Any, most_cells: int, small_cells: int) -> Any:
    """Eliminate every variable that leaves no larger table than it takes, or has at most two neighbours.

    Parameters
    ----------
    flat : Flat
        Its tables are changed in place.
    unary : (values,) float64
        Unary costs, changed in place.
    waiting : (some variables,) int64
        The variables to look at first, in this order. At most 256 values each.
    most_cells : int
        No joined table has more cells.
    small_cells : int
        Tables of variables with two neighbours may exceed the tables that they replace, up to this many cells.

    Returns
    -------
    tuple
        The fields of :class:`Eliminated`.
    """
    first, cells, edges, scope = flat.first, flat.cells, flat.edges, flat.scope
    n, n_old = len(first) - 1, len(edges) - 1
    most = n_old + n
    # functions by number, the new ones behind; where the table of a new one begins in ``pool``
    alive, arity, size = np.zeros(most, np.bool_), np.zeros(most, np.int64), np.zeros(most, np.int64)
    start, place = np.zeros(most, np.int64), np.zeros(most, np.int64)
    # edges of functions, in a list for each variable
    of, axes = np.empty(len(scope), np.int64), np.empty(len(scope), np.int64)
    before, after = np.empty(len(of), np.int64), np.empty(len(of), np.int64)
    head, tail, degree = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    n_edges = 0
    for f in range(n_old):
        alive[f], arity[f], size[f] = True, edges[f + 1] - edges[f], cells[f + 1] - cells[f]
        start[f], place[f] = n_edges, cells[f]
        for e in range(edges[f], edges[f + 1]):
            _append(of, axes, before, after, head, tail, degree, n_edges, f, scope[e])
            n_edges += 1
    pool, used, n_functions = np.empty(1 << 10), 0, n_old
    variables, n_gone, constant = np.empty(n, np.int64), 0, 0.0
    near_edges, begins = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    near, best = np.empty(n, np.int64), np.empty(1 << 10, np.uint8)
    joined = np.empty(small_cells)
    # a ring with one place more than variables: a variable is in it at most once
    queue, waits, begin, end = np.empty(n + 1, np.int64), np.zeros(n, np.bool_), 0, len(waiting)
    for i in range(len(waiting)):
        queue[i], waits[waiting[i]] = waiting[i], True
    found, marked, axis_of = np.empty(n, np.int64), np.zeros(n, np.bool_), np.empty(n, np.int64)
    strides, sizes, counter = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    changed = np.empty(n, np.int64)
    while begin != end:
        x = queue[begin]
        begin = (begin + 1) % (n + 1)
        waits[x] = False
        if degree[x] == 0:
            continue
        # the neighbours, while the joined table is no larger than allowed
        d, total, largest, k = first[x + 1] - first[x], 1, 0, 0
        e = head[x]
        while e >= 0:
            f = of[e]
            largest = max(largest, size[f])
            for i in range(start[f], start[f] + arity[f]):
                v = axes[i]
                if not marked[v] and total <= most_cells:
                    total *= first[v + 1] - first[v]
                    marked[v], at = True, k
                    while at > 0 and found[at - 1] > v:
                        found[at] = found[at - 1]
                        at -= 1
                    found[at] = v
                    k += 1
            e = after[e]
        for i in range(k):
            marked[found[i]] = False
        allowed = max(largest, small_cells) if k <= 3 else largest
        if total > most_cells or total > allowed * d:
            continue
        outer, n_near, k = total // d, k, 0
        for i in range(n_near):
            v = found[i]
            if v != x:
                found[k], sizes[k], axis_of[v] = v, first[v + 1] - first[v], k
                k += 1
        axis_of[x] = k
        scoped = found[:k]
        if len(joined) < total:
            joined = np.empty(total)
        for p in range(total):
            joined[p] = unary[first[x] + p % d]
        e = head[x]
        while e >= 0:
            f, following = of[e], after[e]
            own, step = start[f], 1
            strides[: k + 1] = 0
            for i in range(own + arity[f] - 1, own - 1, -1):
                strides[axis_of[axes[i]]] = step
                step *= first[axes[i] + 1] - first[axes[i]]
            if f < n_old:
                _add(joined, flat.costs[place[f] : place[f] + size[f]], strides, sizes, counter, k, outer, d)
            else:
                _add(joined, pool[place[f] : place[f] + size[f]], strides, sizes, counter, k, outer, d)
            _drop(of, axes, before, after, head, tail, degree, own, own + arity[f])
            alive[f] = False
            e = following
        # the best states, and the least costs in the first cells
        if begins[n_gone] + outer > len(best):
            best = _longer(best, begins[n_gone], begins[n_gone] + outer)
        if near_edges[n_gone] + k > len(near):
            near = _longer(near, near_edges[n_gone], near_edges[n_gone] + k)
        for p in range(outer):
            low, state = joined[p * d], 0
            for a in range(1, d):
                if joined[p * d + a] < low:
                    low, state = joined[p * d + a], a
            joined[p], best[begins[n_gone] + p] = low, state
        variables[n_gone] = x
        near[near_edges[n_gone] : near_edges[n_gone] + k] = scoped
        near_edges[n_gone + 1], begins[n_gone + 1] = near_edges[n_gone] + k, begins[n_gone] + outer
        n_gone += 1
        n_changed = 0
        if k == 0:
            constant += joined[0]
        elif k == 1:
            v = scoped[0]
            for a in range(outer):
                unary[first[v] + a] += joined[a]
            changed[0], n_changed = v, 1
        else:
            g = _host(of, axes, after, head, degree, start, arity, size, scoped)
            if g < 0:
                g = n_functions
                n_functions += 1
                if used + outer > len(pool):
                    live = 0
                    for f in range(n_old, g):
                        if alive[f]:
                            live += size[f]
                    fresh = pool if 2 * (live + outer) <= len(pool) else np.empty(2 * (live + outer))
                    used = 0
                    for f in range(n_old, g):
                        if alive[f]:
                            for p in range(size[f]):
                                fresh[used + p] = pool[place[f] + p]
                            place[f] = used
                            used += size[f]
                    pool = fresh
                if n_edges + k > len(of):
                    of, axes = _longer(of, n_edges, n_edges + k), _longer(axes, n_edges, n_edges + k)
                    before, after = _longer(before, n_edges, n_edges + k), _longer(after, n_edges, n_edges + k)
                alive[g], arity[g], size[g], start[g], place[g] = True, k, outer, n_edges, used
                for v in scoped:
                    _append(of, axes, before, after, head, tail, degree, n_edges, g, v)
                    n_edges += 1
                pool[used : used + outer] = joined[:outer]
                used += outer
            else:
                n_axes, step = arity[g], 1
                strides[: n_axes + 1] = 0
                for i in range(k - 1, -1, -1):
                    for j in range(n_axes):
                        if axes[start[g] + j] == scoped[i]:
                            strides[j] = step
                    step *= sizes[i]
                for j in range(n_axes):
                    sizes[j] = first[axes[start[g] + j] + 1] - first[axes[start[g] + j]]
                last, rest = n_axes - 1, size[g] // sizes[n_axes - 1]
                into = flat.costs[place[g] : place[g] + size[g]] if g < n_old else pool[place[g] : place[g] + size[g]]
                _add(into, joined[:outer], strides, sizes, counter, last, rest, sizes[last])
            into = flat.costs[place[g] : place[g] + size[g]] if g < n_old else pool[place[g] : place[g] + size[g]]
            n_changed = arity[g]
            changed[:n_changed] = axes[start[g] : start[g] + n_changed]
            if into[0] == into[-1] and into[0] < np.inf and into.min() == into.max():
                constant += into[0]
                _drop(of, axes, before, after, head, tail, degree, start[g], start[g] + arity[g])
                alive[g] = False
        for i in range(n_changed):
            v = changed[i]
            if degree[v] > 0 and not waits[v]:
                queue[end], waits[v] = v, True
                end = (end + 1) % (n + 1)
    left = np.empty(n_functions - n_old, np.int64)
    n_left, n_axes, n_cells = 0, 0, 0
    for f in range(n_old, n_functions):
        if alive[f]:
            left[n_left] = f
            n_left, n_axes, n_cells = n_left + 1, n_axes + arity[f], n_cells + size[f]
    arities, scopes, costs = np.empty(n_left, np.int64), np.empty(n_axes, np.int64), np.empty(n_cells)
    n_axes, n_cells = 0, 0
    for i in range(n_left):
        f = left[i]
        arities[i] = arity[f]
        scopes[n_axes : n_axes + arity[f]] = axes[start[f] : start[f] + arity[f]]
        costs[n_cells : n_cells + size[f]] = pool[place[f] : place[f] + size[f]]
        n_axes, n_cells = n_axes + arity[f], n_cells + size[f]
    near, best = near[: near_edges[n_gone]].copy(), best[: begins[n_gone]].copy()
    gone = variables[:n_gone].copy()
    return (
        constant, alive[:n_old], arities, scopes, costs,
        gone, near_edges[: n_gone + 1], near, begins[: n_gone + 1], best,
    )  # fmt: skip


@njit(nogil=True)
def _append(
    of: Any, axes: Any, before: Any, after: Any, head: Any, tail: Any, degree: Any, e: int, f: int, v: int
) -> None:
    """Make ``e`` an edge of a function and a variable, the last one of this variable."""
    of[e], axes[e], before[e], after[e] = f, v, tail[v], -1
    if tail[v] < 0:
        head[v] = e
    else:
        after[tail[v]] = e
    tail[v] = e
    degree[v] += 1


@njit(nogil=True)
def _drop(of: Any, axes: Any, before: Any, after: Any, head: Any, tail: Any, degree: Any, begin: int, end: int) -> None:
    """Take the edges of a function out of the lists of its variables."""
    for e in range(begin, end):
        v = axes[e]
        if before[e] < 0:
            head[v] = after[e]
        else:
            after[before[e]] = after[e]
        if after[e] < 0:
            tail[v] = before[e]
        else:
            before[after[e]] = before[e]
        degree[v] -= 1


@njit(nogil=True)
def _host(of: Any, axes: Any, after: Any, head: Any, degree: Any, start: Any, arity: Any, size: Any, own: Any) -> int:
    """Return the smallest function that has all variables of a scope, the first of equals; -1 if none has."""
    fewest = own[0]
    for v in own:
        if degree[v] < degree[fewest]:
            fewest = v
    found = -1
    e = head[fewest]
    while e >= 0:
        f = of[e]
        if arity[f] >= len(own) and (found < 0 or size[f] < size[found]):
            has = 0
            for i in range(start[f], start[f] + arity[f]):
                for v in own:
                    has += axes[i] == v
            if has == len(own):
                found = f
        e = after[e]
    return found


@njit(nogil=True)
def _add(total: Any, costs: Any, strides: Any, sizes: Any, counter: Any, n_axes: int, outer: int, inner: int) -> None:
    """Add a table to another one of ``n_axes`` outer axes and one inner axis, by the strides of the first one."""
    counter[:n_axes] = 0
    at, step = 0, strides[n_axes]
    for p in range(outer):
        for a in range(inner):
            total[p * inner + a] += costs[at + a * step]
        for axis in range(n_axes - 1, -1, -1):
            counter[axis] += 1
            at += strides[axis]
            if counter[axis] < sizes[axis]:
                break
            at -= sizes[axis] * strides[axis]
            counter[axis] = 0


@njit(nogil=True, makes_arrays=True)
def _longer(array: Any, used: int, least: int) -> Any:
    """Return an array of at least ``least`` entries that begins with the used ones."""
    longer = np.empty(max(least, 2 * len(array)), array.dtype)
    longer[:used] = array[:used]
    return longer
