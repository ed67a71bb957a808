"""Networks of pyAgrum as models, and models as networks of pyAgrum."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ModelError, checks_keywords, shorten
from ..models.model import Model
from ..public_names import public
from .labelled_tables import Table, child_last, exported, labelled_model, library, state_labels

_SUM_TOLERANCE = 1e-6


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
    if not abs(total - expected) <= _SUM_TOLERANCE * max(1.0, abs(expected)):
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
