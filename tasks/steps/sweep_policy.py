"""Tuned parameters of decoding sweeps and of drawing from them. Pure."""

from __future__ import annotations

from .light_dataclass import dataclass
from .policy import Policy


@dataclass(frozen=True)
class SweepPolicy(Policy):
    """Tuned numbers for reading assignments and samples from the tables of a sweep.

    Parameters
    ----------
    joint_states : int
        Maximum joint states that are compared or drawn together. With more states, some variables are chosen first.
    joined_cells : int
        Maximum cells of a join that eliminates variables first. Larger tables stay on the device.
    drawn_cells : int
        Maximum cells of a table that is built for draws. With its derived arrays, it takes 40 MB.
    rows_a_draw : int
        One table serves all draws if it has at most this number of rows for each draw.
    walked_draws : int
        Number of draws that walk down the tree together and share the tables of steps.
    drawn_cells_there : int
        Maximum cells of all tables for draws on a device: 1 GB. The host stores at most twice this number.
    walked_draws_there : int
        ``walked_draws`` on a device. Each of its 270,000 resident threads takes four draws.
    least_walk_seconds : float
        Draws that one core makes in less time stay on the host, because their tables are built there.
    tries_a_draw : int
        If more draws than this are made for each allowed draw, the request is refused.
    sliced_cells : int
        Maximum cells of leaf tables that are cut into all slices together. Copying larger tables takes longer than the
        Python code, and their places would take more memory than the tables.
    sliced_together : int
        Maximum number of cells of such tables together: with their places they take 24 bytes each, 6 MB.
    enough_kept : float
        If at least this fraction of draws is accepted, no other temperature is searched.
    packed_cells : int
        Maximum total cells of leaf tables that are packed and sent together. Hundreds of small tables then travel
        several times faster. Packing larger tables would take longer than it saves.
    batch_draws : int
        Number of draws that are computed together. Their rows of 20 states stay in a cache of 2 MB.
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
