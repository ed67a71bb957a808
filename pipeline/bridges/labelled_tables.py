"""What bridges share: tables whose axes have labelled states, put together to a model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import ModelError, shorten
from ..models.model import Kind, Model
from ..models.state_names import TypedLabel, typed_label

Table = tuple[Sequence[Hashable], Mapping[Hashable, Sequence[Any]], Any]
"""Variables of the axes, the states of some of them in the order of the axis, and an array."""


def labelled_model(kind: Kind, states: Mapping[Hashable, Sequence[Any]], tables: Iterable[Table]) -> Model:
    """Return a model of tables, each of whose axes may order the states of its variable in its own way.

    Parameters
    ----------
    kind : {"bayes", "markov", "cost"}
        In a Bayesian network the last axis of a table is the child's.
    states : mapping
        Variable → its states, in the order of the model.
    tables : iterable

    Raises
    ------
    ModelError
        If variables have the same name, states differ from their variable's, or tables form no valid model.
    """
    labels = {variable: [typed_label(state) for state in own] for variable, own in states.items()}
    names = dict(zip(labels, map(str, labels), strict=True))
    if len(set(names.values())) < len(names):
        raise ModelError("variables need different names as texts, but some of these names are equal")
    functions = []
    for scope, orders, values in tables:
        if unknown := [v for v in scope if v not in names]:
            raise ModelError(f"a table is over {shorten(str(unknown[0]))!r}, but this is not a variable of the model")
        array = np.asarray(values)
        if array.shape != tuple(len(labels[v]) for v in scope):
            shown = ", ".join(names[v] for v in scope)
            raise ModelError(f"a table over {shorten(shown)} has shape {array.shape}, unlike its variables' states")
        for axis, variable in enumerate(scope):
            if variable in orders:
                array = array.take(_order(names[variable], labels[variable], orders[variable]), axis=axis)
        functions.append(([names[v] for v in scope], array))
    variables = {names[v]: own for v, own in labels.items()}
    return Model.build(kind, variables, functions)


def _order(name: str, labels: Sequence[str], given: Sequence[Any]) -> list[int]:
    """Return where each state of a variable stands in another order."""
    places = {str(state): k for k, state in enumerate(given)}
    if sorted(places) != sorted(labels):
        raise ModelError(f"tables do not agree on the states of {shorten(name)!r}")
    return [places[label] for label in labels]


def library(module: str, package: str) -> Any:
    """Import a module of a library.

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ModelError(f"{package} is not installed: pip install {package.lower()}") from None


def exported(model: Model, library: str, kinds: Sequence[str]) -> None:
    """Refuse a model that another library cannot hold.

    Raises
    ------
    ModelError
        Naming what it cannot hold.
    """
    if model.kind not in kinds:
        what = {"cost": "costs", "markov": "potentials", "bayes": "distributions"}[model.kind]
        raise ModelError(f"{library} has no networks of {what}; bucketflow.save writes .wcsp, .cfn, .xml or .yaml")
    if model.hidden:
        raise ModelError(f"{library} has no hidden variables, but the model has {model.hidden}")
    if model.evidence:
        raise ModelError(
            f"{library} stores no evidence in a network, but the model has evidence: observe it in the other program"
        )


def state_labels(model: Model, variable: int) -> list[str]:
    """Return the labels of a variable's states, or their numbers as texts."""
    own = model.states[variable]
    return [*map(str, range(model.dims[variable]))] if own is None else [*map(str, own)]


def state_values(model: Model, variable: int) -> list[Any]:
    """Return the states of a variable as the library that they come from has them; labels of other models are texts."""
    own = model.states[variable] or state_labels(model, variable)
    return [label.value if isinstance(label, TypedLabel) else label for label in own]


def child_last(model: Model, function: int) -> tuple[list[int], Any]:
    """Return the scope of a distribution with the child last, and its table in that order."""
    own = model.functions[function].child_last()
    return [*own.scope], own.dense(model.dims)
