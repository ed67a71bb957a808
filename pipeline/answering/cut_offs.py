"""The bound that a caller gives: only an optimum at least as good interests."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from ...tasks.steps.number_limits import OUTWARD_SHARE, SAME_SHARE
from ..cost_networks.cost_network import States, Units
from ..errors import InternalError
from ..models.model import Model
from ..options import ProofOptions
from ..preprocessing.preprocess import Network, full_states
from ..results.bounds import Bounds, BoundStatus, Number
from ..results.result import Result


def cut_off(model: Model, effort: ProofOptions, units: Units, fixed: float | int) -> int | None:
    """Return the least total that is excluded, because it is forbidden or worse than the given bound.

    Parameters
    ----------
    fixed : int or float
        Value of the functions whose variables are all fixed: a cost, or a natural logarithm.
    """
    ends = []
    if model.top is not None:
        ends.append(units.above_total(model.top - int(fixed) - 1))
    if effort.upper_bound is not None:
        given = Decimal(str(effort.upper_bound))
        if model.kind == "cost":
            ends.append(units.above_total(last_cost(model, given) - int(fixed)))
        else:
            ends.append(units.above_total(fixed - _least_log(given) * math.log(10)))
    return min(ends, default=None)


def last_cost(model: Model, given: Decimal) -> int:
    """Return the greatest stored cost that is at least as good as a value."""
    return math.floor((-given if model.maximize else given).scaleb(model.decimals))


def within(found: Result, model: Model, effort: ProofOptions) -> Result:
    """Return an answer, or that there is none where an optimum is worse than the bound that was given.

    Where it is open whether anything is as good, as costs are counted in units, an assignment that is worse is left
    out.
    """
    given = effort.upper_bound
    if given is None:
        return found
    worth = found.value if found.log10 is None else found.log10
    if found.status == "optimal" and is_as_good(worth, model, given):
        return found
    if found.status == "bounded":
        ends = (None, None) if found.proof is None else (found.proof.lower, found.proof.upper)
        best = ends[is_maximized(model)]
        if best is None or is_as_good(best, model, given):
            return found if worth is None or is_as_good(worth, model, given) else _without_assignment(found, model)
    note = f"no assignment is as good as {given}, the bound that was given"
    return replace(found, status="infeasible", value=None, log10=None, assignment=None, notes=(*found.notes, note))


def _without_assignment(found: Result, model: Model) -> Result:
    """Leave out an assignment, and the bound on the optimum that it is."""
    proof = found.proof and replace(found.proof, gap=None)
    if proof is not None:
        proof = replace(proof, lower=None) if is_maximized(model) else replace(proof, upper=None)
    return replace(found, value=None, log10=None, assignment=None, proof=proof)


def is_maximized(model: Model) -> bool:
    """Whether the greatest value is the best: for probabilities, and for costs that the file maximises."""
    return model.kind != "cost" or model.maximize


def is_as_good(worth: Number | None, model: Model, given: float | int | str) -> bool:
    """Whether a cost, or a log10 of a probability, is at least as good as a bound that was given."""
    assert worth is not None
    bound = Decimal(str(given))
    if model.kind != "cost":
        return float(worth) >= _least_log(bound)
    return worth >= bound if model.maximize else worth <= bound


def _least_log(given: Decimal) -> float:
    """Return the smallest logarithm that counts as good as a given logarithm."""
    return float(given) - SAME_SHARE * (1 + abs(float(given)))


# Conclusions about the optimum of the model, in the model's own values, from a bound and an assignment of a network.


def optimum_bounds(
    network: Network, fixed: float | int, least: float | int, states: States | None, *, closed: bool, exact: bool = True
) -> Bounds:
    """Return both bounds on the optimum, and the assignment, evaluated on the model.

    Costs in units hide what is below a unit: an assignment may reach ``top`` though its total does not, and is none.

    Parameters
    ----------
    fixed : int or float
        Value of the functions whose variables are all fixed: a cost, or a natural logarithm.
    least : int or float
        A cost (energy) of the rest that no assignment is below.
    states : tuple of int, optional
        The best assignment that is known, in the network's variables.
    closed : bool
        Whether it is proved to be the best, as far as the units of the bound tell.
    exact : bool
        Whether totals of costs are the costs themselves.

    Raises
    ------
    InternalError
        If exact costs say that a forbidden assignment is allowed.
    """
    model = network.model
    full = None if states is None else full_states(network, dict(enumerate(states)))
    named = None if full is None else model.shown(full)
    status: BoundStatus = "optimal" if closed else "bounded"
    if model.kind != "cost":
        most = -(least - fixed) / math.log(10)
        log10 = None if full is None else model.log10_value(full)
        most = max(most + OUTWARD_SHARE * (1 + abs(most)), -math.inf if log10 is None else log10)
        return Bounds("optimum", status, log10, most, log10=log10, assignment=named)
    cost = None if full is None else model.cost(full)
    if full is not None and cost is None:
        if exact:
            raise InternalError("the decoded assignment is forbidden")
        named = None
    value = None if cost is None else model.objective(cost)
    bound = model.objective(math.floor(least) + int(fixed))
    lower, upper = (value, bound) if model.maximize else (bound, value)
    if value != bound:
        status = "bounded"
    return Bounds("optimum", status, lower, upper, value=value, assignment=named)
