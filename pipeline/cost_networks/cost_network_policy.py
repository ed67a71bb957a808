"""Tuned numbers of cost networks. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class CostNetworkPolicy(Policy):
    """The numbers behind making networks of costs smaller, and shifting their costs.

    Parameters
    ----------
    joined_cells : int
        No joined table is larger.
    rounds : int
        Rounds of making a network smaller, at most.
    sweeps, sweep_cells : int
        Sweeps between two looks at the clock; even, so that the last one went backwards. Fewer where they touch more
        cells together.
    """

    joined_cells: int = 1 << 22
    rounds: int = 12
    sweeps: int = 10
    sweep_cells: int = 20_000_000
