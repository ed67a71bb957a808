"""The order and length of the provers' turns, by the fraction of the gap that each closed so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from ...tasks.compiler.working_time import working_seconds
from ...tasks.steps.light_dataclass import dataclass
from .prover_policy import NOTABLE_GAP_SHARE, ProverPolicy
from .prover_registry import Registered, traits_of

# A prover that closed this part of the gap in one turn has another turn at once.
_AGAIN_GAP_SHARE: Final = 0.5
# The weight of a local search is multiplied by this if its last time slice found something better.
_IMPROVING_TURN_WEIGHT: Final = 0.5
# The weight of a local search is multiplied by this if its last time slice found nothing better.
_IDLE_TURN_WEIGHT: Final = 0.25
# Minimum seconds of a turn for measuring the closed fraction of the gap per second.
_LEAST_TURN_SECONDS: Final = 0.01


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
        return max(working_seconds() - self.start, _LEAST_TURN_SECONDS)


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
                leads = name in able and closed == first and first * seconds >= NOTABLE_GAP_SHARE and not beginning
                yield name, (2.0 if leads else 1.0) * self._weight(name)

    def nearly_done(self, name: str, seconds: float) -> bool:
        """Whether a turn of ``seconds``, as long as the last one, is likely to complete the proof."""
        return self._proves(name) and self.closing(name, seconds) >= _AGAIN_GAP_SHARE

    def is_notable(self, name: str, seconds: float) -> bool:
        """Whether a turn of ``seconds``, as long as the last one, is likely to close a part of the gap."""
        return self.closing(name, seconds) >= NOTABLE_GAP_SHARE

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
