"""What is tuned of strategies, listed once: the lengths of turns, and what is quick. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Final

from ....tasks.steps.policy import Policy
from ...plans.planning_policy import PlanningPolicy


@dataclass(frozen=True)
class TurnLengths:
    """How long the turns of an engine are whose price is not known.

    Parameters
    ----------
    first_seconds : float
        CPU seconds of its first turn; each further one takes twice as long. Infinite: it runs until it ends itself.
    part : float
        The first turn takes at least this part of the cheapest known price, where that was planned.
    from_seconds : float
        Where the first turn is a part of a price: no turn before shorter sweeps, which are over before it pays.
    most_turns : int
    """

    first_seconds: float = inf
    part: float = 0.0
    from_seconds: float = 0.0
    most_turns: int = 1 << 30
    priced_part: float = 0.0
    price_margin: float = 3.0
    step_seconds: float = 2e-3


_LENGTHS: Final = MappingProxyType(
    {
        # Of clauses: model counters prove most of what they ever prove in some tenths of a second.
        "search": TurnLengths(0.25),
        # The same search, written out.
        "circuit": TurnLengths(0.25),
        "outer circuit": TurnLengths(0.25),
        # 2.6 million edges.
        "diagrams": TurnLengths(0.25),
        # Joins of rows; more seldom paid on 25 public models.
        "rows": TurnLengths(part=0.05, from_seconds=0.5, most_turns=1, priced_part=0.5),
        "bounds": TurnLengths(),
    }
)


@dataclass(frozen=True)
class StrategyPolicy:
    """The numbers behind strategies.

    Parameters
    ----------
    quick_seconds : mapping of str to float
        By query: a sweep that is predicted to take at most so long is over before anything else has begun. Of sums
        2^32 cells of buckets, of which a tree that is searched has a sixteenth or less; bounds on optima are sooner
        there, as preparing a network touches 3 * 10^7 cells in the first tenth of a second.
    soon_cells : int
        A network of costs whose buckets have so many cells is swept as soon as a glance of bounds has not closed the
        gap.
    share, long_part, long_seconds : float
        Engines without a price may together take this share of the cheapest known price, and this part of the share of
        the seconds of a price beyond ``long_seconds``. So a sweep of one second is delayed by at most half of it, a
        sweep of a minute by at most a fifth. In return, an engine that needs longer than that comes too late
        (or_chain_63: diagrams took 7.5 CPU seconds in vain before a sweep that was predicted to take 16.9).
    patience_seconds : float
        CPU seconds of engines without a price, in all, where no sweep fits memory.
    shortened : float
        A turn that is not the first is shortened to what is left of that, unless it were less than this part of it: of
        mc2022_track2_030, a sweep of 4.7 s, a search that takes 1.2 had 0.75 and 0.8 s were left.
    mispriced, mispriced_seconds : float
        A sweep that learns on its way that it takes so many times its price, and so many seconds, is priced again, and
        others have turns by that: mc2022_track2_030 was priced for 2 primes and takes 15, 7.6 CPU-s in place of 3.3. A
        sweep of 0.9 s that ended after its first 0.3 would take that again.
    saved_by_trees : float
        A tree that is searched has this part fewer cells than the buckets of the order that is found at once.
    most_saved : float
        Trees save less than that.
    sliced_overhead : float
        What does not fit memory is priced so many times higher until it is planned, or by its largest table once a tree
        is known: 50-18-5 at 8 MB is two slices, which take no longer than the whole.
    largest_part : int
        A sweep over a searched tree has one part in so many of the largest message of the first order in memory: of
        SPOT5 404 it was 1/60, of the grid 50-16-5 1/17. Twice as much makes two slices, which take less than bounds
        (0.9 CPU-s, 1.9).
    short_search_seconds : float
        CPU seconds of the search that prices a sweep better than the first order does.
    planning_part : float
        Planning takes about as long as the short search took, which is more than its seconds on networks of thousands
        of variables, or this part of the sweep: 0.08 s for 0.006 (the search took 0.10), 0.20 for 1.4 (0.21), 0.31 for
        3.3 in slices (0.20), 0.54 for 131 (0.20), 3.2 for 202 in slices (0.12).
    planning_share, least_planning_seconds, most_planning_seconds : float
        Planning a sweep waits until engines without a price took this part of what the sweep takes, and no less and no
        more than that: planning a sweep in slices takes up to 20 s (ra.cnf), which a search was through before.
    short_sweep_seconds : float
        Of a sweep that is predicted to take no more, planning waits no longer than planning is predicted to take: a
        count whose short search priced 46 s, and whose plan 6, takes 15 CPU s in place of 30. Of longer ones, trials
        by rows would be begun that take longer than the others then had (mc2022_track1_029: 33 s in place of 14).
    device_start_seconds : float
        Loading a device's libraries and kernels.
    table_cell_seconds : float
        Making a cell of a leaf table out of rows.
    race_from_seconds : float
        A sweep on a device that is predicted to take less runs at once, alone: beside others that take turns in the
        same interpreter it takes up to twice as long (or_chain_107, 2^39.5 cells of buckets: 2.8 s, raced 4.6).
    race_most_seconds : float
        Of an optimum a longer sweep on a device is left to the portfolio, which uses the device for rows meanwhile.
    lengths : mapping of str to TurnLengths
        By engine.
    """

    quick_seconds: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {
                "optimum": 2.0**28 / 16e9,
                **dict.fromkeys(("partition", "count", "mmap", "marginals", "max-marginals"), 2.0**-2),
            }
        )
    )
    soon_cells: int = 1 << 32
    share: float = 0.5
    long_part: float = 0.25
    long_seconds: float = 8.0
    patience_seconds: float = 60.0
    shortened: float = 0.5
    mispriced: float = 2.0
    mispriced_seconds: float = 2.0
    saved_by_trees: float = 16.0
    most_saved: float = 256.0
    sliced_overhead: float = 8.0
    largest_part: int = 32
    short_search_seconds: float = 0.1
    planning_part: float = 0.01
    planning_share: float = 0.25
    least_planning_seconds: float = 0.3
    most_planning_seconds: float = 20.0
    short_sweep_seconds: float = 60.0
    device_start_seconds: float = PlanningPolicy().device_loading_seconds
    table_cell_seconds: float = 2e-8
    race_from_seconds: float = 3.0
    race_most_seconds: float = 60.0
    lengths: Mapping[str, TurnLengths] = field(default_factory=lambda: _LENGTHS)

    def shared_seconds(self, price: float) -> float:
        """Return the CPU seconds that engines without a price may take in all before the engine of a known price runs.

        >>> [POLICY.shared_seconds(price) for price in (1.0, 8.0, 60.0)]
        [0.5, 4.0, 10.5]
        """
        return self.share * (min(price, self.long_seconds) + self.long_part * max(price - self.long_seconds, 0.0))

    def sliced_times(self, largest_bytes: float, spare_bytes: int) -> float:
        """Return how many times longer slices take, where the largest table is so large and two are held at once."""
        return min(max(2.0 * largest_bytes / max(spare_bytes, 1), 1.0), self.sliced_overhead)

    def planning_seconds(self, sweep_seconds: float, predicted: float = inf) -> float:
        """Return what others take before a sweep of so many seconds is planned, which takes what is predicted."""
        wanted = self.planning_share * sweep_seconds
        if sweep_seconds <= self.short_sweep_seconds:
            wanted = min(wanted, predicted)
        return min(max(wanted, self.least_planning_seconds), self.most_planning_seconds)


@dataclass(frozen=True)
class OuterPolicy(Policy):
    """The numbers of marginal MAP by bounds: rounds of bounds on optima of what is left, and climbs between them.

    Parameters
    ----------
    bits : tuple of int
        The tables that are left may have 2^bits cells, round by round: bounds become tighter, and cost more.
    optimum_share, first_share : float
        An optimum of one round takes at most this part of the time that is left; the first one, of all variables, that.
    passing_share : float
        The passes of one size take at most this part of it.
    vain_passes, least_passes : int
        So many passes that gain little end them; a size is begun if it has time for so many.
    circuit_share : float
        A search of clauses that decides outer variables first takes at most this part of the time that is left: of
        bw_p24_6 it takes 0.8 s, and bounds are open after a minute.
    bucket_cells : int
        A mini-bucket takes a pass as long as so many cells: 75-26-5 0.35 s with 3e5 cells, 0.55 with 2.6e6.
    seconds : float
        All of it, where only a gap was given.
    bounding_share, searching_share : float
        Mini-buckets grow in this part of the time, of which searches below the bound of each size take the second; then
        such a search goes on below the best bound.
    compiling_share : float
        The search's loops are waited for in this part of the time that is left.
    first_search_seconds : float
        A round of a search takes so long, and then twice as long each time; in half of it, states that the search
        thinks best are tried, and better ones looked for near the best.
    climbing_share : float
        Better states are looked for in this part of the time that is left, after each round.
    vain_climbs : int
        The last climbs go on until so many in a row are in vain, where no time was given.
    most_step_cells : int
        A sum that sweeps more cells is no step of a search.
    swept_cells : int
        A search that is not stopped sweeps so many cells at least: whether compiled loops pay.
    kicked_states : int
        States that are changed at random when no single change is better.
    """

    bits: tuple[int, ...] = tuple(range(12, 40, 2))
    optimum_share: float = 0.3
    first_share: float = 0.1
    passing_share: float = 0.4
    vain_passes: int = 6
    least_passes: int = 3
    circuit_share: float = 0.125
    bucket_cells: int = 2000
    seconds: float = 60.0
    bounding_share: float = 0.6
    searching_share: float = 0.2
    compiling_share: float = 0.5
    first_search_seconds: float = 0.3
    climbing_share: float = 0.1
    vain_climbs: int = 10
    most_step_cells: int = 1 << 24
    swept_cells: int = 1 << 28
    kicked_states: int = 4


POLICY: Final = StrategyPolicy()
"""What every question is answered by, unless another is given."""
