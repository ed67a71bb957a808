"""Linear constraints as machines that read one variable after another and remember the sum so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..global_functions.machine import Machine, State

# States of a machine that knows the end; no sums, which are numbers.
_HOLDS, _FAILS = "holds", "fails"
RELATIONS = ("<=", ">=", "=", "!=")


def decided(low: int, high: int, relation: str, right: int) -> bool | None:
    """Whether sums from ``low`` to ``high`` all satisfy a relation, or none does; None where both may be."""
    if relation == ">=":
        return True if low >= right else False if high < right else None
    if relation == "<=":
        return True if high <= right else False if low > right else None
    equal = low == high == right or (None if low <= right <= high else False)
    return equal if relation == "=" else None if equal is None else not equal


def linear_machine(weights: Sequence[Sequence[int]], relation: str, right: int, cost: int | None) -> Machine:
    """Return the machine of a linear constraint, which is not decided before something is read.

    A state is the sum so far, or the outcome of the constraint once it is certain.

    Parameters
    ----------
    weights : sequence of sequence of int
        Amount of each state of each variable.
    relation : {"<=", ">=", "=", "!="}
    right : int
    cost : int or None
        Cost of a violation; None if it is forbidden.
    """
    lows, highs = ([*accumulate(map(end, reversed(weights)), initial=0)][::-1] for end in (min, max))

    def step(state: State, place: int, value: int) -> State | None:
        if state in (_HOLDS, _FAILS):
            return state
        total = state + weights[place][value]
        found = decided(total + lows[place + 1], total + highs[place + 1], relation, right)
        if found is None:
            return total
        return _HOLDS if found else None if cost is None else _FAILS

    return Machine.counting(0, step, lambda state: 0 if state == _HOLDS else cost or 0)
