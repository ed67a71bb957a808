"""Orders for machines that do many equal steps at once: rounds of variables that no function or join has together.

Multiple elimination (Liu 1985, "Modification of the minimum-degree algorithm by multiple elimination") bounded by the
size of a join: the shallower a tree is to be, the larger are its joins.

>>> independent_rounds((2,) * 7, [(v, v + 1) for v in range(6)], most_cells=8)
(0, 6, 2, 4, 1, 5, 3)
>>> independent_rounds((2,) * 7, [(v, v + 1) for v in range(6)], most_cells=4)
(0, 6, 1, 5, 2, 4, 3)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod


def independent_rounds(dims: Sequence[int], scopes: Iterable[Sequence[int]], most_cells: int) -> tuple[int, ...]:
    """Return all variables in the order of rounds, with smaller joins first in each round.

    Parameters
    ----------
    dims : sequence of int
    scopes : iterable of sequences of int
    most_cells : int
        A variable whose join has more waits, unless all that are left have.
    """
    near: list[set[int]] = [set() for _ in dims]
    for scope in scopes:
        for u, v in combinations(scope, 2):
            near[u].add(v)
            near[v].add(u)
    left, order = {*range(len(dims))}, list[int]()
    while left:
        cells = {v: dims[v] * prod([dims[u] for u in near[v]]) for v in left}
        least = max(most_cells, min(cells.values()))
        taken = set[int]()
        for v in sorted(left, key=lambda v: (cells[v], v)):
            if cells[v] <= least and near[v].isdisjoint(taken):
                taken.add(v)
                order.append(v)
        for v in taken:
            for u in near[v]:
                near[u] |= near[v] - {u}
                near[u].discard(v)
        left -= taken
    return tuple(order)
