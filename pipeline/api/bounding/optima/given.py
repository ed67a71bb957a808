"""The bound that a caller gives: only an optimum at least as good interests."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from ....bounds.network import Units
from ....models.model import Model
from ....options import Effort
from ....results.result import Result

# Logarithms of probabilities that differ by less, relative to their size, are the same.
_SAME = 1e-9


def cut_off(model: Model, effort: Effort, units: Units, fixed: float | int) -> int | None:
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


def within(found: Result, model: Model, effort: Effort) -> Result:
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
