"""What planning may cost: work counted in nominal seconds, on one account for the search, slices and boxes. Pure.

Counted and not measured, so that a busy machine makes the same plan as an idle one.

>>> effort = Effort(spent=0.2)
>>> effort.allows(0.05, predicted=1.0), effort.allows(0.5, predicted=1.0), effort.allows(0.5, predicted=10.0)
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.1
"""Planning may take this share of the predicted run,"""
LEAST: Final = 0.3
"""or so many seconds if that is more."""

TABLE_SECONDS: Final = 3e-5
"""Choosing the layout of a table that a step reads or writes, lowering, and following what is alive."""
SLICING_SECONDS: Final = 4e-5
"""Choosing variables to condition on, for each table of a tree."""
FUNCTION_SECONDS: Final = 1e-4
"""The first order, and the trees that it gives, for each function."""


@dataclass
class Effort:
    """An account of planning, in nominal seconds.

    Parameters
    ----------
    asked : float
        Seconds that were asked for besides.
    spent : float
    """

    asked: float = 0.0
    spent: float = 0.0

    def spend(self, seconds: float) -> None:
        """Enter work that was done."""
        self.spent += seconds

    def left(self, predicted: float) -> float:
        """Seconds that may still be spent on a better plan than one that is predicted to take ``predicted``."""
        return self.asked + max(LEAST, SHARE * predicted) - self.spent

    def allows(self, seconds: float, predicted: float) -> bool:
        """Whether so much more may be spent."""
        return seconds <= self.left(predicted)

    @contextmanager
    def set_aside(self, share: float, predicted: float) -> Iterator[None]:
        """Keep a share of what is left for later."""
        kept = share * max(self.left(predicted), 0.0)
        self.spent += kept
        yield
        self.spent -= kept
