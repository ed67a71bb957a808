"""A portfolio that helps another one elsewhere: it polls for better totals while it runs, and reports what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ..cost_networks.cost_network import CostNetwork, CostTable, States
from ..orders.depth_first import bucket_cells
from .limits import Outcome, ProofLimits
from .portfolio import Portfolio

# Seconds between two reports of a remote prover about its bound alone, and between two readings of its reports.
# Assignments are reported immediately.
REPORT_SECONDS: Final = 0.25
# Number of variables with the most functions that are compared when the next variable to fix is chosen.
_SUBPROBLEM_CANDIDATES: Final = 12


@dataclass(frozen=True)
class Subproblem:
    """The search problem of a helper.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    method : str
        By which prover; "auto" for all of them in turn.
    limits : ProofLimits
        Only memory, seed, pruning, threads and devices.
    seconds : float
        Wall seconds after which it ends with its present bounds.
    """

    network: CostNetwork
    upper: int | None
    method: str
    limits: ProofLimits
    seconds: float = math.inf


class Channel(Protocol):
    """The connection between a helper and its portfolio."""

    @property
    def closed(self) -> bool:
        """Whether the portfolio has ended, or cannot be reached."""
        ...

    def poll(self) -> int | None:
        """Return the best total that is known."""
        ...

    def report(self, lower: int, states: list[int] | None) -> None:
        """Send a total that no assignment of the subproblem is below, and an assignment or None."""
        ...


@dataclass
class Helper:
    """The search for the least total of a subproblem that is below what others found.

    Parameters
    ----------
    subproblem : Subproblem
    channel : Channel
    """

    subproblem: Subproblem
    channel: Channel
    portfolio: Portfolio = field(init=False)
    _until: float = field(init=False)
    _reported: int | None = None
    _reported_at: float = -math.inf

    def __post_init__(self) -> None:
        sub = self.subproblem
        self._until = time.monotonic() + sub.seconds
        limits = replace(sub.limits, stop=self._stop, on_bounds=self._on_bounds)
        self.portfolio = Portfolio(sub.network, sub.upper, sub.method, limits)

    def run(self) -> Outcome:
        """Search until the proof is complete, nothing more can be done, or the time is over or the channel closed."""
        with closing(self.portfolio):
            outcome = self.portfolio.run()
            while not (self.portfolio.incumbent.done or self._ended) and self._is_news():
                self.portfolio.learn(self.channel.poll())
                outcome = self.portfolio.run()
            return outcome

    @property
    def _ended(self) -> bool:
        return self.channel.closed or time.monotonic() >= self._until

    def _is_news(self) -> bool:
        best, upper = self.channel.poll(), self.portfolio.incumbent.upper
        return best is not None and (upper is None or best < upper)

    def _stop(self) -> bool:
        return self._is_news() or self._ended

    def _on_bounds(self, lower: int, total: int | None) -> None:
        now, best = time.monotonic(), self.portfolio.incumbent.best
        if total != self._reported or now - self._reported_at >= REPORT_SECONDS:
            states = None if total == self._reported or best is None else [int(a) for a in best]
            self._reported, self._reported_at = total, now
            self.channel.report(lower, states)


def helped(channel: Channel, subproblem: Subproblem) -> tuple[Outcome, float]:
    """Task: search a subproblem, and return the outcome and the seconds."""
    start = time.perf_counter()
    outcome = Helper(subproblem, channel).run()
    return outcome, time.perf_counter() - start


# Slices of a network: some variables are given one state each, so that every assignment is in exactly one slice.


def restricted(network: CostNetwork, states: Mapping[int, int]) -> CostNetwork:
    """Return the network in which some variables have one state each; restored, their states are those."""
    dims = tuple(1 if v in states else d for v, d in enumerate(network.dims))
    tables = []
    for table in network.tables:
        places = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in table.scope)
        tables.append(CostTable(table.scope, table.costs[places].copy()))
    return network.smaller(dims, tuple(tables), network.constant, _FixedStates(tuple(states.items())))


class _FixedStates:
    """Puts the states of a slice where it has one state each."""

    def __init__(self, states: tuple[tuple[int, int], ...]) -> None:
        self._states = dict(states)

    def __call__(self, states: States) -> States:
        return tuple(self._states.get(v, a) for v, a in enumerate(states))


def sliced_variables(network: CostNetwork, order: Sequence[int], count: int) -> tuple[int, ...]:
    """Choose variables with at least ``count`` joint states, or all variables; each choice minimises the remaining
    elimination.
    """
    dims, chosen, made = list(network.dims), [], 1
    uses = [sum(v in scope for scope in network.scopes) for v in range(len(dims))]
    while made < count:
        left = sorted((v for v, d in enumerate(dims) if d > 1 and uses[v]), key=lambda v: -uses[v])[
            :_SUBPROBLEM_CANDIDATES
        ]
        if not left:
            break
        best = min(left, key=lambda v: bucket_cells([*dims[:v], 1, *dims[v + 1 :]], network.scopes, order) * dims[v])
        chosen.append(best)
        made *= dims[best]
        dims[best] = 1
    return tuple(chosen)
