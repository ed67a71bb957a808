"""Leaf tables by rows: the cells that a function lists where it forbids all others, and what others are worth there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys
from ...tasks.rows.numpy_rows import comparable
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import ordered_sum
from .consistency import allowed
from .preprocess import Leaf, Network

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ListedCells:
    """Some cells of a table, in no order.

    Parameters
    ----------
    axes : tuple of int
        Local variables.
    states : tuple of ndarray, integer, shape (cells,)
        For each axis, the indices of states among the remaining states.
    function : int
        The function that lists these cells.
    values : ndarray, shape (cells,)
        Values of the function at these cells.
    """

    axes: tuple[int, ...]
    states: tuple[Array, ...]
    function: int
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, axes: Sequence[int], dims: Sequence[int]) -> Array:
        """Return a number for each cell, the same for the same states of some of the axes; uint64 keys."""
        keys = Keys(tuple(axes), tuple(dims[v] for v in axes))
        return keys.packed([self.states[self.axes.index(v)] for v in axes], len(self))


def is_listed(network: Network, f: int) -> bool:
    """Whether a function forbids everything that it does not list."""
    function = network.model.functions[f]
    return function.rows is not None and not allowed(network.model, f, np.asarray(function.default)).item()


def listed_cells(network: Network, leaf: Leaf, axes: Sequence[int]) -> ListedCells | None:
    """Return the only cells of a leaf table that may be allowed; None where no function lists them."""
    drivers = [f for f in leaf.functions if is_listed(network, f) and _local_scope(network, f) == {*leaf.scope}]
    if not drivers:
        return None
    found = rows_left(network, min(drivers, key=lambda f: len(network.model.functions[f].values)))
    return replace(found, axes=tuple(axes), states=tuple(found.states[found.axes.index(v)] for v in axes))


def rows_left(network: Network, f: int) -> ListedCells:
    """Return the rows of a function on the states that are left; only allowed ones, if it forbids all others."""
    function = network.model.functions[f]
    assert function.rows is not None
    inside = allowed(network.model, f, function.values) if is_listed(network, f) else np.ones(len(function.rows), bool)
    places = {}
    for v, states in zip(function.scope, function.rows.T, strict=True):
        if len(network.domains[v]) < network.model.dims[v]:
            place = network.places[v].astype(np.int32)[states]
            inside &= place >= 0
            places[v] = place
        elif _wide(network, v):
            places[v] = states
    kept: Any = slice(None) if inside.all() else inside
    axes = [v for v in function.scope if _wide(network, v)]
    local = tuple(network.local[v] for v in axes)
    return ListedCells(local, tuple(places[v][kept] for v in axes), f, function.values[kept])


def values_at(network: Network, f: int, cells: ListedCells) -> Array:
    """Return the values at some cells of a function stored as rows, one value per cell."""
    if f == cells.function:
        return cells.values
    function, rows = network.model.functions[f], rows_left(network, f)
    wanted, known = (part.codes(rows.axes, network.dims) for part in (cells, rows))
    found = np.full(len(cells), function.default, dtype=function.values.dtype)
    if len(rows) and len(cells):
        places = _places(known, wanted)
        found = np.where(places >= 0, rows.values[places], found)
    return found


def leaf_rows(network: Network) -> tuple[int, ...]:
    """Return for each leaf table how many assignments it allows, at most."""
    return tuple(_most_rows(network, leaf) for leaf in network.leaves)


def possible(network: Network, rows: Sequence[int]) -> str:
    """Describe how sparse leaf tables are, given their maximum numbers of allowed assignments."""
    cells = [math.prod(network.dims[v] for v in leaf.scope) for leaf in network.leaves]
    bits = ordered_sum(math.log2(count / max(own, 1)) for own, count in zip(rows, cells, strict=True))
    return f"functions would leave 1 of 2^{bits:,.0f} assignments if they were independent"


def _most_rows(network: Network, leaf: Leaf) -> int:
    cells = math.prod(network.dims[v] for v in leaf.scope)
    counts = [cells]
    for f in leaf.functions:
        function = network.model.functions[f]
        if function.rows is not None and not is_listed(network, f):
            continue
        own = math.prod(network.dims[v] for v in _local_scope(network, f))
        counts.append(cells // own * min(own, int(np.count_nonzero(allowed(network.model, f, function.values)))))
    return min(counts)


def _local_scope(network: Network, f: int) -> set[int]:
    return {network.local[v] for v in network.model.functions[f].scope if _wide(network, v)}


def _wide(network: Network, v: int) -> bool:
    return len(network.domains[v]) > 1


def _places(known: Array, wanted: Array) -> Array:
    """Return where each wanted key is among the known ones, which are distinct; -1 where it is not."""
    known, wanted = comparable(known), comparable(wanted)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    return np.where(known[order[at]] == wanted, order[at], -1)
