"""Tuned parameters of loops over networks of costs. Pure."""

from __future__ import annotations

from ..steps.light_dataclass import dataclass
from ..steps.policy import Policy


@dataclass(frozen=True)
class NetworkPolicy(Policy):
    """The numbers by which loops over networks are done in NumPy until compiling them pays.

    Parameters
    ----------
    cell_seconds : float
        Seconds of NumPy for a level of a sweep, for a cell, for a variable, and for a value of a table.
    compared_cells : int
        Differences between values that are held at a time while dominated ones are looked for.
    """

    cell_seconds: float = 1e-8
    compared_cells: int = 1 << 16
