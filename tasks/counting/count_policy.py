"""Tuned numbers of counting clauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class CountPolicy(Policy):
    """The numbers behind turns and memory of a count.

    Parameters
    ----------
    first_entries : int
        Initial capacity of the cache, which doubles as it fills.
    """

    first_entries: int = 1 << 14
