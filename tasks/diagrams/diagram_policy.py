"""Tuned numbers of decision diagrams. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class DiagramPolicy(Policy):
    """The numbers behind diagrams.

    Parameters
    ----------
    turn_edges : int
        Edges that loops make, or merge, between two looks at the clock.
    hash_factor : int
        Factor that hashes pairs and rows: 2^64 divided by the golden ratio, odd (Knuth, The Art of Computer Programming
        3, section 6.4). With 0 all keys collide, and answers are unchanged.
    """

    turn_edges: int = 1 << 18
    hash_factor: int = 0x9E3779B97F4A7C15
