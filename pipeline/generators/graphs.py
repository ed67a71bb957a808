"""Graphs of variables: random of a density, square grids, scale-free. Pure."""

from __future__ import annotations

from itertools import combinations
from math import isqrt

import numpy as np

Edge = tuple[int, int]


def random_graph(nodes: int, density: float, rng: np.random.Generator) -> list[Edge]:
    """Return a part of all edges, chosen at random; connected if they are enough to connect all nodes."""
    count = round(density * nodes * (nodes - 1) / 2)
    order = rng.permutation(nodes).tolist()
    tree = [_edge(order[k], order[int(rng.integers(k))]) for k in range(1, nodes)]
    known = set(tree[:count])
    rest = [edge for edge in combinations(range(nodes), 2) if edge not in known]
    more = rng.choice(len(rest), count - len(known), replace=False).tolist() if count > len(known) else []
    return sorted([*known, *(rest[k] for k in more)])


def grid_graph(nodes: int) -> list[Edge]:
    """Return a square grid, row by row; the last row may be shorter."""
    side = isqrt(nodes - 1) + 1 if nodes else 0
    across = [(k, k + 1) for k in range(nodes - 1) if (k + 1) % side]
    return sorted([*across, *((k, k + side) for k in range(nodes - side))])


def scale_free_graph(nodes: int, links: int, rng: np.random.Generator) -> list[Edge]:
    """Return a graph in which every new node is linked to some others, by chance in proportion to their degrees.

    Barabási & Albert, Science 1999; it begins with ``links`` nodes that are all connected.
    """
    edges = list(combinations(range(min(links, nodes)), 2))
    ends = [node for edge in edges for node in edge] or [0]
    for node in range(max(min(links, nodes), 1), nodes):
        chosen: set[int] = set()
        while len(chosen) < min(links, node):
            chosen.add(ends[int(rng.integers(len(ends)))])
        edges += [(other, node) for other in sorted(chosen)]
        ends += [end for other in sorted(chosen) for end in (other, node)]
    return edges


def _edge(one: int, other: int) -> Edge:
    return (one, other) if one < other else (other, one)
