"""The public function ``sensitivity``: the posterior of a state as a function of each parameter of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..answering.question import Findings
from ..errors import ModelError, checks_keywords, public
from ..formats.read import GivenModel, given_model, split_evidence
from ..models.bayesian_networks import EVEN
from ..models.model import Function, Model
from ..options import Keywords
from ..results.parameter_slopes import LinearFunction, Sensitivity
from ..results.proof import AskedOf
from .derivatives import WIDE_ORDERS
from .marginals import marginals

Array = NDArray[np.float64]
_NO_SHARES = "not all tables are distributions: if a parameter changes, the other entries stay unchanged"


@public
@checks_keywords
def sensitivity(
    model: GivenModel,
    variable: str,
    state: str | int,
    *,
    evidence: Findings = None,
    **options: Unpack[Keywords],
) -> Sensitivity:
    """Return the posterior of a state as a function of each parameter (table entry), one parameter at a time.

    A posterior is a quotient of two functions that are linear in a parameter (Castillo, Gutiérrez and Hadi 1997; Coupé
    and van der Gaag 2002). The derivatives of the probability of the evidence, without and with the state, give both
    functions for all parameters.

    In a Bayesian network, the other probabilities of the parameter's distribution change in proportion, so that they
    still sum to 1. If they are all 0, they share the rest equally. In a Markov network, no other entry changes. This
    also holds for a Bayesian network whose tables are not distributions, which ``check=False`` allows.

    Parameters
    ----------
    model : Model, path or name of an example
    variable : str
    state : str or int
        Label or index of the state.
    evidence : mapping, path or None
        Variable name → state label or index, or → one likelihood a state (soft evidence); or a file.
    **options
        As in :func:`bucketflow.marginals`; two such queries are computed.

    Returns
    -------
    Sensitivity
        A value for each entry of each function over the model's own variables.

    Raises
    ------
    ModelError
        If a name or a state is unknown, the variable is observed, or the evidence is impossible.
    BudgetError
        If no plan fits ``memory`` and ``disk``.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.sensitivity("diagnosis", "Flow", "none")
    >>> print(found.described(next(found.ranked())))
    P(MotorState=stopped | Controller=running, ThermalRelay=closed, MotorWinding=sound)
    """
    model = given_model(model, options.get("memory"))
    target = model.variable(variable)
    chosen = model.state_index(target, state)
    hard, soft = split_evidence(model, evidence)
    if target in hard:
        raise ModelError(f"{variable!r} is observed: its posterior does not depend on parameters")
    free = marginals(model, evidence=evidence, variables=[variable], derivatives=True, **options)
    posterior = float(free[variable][chosen])
    # The log-derivative of an impossible state does not exist. In this case every other state is certain.
    kept = np.arange(model.dims[target]) == chosen
    given = soft.get(target, np.ones(model.dims[target])) * (kept if posterior > 0.0 else ~kept)
    named = model.named(hard | soft)
    told = marginals(model, evidence={**named, variable: given}, variables=[], derivatives=True, **options)
    joints, evidences = dict[int, LinearFunction](), dict[int, LinearFunction]()
    own_functions = {
        f: function
        for f, function in enumerate(model.functions)
        if f in free.derivatives and max(function.scope) < len(model.own_names)
    }
    shares = model.kind == "bayes" and all(_is_distribution(model, function) for function in own_functions.values())
    for f, function in own_functions.items():
        own, with_state = ((each.families[f], each.derivatives[f]) for each in (free, told))
        if posterior > 0.0:
            both = tuple(posterior * part for part in with_state)
        else:
            both = tuple(_above_rounding(whole, part) for whole, part in zip(own, with_state, strict=True))
        evidences[f], joints[f] = (_linear(model, function, shares, *parts) for parts in (own, both))
    for f, function in enumerate(model.functions):
        if not function.scope:  # a factor of the evidence's probability and of the posterior's
            value = np.asarray(function.at(()), np.float64)
            none = np.zeros(())
            direct = 1.0 / value
            evidences[f], joints[f] = (LinearFunction(none, share * direct, none) for share in (1.0, posterior))
    notes = list(free.notes)
    if model.kind == "bayes" and not shares:
        notes.append(_NO_SHARES)
    if hidden := sum(max(function.scope, default=0) >= len(model.own_names) for function in model.functions):
        notes.append(f"parameters of {hidden:,} table{'s' * (hidden > 1)} over hidden variables are left out")
    again = {name: option for name, option in options.items() if name not in ("workdir", "keep_tables", "fit")}
    wide = model.orders_of_magnitude > WIDE_ORDERS
    if wide:
        notes.append(
            f"the model's values span {model.orders_of_magnitude:.0f} orders of magnitude: slopes with parts "
            "below the range of floats are 0, and their posteriors at other values are computed one by one"
        )
    asked = partial(_posterior_with, model, (target, chosen), shares, model.named(hard | soft), again)
    return Sensitivity(
        model,
        variable,
        model.label(target, chosen),
        posterior,
        joints,
        evidences,
        shares,
        tuple(notes),
        AskedOf.of(model, hard, soft),
        asked if wide else None,
    )


def _posterior_with(
    model: Model,
    target: tuple[int, int],
    shares: bool,
    evidence: Mapping[str, Any],
    options: Mapping[str, Any],
    f: int,
    states: tuple[int, ...],
    value: float,
) -> float:
    """Return the posterior of a state with another value of one entry; NaN where the evidence is impossible then.

    Parameters
    ----------
    model : Model
    target : tuple of int
        Variable and state whose posterior is computed.
    shares : bool
        Whether the other entries of a conditional distribution change in proportion, so that it adds up to 1.
    evidence, options : mapping
        As in :func:`sensitivity`.
    f : int
        Index of the function.
    states : tuple of int
        Index of the entry, one state per variable of the scope.
    value : float
        New value of the entry.
    """
    function = model.functions[f]
    table, at = function.dense(model.dims).astype(np.float64), list[Any](states)
    if shares and function.child is not None:
        axis = function.scope.index(function.child)
        at[axis] = slice(None)
        row, own = table[tuple(at)].copy(), states[axis]
        # if the entry had all of the probability, the other entries share the rest equally
        left = float(np.delete(row, own).sum())
        row = row * ((1.0 - value) / left) if left > 0.0 else np.full(len(row), (1.0 - value) / max(len(row) - 1, 1))
        row[own] = value
        table[tuple(at)] = row
    else:
        table[states] = value
    functions = [*model.functions]
    functions[f] = Function(function.scope, table, child=function.child)
    variable, state = target
    name = model.names[variable]
    found = marginals(replace(model, functions=tuple(functions)), evidence=evidence, variables=[name], **options)
    return float("nan") if found.status == "infeasible" else float(found[name][state])


def _above_rounding(whole: Array, part: Array) -> Array:
    """Return the whole minus the part, or 0 if the difference is only rounding."""
    left = whole - part
    return np.where(left > 1e-12 * whole, left, 0.0)


def _is_distribution(model: Model, function: Function) -> bool:
    """Whether the entries of a table are probabilities of its child."""
    if function.child is None:
        return False
    sums = function.dense(model.dims).sum(axis=function.scope.index(function.child))
    return bool((np.abs(sums - 1.0) <= EVEN).all())


def _linear(model: Model, function: Function, shares: bool, beliefs: Array, derivatives: Array) -> LinearFunction:
    """Return a probability as a function of each entry of a table.

    Parameters
    ----------
    shares : bool
        Whether entries are probabilities, and their distributions must still sum to 1.
    beliefs, derivatives : ndarray, an axis for each variable of the scope
        Of the probability of the evidence: the joint of each entry's states, and this joint divided by the entry.
    """
    if not shares or function.child is None:
        return LinearFunction(_others(beliefs.reshape(-1)).reshape(beliefs.shape), derivatives, np.zeros_like(beliefs))
    axis = function.scope.index(function.child)
    turned = axis < beliefs.ndim - 1
    belief, derived, values = beliefs, derivatives, function.dense(model.dims)
    if turned:
        belief, derived, values = (np.moveaxis(each, axis, -1) for each in (belief, derived, values))
    rows = belief.sum(axis=-1)
    fixed = np.broadcast_to(_others(rows.reshape(-1)).reshape(rows.shape)[..., None], belief.shape)
    states = belief.shape[-1]
    if states == 1:  # the one state of a variable is certain: its entry is no parameter
        parts = fixed + belief, np.zeros_like(belief), np.zeros_like(belief)
    else:
        left = _others(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            other = np.where(left > 0.0, _others(belief) / left, _others(derived) / (states - 1))
        parts = fixed, derived, other
    return LinearFunction(*(np.ascontiguousarray(np.moveaxis(each, -1, axis) if turned else each) for each in parts))


def _others(values: Array) -> Array:
    """Return for each place of the last axis the sum of all others, without a difference."""
    if values.shape[-1] == 2:
        return values[..., ::-1]
    found = np.zeros(values.shape)
    found[..., 1:] = values[..., :-1].cumsum(axis=-1)
    found[..., :-1] += values[..., :0:-1].cumsum(axis=-1)[..., ::-1]
    return found
