"""All functions of a cost network in one array, and the loops that fold and restrict them.

Costs are integers (or multiples of a power of two) in float64, so that sums are exact; inf is forbidden. A value that
was removed has an infinite unary cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..machine_code import njit

Costs = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Flat(NamedTuple):
    """A network as arrays; an *edge* is one axis of one function. Arrays of offsets have one entry more.

    Parameters
    ----------
    first : NDArray
        (variables + 1,) where a variable's values begin in ``unary``.
    unary : NDArray
        Cost of each value of each variable.
    cells : NDArray
        (functions + 1,) where a function's table begins in ``costs``.
    costs : NDArray
        All tables, C-ordered, of two axes and more.
    edges : NDArray
        (functions + 1,) where a function's edges begin.
    scope, stride, function : NDArray
        Of each edge: its variable, how far apart in the table its values are, its function.
    around : NDArray
        (variables + 1,) where a variable's edges begin in ``incident``.
    incident : NDArray
        Edges by variable.
    """

    first: Any
    unary: Any
    cells: Any
    costs: Any
    edges: Any
    scope: Any
    stride: Any
    function: Any
    around: Any
    incident: Any

    @property
    def dims(self) -> Integers:
        """Domain sizes."""
        sizes: Integers = np.diff(self.first)
        return sizes

    @property
    def n_functions(self) -> int:
        """How many functions there are."""
        return len(self.edges) - 1


def offsets(counts: Integers) -> Integers:
    """Return where parts of these lengths begin in one array, and its length."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def parts(starts: Integers, chosen: Integers) -> Integers:
    """Return the positions of the chosen parts of an array that ``starts`` cuts, one part after the other."""
    counts = starts[chosen + 1] - starts[chosen]
    return np.arange(int(counts.sum())) + np.repeat(starts[chosen] - offsets(counts)[:-1], counts)


def flatten(dims: Integers, unary: Costs, costs: Costs, arities: Integers, scope: Integers) -> Flat:
    """Put tables of two axes and more, one after the other in ``costs``, into a network."""
    edges = offsets(arities)
    stride, sizes = _strides(dims, edges, scope)
    around = offsets(np.bincount(scope, minlength=len(dims)))
    incident = np.argsort(scope, kind="stable")
    function = np.repeat(np.arange(len(arities)), arities)
    return Flat(offsets(dims), unary, offsets(sizes), costs, edges, scope, stride, function, around, incident)


def selected(flat: Flat, chosen: Integers) -> Flat:
    """Return the network of these functions only."""
    costs = flat.costs[parts(flat.cells, chosen)]
    scope = flat.scope[parts(flat.edges, chosen)]
    return flatten(flat.dims, flat.unary, costs, np.diff(flat.edges)[chosen], scope)


@njit(cache=True, nogil=True)
def _strides(dims: Any, edges: Any, scope: Any) -> Any:
    """Stride of each edge, cells of each function."""
    stride, sizes = np.empty(len(scope), np.int64), np.empty(len(edges) - 1, np.int64)
    for f in range(len(sizes)):
        size = 1
        for e in range(edges[f + 1] - 1, edges[f] - 1, -1):
            stride[e] = size
            size *= dims[scope[e]]
        sizes[f] = size
    return stride, sizes


def fold_contained(flat: Flat) -> Flags:
    """Add every function to one whose scope contains its own; return which functions are left."""
    left = np.ones(flat.n_functions, np.bool_)
    upwards = np.lexsort((-np.arange(flat.n_functions), np.diff(flat.edges)))
    _fold(flat, upwards, left, np.full(len(flat.dims), -1))
    return left


@njit(cache=True, nogil=True)
def _fold(flat: Any, upwards: Any, left: Any, member: Any) -> None:
    """Fold functions in this order, the smallest first, the last of equals before the others."""
    step, state = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for f in upwards:
        host = _host(flat, f, left, member)
        if host >= 0:
            left[f] = False
            _add_table(flat, f, host, step, state)


@njit(cache=True, nogil=True)
def _host(flat: Any, f: int, left: Any, member: Any) -> int:
    """The smallest function whose scope contains that of ``f``, the first of equals; -1 for none."""
    begin, end = flat.edges[f], flat.edges[f + 1]
    rarest = flat.scope[begin]
    for e in range(begin, end):
        x = flat.scope[e]
        member[x] = f
        if flat.around[x + 1] - flat.around[x] < flat.around[rarest + 1] - flat.around[rarest]:
            rarest = x
    best, fewest = -1, 0
    for k in range(flat.around[rarest], flat.around[rarest + 1]):
        g = flat.function[flat.incident[k]]
        size = flat.cells[g + 1] - flat.cells[g]
        arity = flat.edges[g + 1] - flat.edges[g]
        if not left[g] or g == f or arity < end - begin or (arity == end - begin and g > f):
            continue
        shared = 0
        for e in range(flat.edges[g], flat.edges[g + 1]):
            shared += member[flat.scope[e]] == f
        if shared == end - begin and (best < 0 or size < fewest):
            best, fewest = g, size
    return best


@njit(cache=True, nogil=True)
def _add_table(flat: Any, f: int, host: int, step: Any, state: Any) -> None:
    """Add the table of ``f`` to one whose scope contains its own."""
    begin, arity = flat.edges[host], flat.edges[host + 1] - flat.edges[host]
    for j in range(arity):
        step[j] = 0
        state[j] = 0
        for e in range(flat.edges[f], flat.edges[f + 1]):
            if flat.scope[e] == flat.scope[begin + j]:
                step[j] = flat.stride[e]
    q = flat.cells[f]
    for p in range(flat.cells[host], flat.cells[host + 1]):
        flat.costs[p] += flat.costs[q]
        for j in range(arity - 1, -1, -1):
            x = flat.scope[begin + j]
            state[j] += 1
            q += step[j]
            if state[j] < flat.first[x + 1] - flat.first[x]:
                break
            q -= step[j] * state[j]
            state[j] = 0


@njit(cache=True, nogil=True)
def restrict(flat: Any, kept: Any, kept_first: Any) -> Any:
    """Return all tables over the values kept (``kept``: their numbers, by variable), and the size of each."""
    n = len(flat.edges) - 1
    sizes = np.ones(n, np.int64)
    for f in range(n):
        for e in range(flat.edges[f], flat.edges[f + 1]):
            x = flat.scope[e]
            sizes[f] *= kept_first[x + 1] - kept_first[x]
    costs, state, q = np.empty(sizes.sum()), np.zeros(64, np.int64), 0
    for f in range(n):
        begin, arity = flat.edges[f], flat.edges[f + 1] - flat.edges[f]
        p = flat.cells[f]
        for j in range(arity):
            state[j] = 0
            p += kept[kept_first[flat.scope[begin + j]]] * flat.stride[begin + j]
        for _ in range(sizes[f]):
            costs[q] = flat.costs[p]
            q += 1
            for j in range(arity - 1, -1, -1):
                x, stride = flat.scope[begin + j], flat.stride[begin + j]
                start, count = kept_first[x], kept_first[x + 1] - kept_first[x]
                p -= kept[start + state[j]] * stride
                state[j] += 1
                if state[j] < count:
                    p += kept[start + state[j]] * stride
                    break
                state[j] = 0
                p += kept[start] * stride
    return costs, sizes
