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
        A larger step is shared by threads, if there is a kernel of its own for it; without one it is from the second
        number of cells on.
    grain_cells : int
        A thread is worth waking for so many cells,
    product_grains : int
        and this multiple of the cells of a product, which takes less for each.
    alone_cells : int
        One thread computes as many before others have started.
    turn_cells : int
        Threads return to the interpreter after this number of cells, so that it can be interrupted.
    """

    looped_cells: int = 1 << 15
    most_looped_cells: int = 1 << 20
    grain_cells: int = 1 << 15
    product_grains: int = 8
    alone_cells: int = 1 << 17
    turn_cells: int = 1 << 27
