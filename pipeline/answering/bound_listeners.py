"""Bounds on an optimum while they close, in the units of the model: reported to listeners, and kept as a history."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import States
from ..errors import finite
from ..results.bounds import Bounds, Number
from ..results.remaining_time import ClosingBounds, OnProgress

OnBounds = Callable[[Number | None, Number | None], None]
"""Called with both bounds on an optimum, None where one is not known yet."""

Point = tuple[float, Number | None, Number | None]
"""Seconds since the search began, and both bounds then; None where there is none."""

# When there are more points, every second one goes.
_MOST = 200


class Between(Protocol):
    """Says what a least total and an assignment mean for the optimum."""

    def __call__(self, lower: int, states: States | None, *, closed: bool) -> Bounds:
        """Return both bounds; one is None without an assignment."""
        ...


@dataclass
class Watcher:
    """Reports both bounds whenever one improved, and when something else is tried.

    Parameters
    ----------
    report : callable
    between : Between
    """

    report: OnProgress
    between: Between
    way: str = "preparation"
    _told: tuple[int, int | None] | None = None
    _ends: tuple[Number | None, Number | None] = (None, None)
    _value: tuple[int | None, Number | None] = (None, None)

    def improved(self, lower: int, total: int | None, states: States | None) -> None:
        """Tell bounds that are new; an assignment is evaluated once."""
        if (lower, total) == self._told:
            return
        if total != self._value[0]:
            best = self.between(lower, states, closed=False)
            self._value = total, best.value if best.log10 is None else best.log10
        found, value = self.between(lower, None, closed=False), self._value[1]
        self._ends = (value, found.upper) if found.lower is None else (found.lower, value)
        self._told = lower, total
        self._tell()

    def begins(self, way: str) -> None:
        """Report the method that is tried now."""
        self.way = way
        self._tell()

    def _tell(self) -> None:
        self.report(ClosingBounds(*self._ends, self.way))


@dataclass
class History:
    """Bounds by time.

    Parameters
    ----------
    earlier : list of tuple
        Of the runs before, in the model's values.
    begun : float
        By ``time.perf_counter()``.
    """

    earlier: list[Point] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    _totals: list[tuple[float, int, int | None]] = field(default_factory=list)

    def add(self, lower: int, total: int | None) -> None:
        """Record the least possible total and the best total found, unless both are unchanged."""
        if self._totals and self._totals[-1][1:] == (lower, total):
            return
        before = self.earlier[-1][0] if self.earlier else 0.0
        self._totals.append((round(before + time.perf_counter() - self.begun, 4), lower, total))
        if len(self._totals) > _MOST:
            self._totals = [*self._totals[:-1:2], self._totals[-1]]

    def points(self, at_least: Callable[[int], Bounds]) -> list[Point]:
        """Return all bounds; ``at_least`` says what a least total means for the optimum."""
        return [*self.earlier[-_MOST:], *((t, *_ends(at_least, lower, total)) for t, lower, total in self._totals)]


def _ends(at_least: Callable[[int], Bounds], lower: int, total: int | None) -> tuple[Number | None, Number | None]:
    """Return the interval of the optimum. If the file maximises, the proved bound is the upper one."""
    proved = at_least(lower)
    best = Bounds("optimum", "bounded") if total is None else at_least(total)
    if proved.lower is None:
        return finite(best.upper), finite(proved.upper)
    return finite(proved.lower), finite(best.lower)
