"""What is known of an optimum: bounds and the best assignment, what preparation made of the network, and an order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...tasks.compiler.work_clock import working_seconds
from ..cost_networks.cost_network import CostNetwork, States
from ..cost_networks.preparation import WORK, Prepared, Report, prepare
from ..orders.depth_first import bucket_cells, depth_first_order
from .limits import Limits
from .outcome import Method, Outcome
from .turns import Turns, Way

#: Another preparation pays if the last one closed this part of the gap, or removed this part of the cells.
_PAYS = 0.05
#: Preparing again pays where the cut-off fell by this part of the gap.
_FELL = 0.02
#: Cells that preparing again touches for each CPU second spent so far, about a tenth of one.
_WORK_PER_SECOND = 50_000_000
#: An order is searched for this share of the time spent, and at least so long.
_ORDER_SHARE, _ORDER_SECONDS = 0.1, 0.1


@dataclass
class Known:
    """What is known of the least total below ``upper``, and the network as far as it was prepared.

    Parameters
    ----------
    network : CostNetwork
        Not made smaller yet; states are of its variables.
    upper : int or None
        Exclusive; None for no limit. Falls with the best total, to just above the next that there can be.
    method : str
        Only this way after preparation, "auto" for all of them in turn.
    limits : Limits

    Attributes
    ----------
    lower, total, best
        No total is below ``lower``; the best assignment and its total, None where none was found.
    done, way
        Whether nothing is left to search, and what completed the proof.
    small : CostNetwork
        What preparation made of the network.
    order : tuple of int
        Of its variables, the first to be eliminated first; empty while none was looked for.
    nearby : tuple of int or None
        The best assignment of ``small`` that one of the ways found.
    again_from, order_from : float
        Preparing again, and another order, are not tried before so many seconds were spent.
    turns : Turns
        Whose turn it is, and what the ways took and brought.
    """

    network: CostNetwork
    upper: int | None
    method: Method | Way
    limits: Limits
    lower: int = 0
    best: States | None = None
    total: int | None = None
    way: str = ""
    done: bool = False
    small: CostNetwork = field(init=False)
    order: tuple[int, ...] = ()
    nearby: States | None = None
    reports: list[Report] = field(default_factory=list)
    again_from: float = 0.0
    order_from: float = 0.0
    turns: Turns = field(init=False)
    started: float = field(default_factory=working_seconds)

    def __post_init__(self) -> None:
        self.lower = self.network.least
        if self.upper is not None:
            self.upper = self.network.totals.cut_off(self.upper)
        self.small = self.network
        self.turns = Turns(self.method)

    def outcome(self) -> Outcome:
        """What is known."""
        if self.done and self.best is None:
            return Outcome(self.lower if self.upper is None else self.at_least(self.upper), feasible=False)
        lower = self.lower if self.total is None else min(self.lower, self.total)
        return Outcome(self.total if self.done and self.total is not None else lower, self.total, self.best)

    @property
    def spent(self) -> float:
        """CPU seconds since the beginning, without those that compiling took."""
        return working_seconds() - self.started

    def at_least(self, lower: int) -> int:
        """Return the least total that there can be by a bound, which holds of what is below the cut-off."""
        return self.network.totals.at_least(lower if self.upper is None else min(lower, self.upper))

    def _over(self) -> bool:
        return self.done or self.limits.stop()

    @contextmanager
    def _timed(self, way: str) -> Iterator[None]:
        start = working_seconds()
        self.limits.on_way(way)
        try:
            yield
        finally:
            self.turns.tried[way] = self.turns.tried.get(way, 0.0) + working_seconds() - start

    def _hear(self, lower: int, total: int | None = None) -> None:
        """Take a bound that a way tells before it ends."""
        lower = self.at_least(lower)
        if lower > self.lower:
            self.lower = lower
            self.limits.on_bounds(lower, self.total)

    def _see(self, states: States) -> None:
        """Take an assignment that a way shows before it ends."""
        self._take(self.small, states)

    def _take(self, network: CostNetwork, states: States) -> None:
        """Take an assignment of a network that preparation made."""
        self.improve(network.restored(states))

    def improve(self, states: States) -> None:
        """Take an assignment of the first network, if it is the best so far."""
        total = self.network.total(states)
        if total < (math.inf if self.upper is None else self.upper):
            self.best = states  # first: whoever interrupts here has an assignment for the total
            self.total, self.upper = int(total), self.network.totals.cut_off(int(total))
            self.limits.on_bounds(self.lower, self.total)

    def learn(self, upper: int | None) -> None:
        """Search only below a total that was found elsewhere; forget an assignment that is not."""
        upper = None if upper is None else self.network.totals.cut_off(upper)
        if upper is None or (self.upper is not None and self.upper <= upper):
            return
        before, self.upper, self.total, self.best = self.upper, upper, None, None
        if self.lower >= upper:
            self._finish("preparation")
        self._prepare_again(before)

    def take(self, lower: float, states: States | None, way: str) -> None:
        """Take what was proved and found elsewhere: no total is below `lower`, inf if none is below the cut-off."""
        if states is not None:
            self.improve(states)
        if lower < math.inf:
            self._hear(int(lower))
        if lower == math.inf or (self.upper is not None and self.upper <= self.lower):
            self._finish(way)

    def _finish(self, way: str) -> None:
        self.done, self.way = True, way

    def _closed(self, lower: int, upper: int | None) -> float:
        """The part of the gap that is closed since the bounds were these; what is far open counts by its lower end."""
        if self.upper is None:
            return (self.lower - lower) / max(self.lower - self.small.constant, 1)
        upper = self.upper if upper is None else upper
        return (self.lower - lower + upper - self.upper) / max(upper - lower, 1)

    def _paid(self, lower: int, upper: int | None, cells: int) -> bool:
        """Whether a preparation closed or removed enough for another, with more work, to be of use."""
        removed = 1 - self.small.cells / max(cells, 1)
        return upper is None or self._closed(lower, upper) + removed >= _PAYS

    def _prepare(self, work: int = WORK) -> None:
        """Make the network smaller, or only fold what it must not have."""
        if not self.limits.prune:
            self._settle_trivial()
            return
        with self._timed("preparation"):
            found = prepare(self.small, self.upper, work=work, stop=self.limits.stop)
            self.reports.append(found.report)
            self._learn_prepared(found)
        if not self.done:
            self._settle_trivial()

    def _learn_prepared(self, found: Prepared) -> None:
        if found.total is not None and found.states is not None:
            self._take(self.small, found.states)
        if not found.feasible:
            self._finish("preparation")
            return
        self._hear(found.lower)
        if self.order and not self._simpler(found.network):
            return
        self.small = found.network
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what was found out about the network that was prepared before."""
        self.order, self.nearby = (), None
        self.turns.hopeless.clear()

    def _simpler(self, network: CostNetwork) -> bool:
        """Whether a network that stands for the present one is worth beginning anew with it."""
        rose = network.constant - self.small.constant
        left = math.inf if self.upper is None else self.upper - self.small.constant
        return network.cells < (1 - _FELL) * self.small.cells or rose > _FELL * left or not network.tables

    def _settle_trivial(self) -> None:
        """A network without functions costs its constant, whatever its states."""
        if self.small.tables:
            return
        self.improve(self.small.restored((0,) * len(self.small.dims)))
        self._finish("preparation")

    def _prepare_again(self, before: int | None) -> None:
        """Use a better assignment to remove more."""
        if self.done or not self.limits.prune or self.upper is None or self.upper == before:
            return
        if before is not None and before - self.upper < _FELL * (before - self.lower):
            return
        if self.spent < self.again_from:
            return
        network = self.small
        self._prepare(int(min(WORK, _WORK_PER_SECOND * self.spent)))
        if self.small is network:
            self.again_from = 2 * self.spent

    def _find_order(self) -> None:
        """Begin with a network that preparation has changed."""
        if not self.order:
            with self._timed("preparation"):
                self.order = self._searched_order(self._sharpened)
            self.turns.suit(self.small.dims)

    def _searched_order(self, network: CostNetwork) -> tuple[int, ...]:
        """An order that is searched for the longer, the more time was spent."""
        start = self.spent
        seconds = max(_ORDER_SECONDS, _ORDER_SHARE * start)
        order = depth_first_order(network.dims, network.scopes, seconds=seconds, seed=self.limits.seed)
        # large networks take longer for one order than they are given
        self.order_from = self.spent + (self.spent - start) / _ORDER_SHARE
        return order

    def _cells(self, order: Sequence[int]) -> float:
        return bucket_cells(self.small.dims, self.small.scopes, order)

    @property
    def _sharpened(self) -> CostNetwork:
        """The network that an order is searched for."""
        return self.small
