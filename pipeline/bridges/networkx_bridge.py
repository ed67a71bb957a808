"""Graphs of networkx as models: nodes are variables, edges and nodes have tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError, checks_keywords, shorten
from ..models.model import Kind, Model
from ..public_names import public
from .labelled_tables import Table, labelled_model

States = int | Sequence[Any]


@public
@checks_keywords
def from_networkx(
    graph: Any, kind: Kind = "markov", *, states: States | None = None, nodes: Any = None, edges: Any = None
) -> Model:
    """Return the model of a graph.

    Parameters
    ----------
    graph : networkx graph
        The attribute ``states`` of a node is how many states it has, or their labels; ``table`` has one value a state.
        An edge has in ``table`` a matrix, of its first node's states by its second one's. In an undirected graph an
        edge has no first node, so that its matrix is symmetric, or the attribute ``scope`` names both nodes in the
        order of its axes. In a directed graph of ``"bayes"``, the ``table`` of a node is its distribution: an axis
        for each parent, in the order of the attribute ``parents`` or else of ``graph.predecessors``, and last its own.
    kind : {"markov", "cost", "bayes"}, optional
    states : int or sequence, optional
        The states of nodes without the attribute.
    nodes, edges : array-like, optional
        The table of nodes, or edges, without the attribute; without it these have none.

    Raises
    ------
    ModelError
        If a node has no states, or a table does not fit its nodes.

    Examples
    --------
    >>> import bucketflow
    >>> import networkx
    >>> graph = networkx.Graph()
    >>> graph.add_edge("a", "b", table=[[1.0, 2.0], [2.0, 5.0]])
    >>> bucketflow.from_networkx(graph, states=2).variables
    {'a': ('0', '1'), 'b': ('0', '1')}
    """
    domains = {node: _states(node, data.get("states", states)) for node, data in graph.nodes(data=True)}
    if kind == "bayes":
        if not graph.is_directed():
            raise ModelError("a Bayesian network is a directed graph")
        return labelled_model(kind, domains, [*_distributions(graph)])
    return labelled_model(kind, domains, [*_potentials(graph, nodes, edges)])


def _states(node: Hashable, given: States | None) -> Sequence[Any]:
    if given is None:
        raise ModelError(f"node {shorten(str(node))!r} has no states: give it the attribute 'states', or states=")
    return range(given) if isinstance(given, int) else given


def _distributions(graph: Any) -> Iterator[Table]:
    for node, data in graph.nodes(data=True):
        parents = [*data.get("parents", graph.predecessors(node))]
        if {*parents} != {*graph.predecessors(node)}:
            raise ModelError(f"the parents of node {shorten(str(node))!r} differ from the parents by its edges")
        if "table" not in data:
            raise ModelError(f"node {shorten(str(node))!r} has no distribution: give it the attribute 'table'")
        yield (*parents, node), {}, data["table"]


def _potentials(graph: Any, nodes: Any, edges: Any) -> Iterator[Table]:
    for node, data in graph.nodes(data=True):
        if (table := data.get("table", nodes)) is not None:
            yield (node,), {}, table
    for first, second, data in graph.edges(data=True):
        if (table := data.get("table", edges)) is None:
            continue
        scope = tuple(data.get("scope", (first, second)))
        if {*scope} != {first, second}:
            raise ModelError(f"the scope of an edge names its nodes, {first!r} and {second!r}, not {scope!r}")
        array = np.asarray(table)
        if not graph.is_directed() and "scope" not in data and not np.array_equal(array, array.T):
            raise ModelError(
                f"the table of the edge between {shorten(str(first))!r} and {shorten(str(second))!r} is not symmetric, "
                "and an undirected edge has no first node: give it the attribute 'scope', or take a directed graph"
            )
        yield scope, {}, array
