"""A greedy elimination order in plain Python, for models too small to be worth compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import log2
from random import Random

from ...tasks.steps.axes import bits_of, mask_of
from ...tasks.steps.number_limits import ordered_sum


def primal_graph(n_variables: int, scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return each variable's neighbours as a bit set: the variables that share a function with it."""
    adjacency = [0] * n_variables
    for scope in scopes:
        mask = mask_of(scope)
        for v in scope:
            adjacency[v] |= mask
    return [a & ~(1 << v) for v, a in enumerate(adjacency)]


def least_width(n_variables: int, scopes: Sequence[Sequence[int]]) -> int:
    """Return a lower bound of the width of every elimination order: the contraction degeneracy of the primal graph.

    The variable with the fewest neighbours is merged with the neighbour that shares the fewest neighbours with it. The
    largest of these smallest numbers is the bound (Bodlaender, Koster and Wolle, ESA 2004, heuristic MMD+ least-c).

    Examples
    --------
    >>> least_width(4, [(0, 1), (1, 2), (2, 3), (3, 0)])  # a cycle
    2
    """
    near = primal_graph(n_variables, scopes)
    heap = [(each.bit_count(), v) for v, each in enumerate(near)]
    heapify(heap)
    left, found = set(range(n_variables)), 0
    while heap and len(left) > found + 1:  # fewer have no more neighbours than the bound
        degree, v = heappop(heap)
        if v not in left or degree != near[v].bit_count():
            continue  # out of date: the variable was merged, or entered again with its present number
        found = max(found, degree)
        left.discard(v)
        if not near[v]:
            continue
        own = bits_of(near[v])
        into = min(own, key=lambda u: (near[u] & near[v]).bit_count())
        merged = near[v] & ~(1 << into)
        for u in own:
            near[u] &= ~(1 << v)
            if u != into:
                near[u] |= 1 << into
        near[into] |= merged
        for u in own:
            heappush(heap, (near[u].bit_count(), u))
    return found


#: Maximum neighbours visited before an order is completed arbitrarily: such a network needs the compiled search.
MAX_WORK = 1_000_000


def min_fill_order(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], seed: int, work: int = MAX_WORK
) -> tuple[int, ...]:
    """Return a min-fill order (Kjaerulff 1990); the smaller table goes first, then chance decides.

    On networks too dense for this to be quick the last variables follow by their scores at that moment.
    """
    return remembered_min_fill(tuple(dims), tuple(map(tuple, scopes)), seed, work)


@lru_cache(maxsize=4)
def remembered_min_fill(
    dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], seed: int, work: int
) -> tuple[int, ...]:
    """The same; one question asks for the order of one network several times."""
    graph = FillGraph(dims, scopes)
    rng = Random(seed)
    chance = [rng.random() for _ in dims]
    fill, size = graph.fill, graph.size
    # a score that changes is entered again; entries that are out of date are passed over
    heap = [(fill[v], size[v], chance[v], v) for v in range(len(dims))]
    heapify(heap)
    order: list[int] = []
    left = dict.fromkeys(range(len(dims)))
    while heap and graph.work < work:
        least, table, _, v = heappop(heap)
        if v not in left or least != fill[v] or table != size[v]:
            continue
        del left[v]
        order.append(v)
        for u in graph.eliminate(v):
            heappush(heap, (fill[u], size[u], chance[u], u))
    return (*order, *sorted(left, key=lambda v: (fill[v], size[v], chance[v])))


class FillGraph:
    """The primal graph during elimination, with the score of each variable: its fill edges, and ln of its table.

    Only what an elimination changes is computed again, as in the compiled search.
    """

    def __init__(self, dims: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.adjacency: list[set[int]] = [set() for _ in dims]
        for scope in scopes:
            for v in scope:
                self.adjacency[v].update(scope)
        for v, around in enumerate(self.adjacency):
            around.discard(v)
        self.logs = [log2(d) for d in dims]
        self.fill: list[int] = []
        self.size: list[float] = []
        self.work = 0
        adjacency, logs = self.adjacency, self.logs
        for around in adjacency:
            missing = len(around) ** 2 - sum([len(around & adjacency[u]) for u in around])
            self.fill.append((missing - len(around)) // 2)
            self.size.append(ordered_sum([logs[u] for u in sorted(around)]))

    def eliminate(self, v: int) -> set[int]:
        """Connect the neighbours of a variable and remove it; return the variables whose score changed."""
        adjacency, fill, size, logs = self.adjacency, self.fill, self.size, self.logs
        around = adjacency[v]
        changed = self._connect(v) if fill[v] else set()
        for u in around:
            adjacency[u].discard(v)
            # the neighbours are a clique now: pairs of v that are missing at u have the other end outside
            fill[u] -= len(adjacency[u]) + 1 - len(around)
            size[u] -= logs[v]
        changed |= around
        changed.discard(v)
        self.work += len(changed)
        return changed

    def _connect(self, v: int) -> set[int]:
        """Add the edges between the neighbours of a variable; return the variables whose fill changed."""
        adjacency, fill, size, logs = self.adjacency, self.fill, self.size, self.logs
        changed: set[int] = set()
        neighbours = sorted(adjacency[v])
        for i, a in enumerate(neighbours):
            around = adjacency[a]
            for b in [b for b in neighbours[i + 1 :] if b not in around]:
                common = around & adjacency[b]
                for c in common:
                    fill[c] -= 1
                changed |= common
                fill[a] += len(around) - len(common)
                fill[b] += len(adjacency[b]) - len(common)
                size[a] += logs[b]
                size[b] += logs[a]
                around.add(b)
                adjacency[b].add(a)
                self.work += len(common)
        return changed
