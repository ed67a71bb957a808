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
from ...tasks.steps.policy import Policy

# Number of cached trees, because the cheapest tree may need too much memory.
KEPT_TREES: Final = 8
# A small step both ways is one call of einsum, or a record of one compiled loop; large ones need more, where it is
# little beside their loops. Priced by more, merged steps would sweep several times the cells to save steps.
BOTH_WAYS_STEP_SECONDS: Final = 5e-6


@dataclass(frozen=True)
class OrderPolicy(Policy):
    """The numbers behind how long is searched.

    Parameters
    ----------
    share : float
        Automatic planning spends this fraction of the predicted run time, and the larger fraction of runs up to this
        many seconds.
    doubtful_seconds : float
        A search that would go on for longer is begun with a quarter of this; then its best tree is looked at.
    starts : int
        Fractions of a round for trying orders and for refining each start, and the number of starts.
    compiled_seconds : float
        Seconds of a search that it is compiled for, and cells of the buckets of the first order that it is loaded for.
    compiling_seconds : float
        CPU seconds that compiling a search takes. Where it is not compiled the first tree is kept if that is predicted
        to take less, and no table of it has more cells: a grid of 2^31 cells took 30 to 46 CPU-s at first, 1.8 of them
        with its first tree and .6 with the tree that was searched.
    both_ways_tiny_cells : int
        Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
    restart_cells : int
        If the first tree of a short propagation sweeps more cells than this, more orders are tried and refined, for
        this many seconds per cell. Large propagations often become two to three times faster.
    restart_least_seconds : float
        Unless it is predicted to take less than this: loading the search alone takes 0.4 CPU-s, and 16 ms of diabetes,
        11 million cells, become 13.
    pairs_share : float
        Seconds per variable, or group of functions, to make the joins of a tree pairwise and to price both versions in
        both directions. Trees within a factor of the best are compared in both directions, at least one, for this
        fraction of the propagation. In a short propagation the pairwise version is skipped, because its gain is smaller
        than its cost.
    asked_cells : int
        The same of trees of buckets or cliques that were asked for, which only further orders improve.
    """

    share: float = 0.08
    doubtful_seconds: float = 2.0
    starts: int = 3
    compiled_seconds: float = 0.5
    compiling_seconds: float = 10.0
    both_ways_tiny_cells: int = 1 << 23
    restart_cells: int = 10_000_000
    restart_least_seconds: float = 0.04
    pairs_share: float = 0.02
    asked_cells: int = 1_000_000


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
