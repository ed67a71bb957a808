"""Tuned numbers of mini-buckets. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Least costs over an axis of no more states are found state by state, which takes a tenth.
SHORT_STATES: Final = 16


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """The numbers behind joins of mini-buckets, and where messages are.

    Parameters
    ----------
    quick_cells, quick_sum_cells : int
        Cells of joins that NumPy does directly, which takes microseconds while a step takes hundreds: for least costs,
        and for sums of logarithms, which get slower sooner.
    easy_cells : int
        With at most this many cells and no split bucket, the first order is good enough.
    bucket_seconds, cell_seconds : float
        Assumed seconds of a mini-bucket, and of a cell of least costs or of sums, before a round was measured. Measured
        seconds per cell range from 4e-9 for large domains to 1e-7 for binary ones.
    first_part : float
        The first round has the largest size that takes 1 / this of the time. Smaller sizes have worse bounds and take
        most of this time.
    other_orders : int
        Orders that are tried once no larger size fits: of 16 on CELAR6-SUB1 the best bound was 837, the first 396.
    first_entries : int
        Initial memory of a loss search.
    eager_loss : float
        The search continues below a state until it loses more than the next state by this amount.
    """

    quick_cells: int = 1 << 16
    quick_sum_cells: int = 1 << 13
    easy_cells: int = 1 << 22
    bucket_seconds: float = 5e-4
    cell_seconds: float = 1e-7
    first_part: float = 10.0
    other_orders: int = 16
    first_entries: int = 1 << 12
    eager_loss: float = 0.05
