"""The budget of planning in nominal seconds, shared by the search for trees, by slices and by boxes. Pure.

Work is counted instead of measured, so that a busy machine makes the same plan as an idle one.

>>> effort = PlanningBudget(spent=0.1)
>>> effort.allows(0.05, predicted=1.0), effort.allows(0.5, predicted=1.0), effort.allows(0.5, predicted=10.0)
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from ..trees.costs import Rates

# Number of cached trees, because the cheapest tree may need too much memory.
KEPT_TREES: Final = 8
# Fixed seconds of a step in both sweeps: one call of einsum, or a record of one compiled loop. Large steps take longer,
# but little in comparison with their loops. With a higher price, merged steps would sweep several times the cells to
# save steps.
BOTH_WAYS_STEP_SECONDS: Final = 5e-6
#: The same in cells of a nominal core.
BOTH_WAYS_STEP_CELLS: Final = int(BOTH_WAYS_STEP_SECONDS * Rates().cells_per_second)


@dataclass(frozen=True)
class OrderPolicy(Policy):
    """The numbers that limit the time of a search for trees.

    Parameters
    ----------
    share : float
        A search for trees spends at most this fraction of the predicted run with its best tree, beyond its first round.
    doubtful_seconds : float
        If a search is expected to take longer than this, its best tree is checked after a quarter of this time.
    starts : int
        Number of orders whose trees are refined in a round.
    compiled_seconds : float
        Requested seconds of a search from which its loops are compiled.
    compiling_seconds : float
        CPU seconds that compiling a search takes. While it is not compiled, the first tree is used if its run is
        predicted to take less time and its tables are not large.
    both_ways_tiny_cells : int
        If both sweeps multiply at most this number of cells, the buckets of one order are as good as any tree.
    restart_least_seconds : float
        If the propagation of the first tree is predicted to take less than this, no other tree is searched for. A lower
        number saves more of some propagations, but loading the search takes several times as long.
    pairs_share : float
        Maximum fraction of the propagation that the comparison of good trees in both directions takes, with merged and
        with pairwise joins. At least one tree is compared. In a short propagation the pairwise version is skipped,
        because its gain is smaller than its cost.
    asked_cells : int
        If a requested tree of buckets or cliques sweeps more cells than this, further orders are tried.
    """

    share: float = 0.08
    doubtful_seconds: float = 2.0
    starts: int = 3
    compiled_seconds: float = 0.5
    compiling_seconds: float = 10.0
    both_ways_tiny_cells: int = 1 << 23
    restart_least_seconds: float = 0.04
    pairs_share: float = 0.02
    asked_cells: int = 1_000_000


SHARE: Final = 0.1
"""Planning may take this share of the predicted run,"""
LEAST: Final = 0.2
"""or this many seconds if that is more,"""
LEAST_ON_DEVICE: Final = 2 * LEAST
"""or this many for a GPU."""

LEAST_SEARCH: Final = 0.05
"""The first round of a search for trees, in nominal seconds. Each round takes twice as long as the last."""
# A round may gain this fraction of the run although the earlier rounds gained less.
_LEAST_GAIN: Final = 0.02

TABLE_SECONDS: Final = 3e-5
"""For each table that a step reads or writes: choosing its layout, lowering the step, and tracking stored tables."""
OUTLINE_SECONDS: Final = 1e-5
"""For each table: tracking it while layouts, variables to condition on, or stages are chosen."""
FUNCTION_SECONDS: Final = 1.5e-4
"""For each function: the first order and its trees."""


@dataclass
class PlanningBudget:
    """An account of planning, in nominal seconds.

    Parameters
    ----------
    asked : float
        Additional seconds that were granted.
    spent : float
    known : float
        Predicted seconds of the fastest plan so far.
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
        """Return the seconds that may still be spent to improve a plan with the predicted time ``predicted``.

        Improving a slow plan may take no longer than the fastest known plan justifies.
        """
        allowed = self.asked + max(self.least, SHARE * min(predicted, self.known))
        aside = self.kept * max(allowed - self.before, 0.0) if self.kept else 0.0  # all may be allowed
        return allowed - aside - self.spent

    def grant(self, seconds: float, predicted: float) -> None:
        """Allow ``seconds`` to improve a plan with the predicted time ``predicted``."""
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


@dataclass
class SearchRounds:
    """The rounds of a search for trees, and when they end.

    A search spends at most a share of the predicted run of the best tree so far. It ends before a round that is not
    expected to gain its own time. As a rule, a round twice as long gains the same fraction of the remaining run time,
    however long the search has been. The better of the last two rounds therefore predicts the next gain, with a
    minimum, because a round may gain nothing by chance.

    The best tree would run for 2 s before the first round, and for 0.2 s after it. The search then ends, because a
    second round would exceed its share of 0.2 s.

    >>> rounds = SearchRounds(least=0.05, longest=8.0)
    >>> rounds.next_seconds(0.0, 2.0), rounds.next_seconds(0.05, 0.2)
    (0.05, 0.0)

    Parameters
    ----------
    least : float
        Seconds that may always be spent, for short runs and small gains too.
    longest : float
        Maximum seconds of the search.
    """

    least: float
    longest: float

    def __post_init__(self) -> None:
        self._runs: list[float] = []
        self._last = min(LEAST_SEARCH, self.least / 2)  # a search of a given time needs fewer, longer rounds

    def allowed(self, run: float) -> float:
        """Return the seconds of the whole search if the best tree so far is predicted to run for ``run`` seconds."""
        return min(self.longest, max(self.least, OrderPolicy.current().share * run))

    def next_seconds(self, spent: float, run: float) -> float:
        """Return the seconds of the next round, or 0 if the search ends.

        Parameters
        ----------
        spent : float
            Seconds of the search so far.
        run : float
            Predicted seconds of the run with the best tree so far.
        """
        self._runs = [*self._runs[-2:], run]
        left = self.allowed(run) - spent
        if left <= 0.0:
            return 0.0
        seconds = left if left < 3 * self._last else 2 * self._last
        if spent >= self.least and seconds > self._expected():
            return 0.0
        self._last = seconds
        return seconds

    def _expected(self) -> float:
        """Return the seconds of the run that the next round is expected to save."""
        gained = [1 - later / earlier for earlier, later in pairwise(self._runs) if earlier > 0]
        return max([_LEAST_GAIN, *gained]) * self._runs[-1]
