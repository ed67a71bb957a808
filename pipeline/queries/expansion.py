"""From beliefs over what was left of a model to answers over all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import EXACT_INTEGER, FAR_INTEGER
from ..models.findings import likelihoods
from ..models.model import Model
from ..preprocessing.preprocess import Network
from ..results.posteriors import Marginals
from ..trees.tree import Target
from .arithmetic import Arithmetic, CostOptimum
from .beliefs import BeliefRequest, Beliefs, local_part

Array = NDArray[Any]


def dressed(
    model: Model,
    network: Network,
    arithmetic: Arithmetic[Any],
    asked: BeliefRequest,
    beliefs: Beliefs,
    findings: Mapping[int, Array] | None = None,
) -> Marginals:
    """Turn beliefs over what was left of the model into answers over all of it.

    Parameters
    ----------
    model : Model
    network : Network
        The network that remains of the model.
    arithmetic : Arithmetic
        In which beliefs are; with a decoding one they are max-marginals.
    asked : BeliefRequest
    beliefs : Beliefs
        Tables by target, an axis a variable, and their total: ln of a sum, an energy or a cost.
    findings : mapping of int to ndarray, optional
        Likelihoods by variable that were not known when the model was reduced.

    Returns
    -------
    Marginals
        Infeasible where the total is zero, or reaches the model's top.
    """
    findings = findings or {}
    max_marginals = arithmetic.decodes
    loose = 0.0 if max_marginals else loose_log(network, findings)
    if beliefs.total is None or loose == -math.inf:
        return Marginals(model, "infeasible", max_marginals, log10_evidence=None if model.kind == "cost" else -math.inf)
    least, log10 = None, None
    if isinstance(arithmetic, CostOptimum):
        least = int(beliefs.total) + arithmetic.scale.offset
        # totals that reach the top of the model are forbidden
        if model.top is not None and least >= model.top:
            return Marginals(model, "infeasible", max_marginals)
    else:
        ln = -beliefs.total if max_marginals else beliefs.total + loose
        log10 = ln / math.log(10)

    def answer(variables: tuple[int, ...]) -> Array:
        table = expanded(network, variables, beliefs.tables, findings, max_marginals=max_marginals)
        if not max_marginals:
            return table
        return np.exp(-table) if least is None else costs_above(model, table, least)

    return Marginals(
        model,
        "ok",
        max_marginals,
        tables=_single_tables(network, asked.variables, beliefs.tables, findings, answer),
        joints={tuple(model.names[v] for v in group): answer(group) for group in asked.joints},
        families={f: answer(model.functions[f].scope) for f in asked.families if model.functions[f].scope},
        log10_evidence=log10,
        value=None if least is None else model.objective(least),
    )


def _single_tables(
    network: Network,
    variables: Iterable[int],
    tables: Mapping[Target, Array],
    findings: Mapping[int, Array],
    answer: Callable[[tuple[int, ...]], Array],
) -> dict[str, Array]:
    """Answer for each variable.

    Probabilities of variables with all states left, or without a function, are taken directly.
    """
    names, local, whole = network.model.names, network.local, network.whole
    if network.query != "partition":
        return {names[v]: answer((v,)) for v in variables}
    found = network.uniform([v for v in variables if v not in local and v not in findings])
    return {
        names[v]: tables[(local[v],)] if v in whole else found[v] if v in found else answer((v,)) for v in variables
    }


def costs_above(model: Model, above: Array, least: int) -> Array:
    """Turn costs above the least one into objective values; costs that reach ``top`` are forbidden.

    Returns
    -------
    ndarray
        float64 where that holds every value; else of objects, each as :meth:`~.Model.objective` returns it.
    """
    cap = FAR_INTEGER if model.top is None else min(model.top - least, FAR_INTEGER)
    possible = above < cap
    infinite = -math.inf if model.maximize else math.inf
    greatest = max(abs(least), abs(least + int(above.max(where=possible, initial=0))))
    if greatest <= EXACT_INTEGER:
        scaled = (above + least) / 10.0**model.decimals
        return np.where(possible, -scaled if model.maximize else scaled, infinite)
    costs = [
        model.objective(least + int(x)) if ok else infinite for x, ok in zip(above.flat, possible.flat, strict=True)
    ]
    return np.array(costs, dtype=object).reshape(above.shape)


def loose_log(network: Network, findings: Mapping[int, Array]) -> float:
    """Return ln of the sum over the variables outside the network: variables without functions or with one state."""
    total = math.log(network.free_states)
    for v in findings:
        if v not in network.local:
            total += float(likelihoods(findings[v], network.domains[v]).log_means[0])
    return total


def expanded(
    network: Network,
    variables: tuple[int, ...],
    tables: Mapping[Target, Array],
    findings: Mapping[int, Array],
    *,
    max_marginals: bool,
) -> Array:
    """Spread a belief over all states of some of the model's variables.

    A pruned or unobserved state gets probability 0 (infinite energy, ``UNREACHABLE`` cost); a variable without
    functions is uniform, or as found.

    Parameters
    ----------
    network : Network
    variables : tuple of int
        Of the model.
    tables : mapping
        Beliefs by target, over the states that are left: probabilities, or energies or costs above the least one.
    findings : mapping of int to ndarray
        Likelihoods of all states of variables.
    max_marginals : bool
        Whether beliefs are max-marginals.

    Returns
    -------
    ndarray
        An axis for each of the variables, of all its states.
    """
    if len(variables) == 1 and not max_marginals and variables[0] not in network.local and variables[0] not in findings:
        return network.uniform(variables)[variables[0]]
    costs = max_marginals and network.model.kind == "cost"
    outside: float = FAR_INTEGER if costs else math.inf if max_marginals else 0.0
    target = local_part(network, variables)
    if len(variables) == len(target) == 1:
        (v,), table = variables, tables[target]
        if len(table) == network.model.dims[v]:
            return table
        spread = np.full(network.model.dims[v], outside)
        spread[network.domains[v]] = table
        return spread
    if len(variables) == 1 and not max_marginals:
        states = network.domains[variables[0]]
        spread = np.zeros(network.model.dims[variables[0]])
        spread[states] = likelihoods(findings[variables[0]], states).shares[:, 0]
        return spread
    table = tables[target] if target else np.full((), 0 if costs else 0.0 if max_marginals else 1.0)
    order = [target.index(network.local[v]) for v in variables if v in network.local]
    if network.whole.issuperset(variables):
        return np.array(table.transpose(order))
    sizes = [len(network.domains[v]) for v in variables]
    shape = [n if v in network.local else 1 for v, n in zip(variables, sizes, strict=True)]
    inside = np.broadcast_to(table.transpose(order).reshape(shape), sizes)
    if not max_marginals:
        for axis, v in enumerate(variables):
            # variables without functions are independent: their shares multiply
            if v not in network.local:
                weights = findings.get(v, np.ones(network.model.dims[v]))
                shares = likelihoods(weights, network.domains[v]).shares
                inside = inside * shares.reshape([-1] + [1] * (len(sizes) - axis - 1))
    if sizes == [network.model.dims[v] for v in variables]:
        return np.array(inside)
    full = np.full([network.model.dims[v] for v in variables], outside)
    full[np.ix_(*(network.domains[v] for v in variables))] = inside
    return full
