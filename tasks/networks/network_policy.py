"""Tuned parameters of loops over networks of costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class NetworkPolicy(Policy):
    """The numbers by which loops over networks are done in NumPy until compiling them pays.

    Parameters
    ----------
    level_seconds, cell_seconds, variable_seconds, edge_seconds : float
        Seconds of NumPy for a level of a sweep, for a cell, for a variable, and for a value of a table.
    largest_cells : int
        Tables with more cells, counted once an axis, are not taken apart in NumPy.
    likely_sweeps : int
        Sweeps until the bound stalls: seldom fewer.
    compared_cells : int
        Differences between values that are held at a time while dominated ones are looked for.
    """

    level_seconds: float = 8e-5
    cell_seconds: float = 1e-8
    variable_seconds: float = 2e-5
    edge_seconds: float = 3e-5
    largest_cells: int = 1 << 21
    likely_sweeps: int = 300
    compared_cells: int = 1 << 16
