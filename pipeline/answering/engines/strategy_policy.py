"""Tuned numbers of strategies: the lengths of turns, and limits of quick sweeps. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import inf
from types import MappingProxyType
from typing import Final

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.policy import Policy
from ...plans.problem import DEVICE_LOADING_SECONDS


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
    charged : float
        Each second counts as this many where engines without a price are compared: for diagrams in models of two
        states, for a search and Ganak in models of clauses.
    """

    first_seconds: float = inf
    part: float = 0.0
    from_seconds: float = 0.0
    most_turns: int = 1 << 30
    charged: float = 1.0
    priced_part: float = 0.0
    price_margin: float = 3.0
    step_seconds: float = 2e-3


_LENGTHS: Final = MappingProxyType(
    {
        # Model counters prove most of the provable clauses in some tenths of a second. On formulas that take longer
        # than two seconds, Ganak is nearly always the quicker one of the two.
        "search": TurnLengths(0.25, charged=0.25),
        "ganak": TurnLengths(0.25, charged=0.05),
        # The same search, written out.
        "circuit": TurnLengths(0.25),
        "outer circuit": TurnLengths(0.25),
        # 2.6 million edges. Beside a search of clauses they answered none of 25 counts first.
        "diagrams": TurnLengths(0.25, charged=4.0),
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
        By query: a sweep predicted to take at most this long ends before another engine would start. The limits are
        those of 2^32 cells of buckets for sums, because a searched tree has a sixteenth of the cells or fewer. They are
        lower for optima, because preparing a network touches 3 * 10^7 cells in the first tenth of a second.
    soon_cells : int
        A cost network with at most this many cells in its buckets is swept as soon as a short run of bounds has not
        closed the gap.
    share, long_part, long_seconds : float
        Engines without a price may together use ``share`` of the cheapest known price. Of the seconds of a price beyond
        ``long_seconds`` they may use only a part of this share. A sweep of one second is therefore delayed by at most a
        half, and a sweep of a minute by at most a fifth. In return, an engine that needs more time is stopped too
        early.
    patience_seconds : float
        CPU seconds of engines without a price, in all, where no sweep fits memory.
    shortened : float
        A turn after the first is shortened to the remaining seconds, unless these are less than this part of the turn.
        A shortened turn can still complete a nearly finished search.
    mispriced, mispriced_seconds : float
        A sweep that learns that it takes this many times its price, and at least this many seconds, is priced again,
        and other engines get turns by the new price. A shorter sweep is completed, because interrupting it would repeat
        its first part.
    saved_by_trees : float
        A tree that is searched has this part fewer cells than the buckets of the order that is found at once.
    most_saved : float
        Trees save less than that.
    sliced_overhead : float
        A sweep that does not fit in memory is priced this many times higher until it is planned, or by its largest
        table once a tree is known. A small number is enough, because two slices may take no longer than the whole
        sweep.
    largest_part : int
        A sweep over a searched tree is assumed to hold the largest message of the first order, divided by this number,
        in memory. If the assumption is off by two, the sweep takes two slices, which is still faster than bounds.
    short_search_seconds : float
        CPU seconds of the search that prices a sweep better than the first order does.
    clauses_seconds, clauses_planning : float
        In models of clauses, this search waits until engines of clauses had this many seconds, and planning until they
        had this many times the predicted seconds of planning: more delays sweeps, less delays those engines.
    planning_part : float
        Planning takes about as long as the short search took, which is more than its seconds on networks of thousands
        of variables, or this part of the sweep: 0.08 s for 0.006 (the search took 0.10), 0.20 for 1.4 (0.21), 0.31 for
        3.3 in slices (0.20), 0.54 for 131 (0.20), 3.2 for 202 in slices (0.12).
    planning_share, least_planning_seconds, most_planning_seconds : float
        Planning a sweep waits until engines without a price have used this part of the sweep's price, with a minimum
        and a maximum. Planning a sweep in slices can take 20 s, in which a search may answer.
    short_sweep_seconds : float
        Of a sweep that is predicted to take no more, planning waits no longer than planning is predicted to take: a
        count whose short search priced 46 s, and whose plan 6, takes 15 CPU s in place of 30. Of longer ones, trials
        by rows would be begun that take longer than the others then had (mc2022_track1_029: 33 s in place of 14).
    device_start_seconds : float
        Loading a device's libraries and kernels.
    table_cell_seconds : float
        Making a cell of a leaf table out of rows.
    cell_left_seconds : float
        Turning a cell of a table that remains after the inner variables into a function: 1.15 s for 2^24 cells of a
        projected count.
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
    clauses_seconds: float = 0.7
    clauses_planning: float = 4.0
    planning_part: float = 0.01
    planning_share: float = 0.25
    least_planning_seconds: float = 0.3
    most_planning_seconds: float = 20.0
    short_sweep_seconds: float = 60.0
    device_start_seconds: float = DEVICE_LOADING_SECONDS
    table_cell_seconds: float = 2e-8
    cell_left_seconds: float = 7e-8
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
        """Return how many times longer slices take if the largest table has this size and two tables are held at the
        same time.
        """
        return min(max(2.0 * largest_bytes / max(spare_bytes, 1), 1.0), self.sliced_overhead)

    def planning_seconds(self, sweep_seconds: float, predicted: float = inf) -> float:
        """Return the seconds that other engines get before a sweep is planned, given its predicted seconds and the
        predicted seconds of planning.
        """
        wanted = self.planning_share * sweep_seconds
        if sweep_seconds <= self.short_sweep_seconds:
            wanted = min(wanted, predicted)
        return min(max(wanted, self.least_planning_seconds), self.most_planning_seconds)


@dataclass(frozen=True)
class OuterPolicy(Policy):
    """The numbers of marginal MAP by bounds: rounds of bounds on the optima of the remaining model, and climbs between
    the rounds.

    Parameters
    ----------
    bits : tuple of int
        The tables that are left may have 2^bits cells, round by round: bounds become tighter, and cost more.
    circuit_share : float
        A search of clauses that decides outer variables first takes at most this part of the time that is left: of
        bw_p24_6 it takes 0.8 s, and bounds are open after a minute.
    most_step_cells : int
        A sum that sweeps more cells is no step of a search.
    swept_cells : int
        Minimum cells of an unlimited search. It decides whether compiled loops pay.
    """

    bits: tuple[int, ...] = tuple(range(12, 40, 2))
    circuit_share: float = 0.125
    most_step_cells: int = 1 << 24
    swept_cells: int = 1 << 28


POLICY: Final = StrategyPolicy()
"""The policy of every question, unless another policy is given."""
