"""Layers of rows in NumPy, with the same results as :mod:`.loops` bit for bit: for few rows no compiler is needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .keys import Words, offsets, repacked
from .layer import Costs, Layer, Origin, Rows, lowered


def next_rows(rows: Rows, layer: Layer, upper: float, most: int) -> tuple[Rows, Origin, float]:
    """Go on to the next layer; see :func:`.rows.next_rows`."""
    sums = _sums(rows, layer).reshape(-1)
    origin = np.flatnonzero(sums < upper)
    keys, costs = _keys(rows.keys, layer, origin), sums[origin]
    if layer.leaving or not layer.stays:
        first = _first_of_equals(keys, costs)
        keys, costs, origin = keys[first], costs[first], origin[first]
    cut = np.inf
    if len(costs) > most:
        cut = float(np.partition(costs, most)[most])
        cheap = costs < cut
        cheap[np.flatnonzero(costs == cut)[: most - int(np.count_nonzero(cheap))]] = True
        keys, costs, origin = keys[cheap], costs[cheap], origin[cheap]
    return Rows(keys, costs), origin.astype(np.uint32), cut


def _sums(rows: Rows, layer: Layer) -> Costs:
    """The cost of every row with every state of the layer's variable."""
    parts, terms = lowered(layer)
    sums = np.repeat((rows.costs - layer.constant)[:, None], layer.d, axis=1)
    for term, first, last, sign in sorted(terms, key=lambda each: each[3]):
        at, costs = offsets(rows.keys, parts[first:last]), np.asarray(term.costs, np.float64)
        sums += costs.reshape(-1, layer.d)[at // layer.d] if sign > 0 else -costs[at][:, None]
    return sums


def _keys(keys: Words, layer: Layer, origin: NDArray[np.int64]) -> Words:
    """The new keys of origins."""
    rows, states = np.divmod(origin, layer.d)
    moved = repacked(keys[rows], layer.keys.moves(layer.next_keys), layer.next_keys.n_words)
    if layer.stays:
        moved[:, -1] |= states.astype(np.uint64)
    return moved


def _first_of_equals(keys: Words, costs: Costs) -> NDArray[np.int64]:
    """The cheapest row of each key, the first of equally cheap ones, in the order of keys."""
    order = np.lexsort((costs, *keys.T[::-1]))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    return order[fresh]
