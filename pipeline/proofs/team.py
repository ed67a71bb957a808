"""The provers of one optimum as they take turns: each goes on where it was, with the bounds that the others left.

Between turns the network of the incumbent is made smaller, again after better assignments, and ordered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

from ...tasks.compiler.working_time import working_seconds
from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import CostNetwork
from ..cost_networks.preparation import WORK, PreparedNetwork, prepare
from ..orders.depth_first import depth_first_order
from .incumbent import Incumbent
from .prover import Prover
from .prover_policy import NOTABLE_SHARE, ProverPolicy
from .prover_registry import Registered, traits_of

# A prover that closed this part of the gap in one turn has another turn at once.
_AGAIN_GAP_SHARE: Final = 0.5
# The weight of a local search is multiplied by this if its last time slice found something better.
_IMPROVING_TURN_WEIGHT: Final = 0.5
# The weight of a local search is multiplied by this if its last time slice found nothing better.
_IDLE_TURN_WEIGHT: Final = 0.25
# Minimum seconds of a turn for measuring the closed fraction of the gap per second.
LEAST_TURN_SECONDS: Final = 0.01


@dataclass(frozen=True)
class Turn:
    """One that begins now, and how many CPU seconds it should take."""

    seconds: float
    start: float = field(default_factory=lambda: working_seconds())

    @property
    def overlong(self) -> float:
        """CPU seconds that it took too long until now; negative while some are left."""
        return working_seconds() - (self.start + self.seconds)

    @property
    def taken(self) -> float:
        """CPU seconds since it began, never nothing."""
        return max(working_seconds() - self.start, LEAST_TURN_SECONDS)


@dataclass
class Turns:
    """The provers, and what their turns brought.

    Parameters
    ----------
    provers : mapping of str to Registered
        All that may have turns, by name.
    alone : bool
        Whether one prover gets all the time.

    Attributes
    ----------
    closed : dict
        By prover, the part of the gap between the bounds that it closed in a second of its last turn.
    debt_seconds : dict
        By prover, the CPU seconds that its last turn took too long, as it could not be stopped; later ones make up for
        it.
    hopeless : set
        Provers that are not tried any more.
    weight_of : dict
        Factor for the length of turns, by prover, for the traits of the network; 1 by default.
    found : bool
        Whether an assignment is known. Without one there is no gap, and the best-suited provers come first.
    """

    provers: Mapping[str, Registered]
    alone: bool = False
    closed: dict[str, float] = field(default_factory=dict)
    debt_seconds: dict[str, float] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    weight_of: dict[str, float] = field(default_factory=dict)
    found: bool = True

    @property
    def left(self) -> tuple[str, ...]:
        """Those that are not hopeless."""
        return tuple(name for name in self.provers if name not in self.hopeless)

    def suit(self, dims: Sequence[int], found: bool = True) -> None:
        """Record the traits of a network to solve, and whether an assignment is known."""
        traits = traits_of(dims, found)
        self.found = found
        self.weight_of = {name: prover.weight_of(traits) for name, prover in self.provers.items()}

    def _weight(self, name: str) -> float:
        return self.weight_of.get(name, 1.0)

    def _proves(self, name: str) -> bool:
        return self.provers[name].proves

    def shares(self, seconds: float) -> Iterator[tuple[str, float]]:
        """Yield the remaining provers with the number of turns of ``seconds`` for each; at first, all suitable provers.

        The prover that closed most of the gap comes first, with twice the time if it suits, from the third round on.
        Earlier rounds do not count, because the first part of a gap is closed easily even by provers that never close
        the last part. A prover that closed nothing keeps its turns, because searches, diagrams and layers of rows may
        close nothing until they end. A local search is different: it proves nothing.
        """
        policy = ProverPolicy.current()
        beginning = seconds <= 2 * policy.first_turn_seconds
        gaps = self.closed if self.found else {}
        able = [name for name in gaps if self._proves(name) and self._weight(name) >= 1.0]
        first = max((gaps[name] for name in able), default=0.0)
        for name in sorted(self.left, key=lambda name: (-gaps.get(name, 0.0), -self._weight(name))):
            closed = self.closed.get(name)
            if closed is not None and not self._proves(name):
                yield (
                    name,
                    self._weight(name)
                    * (_IMPROVING_TURN_WEIGHT if self.is_notable(name, seconds) else _IDLE_TURN_WEIGHT),
                )
            else:
                leads = name in able and closed == first and first * seconds >= NOTABLE_SHARE and not beginning
                yield name, (2.0 if leads else 1.0) * self._weight(name)

    def nearly_done(self, name: str, seconds: float) -> bool:
        """Whether a turn of ``seconds``, as long as the last one, is likely to complete the proof."""
        return self._proves(name) and self.closing(name, seconds) >= _AGAIN_GAP_SHARE

    def is_notable(self, name: str, seconds: float) -> bool:
        """Whether a turn of ``seconds``, as long as the last one, is likely to close a part of the gap."""
        return self.closing(name, seconds) >= NOTABLE_SHARE

    def closing(self, name: str, seconds: float) -> float:
        """The part of the gap that a turn of ``seconds`` closes, if it goes on like the last one."""
        return self.closed.get(name, 0.0) * seconds

    def begin(self, name: str, seconds: float) -> Turn | None:
        """Begin a turn of ``seconds`` CPU seconds, less the prover's debt; None if it is not worth compiling for."""
        loop = self.provers[name].loop
        if not self.alone and loop is not None and seconds < loop.from_seconds and not loop.is_dispensable:
            return None
        seconds -= self.debt_seconds.get(name, 0.0)
        self.debt_seconds[name] = max(0.0, -seconds)
        return Turn(seconds) if seconds > 0.0 else None


# Cells that preparing again touches for each CPU second spent so far, about a tenth of a second.
_PREPARATION_CELLS_PER_SECOND: Final = 50_000_000
# An order is searched for this share of the time spent.
_ORDER_SHARE: Final = 0.1


@dataclass
class Preparing:
    """Makes the network of an incumbent smaller and orders it.

    Parameters
    ----------
    incumbent : Incumbent
    renewed : callable
        Called when another network stands for the one before.

    Attributes
    ----------
    again_from, order_from : float
        Preparing again, and another order, are not tried before this many seconds were spent.
    """

    incumbent: Incumbent
    renewed: Callable[[], None]
    again_from: float = 0.0
    order_from: float = 0.0

    def prepare(self, work: int = WORK) -> None:
        """Make the network smaller, or only fold what it must not have."""
        known = self.incumbent
        if not known.limits.prune:
            self._settle_trivial()
            return
        with known.timed("preparation"), known.if_compiled("preparation"):
            prepared = prepare(known.small, known.upper, work=work, stop=known.limits.stop)
            known.reports.append(prepared.report)
            self._take(prepared)
        if not known.done:
            self._settle_trivial()

    def _take(self, prepared: PreparedNetwork) -> None:
        known = self.incumbent
        if prepared.total is not None and prepared.states is not None:
            known.offer(prepared.states)
        if not prepared.feasible:
            known.finish("preparation")
            return
        known.raise_lower(prepared.lower)
        if known.order and not self._simpler(prepared.network):
            return
        known.small = prepared.network
        known.order, known.nearby = (), None
        self.renewed()

    def _simpler(self, network: CostNetwork) -> bool:
        """Whether a network that stands for the present one is worth beginning anew with it."""
        known = self.incumbent
        rose = network.constant - known.small.constant
        left = math.inf if known.upper is None else known.upper - known.small.constant
        return (
            network.cells < (1 - NOTABLE_SHARE) * known.small.cells or rose > NOTABLE_SHARE * left or not network.tables
        )

    def _settle_trivial(self) -> None:
        """A network without functions costs its constant in every state."""
        known = self.incumbent
        if known.small.tables:
            return
        if known.total is None or known.total > known.small.constant:
            known.improve(known.small.restored((0,) * len(known.small.dims)))
        known.finish("preparation")

    def paid(self, lower: int, upper: int | None, cells: int) -> bool:
        """Whether a preparation closed or removed enough for another, with more work, to be of use."""
        removed = 1 - self.incumbent.small.cells / max(cells, 1)
        return upper is None or self.incumbent.closed_since(lower, upper) + removed >= NOTABLE_SHARE

    def prepare_again(self, before: int | None) -> None:
        """Use a better assignment, where the cut-off was ``before``, to remove more."""
        known = self.incumbent
        if known.done or not known.limits.prune or known.upper is None or known.upper == before:
            return
        if before is not None and before - known.upper < NOTABLE_SHARE * (before - known.lower):
            return
        if known.spent < self.again_from:
            return
        network = known.small
        self.prepare(int(min(WORK, _PREPARATION_CELLS_PER_SECOND * known.spent)))
        if known.small is network:
            self.again_from = 2 * known.spent

    def find_order(self) -> bool:
        """Order a network that preparation has changed; return whether it was."""
        known = self.incumbent
        if known.order:
            return False
        with known.timed("preparation"):
            known.order = self._searched_order(known.sharpened)
        return True

    def find_better_order(self) -> bool:
        """Search for an order once more; take it, and return so, if its buckets have half as many cells."""
        known = self.incumbent
        with known.timed("preparation"):
            order = self._searched_order(known.small)
            better = 2 * known.cells(order) <= known.cells(known.order)
            if better:
                known.order = order
        return better

    def _searched_order(self, network: CostNetwork) -> tuple[int, ...]:
        """An order that is searched for the longer, the more time was spent."""
        policy = ProverPolicy.current()
        known = self.incumbent
        start = known.spent
        seconds = max(policy.order_seconds, _ORDER_SHARE * start)
        order = depth_first_order(network.dims, network.scopes, seconds=seconds, seed=known.limits.seed)
        # large networks take longer for one order than they are given
        self.order_from = known.spent + (known.spent - start) / _ORDER_SHARE
        return order


Pauses = Generator[None, None, None]
"""Goes on until the proof is complete, nothing more can be done, or to end; yields where the given time is over."""


@dataclass
class Team:
    """The provers that had turns, the shared incumbent, and the results of turns.

    Parameters
    ----------
    incumbent : Incumbent
    turns : Turns

    Attributes
    ----------
    provers : dict
        Provers that had turns, by name.
    until : float
        No turn begins, and none goes on, from this CPU time of the process on.
    """

    incumbent: Incumbent
    turns: Turns
    provers: dict[str, Prover] = field(default_factory=dict)
    until: float = math.inf
    _left_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, entry in self.turns.provers.items():
            if entry.listens:
                self._member(name)

    @cached_property
    def preparing(self) -> Preparing:
        """The preparation, which makes the network smaller; all provers restart with the smaller network."""
        return Preparing(self.incumbent, self._begin_anew)

    def _member(self, name: str) -> Prover:
        if name not in self.provers:
            self.provers[name] = self.incumbent.holders[name] = self.turns.provers[name].make(self.incumbent)
        return self.provers[name]

    def _begin_anew(self) -> None:
        self.turns.hopeless.clear()
        for prover in self.provers.values():
            prover.forget()

    def forget(self, name: str) -> None:
        """Let a prover begin anew."""
        if name in self.provers:
            self.provers[name].forget()

    def is_member(self, name: str) -> bool:
        """Whether a prover may have turns."""
        return name in self.turns.provers

    def close(self) -> None:
        """Let all provers end their processes."""
        for prover in self.provers.values():
            prover.close()

    @property
    def paused(self) -> bool:
        """Whether the given time is over."""
        return self.until < math.inf and working_seconds() >= self.until

    def go(self, name: str, seconds: float) -> Pauses:
        """Give a prover a turn of ``seconds`` CPU seconds, and more while it is likely to complete the proof."""
        again = not self.incumbent.is_over()
        while again:
            went = yield from self.turn(name, seconds)
            again = went and self.ends_soon(name, seconds) and not self.incumbent.is_over()

    def turn(self, name: str, seconds: float) -> Generator[None, None, bool]:
        """Give a prover a turn of ``seconds`` CPU seconds, in parts where time is over; return whether it got any."""
        while self.paused:
            yield
        went = self.attempt(name, seconds)
        while self._left_seconds > 0.0:
            yield
            if self.incumbent.is_over():
                break
            self.attempt(name, self._left_seconds)
        return went

    def attempt(self, name: str, seconds: float) -> bool:
        """Let a prover go on for some CPU seconds, if it gets any; return whether it did.

        Parameters
        ----------
        name : str
        seconds : float
            CPU seconds of the round, before its weight and its debt.

        Returns
        -------
        bool
            False where the prover is no member of the team, its turn is not worth compiling for, or it waits for loops
            that another process compiles.
        """
        self._left_seconds = 0.0
        turn = self.turns.begin(name, seconds) if self.is_member(name) else None
        if turn is None:
            return False
        known, stop = self.incumbent, self.incumbent.limits.stop
        lower, upper = known.lower, known.upper
        prover, outcome = self._member(name), None
        with known.timed(name), known.if_compiled(name):
            prover.hopeless = False
            outcome = prover.turn(turn.seconds, lambda: turn.overlong > 0.0 or stop() or self.paused)
        if name in known.pending:
            prover.forget()
            return False
        if name in known.uncompiled:
            prover.forget()
            prover.hopeless = True
        overlong = turn.overlong
        self.turns.debt_seconds[name] = max(0.0, overlong)
        if outcome is not None:
            known.take_outcome(outcome, name)
            self.turns.closed[name] = known.closed_since(lower, upper) / turn.taken
        early = not known.done and overlong < 0.0 and not stop()
        if early and self.paused:
            self._left_seconds = -overlong
        elif early and not prover.tells_its_end:
            prover.hopeless = True  # it ended by itself: for want of memory
        if prover.hopeless:
            self.turns.hopeless.add(name)
        return True

    def ends_soon(self, name: str, seconds: float) -> bool:
        """Whether a prover is likely to complete the proof in another turn of ``seconds``, or foresees its end.

        Also whether it finds so much better assignments that the following provers become faster.
        """
        if self.incumbent.upper is None or name in self.turns.hopeless:
            return False
        return self.foresees(name, seconds) or self.turns.nearly_done(name, seconds)

    def foresees(self, name: str, seconds: float = 0.0) -> bool:
        """Whether a prover foresees its end, or, if it closes gaps, that another turn of ``seconds`` closes much."""
        prover = self.provers.get(name)
        return prover is not None and prover.foresees_end(self.turns.closing(name, seconds))
