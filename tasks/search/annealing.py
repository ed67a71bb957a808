"""Simulated annealing that changes one variable at a time and keeps the costs of every value."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..networks.flat import Flat, entries_of

# Where a local search is: states, the entry of every function that they choose, and random numbers of its own.


class Place(NamedTuple):
    """An assignment of a flat network.

    Parameters
    ----------
    states : NDArray
        Of each variable.
    at : NDArray
        For each function, the position of the entry of these states in ``costs``.
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


@njit(nogil=True)
def draw(random: Any, n: int) -> Any:
    """Return a random number from 0 to ``n - 1``."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64(x >> np.uint64(33)) % n


@njit(nogil=True)
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


@njit(cache=True, nogil=True, makes_arrays=True)
def costs_of_values(flat: Any, place: Any) -> Any:
    """For each value of each variable, the cost of the variable with it while the other variables stay."""
    values = flat.unary.copy()
    for x in range(len(place.states)):
        for k in range(flat.around[x], flat.around[x + 1]):
            e = flat.incident[k]
            p = place.at[flat.function[e]] - place.states[x] * flat.stride[e]
            for a in range(flat.first[x], flat.first[x + 1]):
                values[a] += flat.costs[p]
                p += flat.stride[e]
    return values


@njit(nogil=True)
def _move(flat: Any, place: Any, values: Any, x: int, state: int) -> int:
    """Give a variable another state, and change what its neighbours' values cost; return the cells touched."""
    work = 0
    for k in range(flat.around[x], flat.around[x + 1]):
        e = flat.incident[k]
        f = flat.function[e]
        step = (state - place.states[x]) * flat.stride[e]
        for other in range(flat.edges[f], flat.edges[f + 1]):
            y = flat.scope[other]
            if y == x:
                continue
            p = place.at[f] - place.states[y] * flat.stride[other]
            for a in range(flat.first[y], flat.first[y + 1]):
                values[a] += flat.costs[p + step] - flat.costs[p]
                p += flat.stride[other]
            work += flat.first[y + 1] - flat.first[y]
        place.at[f] += step
    place.states[x] = state
    return work


@njit(cache=True, nogil=True)
def anneal(flat: Any, place: Any, values: Any, hot: float, cold: float, most_work: int) -> int:
    """Propose random moves while it cools, geometrically, from one temperature to the other; return the work done."""
    n, work, temperature = len(place.states), 0, hot
    if n == 0:
        return most_work
    while work < most_work:
        temperature = hot * (cold / hot) ** (work / most_work)
        for _ in range(256):
            x = draw(place.random, n)
            begin, d = flat.first[x], flat.first[x + 1] - flat.first[x]
            if d == 1:
                continue
            a = draw(place.random, d - 1)
            a += a >= place.states[x]
            more = values[begin + a] - values[begin + place.states[x]]
            if more <= 0 or draw(place.random, 1 << 31) / (1 << 31) < math.exp(-more / temperature):
                work += _move(flat, place, values, x, a)
        work += 2048
    return work


@njit(cache=True, nogil=True)
def descend(flat: Any, place: Any, values: Any) -> None:
    """Give variables their best states in turn, until none has a better one."""
    n, x, same = len(place.states), 0, 0
    while same < n:
        begin = flat.first[x]
        best = place.states[x]
        for a in range(flat.first[x + 1] - begin):
            if values[begin + a] < values[begin + best]:
                best = a
        same += 1
        if best != place.states[x]:
            _move(flat, place, values, x, best)
            same = 0
        x = x + 1 if x + 1 < n else 0


def typical_step(flat: Any, values: Any, states: Any) -> float:
    """Mean difference, not 0, that moves of one variable make."""
    now = np.repeat(values[flat.first[:-1] + states], np.diff(flat.first))
    steps = np.abs(values - now)
    steps = steps[steps > 0]
    return float(steps.mean()) if len(steps) else 1.0
