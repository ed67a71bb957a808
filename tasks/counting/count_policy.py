"""What is tuned of counting clauses, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class CountPolicy(Policy):
    """The numbers behind turns and memory of a count.

    Parameters
    ----------
    turn_nodes : int
        So many nodes are made before anything is asked: some milliseconds.
    first_work : int
        An order works for so long before the next one has its turn, then for twice as long.
    known_share : float
        Components that are known take this part of memory at most: what is decided may want more of it.
    traced_known_share : float
        The same where the search is traced, as the trace wants more of it, too.
    first_entries : int
        They have room for so many at first, which doubles as it fills.
    """

    turn_nodes: int = 1 << 8
    first_work: int = 1 << 21
    known_share: float = 0.75
    traced_known_share: float = 0.375
    first_entries: int = 1 << 14
