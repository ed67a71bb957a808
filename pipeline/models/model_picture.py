"""A model as a picture: parents and children, or variables and functions; with distributions where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..drawings.network_layouts import Edge
from ..drawings.network_picture import NetworkNode
from ..errors import MOST_NAMED
from .function import Function


def variable_node(key: str, name: str, labels: Sequence[str], table: Any, seen: str | None) -> NetworkNode:
    """Return the box of a variable.

    Parameters
    ----------
    key, name : str
    labels : sequence of str
        Of its states.
    table : array or None
        Its distribution.
    seen : str or None
        The label of the state that is observed.
    """
    told = f"{name}: {len(labels)} states" + (f", observed {seen}" if seen is not None else "")
    if table is None:
        label = name if seen is None else f"{name} = {seen}"
        return NetworkNode(key, label, observed=seen is not None, text=told)
    shares = np.asarray(table, dtype=np.float64)
    positive = shares[shares > 0]
    entropy = max(0.0, -float(np.dot(positive, np.log2(positive))))
    doubt = entropy / np.log2(len(shares)) if len(shares) > 1 else 0.0
    bars = tuple(zip(labels, shares.tolist(), strict=True))
    return NetworkNode(
        key, name, bars=bars, observed=seen is not None, doubt=doubt, text=f"{told}, entropy {entropy:.3f} bits"
    )


def function_nodes(functions: Sequence[Function], names: Sequence[str]) -> tuple[list[NetworkNode], list[Edge]]:
    """Return a box for each function of three variables and more, and edges; a function of two is an edge."""
    nodes: list[NetworkNode] = []
    edges: dict[Edge, None] = {}
    for k, function in enumerate(functions):
        scope = [f"v{v}" for v in function.scope if v < len(names)]
        if len(scope) == 2:
            edges[scope[0], scope[1]] = None
        elif len(scope) > 2:
            over = ", ".join(names[v] for v in function.scope[:MOST_NAMED] if v < len(names))
            nodes.append(NetworkNode(f"f{k}", "", "function", text=f"function {k} over {over}"))
            edges |= dict.fromkeys((v, f"f{k}") for v in scope)
    return nodes, list(edges)


def family_edges(functions: Sequence[Function], own: int) -> list[Edge]:
    """Return edges from parents to children."""
    pairs = [(p, f.child) for f in functions if f.child is not None for p in f.scope if p != f.child]
    return [(f"v{p}", f"v{c}") for p, c in dict.fromkeys(pairs) if p < own and c < own]


def seen_labels(labels: Sequence[Sequence[str]], hard: Mapping[int, int]) -> dict[int, str]:
    """Return the labels of observed states by variable."""
    return {v: labels[v][state] for v, state in hard.items() if v < len(labels)}
