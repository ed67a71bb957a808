"""Tuned numbers of mini-buckets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """The numbers behind joins of mini-buckets, and where messages are.

    Parameters
    ----------
    quick_cells, quick_sum_cells : int
        Cells of joins that NumPy does directly, which takes microseconds while a step takes hundreds: for least costs,
        and for sums of logarithms, which get slower sooner.
    short_states : int
        Least costs over an axis of no more states are found state by state, which takes a tenth.
    held_part : int
        Small messages are cached in at most 1 / this of the memory, to avoid reading them again.
    message_copies : int
        Memory factor of a message while it is made: the message and the compared values in it.
    easy_cells : int
        With at most this many cells and no split bucket, the first order is good enough.
    bucket_seconds, cell_seconds, sum_cell_seconds : float
        Assumed seconds of a mini-bucket, and of a cell of least costs or of sums, before a round was measured. Measured
        seconds per cell range from 4e-9 for large domains to 1e-7 for binary ones.
    first_part : float
        The first round has the largest size that takes 1 / this of the time. Smaller sizes have worse bounds and take
        most of this time.
    optimism : float
        A round takes longer than the fastest so far lets it seem.
    other_orders : int
        Orders that are tried once no larger size fits: of 16 on CELAR6-SUB1 the best bound was 837, the first 396.
    triangle_part : float
        Triangles get 1 / this of the remaining time, and all of it if they raise the bound.
    share_step, least_step, weight_step, least_weight : float
        First step sizes of a pass, before it starts again: how far parts of a split bucket move towards each other, and
        how far their weights move; and the minimum weight. Moving the weights is worth much more than moving the shares
        alone.
    heat, cooling, least_heat : float
        Maxima are compared softly, as sums with this weight, and less so after each pass that was worse: without that
        75-26-5 came to -14.4.
    least_gain : float
        Passes that gain less than this fraction of the bound count as failed.
    first_entries : int
        Initial memory of a loss search.
    eager_loss : float
        The search continues below a state until it loses more than the next state by this amount.
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
