"""The cost of planning: work in nominal seconds, on one account for the search, slices and boxes. Pure.

Counted and not measured, so that a busy machine makes the same plan as an idle one.

>>> effort = PlanningBudget(spent=0.1)
>>> effort.allows(0.05, predicted=1.0), effort.allows(0.5, predicted=1.0), effort.allows(0.5, predicted=10.0)
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from ...tasks.steps.light_dataclass import dataclass

SHARE: Final = 0.1
"""Planning may take this share of the predicted run,"""
LEAST: Final = 0.2
"""or this many seconds if that is more,"""
LEAST_ON_DEVICE: Final = 2 * LEAST
"""or this many for a GPU."""

TABLE_SECONDS: Final = 3e-5
"""Choosing the layout of a table that a step reads or writes, lowering, and following what is alive."""
OUTLINE_SECONDS: Final = 1e-5
"""Following a table: while its layout or the variables to condition on are chosen, or stages are tried."""
FUNCTION_SECONDS: Final = 1.5e-4
"""The first order, and the trees that it gives, for each function."""


@dataclass
class PlanningBudget:
    """An account of planning, in nominal seconds.

    Parameters
    ----------
    asked : float
        Seconds that were asked for besides.
    spent : float
    known : float
        Seconds of the fastest plan that was found.
    kept, before : float
        Fraction reserved of the seconds that were left when ``before`` seconds were spent.
    least : float
        Seconds that are allowed however short the run is.
    """

    asked: float = 0.0
    spent: float = 0.0
    known: float = inf
    kept: float = 0.0
    before: float = 0.0
    least: float = LEAST

    def spend(self, seconds: float) -> None:
        """Enter work that was done."""
        self.spent += seconds

    def know(self, seconds: float) -> None:
        """Record a plan with this predicted time."""
        self.known = min(self.known, seconds)

    def left(self, predicted: float) -> float:
        """Return the seconds that may still be spent on a better plan than one with the predicted time ``predicted``.

        Improving a slow plan may take no longer than the fastest known plan justifies.
        """
        allowed = self.asked + max(self.least, SHARE * min(predicted, self.known))
        aside = self.kept * max(allowed - self.before, 0.0) if self.kept else 0.0  # all may be allowed
        return allowed - aside - self.spent

    def grant(self, seconds: float, predicted: float) -> None:
        """Allow ``seconds`` for a better plan than one with the predicted time ``predicted``."""
        self.asked += max(seconds - self.left(predicted), 0.0)

    def allows(self, seconds: float, predicted: float) -> bool:
        """Return whether ``seconds`` more may be spent."""
        return seconds <= self.left(predicted)

    @contextmanager
    def set_aside(self, share: float) -> Iterator[None]:
        """Reserve a fraction of the remaining seconds for later."""
        self.kept, self.before = share, self.spent
        yield
        self.kept = 0.0
