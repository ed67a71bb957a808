"""What a bound and an assignment of a network say about the optimum of the model, in the model's own values."""

from __future__ import annotations

import math

from ...bounds.network import States
from ...errors import InternalError
from ...preprocessing.fixed import full_states
from ...preprocessing.preprocess import Network
from ...results.bounds import Bounds, BoundStatus

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
