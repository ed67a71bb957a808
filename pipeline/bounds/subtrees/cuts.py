"""Where a bucket tree is cut into a few connected parts that share few variables."""

from __future__ import annotations

from collections.abc import Sequence

from ..network import CostNetwork, CostTable
from ..order import bucket_parents

#: Networks of so few variables are not cut, and those of so many have parts too large to be optimised.
_FEW, _MANY = 40, 1000
#: A part has at least this share of the variables.
_LEAST_PART = 4
#: It has more than so many times the variables of the separator that cuts it off.
_SEPARATORS = 2


def cut_parts(network: CostNetwork, order: Sequence[int]) -> list[tuple[CostTable, ...]]:
    """Divide the functions among parts of the bucket tree of an order; one part if it has no narrow separators."""
    if not _FEW < len(network.dims) <= _MANY:
        return [network.tables]
    parents, contexts = bucket_parents(len(network.dims), network.scopes, order)
    return parts_below(network, order, _narrow(parents, [len(context) for context in contexts], order))


def parts_below(network: CostNetwork, order: Sequence[int], cuts: set[int]) -> list[tuple[CostTable, ...]]:
    """Divide the functions among the parts that are left where the subtrees of these variables are cut off."""
    parents, _ = bucket_parents(len(network.dims), network.scopes, order)
    place = {v: i for i, v in enumerate(order)}
    top = [-1] * len(parents)
    for v in reversed(order):
        top[v] = v if v in cuts else top[parents[v]] if parents[v] >= 0 else -1
    parts: dict[int, list[CostTable]] = {}
    for table in network.tables:
        parts.setdefault(top[min(table.scope, key=place.__getitem__)], []).append(table)
    return [tuple(tables) for tables in parts.values()]


def _narrow(parents: Sequence[int], widths: Sequence[int], order: Sequence[int]) -> set[int]:
    """The variables whose subtrees are cut off: the narrowest separators first, those in the middle among equals."""
    n = len(parents)
    left = [1] * n + [n]  # variables below, without what is cut off; the last is above all trees
    for v in order:
        if parents[v] >= 0:
            left[parents[v]] += left[v]
    cuts: set[int] = set()
    for v in sorted(order, key=lambda v: (widths[v], max(left[v], n - left[v]))):
        above = _path(parents, v, cuts)
        smaller = min(left[v], left[above[-1]] - left[v])
        if _LEAST_PART * smaller >= n and smaller > _SEPARATORS * widths[v]:
            cuts.add(v)
            for u in above:
                left[u] -= left[v]
    return cuts


def _path(parents: Sequence[int], v: int, cuts: set[int]) -> list[int]:
    """What is above a variable in its part, -1 above all trees."""
    path = [parents[v]]
    while path[-1] >= 0 and path[-1] not in cuts:
        path.append(parents[path[-1]])
    return path
