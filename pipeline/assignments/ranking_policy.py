"""Tuned numbers of lists of the best assignments: when and how far to search for them."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class RankingPolicy(Policy):
    """The numbers of the best assignments where no sweep is quick.

    Parameters
    ----------
    swept_cells, hopeless_cells : float
        Cells of a sweep in the buckets of a quick order. Above ``swept_cells``, a short search for a tree (up to 5 s)
        prices the sweep before it is planned, because a better tree can make the sweep fast. Above ``hopeless_cells``
        no tree makes it fast.
    swept_seconds : float
        A sweep that keeps its tables and is predicted to take less is not worth a proof of the optimum before it.
    patience_seconds : float
        CPU seconds of a search, where no time was given and nothing else is left to try.
    optimum_times : float
        If no sweep fits, a search runs for at least this many times the seconds of the optimum.
    first_turn_seconds : float
        Wall seconds of the tree search before Russian dolls search, too; each turn takes twice as long as the last one.
    passed_most : int
        Assignments in order that are passed over for being too near to those listed, before the network is given
        constraints: each takes some 0.1 ms, an optimum under constraints at least some tens of milliseconds.
    """

    swept_cells: float = 2.0**36
    hopeless_cells: float = 2.0**64
    swept_seconds: float = 2.0
    patience_seconds: float = 60.0
    optimum_times: float = 10.0
    first_turn_seconds: float = 0.25
    passed_most: int = 1000
