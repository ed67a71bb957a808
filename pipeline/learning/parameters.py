"""The tables that are learnt: which are fixed, which share their values, their priors, and the M-step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ModelError, shorten
from ..models.function import Function
from ..models.model import Model, checked_model

Array = NDArray[Any]
Tables = tuple[Array, ...]
"""A table for each group of variables, the child's axis last."""


@dataclass(frozen=True, eq=False)
class Group:
    """Functions that share one learnt table.

    Parameters
    ----------
    functions : tuple of int
    shape : tuple of int
        States of the parents in the order of the scope, then of the child.
    prior : ndarray
        Pseudo-counts.
    """

    functions: tuple[int, ...]
    shape: tuple[int, ...]
    prior: Array


@dataclass(frozen=True, eq=False)
class Parameters:
    """The learnt tables of a Bayesian network.

    Parameters
    ----------
    model : Model
    groups : tuple of Group
    """

    model: Model
    groups: tuple[Group, ...]

    @property
    def learnt(self) -> tuple[int, ...]:
        """All functions that are learnt, in the order of the groups."""
        return tuple(f for group in self.groups for f in group.functions)

    @property
    def count(self) -> int:
        """Number of free parameters."""
        return sum(math.prod(group.shape[:-1]) * (group.shape[-1] - 1) for group in self.groups)

    def start(self, kind: str, seed: Sequence[int]) -> Tables:
        """Return the tables to start from.

        Parameters
        ----------
        kind : {"model", "uniform", "random"}
            Random rows are uniform over all distributions, each a Dirichlet draw with parameters 1.
        seed : sequence of int
        """
        if kind == "model":
            return tuple(
                _child_last(self.model.functions[g.functions[0]], self.model.dims).astype(np.float64)
                for g in self.groups
            )
        if kind == "uniform":
            return tuple(np.full(g.shape, 1.0 / g.shape[-1]) for g in self.groups)
        rng = np.random.default_rng(seed)
        draws = [rng.exponential(size=g.shape) for g in self.groups]
        return tuple(draw / draw.sum(axis=-1, keepdims=True) for draw in draws)

    def with_tables(self, tables: Tables) -> Model:
        """Return the model with other values in the learnt tables."""
        functions = {}
        for group, table in zip(self.groups, tables, strict=True):
            for f in group.functions:
                old = self.model.functions[f]
                values = np.ascontiguousarray(np.moveaxis(table, -1, _axis(old)))
                functions[f] = Function(old.scope, values, child=old.child)
        return self.model.with_functions(functions)

    def maximized(self, counts: Mapping[int, Array], before: Tables) -> Tables:
        """M-step: return the tables that maximise the expected log-likelihood plus the log-prior.

        A distribution whose parents' states have no counts and no prior keeps its values.

        Parameters
        ----------
        counts : mapping of int to ndarray
            Expected counts of the joint states of each learnt function's scope.
        before : Tables
        """
        tables = []
        for group, old in zip(self.groups, before, strict=True):
            table = group.prior.copy()
            for f in group.functions:
                table += np.moveaxis(counts[f], _axis(self.model.functions[f]), -1)
            totals = table.sum(axis=-1, keepdims=True)
            tables.append(np.where(totals > 0.0, table / np.where(totals > 0.0, totals, 1.0), old))
        return tuple(tables)

    def log_prior(self, tables: Tables) -> float:
        """Return ``Σ α ln θ`` over all pseudo-counts ``α``: the log-density of the prior, up to a constant."""
        return math.fsum(weighted_log(group.prior, table) for group, table in zip(self.groups, tables, strict=True))


def weighted_log(counts: Array, table: Array) -> float:
    """Return the sum of ``counts * ln(table)``, where 0 times the logarithm of 0 is 0; -inf for other zeros."""
    used = counts > 0.0
    with np.errstate(divide="ignore"):
        return math.fsum((counts[used] * np.log(table[used])).tolist())


def parameters_of(
    model: Any,
    prior: float | Mapping[str, ArrayLike],
    equivalent_sample: float,
    fixed: Iterable[str],
    tied: Iterable[Iterable[str]],
) -> Parameters:
    """Check what is to be learnt.

    Raises
    ------
    ModelError
        If the model is no Bayesian network, a name or a prior does not fit, or tied tables differ in shape.
    """
    if checked_model(model).kind != "bayes":
        raise ModelError("parameters are learnt for Bayesian networks only; this model is a " + _KINDS[model.kind])
    own = {f.child: k for k, f in enumerate(model.functions)}
    kept = [_variable(model, name, "fixed names") for name in _names(fixed, "fixed")]
    groups = [[_variable(model, name, "tied names") for name in _names(group, "tied")] for group in tied]
    together = [v for group in groups for v in group]
    for v in together:
        if v in kept or together.count(v) > 1:
            raise ModelError(f"the table of {model.names[v]!r} is tied and fixed, or tied twice")
    groups += [[v] for v in range(len(model.own_names)) if v not in kept and v not in together]
    if model.hidden:
        hidden = range(len(model.own_names), len(model.names))
        involved = {f.child for f in model.functions if not {*hidden}.isdisjoint(f.scope)}
        groups = [group for group in groups if involved.isdisjoint(group)]
    priors = _priors(model, prior, equivalent_sample)
    return Parameters(model, tuple(_group(model, [own[v] for v in group], priors) for group in groups))


_KINDS = {"markov": "Markov network", "cost": "cost network"}


def _group(model: Model, functions: list[int], priors: Any) -> Group:
    shapes = [_shape(model, f) for f in functions]
    for f, shape in zip(functions, shapes, strict=True):
        if shape != shapes[0]:
            names = [model.names[model.functions[k].child or 0] for k in (functions[0], f)]
            raise ModelError(
                f"the tables of {names[0]!r} and {names[1]!r} cannot be tied: their shapes are {shapes[0]} and {shape}"
            )
    name = model.names[model.functions[functions[0]].child or 0]
    return Group(tuple(functions), shapes[0], priors(name, shapes[0]))


def _priors(model: Model, prior: Any, equivalent_sample: float) -> Any:
    """Return a function from a variable and the shape of its table to pseudo-counts."""
    named = {**prior} if isinstance(prior, Mapping) else {}
    for name in named:
        model.variable(name, "the prior names")

    def of(name: str, shape: tuple[int, ...]) -> Array:
        given = named.get(name, 0.0) if isinstance(prior, Mapping) else prior
        try:
            counts = np.broadcast_to(np.asarray(given, np.float64), shape).copy()
        except (TypeError, ValueError):
            raise ModelError(
                f"the prior of {name!r} is {shorten(repr(given))}; it must be a number, or an array of shape {shape}"
            ) from None
        if not (np.isfinite(counts).all() and (counts >= 0.0).all()):
            raise ModelError(f"the prior of {name!r} has a pseudo-count that is negative or not finite")
        return counts + equivalent_sample / counts.size

    return of


def _shape(model: Model, f: int) -> tuple[int, ...]:
    function = model.functions[f]
    shape = [model.dims[v] for v in function.scope]
    child = shape.pop(_axis(function))
    return (*shape, child)


def _axis(function: Function) -> int:
    """Return the axis of a function's child."""
    assert function.child is not None
    return function.scope.index(function.child)


def _child_last(function: Function, dims: Sequence[int]) -> Array:
    return np.moveaxis(function.dense(dims), _axis(function), -1)


def _names(given: Any, what: str) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ModelError(f"{what} is {shorten(repr(given))}; it must list names of variables")
    return [*given]


def _variable(model: Model, name: Any, who: str) -> int:
    return model.variable(name, who)
