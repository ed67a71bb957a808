"""All functions of a cost network in one array, folded and restricted.

Costs are integers (or multiples of a power of two) in float64, so that sums are exact; inf is forbidden. A value that
was removed has an infinite unary cost.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


#: Parts of at least this average length are copied one by one: positions of all entries would take three times their
#: memory.
_LONG_PART = 16
# Odd, with bits in no pattern (splitmix64): sums of multiples that were mixed with it tell scopes apart.
_MIXER = np.uint64(0xBF58476D1CE4E5B9)


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
    """Return the starts of parts of these lengths in one array, and its length."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def parts(starts: Integers, chosen: Integers) -> Integers:
    """Return the positions of the chosen parts of an array that ``starts`` cuts, one part after the other."""
    counts = starts[chosen + 1] - starts[chosen]
    return np.arange(int(counts.sum())) + np.repeat(starts[chosen] - offsets(counts)[:-1], counts)


def chosen_parts(values: Any, starts: Integers, chosen: Integers) -> Any:
    """Return the chosen parts of an array that ``starts`` cuts, one part after the other; all of them are no copy."""
    if len(chosen) == len(starts) - 1 and (np.diff(chosen) > 0).all():
        return values
    if len(values) < _LONG_PART * len(starts):
        return values[parts(starts, chosen)]
    begins, ends = starts[chosen].tolist(), starts[chosen + 1].tolist()
    return np.concatenate([values[:0], *(values[a:b] for a, b in zip(begins, ends, strict=True))])


def flatten(dims: Integers, unary: Costs, costs: Costs, arities: Integers, scope: Integers) -> Flat:
    """Put tables of two axes and more, one after the other in ``costs``, into a network."""
    edges = offsets(arities)
    stride, sizes = _strides(dims, edges, scope)
    around = offsets(np.bincount(scope, minlength=len(dims)))
    incident = np.argsort(scope, kind="stable")
    function = np.repeat(np.arange(len(arities)), arities)
    return Flat(offsets(dims), unary, offsets(sizes), costs, edges, scope, stride, function, around, incident)


def selected(flat: Flat, chosen: Integers) -> Flat:
    """Return the network of the chosen functions only."""
    costs = chosen_parts(flat.costs, flat.cells, chosen)
    scope = chosen_parts(flat.scope, flat.edges, chosen)
    return flatten(flat.dims, flat.unary, costs, np.diff(flat.edges)[chosen], scope)


def entries_of(flat: Flat, states: Integers) -> Integers:
    """Return for each function where the entry that an assignment chooses is in ``costs``."""
    chosen: Integers = flat.cells[:-1] + np.add.reduceat(flat.stride * states[flat.scope], flat.edges[:-1])
    return chosen


def _strides(dims: Integers, edges: Integers, scope: Integers) -> tuple[Integers, Integers]:
    """Stride of each edge, cells of each function."""
    stride, sizes, arities = np.empty(len(scope), np.int64), np.ones(len(edges) - 1, np.int64), np.diff(edges)
    for back in range(1, int(arities.max(initial=0)) + 1):
        wide = np.flatnonzero(arities >= back)
        axis = edges[wide + 1] - back
        stride[axis] = sizes[wide]
        sizes[wide] *= dims[scope[axis]]
    return stride, sizes


def take_out(flat: Flat) -> float:
    """Take the least cost out of every table and of every variable's unary costs; return the sum."""
    return _take(flat.costs, flat.cells) + _take(flat.unary, flat.first)


def _take(costs: Costs, begins: Integers) -> float:
    if not len(costs):
        return 0.0
    least = np.minimum.reduceat(costs, begins[:-1])
    for i in np.flatnonzero((least != 0) & (least < np.inf)).tolist():
        costs[begins[i] : begins[i + 1]] -= least[i]
    return float(least.sum())


def fold_contained(flat: Flat) -> Flags:
    """Add every function to the smallest whose scope contains its own; return which functions are left.

    The smallest are first, the last of equals before the others.
    """
    arities, left = np.diff(flat.edges), np.ones(flat.n_functions, np.bool_)
    # a scope that another one contains has a twin, or each of its variables is in a function of more variables
    mixed = np.arange(1, len(flat.first), dtype=np.uint64) * _MIXER
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXER
    sums = np.add.reduceat(mixed[flat.scope], flat.edges[:-1])
    _, group, counts = np.unique(sums, return_inverse=True, return_counts=True)
    used = np.flatnonzero(np.diff(flat.around))
    largest = np.zeros(len(flat.first), np.int64)
    largest[used] = np.maximum.reduceat(arities[flat.function[flat.incident]], flat.around[:-1][used])
    inside = np.minimum.reduceat(largest[flat.scope], flat.edges[:-1]) > arities
    candidates = np.flatnonzero(inside | (counts[group] > 1))
    if not len(candidates):
        return left
    sizes, lengths = np.diff(flat.cells).tolist(), arities.tolist()
    scope, edges = flat.scope.tolist(), flat.edges.tolist()
    scopes = {f: tuple(sorted(scope[edges[f] : edges[f + 1]])) for f in candidates.tolist()}
    begins, near = flat.around.tolist(), flat.function[flat.incident]
    around = {x: frozenset(near[begins[x] : begins[x + 1]].tolist()) for x in set(chain.from_iterable(scopes.values()))}
    twins: dict[tuple[int, ...], list[int]] = {}
    for f, own in scopes.items():
        twins.setdefault(own, []).append(f)
    for f in candidates[np.lexsort((-candidates, arities[candidates]))].tolist():
        own = scopes[f]
        hosts = twins[own][: twins[own].index(f)]
        if not hosts and inside[f]:
            together = frozenset.intersection(*sorted([around[x] for x in own], key=len))
            hosts = [g for g in together if lengths[g] > lengths[f] and left[g]]
        if hosts:
            left[f] = False
            _add_table(flat, f, min(hosts, key=lambda g: (sizes[g], g)))
    return left


def _add_table(flat: Flat, f: int, host: int) -> None:
    """Add the table of ``f`` to one whose scope contains its own."""
    own, axes = (flat.scope[flat.edges[g] : flat.edges[g + 1]].tolist() for g in (f, host))
    dims, there = flat.dims, sorted(own, key=axes.index)
    table = flat.costs[flat.cells[f] : flat.cells[f + 1]].reshape(dims[own]).transpose([own.index(x) for x in there])
    target = flat.costs[flat.cells[host] : flat.cells[host + 1]].reshape(dims[axes])
    target += table.reshape([dims[x] if x in own else 1 for x in axes])


def restrict(flat: Flat, kept: Integers, kept_first: Integers) -> tuple[Costs, Integers]:
    """Return all tables over the values kept (``kept``: their numbers, by variable), and the size of each."""
    counts, dims = np.diff(kept_first), flat.dims
    values = [kept[a:b] for a, b in pairwise(kept_first.tolist())]
    smaller = (counts < dims)[flat.scope]
    changed = np.bincount(flat.function[smaller], minlength=flat.n_functions) > 0
    _, sizes = _strides(counts, flat.edges, flat.scope)
    begins, costs = offsets(sizes), np.empty(int(sizes.sum()))
    for f, smaller_table in enumerate(changed.tolist()):
        table = flat.costs[flat.cells[f] : flat.cells[f + 1]]
        if smaller_table:
            scope = flat.scope[flat.edges[f] : flat.edges[f + 1]]
            table = table.reshape(dims[scope])[np.ix_(*(values[x] for x in scope))].reshape(-1)
        costs[begins[f] : begins[f + 1]] = table
    return costs, sizes
