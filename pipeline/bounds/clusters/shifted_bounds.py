"""What bounds by shifted costs have in common: the bound so far, the best assignment, the grain of costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..network import CostNetwork, States
from ..outcome import Outcome
from ..rules.problem import problem_of

if TYPE_CHECKING:
    from ....tasks.bounds.tables import Integers

#: Costs are multiples of a power of two, such that totals have so many bits.
_BITS = 40
#: Rounds of improving an assignment, both ways.
_DESCENTS = 5


class ShiftedBounds:
    """A search for bounds that goes on where it was stopped.

    Parameters
    ----------
    network : CostNetwork
    upper : int, optional
        Only totals below it interest.

    Attributes
    ----------
    memory_bytes : int
        What is held takes no more.
    lower : int
        No total is below it, or below the cut-off.
    total, states : optional
        The best assignment that it found.
    done, hopeless : bool
        Whether the proof is complete; whether going on would not help, or what it takes does not fit.
    """

    def __init__(self, network: CostNetwork, upper: int | None) -> None:
        self.network, self.upper = network, upper
        self.memory_bytes, self.lower = 0, network.least
        self.total: int | None = None
        self.states: States | None = None
        self.done = self.hopeless = False

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper

    def _outcome(self) -> Outcome:
        """Return what is known so far."""
        if self.done and (self.total is None or (self.upper is not None and self.upper < self.total)):
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self.total, self.states)

    def _heard(self, bound: float) -> None:
        """Take a bound, infinite if nothing is left below the cut-off."""
        if bound == math.inf:
            self.lower, self.done = self.lower if self.upper is None else max(self.lower, self.upper), True
        else:
            self.lower = max(self.lower, math.ceil(bound))
            self.done = self.upper is not None and self.lower >= self.upper

    def _offer(self, states: Integers, on_states: Callable[[States], None]) -> bool:
        """Improve an assignment that was read off, one variable at a time; return whether it is the best so far."""
        better = _improved(self.network, states)
        total = self.network.total(better)
        if total >= (math.inf if self.upper is None else self.upper):
            return False
        self.total, self.states, self.upper = int(total), better, int(total)
        on_states(better)
        return True


def _improved(network: CostNetwork, states: Integers) -> States:
    """Improve an assignment one variable at a time, with all others as they are."""
    from ....tasks.bounds import shifting

    flat, order = problem_of(network.dims, network.tables, 0.0).flat, np.arange(len(network.dims))
    for way in (order[::-1].copy(), order) * _DESCENTS:
        before = states.copy()
        shifting.decode(flat, way, states)
        if (states == before).all():
            break
    return tuple(states.tolist())


def grain_of(network: CostNetwork, upper: int | None) -> float:
    """The power of two that shares of costs are multiples of."""
    most = network.constant + greatest(network)
    most = most if upper is None else min(most, upper)
    return float(2.0 ** -max(0, _BITS - int(max(most - network.least, 0)).bit_length()))


def greatest(network: CostNetwork) -> float:
    """What the functions of an allowed assignment cost at most."""
    tables = (np.where(np.isfinite(table.costs), table.costs, 0.0) for table in network.tables)
    return math.fsum(float(costs.max(initial=0.0)) for costs in tables)
