"""The provers of one optimum as they take turns: each goes on where it was, with the bounds that the others left."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property

from ...tasks.compiler.working_time import working_seconds
from .incumbent import Incumbent
from .preparing import Preparing
from .prover import Prover
from .turns import Turns

Pauses = Generator[None, None, None]
"""Goes on until the proof is complete, nothing more can be done, or to end; yields where the given time is over."""


@dataclass
class Team:
    """The provers that had a turn, with what they know together and what their turns brought.

    Parameters
    ----------
    incumbent : Incumbent
    turns : Turns

    Attributes
    ----------
    provers : dict
        Those that had a turn, by name.
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
        """What makes the network smaller; all provers begin anew with what it makes."""
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

    @property
    def paused(self) -> bool:
        """Whether the given time is over."""
        return self.until < math.inf and working_seconds() >= self.until

    def go(self, name: str, seconds: float) -> Pauses:
        """Give a prover a turn of so many CPU seconds, and more while it is likely to complete the proof."""
        again = not self.incumbent.is_over()
        while again:
            went = yield from self.turn(name, seconds)
            again = went and self.ends_soon(name, seconds) and not self.incumbent.is_over()

    def turn(self, name: str, seconds: float) -> Generator[None, None, bool]:
        """Give a prover a turn of so many CPU seconds, in parts where time is over; return whether it got any."""
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
        """Let a prover go on for some CPU seconds, if it gets any; return whether it did."""
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
        """Whether a prover is likely to complete the proof in another turn of so many seconds, or foresees its end.

        Or whether it finds so much better assignments that whatever comes next is shorter with them.
        """
        if self.incumbent.upper is None or name in self.turns.hopeless:
            return False
        prover = self.provers.get(name)
        foreseen = prover is not None and prover.foresees_end(self.turns.closing(name, seconds))
        return foreseen or self.turns.nearly_done(name, seconds)
