"""What a bounded solver returns."""

from __future__ import annotations

from dataclasses import dataclass

from ..cost_networks.cost_network import States


@dataclass(frozen=True)
class Outcome:
    """The best assignment that was found and what was proved, of one :class:`~.cost_network.CostNetwork`.

    Parameters
    ----------
    lower : int
        No assignment has a smaller total.
    total : int or None
        Total of the best assignment, None where none was found. Proved optimal if it equals ``lower``.
    states : tuple of int or None
        That assignment, in the variables of the network that was solved.
    feasible : bool
        False if it was proved that no assignment below the cut-off exists.
    """

    lower: int
    total: int | None = None
    states: States | None = None
    feasible: bool = True

    @property
    def proved(self) -> bool:
        """Whether nothing is left to search."""
        return not self.feasible or (self.total is not None and self.total <= self.lower)
