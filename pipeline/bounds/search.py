"""Depth-first branch and bound with soft arc consistency, for cliques whose static bounds are weak."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import CostNetwork, States
from .outcome import Outcome

Pairs = dict[tuple[int, int], NDArray[np.float64]]

#: Nodes that are explored depth first below each open node, the one of the least bound first.
_NODES = 128
#: Moves of so small a share of what is still open are not worth propagating, where costs are finer than this.
_TINY, _COARSE = 1e-7, 1e7


def solve_search(
    network: CostNetwork,
    order: Sequence[int],
    upper: int | None,
    *,
    memory_bytes: int,
    stop: Callable[[], bool] = lambda: False,
    first: States | None = None,
    on_bounds: Callable[[int, int | None], None] = lambda lower, total: None,
    on_states: Callable[[States], None] = lambda states: None,
) -> Outcome:
    """Find the least total below ``upper`` by branch and bound.

    The open node of the least bound is explored depth first for a while, what is left of it becomes open nodes (hybrid
    best-first search, Allouche, de Givry, Katsirelos, Schiex & Zytnicki, CP 2015).

    Parameters
    ----------
    order : sequence of int
        Costs are moved towards the variables that come last in it.
    upper : int or None
        Exclusive; None for no limit.
    memory_bytes : int
        For the network's copy, the trail and the open nodes.
    first : tuple of int, optional
        States that are tried first among equals.
    on_bounds : callable
        Called with the bound on everything open and the best total so far, now and then.
    on_states : callable
        Called with each better assignment.
    """
    from ...tasks.search.branching import FINISHED, FOUND, FULL, begin_at, explore
    from ...tasks.search.state import grown, nbytes

    limit = math.inf if upper is None else float(upper)
    functions, state = _laid_out(network, order, limit, first)
    best: States | None = None
    lower = int(state.costs[0])
    nodes: list[tuple[float, int, bytes]] = []
    made, n_values = 0, sum(network.dims)
    outcome = explore(functions, state, limit, 0)
    root = state.costs.copy()
    while not stop():
        if outcome == FULL:
            if 2 * nbytes(functions, state) + len(nodes) * n_values // 4 > memory_bytes:
                break
            state = grown(state)
        elif outcome == FOUND:
            best = tuple(int(a) for a in state.best)
            limit = network.total(best)
            on_states(best)
        else:
            if outcome != FINISHED:
                for bound, mask in _opened(functions, state, n_values):
                    heappush(nodes, (bound, -made, mask))
                    made += 1
            while nodes and nodes[0][0] >= limit:
                heappop(nodes)
            if not nodes:
                lower = int(limit) if limit < math.inf else lower
                return Outcome(lower, None if best is None else int(limit), best, best is not None)
            bound, _, mask = heappop(nodes)
            lower = max(lower, int(min(bound, limit)))
            on_bounds(lower, int(limit) if best is not None else None)
            begin_at(functions, state, root, np.unpackbits(np.frombuffer(mask, np.uint8), count=n_values))
        outcome = explore(functions, state, limit, _NODES)
    return Outcome(lower, None if best is None else int(limit), best)


def _opened(functions: Any, state: Any, n_values: int) -> Iterator[tuple[float, bytes]]:
    """Take the open nodes of a depth-first search: bound and values of each."""
    from ...tasks.search.branching import take_open
    from ...tasks.search.state import DEPTH

    depth = int(state.counters[DEPTH])
    masks, bounds = np.empty((depth + 1, n_values), dtype=np.bool_), np.empty(depth + 1)
    take_open(functions, state, masks, bounds)
    for mask, bound in zip(np.packbits(masks, axis=1), bounds, strict=True):
        yield float(bound), mask.tobytes()


def _split(
    network: CostNetwork,
) -> tuple[int, list[NDArray[np.float64]], Pairs, list[tuple[tuple[int, ...], NDArray[np.float64]]]]:
    """Return a constant, a cost a value, tables of pairs (ascending) and the wider ones; none is negative."""
    constant = network.constant
    unary = [np.zeros(d) for d in network.dims]
    pairs: Pairs = {}
    wide = []
    for table in network.tables:
        low = float(table.costs.min(initial=math.inf))
        low = low if low < math.inf else 0.0
        constant += int(low)
        costs = table.costs - low
        if len(table.scope) == 1:
            unary[table.scope[0]] = unary[table.scope[0]] + costs
        elif len(table.scope) == 2:
            x, y = table.scope
            key, costs = ((x, y), costs) if x < y else ((y, x), costs.T)
            pairs[key] = np.ascontiguousarray(pairs[key] + costs if key in pairs else costs)
        else:
            wide.append((table.scope, np.ascontiguousarray(costs)))
    return constant, unary, pairs, wide


def _laid_out(network: CostNetwork, order: Sequence[int], limit: float, first: States | None) -> tuple[Any, Any]:
    """Return the functions and the first state of a search."""
    from ...tasks.search.state import functions_of, new_state

    constant, unary, pairs, wide = _split(network)
    rank = np.empty(len(network.dims), dtype=np.int64)
    rank[list(order)[::-1]] = np.arange(len(network.dims))
    span = sum(float(table.costs[np.isfinite(table.costs)].max(initial=0.0)) for table in network.tables)
    tiny = _TINY * (min(limit, constant + span) - constant) if span > _COARSE else 0.0
    functions, length = functions_of(network.dims, pairs, wide, rank, max(tiny, 0.0))
    return functions, new_state(functions, length, unary, float(constant), np.array(first or (-1,) * len(network.dims)))
