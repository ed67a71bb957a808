"""What is tuned of mini-buckets, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """The numbers behind joins of mini-buckets, and where messages are.

    Parameters
    ----------
    quick_cells, quick_sum_cells : int
        Joins of at most so many cells are done by NumPy at once, which takes a few microseconds where a step takes
        hundreds; least costs, and sums of logarithms, which soon take longer.
    short_states : int
        Least costs over an axis of no more states are found state by state, which takes a tenth.
    held_part : int
        Small messages that need not be read again take one part of so many of memory.
    message_copies : int
        A message takes so many times its bytes while it is made: itself, and what is compared in it.
    """

    quick_cells: int = 1 << 16
    quick_sum_cells: int = 1 << 13
    short_states: int = 16
    held_part: int = 8
    message_copies: int = 2
