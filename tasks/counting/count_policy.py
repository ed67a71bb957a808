"""Tuned numbers of counting clauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class CountPolicy(Policy):
    """The numbers behind turns and memory of a count.

    Parameters
    ----------
    turn_nodes : int
        Nodes between two checks: some milliseconds.
    first_work : int
        Work of an order before the next order's turn; each round doubles it.
    known_share : float
        Maximum fraction of the memory for cached components, because the decisions may need more.
    traced_known_share : float
        The same where the search is traced, as the trace wants more of it, too.
    first_entries : int
        Initial capacity of the cache, which doubles as it fills.
    """

    turn_nodes: int = 1 << 8
    first_work: int = 1 << 21
    known_share: float = 0.75
    traced_known_share: float = 0.375
    first_entries: int = 1 << 14
