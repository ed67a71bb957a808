"""Elimination orders whose reverse walks a bucket tree depth first, heavy children last: few variables stay live."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from ...tasks.compiler.code_cache import Patience
from ...tasks.compiler.compile_limits import CompilerPolicy, NotCompiledError
from .effort import OrderPolicy
from .min_fill import MAX_WORK, min_fill_order
from .tree_search import UNCOMPILED_CELLS

# Seconds of a search that it is compiled for, and cells of the buckets of the first order that it is loaded for.
_LOADED_CELLS: Final = 1 << 22
# Neighbours visited by a first order if a compiled search can follow; a longer first order is worse.
_FIRST_WORK: Final = 100_000

PATIENCE = Patience("pipeline.orders.order_regions", "improve_order")


def loops_are_ready() -> bool:
    """Whether searches for orders are loaded, or compiled so that they soon are."""
    return PATIENCE.ends(0.0) or PATIENCE.compiled


def depth_first_order(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], *, seconds: float = 0.3, seed: int = 0
) -> tuple[int, ...]:
    """Search for an elimination order, and rearrange it depth first without changing its buckets.

    A search that assigns variables in the reverse order finishes a small subtree before it begins a large one, so that
    the open part is the separator of one path (the frontier). If the order search must be compiled first, it waits
    until enough time is allowed. If it must be loaded, it is skipped when the first order is good enough.
    """
    policy = OrderPolicy.current()
    searched, compiled = PATIENCE.ends(0.0), PATIENCE.compiled
    first = min_fill_order(dims, scopes, seed, _FIRST_WORK if searched or compiled else MAX_WORK)
    cells = bucket_cells(dims, scopes, first)
    if seconds >= policy.compiled_seconds:
        searched |= cells > CompilerPolicy.current().weight * UNCOMPILED_CELLS
    if searched or (compiled and cells > _LOADED_CELLS):
        from .tried_orders import search_order

        with suppress(NotCompiledError):
            fewer, found = search_order(dims, scopes, seconds=seconds, seed=seed)
            first = found if fewer < cells else first
    return rearranged(dims, scopes, first)


def rearranged(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[int, ...]:
    """Return an order with the same buckets whose reverse is a depth-first walk, the heaviest child last."""
    parents, contexts = bucket_parents(len(dims), scopes, order)
    bits, weight = [*map(math.log2, dims)], [0.0] * len(dims)
    children: list[list[int]] = [[] for _ in dims]
    for v in order:
        weight[v] += 2.0 ** min(60.0, bits[v] + math.fsum(map(bits.__getitem__, contexts[v])))
        if parents[v] >= 0:
            weight[parents[v]] += weight[v]
            children[parents[v]].append(v)
    stack = sorted((v for v in order if parents[v] < 0), key=lambda v: -weight[v])
    walk = []
    while stack:
        v = stack.pop()
        walk.append(v)
        stack.extend(sorted(children[v], key=lambda u: -weight[u]))
    return tuple(walk[::-1])


def bucket_parents(
    n_variables: int, scopes: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], list[set[int]]]:
    """Return for each variable the one whose bucket takes its message (-1 for none), and the scope of that message."""
    place = {v: i for i, v in enumerate(order)}
    contexts: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        first = min(scope, key=place.__getitem__)
        contexts[first] |= set(scope) - {first}
    parents = [-1] * n_variables
    for v in order:
        if contexts[v]:
            parents[v] = min(contexts[v], key=place.__getitem__)
            contexts[parents[v]] |= contexts[v] - {parents[v]}
    return parents, contexts


def bucket_cells(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int]) -> float:
    """Return how many cells the buckets of an order have together."""
    return math.fsum(cells_of_buckets(dims, scopes, order))


def cells_of_buckets(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int]) -> list[float]:
    """Return how many cells the bucket of each variable has, at most 2**1000."""
    _, contexts = bucket_parents(len(dims), scopes, order)
    bits = [*map(math.log2, dims)]
    sums = [bits[v] + math.fsum(map(bits.__getitem__, context)) for v, context in enumerate(contexts)]
    return [2.0 ** min(b, 1000.0) for b in sums]


def sweep_cells(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], seed: int, last: frozenset[int] = frozenset()
) -> float:
    """Return the cells of the buckets of one greedy order, with ``last`` after all others: the cells of a sweep."""
    return _remembered_cells(tuple(dims), tuple(map(tuple, scopes)), seed, last)


@lru_cache(maxsize=4)
def _remembered_cells(
    dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], seed: int, last: frozenset[int]
) -> float:
    """The same; one question asks for the cells of one network several times."""
    order = min_fill_order(dims, scopes, seed)
    return bucket_cells(dims, scopes, sorted(order, key=last.__contains__) if last else order)
