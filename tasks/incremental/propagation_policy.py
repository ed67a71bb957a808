"""Tuned parameters of propagations that threads share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class PropagationPolicy(Policy):
    """The numbers behind how threads share the steps of a propagation.

    Parameters
    ----------
    looped_cells, most_looped_cells : int
        Threads share a step with more cells than the first number if loops or a product are compiled for it, and
        otherwise with more cells than the second number.
    grain_cells : int
        Cells of a part of a shared step: with fewer, waking a thread costs more than the part.
    product_grains : int
        A part of a product has this multiple of ``grain_cells``, because a cell of a product takes less time.
    alone_cells : int
        One thread computes this number of cells before the other threads have started.
    turn_cells : int
        Threads return to the interpreter after this number of cells, so that it can be interrupted.
    """

    looped_cells: int = 1 << 15
    most_looped_cells: int = 1 << 20
    grain_cells: int = 1 << 15
    product_grains: int = 8
    alone_cells: int = 1 << 17
    turn_cells: int = 1 << 27
