"""Leaf tables by rows: the cells that a function lists where it forbids all others, and what others are worth there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys
from .consistency import allowed
from .preprocess import Leaf, Network

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Listed:
    """Some cells of a table, in no order.

    Parameters
    ----------
    axes : tuple of int
        Local variables.
    states : ndarray, shape (axes, cells), integer
        Places of states among those that are left.
    """

    axes: tuple[int, ...]
    states: Array

    def codes(self, axes: Sequence[int], dims: Sequence[int]) -> Array:
        """Return a number for each cell, the same for the same states of some of the axes; uint64 keys."""
        places = [self.axes.index(v) for v in axes]
        return Keys(tuple(axes), tuple(dims[v] for v in axes)).pack(self.states[places])


def is_listed(network: Network, f: int) -> bool:
    """Whether a function forbids everything that it does not list."""
    function = network.model.functions[f]
    return function.rows is not None and not allowed(network.model, f, np.asarray(function.default)).item()


def listed_cells(network: Network, leaf: Leaf, axes: Sequence[int]) -> Listed | None:
    """Return the only cells of a leaf table that may be allowed; None where no function lists them."""
    drivers = [f for f in leaf.functions if is_listed(network, f) and _local_scope(network, f) == {*leaf.scope}]
    if not drivers:
        return None
    found = rows_left(network, min(drivers, key=lambda f: len(network.model.functions[f].values)))[0]
    return Listed(tuple(axes), found.states[[found.axes.index(v) for v in axes]])


def rows_left(network: Network, f: int) -> tuple[Listed, Array]:
    """Return the allowed rows of a function on the states that are left, and their values."""
    function = network.model.functions[f]
    assert function.rows is not None
    inside = np.ones(len(function.rows), bool)
    places = []
    for v, states in zip(function.scope, function.rows.T, strict=True):
        place = network.places[v][states]
        if len(network.domains[v]) < network.model.dims[v]:
            inside &= place >= 0
        places.append(place)
    if is_listed(network, f):
        inside &= allowed(network.model, f, function.values)
    axes = [
        (network.local[v], place[inside]) for v, place in zip(function.scope, places, strict=True) if _wide(network, v)
    ]
    states = np.array([place for _, place in axes]).reshape(len(axes), int(inside.sum()))
    return Listed(tuple(v for v, _ in axes), states), function.values[inside]


def values_at(network: Network, f: int, cells: Listed) -> Array:
    """Return what a function that is stored by rows is worth at some cells, one value each."""
    function = network.model.functions[f]
    rows, values = rows_left(network, f)
    wanted, known = (part.codes(rows.axes, network.dims) for part in (cells, rows))
    found = np.full(cells.states.shape[1], function.default, dtype=function.values.dtype)
    if len(values) and found.size:
        places = _places(known, wanted)
        found = np.where(places >= 0, values[places], found)
    return found


def leaf_rows(network: Network) -> tuple[int, ...]:
    """Return for each leaf table how many assignments it allows, at most."""
    return tuple(_most_rows(network, leaf) for leaf in network.leaves)


def possible(network: Network) -> str:
    """Say how much of the leaf tables is possible."""
    cells = [math.prod(network.dims[v] for v in leaf.scope) for leaf in network.leaves]
    shares = [rows / count for rows, count in zip(leaf_rows(network), cells, strict=True)]
    few = sum(2 * share <= 1 for share in shares)
    return f"{few:,} of {len(shares):,} functions allow half of their assignments or less"


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
    if known.shape[1] > 1:  # words of a key as one number: where it stands among all
        _, places = np.unique(np.concatenate([known, wanted]), axis=0, return_inverse=True)
        known, wanted = places.reshape(-1, 1)[: len(known)], places.reshape(-1, 1)[len(known) :]
    order = np.argsort(known[:, 0])
    at = np.minimum(np.searchsorted(known[:, 0], wanted[:, 0], sorter=order), len(known) - 1)
    return np.where(known[order[at], 0] == wanted[:, 0], order[at], -1)
