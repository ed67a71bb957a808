"""Diagrams of factors, products of them, and sums over a last variable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.number_limits import LEAST_FACTOR
from . import sum_product_loops
from .diagram import Diagram, Pairing, align, packed, turn
from .min_plus import DiagramStoppedError, Integers, NoRoomError, levels_of, one_node
from .sum_product_loops import Reached

Floats = NDArray[np.float64]


class VanishedError(Exception):
    """A product of factors is too small to be a float."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A function that is nowhere negative, as a diagram times a number.

    Parameters
    ----------
    diagram : Diagram or None
        None if all entries are 0.
    number : float
        A residue if it was made modulo a prime.
    edges : int
        Edges that were looked at to make it.
    moved : int
        Maximum error of all entries, in units in the last place, relative to exact input diagrams.
    """

    diagram: Diagram | None
    number: float
    edges: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Means:
    """Parameters of a factor's computation: the prime modulus (0 for floats), the limits of bytes and edges, and a stop
    function.
    """

    modulus: int = 0
    memory_bytes: int = 1 << 62
    edges: int = 1 << 62
    stop: Callable[[], bool] = bool


def product(a: Diagram, b: Diagram | None, *, sizes: Integers, means: Means, add_up: bool = False) -> Factor:
    """Multiply two functions, or take one; with ``add_up`` the sum over the last variable.

    Raises
    ------
    NoRoomError
        If it takes more memory or edges than allowed.
    VanishedError
        If a product of floats is too small to be right.
    StoppedError
        If ``stop`` ended it.
    """
    b = b or one_node()
    pairing = align(a.scope, b.scope, sizes)
    last = len(pairing.scope) - add_up
    room = 64 * len(pairing.scope)
    reached = Reached(np.empty(room, np.int32), np.empty(room), np.zeros(1, np.int64))
    counts = np.zeros(sum_product_loops.N_COUNTS, np.int64)
    counts[sum_product_loops.FRONT] = 1
    while counts[sum_product_loops.LEVEL] < last:
        if means.stop():
            raise DiagramStoppedError
        edges, factor = turn()
        limits = means.memory_bytes, means.edges, edges
        reached = sum_product_loops.expand(a, b, pairing, reached, counts, last, *limits, means.modulus, factor)
        if counts[sum_product_loops.EXHAUSTED]:
            raise NoRoomError
    if add_up:
        low = sum_product_loops.sum_last(a, b, pairing, reached, counts, means.modulus)
    else:
        low = np.ones(counts[sum_product_loops.FRONT])
    return _merged(pairing, reached, counts, low, means)


def _merged(pairing: Pairing, reached: Reached, counts: Integers, low: Floats, means: Means) -> Factor:
    """Merge all states into nodes."""
    edges = int(counts[sum_product_loops.EDGES])
    nodes = np.ones(counts[sum_product_loops.LEVEL] + 1, np.int64)
    ids = np.zeros(len(low), np.int32)
    while counts[sum_product_loops.LEVEL] and len(low):
        if means.stop():
            raise DiagramStoppedError
        quota, factor = turn()
        ids, low = sum_product_loops.merge(pairing, reached, nodes, ids, low, counts, quota, means.modulus, factor)
    if counts[sum_product_loops.VANISHED]:
        raise VanishedError
    moved = int(counts[sum_product_loops.MOVED])
    if not len(low) or low[0] == 0.0:
        return Factor(None, 0.0, edges, moved)
    kept = int((nodes[:-1] * pairing.sizes[: len(nodes) - 1]).sum())
    if 12 * (len(reached.child) + kept) > means.memory_bytes:
        raise NoRoomError
    return Factor(packed(pairing, reached, nodes), float(low[0]), edges, moved)


def from_table(scope: Integers, values: NDArray[Any], means: Means) -> Factor:
    """Turn a table into a diagram.

    Parameters
    ----------
    scope : array
        Ascending variables.
    values : array
        An axis a variable; residues if the means have a modulus.

    Raises
    ------
    NoRoomError
        If it takes more memory than allowed.
    VanishedError
        If an entry is too small for its products to be right.
    """
    if 20 * 2 * values.size > means.memory_bytes:
        raise NoRoomError
    pairing, child = levels_of(scope, values.shape)
    low = np.ascontiguousarray(values, np.float64).reshape(-1)
    if not means.modulus and ((low > 0.0) & (low < LEAST_FACTOR)).any():
        raise VanishedError
    counts = np.zeros(sum_product_loops.N_COUNTS, np.int64)
    counts[sum_product_loops.LEVEL] = len(scope)
    return _merged(pairing, Reached(child, np.ones(len(child)), scope), counts, low, means)


def values_of(factor: Factor, sizes: Integers, modulus: int = 0) -> Floats:
    """Return all entries, an axis a variable."""
    diagram = factor.diagram
    assert diagram is not None
    nodes, found = np.zeros(1, np.int64), np.array([factor.number])
    for i, v in enumerate(diagram.scope):
        edges = diagram.start[i] + nodes[:, None] * sizes[v] + np.arange(sizes[v])
        weight = diagram.weight[edges]
        if modulus:
            found = (found[:, None].astype(np.int64) * weight.astype(np.int64) % modulus).astype(float).reshape(-1)
        else:
            found = (found[:, None] * weight).reshape(-1)
        nodes = diagram.child[edges].astype(np.int64).reshape(-1)
    return found.reshape([sizes[v] for v in diagram.scope])
