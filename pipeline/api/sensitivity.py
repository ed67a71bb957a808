"""The public function ``sensitivity``: the posterior of a state as a function of each parameter of a network.

It follows from derivatives of log Z by the entries of tables, computed from the beliefs of a two-way sweep (Darwiche,
JACM 2003). Entries of 0 need multipliers: messages to several functions in one propagation, without division. A message
to a leaf of the tree is the sum of everything except the leaf itself (Shafer and Shenoy 1990). No state may be removed
beforehand because the functions make it impossible: the propagation uses the model's tables, with only the findings
applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.steps.number_limits import LEAST_FACTOR
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.sweeps.scaled import QuickSumProduct, Scaled, measured
from ...tasks.sweeps.sweep import freed_tables, sweep
from ..answering.question import Findings, Question, split_evidence
from ..errors import BudgetError, ModelError, checks_keywords
from ..formats.read import GivenModel, given_model
from ..machine.resources import Resources
from ..models.bayesian_networks import EVEN
from ..models.model import Function, Model
from ..options import Keywords
from ..plans.leaf_messages import LeafMessages, leaf_messages
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
from ..public_names import public
from ..queries.beliefs import BeliefRequest
from ..results.asked import AskedOf
from ..results.parameter_slopes import LinearFunction, Sensitivity
from ..results.posteriors import Marginals
from ..trees.costs import tree_cost
from ..trees.memory import Sizing, sweep_peak
from .marginals import marginals

# Wall seconds. A joint propagation predicted to take longer is not run, because its plan was made without the
# function's states.
_MOST_SECONDS: Final = 600.0


def multipliers(question: Question, functions: Sequence[int], resources: Resources) -> dict[int, Array] | None:
    """Return for each entry of some functions what it is multiplied by in Z, over Z; the findings count as part of Z.

    Parameters
    ----------
    question : Question
        Of a sum, with possible findings.
    functions : sequence of int
        With variables.
    resources : Resources

    Returns
    -------
    dict of int to ndarray or None
        An axis for each variable of the function. None where the tables do not fit memory.
    """
    model = question.model
    dims = tuple([1 if v in question.hard else n for v, n in enumerate(model.dims)])
    own = [f for f, function in enumerate(model.functions) if function.scope]
    soft = sorted(question.soft.keys() - question.hard.keys())
    scopes = (*(tuple(model.functions[f].scope) for f in own), *((v,) for v in soft))
    if 8 * sum(prod(dims[v] for v in scope) for scope in scopes) > resources.host_bytes:
        return None
    ends = {f: leaf for leaf, f in enumerate(own) if f in set(functions)}
    problem = Problem(dims, scopes, SUM_PRODUCT, 8, targets=())
    planned = _planned(problem, tuple(ends.values()), resources)
    if planned is None:
        return None
    leaves = {}
    for leaf, (scope, layout) in enumerate(zip(scopes, planned.layouts, strict=False)):
        table = _at_findings(question, own[leaf]) if leaf < len(own) else question.soft[scope[0]]
        moved = np.transpose(np.asarray(table, np.float64), [scope.index(v) for v in layout])
        leaves[leaf] = measured(np.array(moved, order="C").reshape(-1))
    tables = _swept(planned, leaves, dims, resources)
    return {f: _multiplier(question, f, leaf, planned, tables) for f, leaf in ends.items()}


def _planned(problem: Problem, ends: tuple[int, ...], resources: Resources) -> LeafMessages | None:
    """Plan both sweeps; None where they do not fit memory, or take too long."""
    asked = resources.asked
    order: Any = asked.order if isinstance(asked.order, str) else "auto"
    options = PlanOptions(order=order, order_seconds=asked.order_time, seed=asked.seed)
    planner = Planner(problem, options)
    try:
        tree = planner.tree()
    except BudgetError:
        return None
    if 8 * max(tree.cells) > resources.host_bytes or tree_cost(tree, planner.rates, 8).seconds > _MOST_SECONDS:
        return None
    found = leaf_messages(tree, problem, ends)
    held = 8 * sum(tree.cells[: tree.n_leaves])
    peak = held + sweep_peak(found.steps, Sizing(problem.dims, 8), _kept(found))
    return found if peak <= resources.host_bytes else None


def _kept(planned: LeafMessages) -> frozenset[int]:
    """Tables that are read at the end."""
    return frozenset((*planned.tree.roots, *(left[0] for left in planned.leaving.values() if left is not None)))


def _swept(
    planned: LeafMessages, leaves: dict[int, Scaled], dims: tuple[int, ...], resources: Resources
) -> dict[int, Scaled]:
    compiled = compiler_pays(sum(step.lowered.cells for step in planned.steps))
    freed = freed_tables(planned.steps, _kept(planned))
    return sweep(planned.steps, leaves, QuickSumProduct(dims, compiled), freed, threads=resources.threads)


def _at_findings(question: Question, f: int) -> Array:
    """Return a function with one state of each variable that is observed."""
    function = question.model.functions[f]
    table = function.dense(question.model.dims)
    return np.asarray(table[tuple(_place(question, v) for v in function.scope)])


def _place(question: Question, v: int) -> slice:
    state = question.hard.get(v)
    return slice(None) if state is None else slice(state, state + 1)


def _multiplier(question: Question, f: int, leaf: int, planned: LeafMessages, tables: dict[int, Scaled]) -> Array:
    """Return the message to a function over the sum of its part of the forest; 0 where findings say otherwise."""
    model, scope = question.model, question.model.functions[f].scope
    dims = planned.tree.dims
    total = tables[planned.root(leaf)].log_value()
    left = planned.leaving[leaf]
    made = np.zeros([model.dims[v] for v in scope])
    if left is None:
        values: Array = _exp(np.zeros([1] * len(scope)) - total)
    else:
        node, axes = left
        table = tables[node]
        with np.errstate(divide="ignore"):
            logs = table.values if table.logs else np.log(table.values)
        flat = _exp(logs + (table.log_scale - total))
        places = [axes.index(v) for v in scope if v in axes]
        shaped = flat.reshape([dims[v] for v in axes]).transpose(places)
        values = shaped.reshape([dims[v] if v in axes else 1 for v in scope])
    made[tuple(_place(question, v) for v in scope)] = values
    return made


def _exp(logs: Array) -> Array:
    """Return exponentials, infinite where they are above all floats."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs))


Array = NDArray[np.float64]
# A probability of a smaller entry's states may be below all floats, though the derivative is not.
_SMALL: Final = 1e-100
WIDE_ORDERS: Final = 290.0
"""If two assignments differ by at least this number of orders of magnitude, parts of a sum may be below all floats."""

Answer = Callable[[Question], Marginals]
"""Propagates a question."""


def derivatives_of(question: Question, found: Marginals, answer: Answer, resources: Resources) -> dict[int, Array]:
    """Return d ln Z / d entry for every entry of every function that has variables, by the index of the function.

    If an entry is above 0, its derivative is the probability of its states divided by the entry. Functions with entries
    of 0, or with entries so small that the probability may vanish, need one more propagation. It computes the
    multipliers of all their entries together. If this propagation does not fit in memory, each function takes its own
    propagation, of the model without that function.

    Parameters
    ----------
    question : Question
    found : Marginals
        With the families of all functions.
    answer : callable
    resources : Resources

    Raises
    ------
    ModelError
        If the evidence is impossible, because ln 0 has no derivatives.
    """
    if found.status == "infeasible":
        raise ModelError("the evidence is impossible: the logarithm of 0 has no derivatives")
    made, zeros = {}, []
    wide = question.model.orders_of_magnitude > WIDE_ORDERS
    for f, belief in found.families.items():
        values = question.model.functions[f].dense(question.model.dims)
        lost = wide and bool(((belief < LEAST_FACTOR) & (values > 0.0)).any())
        if not lost and (values > _SMALL).all():
            made[f] = belief / values
        else:
            zeros.append(f)
    multiplied = multipliers(question, zeros, resources) if len(zeros) > 1 else None
    if multiplied is None:
        multiplied = {f: _without(question, f, found, answer) for f in zeros}
    return dict(sorted((made | multiplied).items()))


def _without(question: Question, f: int, found: Marginals, answer: Answer) -> Array:
    """Return the multipliers of a function's entries over Z: the joint of its scope without the function."""
    model = question.model
    scope, functions = model.functions[f].scope, [*model.functions]
    del functions[f]
    # a network without one of its distributions is none; projections and what follows from others do not matter here
    rest = replace(model, kind="markov", functions=tuple(functions), projection=None)
    own = answer(replace(question, model=rest, asked=BeliefRequest((), (scope,), ())))
    assert own.log10_evidence is not None
    assert found.log10_evidence is not None
    (joint,) = own.joint.values()
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(10.0 ** (np.log10(joint) + own.log10_evidence - found.log10_evidence))


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
    belief, derived, values = (
        np.moveaxis(each, axis, -1) for each in (beliefs, derivatives, function.dense(model.dims))
    )
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
    return LinearFunction(*(np.ascontiguousarray(np.moveaxis(each, -1, axis)) for each in parts))


def _others(values: Array) -> Array:
    """Return for each place of the last axis the sum of all others, without a difference."""
    zeros = np.zeros_like(values[..., :1])
    before = np.cumsum(np.concatenate([zeros, values[..., :-1]], axis=-1), axis=-1)
    behind = np.cumsum(np.concatenate([zeros, values[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return np.asarray(before + behind)
