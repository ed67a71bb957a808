"""Networks of pgmpy as models, and models as networks of pgmpy."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError, checks_keywords
from ..models.model import Model
from ..public_names import public
from .labelled_tables import Table, child_last, exported, labelled_model, library, state_values


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
