"""The incumbent: the bounds and the best assignment of an optimum, and its remaining network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ...tasks.compiler.compile_limits import NotCompiledError
from ...tasks.compiler.working_time import working_seconds
from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import CostNetwork, States
from ..cost_networks.preparation import Report
from ..orders.depth_first import bucket_cells
from .limits import Outcome, ProofLimits
from .prover_policy import MEMORY_PART

if TYPE_CHECKING:
    from .provers.layer_files import Finished


OnAssignment = Callable[[CostNetwork, States], None]


class Holder(Protocol):
    """An object that holds memory between two turns."""

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        ...


class Sharper(Protocol):
    """A prover that shifts costs of the network, so that the network becomes easier for other provers."""

    @property
    def sharpened(self) -> CostNetwork | None:
        """The network with the costs that were shifted, where that is of use."""
        ...

    @property
    def small(self) -> bool:
        """Whether it still is at what costs little, which others had better wait for."""
        ...


@dataclass
class Incumbent:
    """The results shared by all provers: the least total below ``upper``, and the network as far as it is prepared.

    Parameters
    ----------
    network : CostNetwork
        Not made smaller yet; states are of its variables.
    upper : int or None
        Exclusive; None for no limit. Falls with the best total, to just above the next that there can be.
    limits : ProofLimits
    alone : bool
        Whether one prover has all the time and memory.

    Attributes
    ----------
    lower, total, best
        No total is below ``lower``; the best assignment and its total, None where none was found.
    done, prover
        Whether nothing is left to search, and the name of the prover that completed the proof.
    small : CostNetwork
        Report of the network's preparation.
    order : tuple of int
        Of its variables, the first to be eliminated first; empty while none was looked for.
    nearby : tuple of int or None
        The best assignment of ``small`` that a prover returned.
    sharper : Sharper or None
        The prover that shifts costs of ``small``.
    finished : Finished or None
        Layers of rows of ``small`` in this order that an earlier search finished, for the prover that goes on with
        them.
    holders : dict
        Objects that hold memory between two turns, by name.
    listeners : list of callable
        Called with every assignment of a prepared network, and with this network.
    reports : list of Report
        What preparations did.
    tried : dict
        CPU seconds by prover, and of the preparation.
    uncompiled : dict
        Provers that were left out, because their loops would not have been compiled in time.
    pending : dict
        Provers that wait for loops that another process compiles.
    """

    network: CostNetwork
    upper: int | None
    limits: ProofLimits
    alone: bool = False
    lower: int = 0
    best: States | None = None
    total: int | None = None
    prover: str = ""
    done: bool = False
    small: CostNetwork = field(init=False)
    order: tuple[int, ...] = ()
    nearby: States | None = None
    sharper: Sharper | None = None
    finished: Finished | None = None
    holders: dict[str, Holder] = field(default_factory=dict)
    listeners: list[OnAssignment] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    tried: dict[str, float] = field(default_factory=dict)
    uncompiled: dict[str, None] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    started: float = field(default_factory=working_seconds)

    def __post_init__(self) -> None:
        self.lower = self.network.least
        if self.upper is not None:
            self.upper = self.network.totals.cut_off(self.upper)
        self.small = self.network

    def outcome(self) -> Outcome:
        """Return the present bounds and the best assignment."""
        if self.done and self.best is None:
            return Outcome(self.lower if self.upper is None else self.at_least(self.upper), feasible=False)
        lower = self.lower if self.total is None else min(self.lower, self.total)
        return Outcome(self.total if self.done and self.total is not None else lower, self.total, self.best)

    @property
    def spent(self) -> float:
        """CPU seconds since the beginning, without the seconds of compilation."""
        return working_seconds() - self.started

    def is_over(self) -> bool:
        """Whether the proof is complete, or should end with the present bounds."""
        return self.done or self.limits.stop()

    @property
    def sharpened(self) -> CostNetwork:
        """The network with the costs that a prover shifted, where that is of use."""
        return (self.sharper and self.sharper.sharpened) or self.small

    @property
    def memory_bytes(self) -> int:
        """Memory left for one prover while the others wait for their next turn."""
        return self.limits.memory_bytes - sum(holder.nbytes for holder in self.holders.values())

    def is_much(self, holder: Holder) -> bool:
        """Whether a prover leaves the others too little memory."""
        return MEMORY_PART * holder.nbytes > self.limits.memory_bytes and not self.alone

    def cells(self, order: tuple[int, ...]) -> float:
        """Cells of the buckets of an order."""
        return bucket_cells(self.small.dims, self.small.scopes, order)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count CPU seconds for a prover, or for the preparation."""
        start = working_seconds()
        self.limits.on_prover(name)
        try:
            yield
        finally:
            self.tried[name] = self.tried.get(name, 0.0) + working_seconds() - start

    @contextmanager
    def if_compiled(self, name: str) -> Iterator[None]:
        """Leave out the work of a prover, or of the preparation, with loops that are not compiled yet."""
        self.uncompiled.pop(name, None)
        self.pending.pop(name, None)
        try:
            yield
        except NotCompiledError as error:
            (self.pending if error.pending else self.uncompiled)[name] = None

    def at_least(self, lower: int) -> int:
        """Return the least possible total that follows from a bound on the totals below the pruning value."""
        return self.network.totals.at_least(lower if self.upper is None else min(lower, self.upper))

    def closed_since(self, lower: int, upper: int | None) -> float:
        """Return the fraction of the gap closed since the bounds were these.

        A gap without an upper bound counts by its lower end.

        The first assignment counts as the whole gap, because its prover continues towards better assignments.
        """
        if self.upper is None:
            return (self.lower - lower) / max(self.lower - self.small.constant, 1)
        if upper is None:
            return 1.0
        return (self.lower - lower + upper - self.upper) / max(upper - lower, 1)

    # Reports of provers before their turn ends.

    def raise_lower(self, lower: int, total: int | None = None) -> None:
        """Take a bound; the total is ignored, as assignments are offered."""
        lower = self.at_least(lower)
        if lower > self.lower:
            self.lower = lower
            self.limits.on_bounds(lower, self.total)

    def offer(self, states: States) -> None:
        """Take an assignment of the prepared network."""
        self.offer_of(self.small, states)

    def offer_of(self, network: CostNetwork, states: States) -> None:
        """Take an assignment of a network that preparation made."""
        self.improve(network.restored(states))
        for hear in self.listeners:
            hear(network, states)

    def improve(self, states: States) -> None:
        """Take an assignment of the first network, if it is the best so far."""
        total = self.network.total(states)
        if total < (math.inf if self.upper is None else self.upper):
            self.limits.on_states(states)
            self.best = states  # first: a caller that interrupts here has an assignment for the total
            self.total, self.upper = int(total), self.network.totals.cut_off(int(total))
            self.limits.on_bounds(self.lower, self.total)

    def take_outcome(self, outcome: Outcome, prover: str) -> None:
        """Take over the outcome of a turn on the prepared network."""
        if outcome.states is not None:
            self.nearby = outcome.states
            self.offer(outcome.states)
        # a prover leaves out what reaches the cut-off, so what it says above that holds of nothing else
        self.lower = max(self.lower, self.at_least(outcome.lower))
        if outcome.proved or (self.total is not None and self.total <= self.lower):
            self.finish(prover)
        self.limits.on_bounds(self.lower, self.total)

    # Results of other processes.

    def cut(self, upper: int | None) -> bool:
        """Search only below a total that was found elsewhere; forget an assignment that is not below it."""
        upper = None if upper is None else self.network.totals.cut_off(upper)
        if upper is None or (self.upper is not None and self.upper <= upper):
            return False
        self.upper, self.total, self.best = upper, None, None
        if self.lower >= upper:
            self.finish("preparation")
        return True

    def take(self, lower: float, states: States | None, prover: str) -> None:
        """Take over results of another process: no total is below `lower`; inf means that none is below the pruning
        value.
        """
        if states is not None:
            self.improve(states)
        if lower < math.inf:
            self.raise_lower(int(lower))
        if lower == math.inf or (self.upper is not None and self.upper <= self.lower):
            self.finish(prover)

    def finish(self, prover: str) -> None:
        """Nothing is left to search."""
        self.done, self.prover = True, prover
