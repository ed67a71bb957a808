"""What is tuned of decoding sweeps and of drawing from them, listed once. Pure."""

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
    drawn_cells : int
        A table of more cells is not made to draw from: 40 MB with what is made of it.
    drawn_states : int
        Joint states that are drawn from at once for each draw; of more, some variables are drawn first.
    rows_a_draw : int
        One table serves all draws where it has at most so many rows for each of them.
    walked_draws : int
        Walks down that are done together, which the tables of steps serve.
    drawn_cells_there : int
        Cells of all tables that draws on a device are taken from: 1 GB, of which the host has twice as much at most.
    walked_draws_there : int
        The same on a device, which they fill four times: a thread takes four, and 270,000 are resident.
    walked_a_second : int
        Variables of draws that a core draws in a second: 38 to 45 million of munin3 and pigs, fewer of large tables.
    least_walk_seconds : float
        Walks that take a core less stay on the host, where their tables are made.
    tries_a_draw : int
        Draws that are made for one that stays below the greatest cost allowed, before it is refused.
    sliced_cells : int
        Leaf tables of at most so many cells are cut into slices all at once: of larger ones a copy takes longer than
        Python does, and places would take more memory than they do.
    sliced_together : int
        Cells of such tables together, at most: with what says where they are they take 24 bytes each, 6 MB.
    slices_one_by_one : int
        Slices whose tables are taken one by one: to find all places takes as long as four of them.
    packed_table_cells, pack_cells : int
        Tables of at most so many cells are copied side by side, so many cells at most: as leaf tables are that are made
        together. Of larger ones a copy takes longer than Python does.
    pilot_draws : int
        Draws that tell how many of a temperature are kept, where only those below a cost are wanted.
    enough_kept : float
        Share of the draws that are kept from which on no other temperature is looked for.
    tempering_sweeps, halving_sweeps : int
        Sweeps at colder and colder temperatures, each four times as cold, until draws are below the cost in the mean,
        and between the last two of them.
    batch_draws : int
        Draws that are done together: their rows of 20 states stay in a cache of 2 MB.
    """

    joint_states: int = 1 << 11
    joined_cells: int = 1 << 16
    drawn_cells: int = 1 << 20
    drawn_states: int = 1 << 12
    rows_a_draw: int = 2
    walked_draws: int = 1 << 16
    drawn_cells_there: int = 1 << 27
    walked_draws_there: int = 1 << 20
    walked_a_second: int = 20_000_000
    least_walk_seconds: float = 0.2
    tries_a_draw: int = 1000
    sliced_cells: int = 1 << 12
    sliced_together: int = 1 << 18
    slices_one_by_one: int = 4
    packed_table_cells: int = 1 << 10
    pack_cells: int = 1 << 16
    pilot_draws: int = 256
    enough_kept: float = 0.25
    tempering_sweeps: int = 20
    halving_sweeps: int = 2
    batch_draws: int = 1 << 13
