"""Tuned parameters of decoding sweeps and of drawing from them. Pure."""

from __future__ import annotations

from .light_dataclass import dataclass
from .policy import Policy


@dataclass(frozen=True)
class SweepPolicy(Policy):
    """The numbers behind the states that are read from the tables of a sweep.

    Parameters
    ----------
    joint_states : int
        Up to this number of joint states is compared, or drawn from, at once; of more, some variables come first.
    joined_cells : int
        Variables are eliminated first if the join that this takes has at most this number of cells; larger tables stay
        on the device.
    drawn_cells : int
        Larger tables are not made to draw from them: 40 MB with the arrays that are derived from it.
    rows_a_draw : int
        One table serves all draws if it has at most this number of rows for each draw.
    walked_draws : int
        Walks down that are done together, which the tables of steps serve.
    drawn_cells_there : int
        Cells of all tables from which draws on a device are taken: 1 GB; the host has at most twice as many.
    walked_draws_there : int
        The same on a device, which they fill four times: a thread takes four, and 270,000 are resident.
    least_walk_seconds : float
        Walks that take a core less stay on the host, where their tables are made.
    tries_a_draw : int
        The number of draws for each draw that stays within the greatest allowed cost, before the request is refused.
    sliced_cells : int
        Leaf tables of at most this number of cells are cut into slices all at once. Copying larger tables takes longer
        than the Python code, and their places would take more memory than the tables.
    sliced_together : int
        Maximum number of cells of such tables together: with their places they take 24 bytes each, 6 MB.
    enough_kept : float
        Share of the draws that are kept from which on no other temperature is looked for.
    packed_cells : int
        Leaf tables of at most this number of cells in all are sent as one: hundreds of small tables then travel several
        times faster, and large ones are better not copied.
    batch_draws : int
        Draws that are done together: their rows of 20 states stay in a cache of 2 MB.
    """

    joint_states: int = 1 << 11
    joined_cells: int = 1 << 16
    drawn_cells: int = 1 << 20
    rows_a_draw: int = 2
    walked_draws: int = 1 << 16
    drawn_cells_there: int = 1 << 27
    walked_draws_there: int = 1 << 20
    least_walk_seconds: float = 0.2
    tries_a_draw: int = 1000
    sliced_cells: int = 1 << 12
    sliced_together: int = 1 << 18
    enough_kept: float = 0.25
    packed_cells: int = 1 << 21
    batch_draws: int = 1 << 13
