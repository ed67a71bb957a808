"""Whose turn it is among the ways to an optimum, and for how long, by what each closed of the gap so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ...tasks.code_files import is_compiled
from ...tasks.working_time import working_seconds
from .outcome import Method

Way = Literal["dense", "rows", "local", "diagram", "search"]
#: CPU seconds of the first round, for each way; each round takes twice as long as the one before.
FIRST_SECONDS = 0.25
#: Ways of which this function is not compiled yet wait until turns are so long, as it takes several seconds.
_COMPILED: dict[Way, tuple[str, str, float]] = {
    "local": ("tasks.local.annealing", "anneal", 1.0),
    "diagram": ("tasks.diagrams.loops", "merge", 0.5),
    "search": ("tasks.search.branching", "explore", 1.0),
}
#: The way that closed most has the longest turns where one may close this part of the gap.
_NOTABLE = 0.02
#: Turns are not shorter, for what they closed in a second.
_LEAST_SECONDS = 0.01


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
        return max(working_seconds() - self.start, _LEAST_SECONDS)


@dataclass
class Turns:
    """The ways, and what their turns took and brought.

    Attributes
    ----------
    method : str
        Only this way, "auto" for all of them.
    closed : dict
        By way, the part of the gap between the bounds that it closed in a second of its last turn.
    tried : dict
        CPU seconds by way, and those of the preparation.
    owing : dict
        By way, the CPU seconds that its last turn took too long, as it could not be stopped; later ones make up for it.
    hopeless : set
        Ways that are not tried any more.
    """

    method: Method | Way
    closed: dict[Way, float] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)
    owing: dict[Way, float] = field(default_factory=dict)
    hopeless: set[Way] = field(default_factory=set)

    @property
    def candidates(self) -> tuple[Way, ...]:
        """The ways that may be tried."""
        return ("rows", "local", "diagram", "search", "dense") if self.method == "auto" else (self.method,)

    @property
    def alone(self) -> bool:
        """Whether one way has all the time and memory."""
        return len(self.candidates) == 1

    @property
    def none_left(self) -> bool:
        """Whether no way is worth trying."""
        return len(self.hopeless) == len(self.candidates)

    def shares(self, seconds: float) -> Iterator[tuple[Way, float]]:
        """The ways that are left, with how many turns of so many seconds they get.

        What closed most of the gap is first; it has two, and what closed nothing half a one, if it promises to close
        something worth that: diagrams and layers of rows close nothing until they end.
        """
        ways = [way for way in self.candidates if way not in self.hopeless]
        first = max(self.closed.values(), default=0.0)
        first = first if first * seconds >= _NOTABLE else 0.0
        for way in sorted(ways, key=lambda way: -self.closed.get(way, 0.0)):
            closed = self.closed.get(way)
            yield way, 1.0 if closed is None or not first else 0.5 if not closed else 2.0 if closed == first else 1.0

    def begin(self, way: Way, seconds: float) -> Turn | None:
        """Begin a turn of so many CPU seconds, less what the way owes; None if it is not worth compiling for."""
        if self.method == "auto" and way in _COMPILED:
            module, function, least = _COMPILED[way]
            if seconds < least and not is_compiled(module, function):
                return None
        seconds -= self.owing.get(way, 0.0)
        self.owing[way] = max(0.0, -seconds)
        return Turn(seconds) if seconds > 0.0 else None
