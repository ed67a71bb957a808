"""The portfolio of all provers: from a network to its optimum, by whichever prover gets there.

Nobody knows beforehand which representation stays small, so every prover is tried for a while, then for twice as long,
each with the bounds that the others left (an assignment makes all of them faster). An elimination of all cells comes
in as soon as it is predicted to take less than what was spent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...tasks.compiler.working_time import working_seconds
from ..cost_networks.cost_network import CostNetwork
from ..cost_networks.preparation import WORK
from .incumbent import Incumbent
from .limits import ProofLimits
from .opening import Opening
from .outcome import Outcome
from .prover_policy import ProverPolicy
from .prover_registry import Registered, provers_in_use
from .team import Pauses, Team
from .turns import Turns


@dataclass(frozen=True)
class HelpOffer:
    """What a portfolio would do next.

    Parameters
    ----------
    prover : str
    seconds : float
        CPU seconds of its next turn.
    closing : float
        The part of the gap that the turn closes if it goes on like its last one, 0 where it had none.
    """

    prover: str
    seconds: float
    closing: float


class Portfolio:
    """The search for the least total of a network below a cut-off, by provers that take turns.

    It can be run for some seconds and go on later, as what it did so far stays.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    method : str
        Only this prover after preparation, "auto" for all of them in turn.
    limits : ProofLimits
        Memory, time, and whom to tell.
    provers : iterable of Registered, optional
        Those that take turns; all, where none are given.

    Attributes
    ----------
    incumbent : Incumbent
        What is known so far; its ``limits`` may be replaced.
    turns : Turns
        What the turns of provers brought.
    """

    def __init__(
        self,
        network: CostNetwork,
        upper: int | None,
        method: str,
        limits: ProofLimits,
        provers: Iterable[Registered] | None = None,
    ) -> None:
        alone = method != "auto"
        chosen = provers_in_use() if provers is None else provers
        members = {entry.name: entry for entry in chosen if entry.name == method or not alone}
        self.method = method
        self.incumbent = Incumbent(network, upper, limits, alone)
        self.turns = Turns(members, alone)
        self.team = Team(self.incumbent, self.turns)
        self._steps: Iterator[None] = self._all()
        self._seconds = ProverPolicy.current().first_turn_seconds

    def run(self, seconds: float = math.inf) -> Outcome:
        """Try the provers in turn until one completes the proof, nothing more can be done, or it is told to stop.

        Parameters
        ----------
        seconds : float
            CPU seconds of this process after which it returns, to go on where it was when it is run again. A planned
            elimination of all cells and the preparation are not interrupted by them.

        Returns
        -------
        Outcome
            What is known by now, in the states of the network given. Where it is not proved and ``exhausted``, running
            again is of no use; else the next run goes on.
        """
        self.team.until = working_seconds() + seconds
        for _ in self._steps:
            return self.incumbent.outcome()
        # it was told to stop, or nothing more can be done: going on begins with short turns again
        self._steps = self._rounds()
        return self.incumbent.outcome()

    def learn(self, upper: int | None) -> None:
        """Search only below a total that was found elsewhere; forget an assignment that is not."""
        before = self.incumbent.upper
        if self.incumbent.cut(upper):
            self.team.preparing.prepare_again(before)

    def prepare(self, work: int = WORK) -> None:
        """Make the network smaller, by touching at most so many cells."""
        self.team.preparing.prepare(work)

    @property
    def exhausted(self) -> bool:
        """Whether the proof is complete, or no prover is worth trying."""
        return self.incumbent.done or not self.turns.left

    def offers(self) -> tuple[HelpOffer, ...]:
        """Return the turns of the next round, in their order, as far as is known by now."""
        return tuple(
            HelpOffer(name, share * self._seconds, self.turns.closing(name, share * self._seconds))
            for name, share in self.turns.shares(self._seconds)
            if not self.exhausted
        )

    def _all(self) -> Pauses:
        yield from Opening(self.team).steps()
        yield from self._rounds()

    def _rounds(self) -> Pauses:
        """Try the provers in turn, from short turns on; each goes on where it was."""
        known, self._seconds = self.incumbent, ProverPolicy.current().first_turn_seconds
        while not known.is_over():
            self._find_order()
            for name, share in self.turns.shares(self._seconds):
                if known.is_over():
                    break
                self._find_order()
                before = known.upper
                yield from self.team.go(name, share * self._seconds)
                self._narrow(name)
                self.team.preparing.prepare_again(before)
            if known.is_over() or not self.turns.left:
                break
            self._reorder()
            self._seconds = math.inf if known.alone else 2 * self._seconds

    def _find_order(self) -> None:
        """Begin with a network that preparation has changed."""
        if self.team.preparing.find_order():
            self.turns.suit(self.incumbent.small.dims)

    def _narrow(self, name: str) -> None:
        """Leave out what a prover forbade, once it closes nothing more."""
        known = self.incumbent
        if known.done or name not in self.turns.hopeless or name not in self.team.provers:
            return
        network = self.team.provers[name].narrowed()
        if network is not None and known.limits.prune:
            known.small = network
            self.team.preparing.prepare()

    def _reorder(self) -> None:
        """Search for an order once more, if there is one; half as many cells are worth beginning anew.

        They are not worth a prover that follows the order and foresees its end.
        """
        known, provers = self.incumbent, self.team.provers.values()
        following = [prover for prover in provers if prover.follows_order]
        if not known.order or known.spent < self.team.preparing.order_from:
            return
        if any(prover.foresees_end(0.0) for prover in following):
            return
        if self.team.preparing.find_better_order():
            for prover in following:
                prover.forget()
            self.turns.hopeless.clear()
