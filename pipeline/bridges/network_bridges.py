"""Networks of pgmpy, pyAgrum, networkx and pytoulbar2 as models, and models as networks of pgmpy and pyAgrum."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError, checks_keywords, public, shorten
from ..formats.read import load
from ..models.bayesian_networks import EVEN
from ..models.model import Kind, Model
from ..models.state_names import typed_label
from .labelled_tables import Table, child_last, exported, labelled_model, library, state_labels, state_values


@public
@checks_keywords
def from_pgmpy(network: Any) -> Model:
    """Return the model of a discrete Bayesian or Markov network, or a factor graph, of pgmpy.

    States have the labels of ``state_names``; tables that order them in another way are put into the order of the
    variable's own one.

    Raises
    ------
    ModelError
        If it is none of these, has nodes without a table, or no distributions of discrete variables.

    Examples
    --------
    >>> import bucketflow
    >>> from pgmpy.factors.discrete import TabularCPD
    >>> from pgmpy.models import DiscreteBayesianNetwork
    >>> network = DiscreteBayesianNetwork()
    >>> network.add_node("Rain")
    >>> network.add_cpds(TabularCPD("Rain", 2, [[0.8], [0.2]]))
    >>> bucketflow.marginals(bucketflow.from_pgmpy(network))["Rain"].tolist()
    [0.8, 0.2]
    """
    if hasattr(network, "get_cpds"):
        cpds = network.get_cpds()
        if odd := [cpd for cpd in cpds if not hasattr(cpd, "state_names") or not hasattr(cpd, "values")]:
            raise ModelError(f"networks of tables (TabularCPD) are read, found a {type(odd[0]).__name__}")
        states = {cpd.variable: _states(cpd, cpd.variable) for cpd in cpds}
        if missing := [node for node in network.nodes() if node not in states]:
            raise ModelError(f"the network has no table of {str(missing[0])!r}: add a TabularCPD")
        return labelled_model("bayes", states, map(_distribution, cpds))
    if not hasattr(network, "get_factors"):
        raise ModelError(f"a Bayesian or Markov network of pgmpy is expected, found {type(network).__name__}")
    factors = [*network.get_factors()]
    found = {variable: _states(factor, variable) for factor in factors for variable in factor.variables}
    return labelled_model("markov", found, map(_factor, factors))


def _states(table: Any, variable: Hashable) -> Sequence[Any]:
    own: Sequence[Any] = table.state_names[variable]
    return own


def _factor(factor: Any) -> Table:
    return factor.variables, factor.state_names, factor.values


def _distribution(cpd: Any) -> Table:
    """Return a distribution with the child last; pgmpy has it first."""
    child, *parents = cpd.variables
    return (*parents, child), cpd.state_names, np.moveaxis(np.asarray(cpd.values), 0, -1)


@public
@checks_keywords
def to_pgmpy(model: Model) -> Any:
    """Return a model as a network of pgmpy: of tables for a Bayesian one, of factors for potentials.

    Raises
    ------
    ModelError
        If pgmpy is not installed, or has no such networks: of costs, or with hidden variables or evidence.

    Examples
    --------
    >>> import bucketflow
    >>> len(bucketflow.to_pgmpy(bucketflow.load("diagnosis")).nodes())
    26
    """
    exported(model, "pgmpy", ("bayes", "markov"))
    models, factors = library("pgmpy.models", "pgmpy"), library("pgmpy.factors.discrete", "pgmpy")
    labels = {name: state_values(model, v) for v, name in enumerate(model.names)}
    if model.kind == "markov":
        network = getattr(models, "DiscreteMarkovNetwork", None) or models.MarkovNetwork
        graph = network()
        graph.add_nodes_from(model.names)
        for f in model.functions:
            scope = [model.names[v] for v in f.scope]
            graph.add_edges_from((a, b) for k, a in enumerate(scope) for b in scope[k + 1 :])
            sizes, values = [model.dims[v] for v in f.scope], f.dense(model.dims)
            graph.add_factors(factors.DiscreteFactor(scope, sizes, values, {name: labels[name] for name in scope}))
        return graph
    network = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
    graph = network()
    graph.add_nodes_from(model.names)
    for cpd in _cpds(model, factors.TabularCPD, labels):
        graph.add_edges_from((parent, cpd.variable) for parent in cpd.variables[1:])
        graph.add_cpds(cpd)
    return graph


def _cpds(model: Model, make: Any, labels: dict[str, list[Any]]) -> Iterator[Any]:
    for f in range(len(model.functions)):
        scope, table = child_last(model, f)
        *parents, child = [model.names[v] for v in scope]
        sizes = [model.dims[v] for v in scope]
        values = table.reshape(-1, sizes[-1]).T
        names = {name: labels[name] for name in (child, *parents)}
        yield make(child, sizes[-1], values, parents or None, sizes[:-1] or None, state_names=names)


@public
@checks_keywords
def from_pytoulbar2(network: Any) -> Model:
    """Return the model of a CFN of pytoulbar2, as it writes it; states have the labels of its own values.

    Raises
    ------
    ModelError
        If it is no CFN, or it was solved already: ``Solve`` changes its costs, and forbids all that is no better than
        the solution.
    FormatError
        If it has functions that are not read.

    Examples
    --------
    >>> import bucketflow
    >>> import pytoulbar2
    >>> network = pytoulbar2.CFN(ubinit=100)
    >>> index = network.AddVariable("a", range(2))
    >>> network.AddFunction(["a"], [3, 5])
    >>> bucketflow.solve(bucketflow.from_pytoulbar2(network)).value
    3
    """
    if not hasattr(network, "Dump") or not hasattr(network, "Variables"):
        raise ModelError(f"a CFN of pytoulbar2 is expected, found {type(network).__name__}")
    if network.CFN.solutions():
        raise ModelError("this CFN was solved, which changed its costs: convert it before Solve, or build it again")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.cfn"
        network.Dump(str(path))
        model = load(path)
    values = {name: tuple(map(typed_label, own)) for name, own in network.Variables.items()}
    states = [
        values[name] if len(values.get(name, ())) == size and len({*values[name]}) == size else own
        for name, size, own in zip(model.names, model.dims, model.states, strict=True)
    ]
    return replace(model, states=tuple(states), source="")


@public
@checks_keywords
def from_pyagrum(network: Any) -> Model:
    """Return the model of a Bayesian network or a Markov random field of pyAgrum; states have its labels.

    Raises
    ------
    ModelError
        If it is none of these.

    Examples
    --------
    >>> import bucketflow
    >>> import pyagrum
    >>> network = pyagrum.fastBN("Rain->Wet")
    >>> sorted(bucketflow.marginals(bucketflow.from_pyagrum(network)))
    ['Rain', 'Wet']
    """
    if hasattr(network, "utility") or not (hasattr(network, "cpt") or hasattr(network, "factors")):
        raise ModelError(
            f"a Bayesian network or Markov random field of pyAgrum is expected, found {type(network).__name__}; "
            "utilities and decisions are not supported"
        )
    variables = {network.variable(node).name(): network.variable(node) for node in network.nodes()}
    states = {name: [*variable.labels()] for name, variable in variables.items()}
    if hasattr(network, "cpt"):
        tables = [_tensor(network.cpt(name)) for name in states]
        return labelled_model("bayes", states, tables)
    return labelled_model("markov", states, [_tensor(network.factor(scope)) for scope in network.factors()])


def _tensor(tensor: Any) -> Table:
    """Return a tensor by its array, with axes in the reverse order of its names; a child is then last.

    The array is read cell by cell. Noisy-OR, logit and aggregator nodes compute their cells on request, and the buffer
    of ``toarray`` of such nodes is uninitialised memory.
    """
    names = [*tensor.names][::-1]
    # Lists of pyAgrum have an axis too many for some variables of one state.
    array = np.asarray(tensor.tolist(), dtype=np.float64).reshape([tensor.variable(n).domainSize() for n in names])
    total, expected = float(array.sum()), float(tensor.sum())
    if not abs(total - expected) <= EVEN * max(1.0, abs(expected)):
        name = shorten(", ".join(tensor.names))
        raise ModelError(
            f"the table over {name} has cells with the sum {total:.9g}, but pyAgrum gives the sum {expected:.9g}: "
            "this version of pyAgrum does not show the cells of the table; save the network as a file and load the file"
        )
    return names, {}, array


@public
@checks_keywords
def to_pyagrum(model: Model) -> Any:
    """Return a model as a Bayesian network of pyAgrum, or as a Markov random field where it holds potentials.

    Raises
    ------
    ModelError
        If pyAgrum is not installed, or has no such networks: of costs, or with hidden variables or evidence.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.to_pyagrum(bucketflow.load("diagnosis")).size()
    26
    """
    exported(model, "pyAgrum", ("bayes", "markov"))
    gum = library("pyagrum", "pyAgrum")
    network = gum.BayesNet(model.name or "model") if model.kind == "bayes" else gum.MarkovRandomField()
    for v, name in enumerate(model.names):
        network.add(gum.LabelizedVariable(name, name, state_labels(model, v)))
    for f, function in enumerate(model.functions):
        if model.kind == "markov":
            scope, table = [*function.scope], function.dense(model.dims)
            if not scope:
                raise ModelError("the model has a factor without variables, and pyAgrum cannot hold one")
            tensor = network.addFactor([model.names[v] for v in scope])
        else:
            scope, table = child_last(model, f)
            *parents, child = [model.names[v] for v in scope]
            for parent in parents:
                network.addArc(parent, child)
            tensor = network.cpt(child)
        own = [model.names[v] for v in scope]
        tensor[:] = np.ascontiguousarray(table.transpose([own.index(name) for name in tensor.names[::-1]]))
    return network


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
    if not hasattr(graph, "nodes"):
        raise ModelError(f"a graph of networkx is expected, found {type(graph).__name__}")
    domains = {node: _node_states(node, data.get("states", states)) for node, data in graph.nodes(data=True)}
    if kind == "bayes":
        if not graph.is_directed():
            raise ModelError("a Bayesian network is a directed graph")
        return labelled_model(kind, domains, [*_distributions(graph)])
    return labelled_model(kind, domains, [*_potentials(graph, nodes, edges)])


def _node_states(node: Hashable, given: States | None) -> Sequence[Any]:
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
