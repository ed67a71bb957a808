"""What is tuned of decoding sweeps, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .policy import Policy


@dataclass(frozen=True)
class SweepPolicy(Policy):
    """The numbers behind the states that are read from the tables of a sweep.

    Parameters
    ----------
    joint_states : int
        Up to so many joint states are compared at once.
    joined_cells : int
        Variables are eliminated first where the join that this takes has at most so many cells; what has more stays on
        the device.
    """

    joint_states: int = 1 << 11
    joined_cells: int = 1 << 16
