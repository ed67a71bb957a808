"""What is tuned of pricing joins by samples, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class SamplingPolicy(Policy):
    """The numbers behind samples of rows.

    Parameters
    ----------
    most_rows, most_leaf_rows : int
        Rows of a sample: of what steps make, and of leaf tables, which are there whole if they can be.
    most_joined : int
        Rows of a join that are made; of more some are drawn.
    fewest_rows : int
        Where fewer rows of two samples meet, nothing is known of how many do.
    """

    most_rows: int = 1 << 11
    most_leaf_rows: int = 1 << 16
    most_joined: int = 1 << 13
    fewest_rows: int = 24
