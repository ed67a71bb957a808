"""Tuned numbers of cost networks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class CostNetworkPolicy(Policy):
    """The numbers behind making networks of costs smaller, and shifting their costs.

    Parameters
    ----------
    glance_entries : int
        Entries of each table that are examined first, before all entries, for a common divisor.
    joined_small_cells : int
        Tables of variables with two neighbours may exceed the tables that they replace, up to this many cells.
    joined_cells : int
        No joined table is larger.
    rounds : int
        Rounds of making a network smaller, at most.
    worthwhile_share : float
        Another round is tried where one removed this part of the values, or of the entries.
    descents : int
        Rounds of improving an assignment, both ways.
    probe_sweeps : int
        Sweeps with one value alone.
    sweeps, sweep_cells : int
        Sweeps between two looks at the clock; even, so that the last one went backwards. Fewer where they touch more
        cells together.
    stalled_share : float
        Sweeps that raise the bound by less than this fraction of the total rise are the last.
    """

    glance_entries: int = 1 << 10
    joined_small_cells: int = 1 << 12
    joined_cells: int = 1 << 22
    rounds: int = 12
    worthwhile_share: float = 0.01
    descents: int = 5
    probe_sweeps: int = 10
    sweeps: int = 10
    sweep_cells: int = 20_000_000
    stalled_share: float = 5e-4
