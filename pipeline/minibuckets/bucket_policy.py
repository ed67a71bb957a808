"""What is tuned of mini-buckets, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """The numbers behind joins of mini-buckets, and where messages are.

    Parameters
    ----------
    quick_cells, quick_sum_cells : int
        Joins of at most so many cells are done by NumPy at once, which takes a few microseconds where a step takes
        hundreds; least costs, and sums of logarithms, which soon take longer.
    short_states : int
        Least costs over an axis of no more states are found state by state, which takes a tenth.
    held_part : int
        Small messages that need not be read again take one part of so many of memory.
    message_copies : int
        A message takes so many times its bytes while it is made: itself, and what is compared in it.
    easy_cells : int
        With at most so many cells, nothing split, the first order is good enough.
    bucket_seconds, cell_seconds, sum_cell_seconds : float
        What a mini-bucket and a cell of least costs, or of sums, are thought to take before a round was measured. On a
        busy core cells took 4e-9 s where domains are of 44 states, 1e-7 where they are of two.
    first_part : float
        The first round is of the largest size that takes one part of so many of the time: smaller ones, whose bounds
        are lower, take most of what it takes.
    optimism : float
        A round takes longer than the fastest so far lets it seem.
    other_orders : int
        Orders that are tried once no larger size fits: of 16 on CELAR6-SUB1 the best bound was 837, the first 396.
    triangle_part : float
        Triangles have one part of so many of the time that is left, and all of it if they raise the bound.
    share_step, least_step, weight_step, least_weight : float
        How far parts of a split bucket move towards each other at first in a pass, before it begins anew, and their
        weights with them, none of which is less. Of marginal MAP with mini-buckets of 2^10 cells, 5 CPU-s, 75-26-5:
        -15.3 (log10); weights that stay equal -10.1, a weight step of 1 -13.9.
    heat, cooling, least_heat : float
        Maxima are compared softly, as sums with this weight, and less so after each pass that was worse: without that
        75-26-5 came to -14.4.
    least_gain : float
        Passes that gain less than this part of the bound are in vain.
    first_entries : int
        What a search of losses can remember at first.
    eager_loss : float
        It goes on below a state until that loses more than the next one by so much.
    search_seconds : float
        CPU seconds from one look at the clock to the next.
    known_sums : int
        Sums that are kept from one size of mini-buckets to the next; of 350 variables they take 50 MB.
    """

    quick_cells: int = 1 << 16
    quick_sum_cells: int = 1 << 13
    short_states: int = 16
    held_part: int = 8
    message_copies: int = 2
    easy_cells: int = 1 << 22
    bucket_seconds: float = 5e-4
    cell_seconds: float = 1e-7
    sum_cell_seconds: float = 2e-7
    first_part: float = 10.0
    optimism: float = 1.5
    other_orders: int = 16
    triangle_part: float = 4.0
    share_step: float = 0.5
    least_step: float = 0.02
    weight_step: float = 4.0
    heat: float = 0.2
    cooling: float = 0.7
    least_heat: float = 0.005
    least_weight: float = 1e-3
    least_gain: float = 1e-4
    first_entries: int = 1 << 12
    eager_loss: float = 0.05
    search_seconds: float = 0.02
    known_sums: int = 1 << 15
