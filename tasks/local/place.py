"""Where a local search is: states, the entry of every function that they choose, and random numbers of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..bounds.tables import Flat, entries_of
from ..machine_code import njit


class Place(NamedTuple):
    """An assignment of a flat network.

    Parameters
    ----------
    states : NDArray
        Of each variable.
    at : NDArray
        For each function, where the entry of these states is in ``costs``.
    random : NDArray
        (1,) uint64, not 0: the state of a xorshift generator.
    """

    states: Any
    at: Any
    random: Any


def place_of(flat: Flat, states: Any, seed: int) -> Place:
    """Return an assignment, with its entries."""
    taken = np.array(states, dtype=np.int64)
    mixed = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
    return Place(taken, entries_of(flat, taken), mixed)


@njit(cache=True, nogil=True)
def draw(random: Any, n: int) -> Any:
    """Return a random number from 0 to ``n - 1``."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64(x >> np.uint64(33)) % n


@njit(cache=True, nogil=True)
def go(flat: Any, place: Any, x: int, state: int) -> None:
    """Give a variable another state."""
    step = state - place.states[x]
    for k in range(flat.around[x], flat.around[x + 1]):
        e = flat.incident[k]
        place.at[flat.function[e]] += step * flat.stride[e]
    place.states[x] = state


@njit(cache=True, nogil=True)
def total(flat: Any, place: Any) -> float:
    """Sum of the entries."""
    cost = 0.0
    for x in range(len(place.states)):
        cost += flat.unary[flat.first[x] + place.states[x]]
    for f in range(len(place.at)):
        cost += flat.costs[place.at[f]]
    return cost
