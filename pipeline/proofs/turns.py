"""Whose turn it is among the ways to an optimum, and for how long, by what each closed of the gap so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...tasks.compiler.code_cache import is_compiled
from ...tasks.compiler.work_clock import working_seconds
from .outcome import Method
from .provers.neighbourhood_search import is_wide

Way = Literal["dense", "rows", "local", "diagram", "search", "clusters", "triangles", "dolls", "subtrees"]
_EVERYONE: tuple[Way, ...] = (
    *("dolls", "clusters", "triangles", "subtrees"),
    *("rows", "local", "diagram", "search", "dense"),
)
#: CPU seconds of the first round, for each way; each round takes twice as long as the one before.
FIRST_SECONDS = 0.25
#: Ways of which this function is not compiled yet wait until turns are so long, as it takes several seconds.
_COMPILED: dict[Way, tuple[str, str, float]] = {
    "local": ("tasks.search.annealing", "anneal", 1.0),
    "diagram": ("tasks.diagrams.min_plus_loops", "merge", 0.5),
    "search": ("tasks.search.branch_and_bound", "explore", 1.0),
    "clusters": ("tasks.networks.clusters", "sweep", 0.5),
    "triangles": ("tasks.networks.triangles", "sweep", 1.0),
    "dolls": ("tasks.search.russian_dolls", "explore", 0.5),
    "subtrees": ("tasks.search.branch_and_bound", "explore", 1.0),
}
#: The way that closed most has the longest turns where one may close this part of the gap.
_NOTABLE = 0.02
#: What closed this part of it in one turn has another at once.
_NEARLY_ALL = 0.5
#: Networks of so few assignments, in bits, over domains of so many on average are searched rather than represented;
#: of those of so many a search sees only a part, if short ones found no proof.
_FEW_BITS, _LARGE_BITS, _MANY_BITS = 128, 3, 512
#: What a turn of a local search is worth where its last one found something better, and where not.
_GOING, _RESTING = 0.5, 0.25
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
    suited : dict
        By way, how much longer its turns are for what the network looks like.
    """

    method: Method | Way
    closed: dict[Way, float] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)
    owing: dict[Way, float] = field(default_factory=dict)
    hopeless: set[Way] = field(default_factory=set)
    suited: dict[Way, float] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[Way, ...]:
        """The ways that may be tried."""
        return _EVERYONE if self.method == "auto" else (self.method,)

    @property
    def alone(self) -> bool:
        """Whether one way has all the time and memory."""
        return len(self.candidates) == 1

    @property
    def left(self) -> tuple[Way, ...]:
        """Those that are not hopeless."""
        return tuple(way for way in self.candidates if way not in self.hopeless)

    @property
    def none_left(self) -> bool:
        """Whether no way is worth trying."""
        return not self.left

    def suit(self, dims: Sequence[int]) -> None:
        """Take note of what a network to solve looks like."""
        bits = math.fsum(math.log2(d) for d in dims)
        self.suited = {}
        if bits <= _FEW_BITS and bits >= _LARGE_BITS * len(dims):
            self.suited = {"rows": 0.5, "diagram": 0.25, "search": 4.0}
        elif bits > _MANY_BITS:
            self.suited = {"search": 0.5}
        if is_wide(dims):
            self.suited["local"] = 4.0

    def shares(self, seconds: float) -> Iterator[tuple[Way, float]]:
        """The ways that are left, with how many turns of so many seconds they get: at first all those that suit.

        What closed most of the gap is first and has twice as long if it suits, from the third round on: the first part
        of a gap is closed easily by what never closes the last. What closed nothing loses nothing, as searches,
        diagrams and layers of rows may do so until they end; but a local search proves nothing.
        """
        beginning = seconds <= 2 * FIRST_SECONDS
        able = [way for way in self.closed if way != "local" and self.suited.get(way, 1.0) >= 1.0]
        first = max((self.closed[way] for way in able), default=0.0)
        for way in sorted(self.left, key=lambda way: (-self.closed.get(way, 0.0), -self.suited.get(way, 1.0))):
            closed = self.closed.get(way)
            if way == "local" and closed is not None:
                yield way, self.suited.get(way, 1.0) * (_GOING if self.is_notable(way, seconds) else _RESTING)
            else:
                leads = way in able and closed == first and first * seconds >= _NOTABLE and not beginning
                yield way, (2.0 if leads else 1.0) * self.suited.get(way, 1.0)

    def nearly_done(self, way: Way, seconds: float) -> bool:
        """Whether a turn of so many seconds, as long as the last one, is likely to complete the proof."""
        return way != "local" and self.closed.get(way, 0.0) * seconds >= _NEARLY_ALL

    def is_notable(self, way: Way, seconds: float) -> bool:
        """Whether a turn of so many seconds, as long as the last one, is likely to close a part of the gap."""
        return self.closed.get(way, 0.0) * seconds >= _NOTABLE

    def begin(self, way: Way, seconds: float) -> Turn | None:
        """Begin a turn of so many CPU seconds, less what the way owes; None if it is not worth compiling for."""
        if self.method == "auto" and way in _COMPILED:
            module, function, least = _COMPILED[way]
            if seconds < least and not is_compiled(module, function):
                return None
        seconds -= self.owing.get(way, 0.0)
        self.owing[way] = max(0.0, -seconds)
        return Turn(seconds) if seconds > 0.0 else None
