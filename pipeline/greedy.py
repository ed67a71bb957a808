"""A greedy elimination order in plain Python, for models too small to be worth compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from random import Random

from .trees import bits_of, mask_of


def primal_graph(n_variables: int, scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return each variable's neighbours as a bit set: those that share a function with it."""
    adjacency = [0] * n_variables
    for scope in scopes:
        mask = mask_of(scope)
        for v in scope:
            adjacency[v] |= mask
    return [a & ~(1 << v) for v, a in enumerate(adjacency)]


def fill_of(adjacency: Sequence[int], v: int) -> int:
    """Count the pairs of neighbours of ``v`` that are not adjacent to each other."""
    around = adjacency[v]
    missing = sum((around & ~adjacency[u]).bit_count() - 1 for u in bits_of(around))
    return missing // 2


#: Bits looked at before the rest of an order is left as it is: such a network needs the compiled search.
_MAX_WORK = 1_000_000


def min_fill_order(dims: Sequence[int], scopes: Sequence[Sequence[int]], seed: int) -> tuple[int, ...]:
    """Return a min-fill order (Kjaerulff 1990); the smaller table goes first, then chance decides.

    On networks too dense for this to be quick the last variables follow by their scores at that moment.
    """
    adjacency = primal_graph(len(dims), scopes)
    rng = Random(seed)
    logs = [log2(d) for d in dims]

    def key(v: int) -> tuple[int, float, float]:
        return fill_of(adjacency, v), sum(logs[u] for u in bits_of(adjacency[v])), rng.random()

    keys = {v: key(v) for v in range(len(dims))}
    order = []
    work = 0
    while keys and work < _MAX_WORK:
        v = min(keys, key=keys.__getitem__)
        fill = keys.pop(v)[0]
        order.append(v)
        around = adjacency[v]
        stale = around
        for u in bits_of(around):
            if fill:
                # a new edge changes the fill of the common neighbours of its ends
                for w in bits_of(around & ~adjacency[u] & ~(1 << u)):
                    stale |= adjacency[u] & adjacency[w]
        for u in bits_of(around):
            adjacency[u] = (adjacency[u] | around) & ~(1 << u) & ~(1 << v)
        for u in bits_of(stale & ~(1 << v)):
            keys[u] = key(u)
            work += adjacency[u].bit_count()
    return (*order, *sorted(keys, key=keys.__getitem__))
