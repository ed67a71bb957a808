"""The bound that a caller gives: only an optimum at least as good interests."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from ..cost_networks.cost_network import States, Units
from ..errors import InternalError
from ..models.model import Model
from ..options import ProofOptions
from ..preprocessing.preprocess import Network, full_states
from ..results.bounds import Bounds, BoundStatus
from ..results.result import Result

# Logarithms of probabilities that differ by less, relative to their size, are the same.
_SAME = 1e-9


def cut_off(model: Model, effort: ProofOptions, units: Units, fixed: float | int) -> int | None:
    """Return the least total that does not interest: what is forbidden, or worse than the bound that was given.

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
            cost = math.floor((-given if model.maximize else given).scaleb(model.decimals))
            ends.append(units.above_total(cost - int(fixed)))
        else:
            ends.append(units.above_total(fixed - _least_log(given) * math.log(10)))
    return min(ends, default=None)


def within(found: Result, model: Model, effort: ProofOptions) -> Result:
    """Return an answer, or that there is none where an optimum is worse than the bound that was given."""
    if effort.upper_bound is None or (found.status == "optimal" and _meets(found, model, effort.upper_bound)):
        return found
    if found.status == "bounded":
        return found
    note = f"no assignment is as good as {effort.upper_bound}, the bound that was given"
    return replace(found, status="infeasible", value=None, log10=None, assignment=None, notes=(*found.notes, note))


def _least_log(given: Decimal) -> float:
    """The smallest logarithm that is as good as one that was given."""
    return float(given) - _SAME * (1 + abs(float(given)))


def _meets(found: Result, model: Model, bound: float | int | str) -> bool:
    given = Decimal(str(bound))
    if found.log10 is not None:
        return found.log10 >= _least_log(given)
    assert found.value is not None
    return found.value >= given if model.maximize else found.value <= given


# What a bound and an assignment of a network say about the optimum of the model, in the model's own values.

# Results of float64 arithmetic with a handful of operations are moved outwards by more than it may be off.
OUTWARD = 2.0**-50


def optimum_bounds(
    network: Network, fixed: float | int, least: float | int, states: States | None, *, closed: bool
) -> Bounds:
    """Return both bounds on the optimum, and the assignment, evaluated on the model.

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
    """
    model = network.model
    full = None if states is None else full_states(network, dict(enumerate(states)))
    named = None if full is None else model.shown(full)
    status: BoundStatus = "optimal" if closed else "bounded"
    if model.kind != "cost":
        most = -(least - fixed) / math.log(10)
        log10 = None if full is None else model.log10_value(full)
        most = max(most + OUTWARD * (1 + abs(most)), -math.inf if log10 is None else log10)
        return Bounds("optimum", status, log10, most, log10=log10, assignment=named)
    cost = None if full is None else model.cost(full)
    if full is not None and cost is None:
        raise InternalError("the decoded assignment is forbidden")
    value = None if cost is None else model.objective(cost)
    bound = model.objective(math.floor(least) + int(fixed))
    lower, upper = (value, bound) if model.maximize else (bound, value)
    if value != bound:
        status = "bounded"
    return Bounds("optimum", status, lower, upper, value=value, assignment=named)
