"""Tuned parameters of propagations that threads share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class PropagationPolicy(Policy):
    """The numbers behind how threads share the steps of a propagation.

    Parameters
    ----------
    grain_cells : int
        Cells of a part of a shared step: with fewer, waking a thread costs more than the part.
    alone_cells : int
        One thread computes this number of cells before the other threads have started.
    turn_cells : int
        Threads return to the interpreter after this number of cells, so that it can be interrupted.
    """

    grain_cells: int = 1 << 15
    alone_cells: int = 1 << 17
    turn_cells: int = 1 << 27
