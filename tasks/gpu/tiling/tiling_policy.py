"""Tuned parameters of launches on devices: the passes that a step becomes, and the sizes of their tiles. Pure."""

from __future__ import annotations

from typing import Final

from ...steps.light_dataclass import dataclass
from ...steps.policy import Policy
from .device_limits import NOMINAL

# The minimum time of a launch.
LAUNCH_SECONDS: Final = 6e-6
# Bytes of a table from which reading short runs of it takes longer.
FAR_BYTES: Final = 1 << 30
# Work of a cell of a join that is computed before bricks, in loads from shared memory. The first number is for steps of
# few inputs; for steps of many inputs, bricks by all numbers are compared.
BRICK_JOIN_LOADS: Final = (40.0, 20.0, 160.0)


@dataclass(frozen=True)
class TilingPolicy(Policy):
    """Numbers that decide how a step is cut into launches and tiles; measured on an H200 with ``tests/bench/gpu.py``.

    Parameters
    ----------
    bucket_output_cells : int
        Outputs of more cells are streamed, not summed up in buckets.
    brick_least_cells : int
        Cells of a join from which bricks pay if streaming would need earlier joins; otherwise four times this number.
    brick_join_least_cells : int
        The same threshold for joins before a step, which otherwise use launches of buckets. It also holds for the
        remainder of a step after a part was summed.
    product_searched_cells : int
        Cells of a product from which other orders of its tables are tried.
    product_reorder_ratio : int
        Factors and the output of a product are copied in another order if these copies together have at most one in
        this many cells of the step's tables.
    product_reorder_share : float
        Copies, or bricks instead of the product, are used if they reduce the price at least to this fraction.
    product_poor_ratio : float
        Bricks are tried instead of a product that is predicted to take this many times its arithmetic and its bytes.
    brick_compared_cells : int
        Cells of a join from which several bricks are compared, including bricks that begin with lines of inputs or with
        longer lines of the output.
    brick_least_output_cells : int
        Smaller outputs are left to launches that keep them in shared memory, or are added up from partial sums.
    streamed_join_cells : int
        Joins of more cells are streamed, because vectors pay for them.
    flat_join_cells : int
        Joins of fewer cells are computed from all their members at once.
    bucket_blocks : int
        Blocks of a bucket launch that fill the nominal device.
    uses_buckets : bool
        Whether launches of buckets may be chosen; without them every step is streamed or cut into bricks.
    bucket_least_cells : int
        Least cells of a block's join, for which its threads are started.
    bucket_most_cells : int
        Most cells of a block's join.
    bucket_whole_states : int
        Eliminated states up to which a block takes all of them.
    brick_most_blocks : int
        Maximum blocks of a launch of bricks, if the device holds these blocks at a time. Also the minimum blocks that
        remain if a block takes several bricks that read the same data.
    inner_sum_least_cells : int
        Cells of a step from which a part of its inputs is first summed into a separate table.
    inner_sum_price : float
        The separate table is used if it reduces the price at least to this fraction.
    inner_sum_ratio : int
        Minimum ratio of the cells of the step's other tables and of the separate table, which takes additional memory.
    """

    bucket_output_cells: int = 1 << 20
    brick_least_cells: int = 1 << 25
    brick_join_least_cells: int = 1 << 20
    product_searched_cells: int = 1 << 26
    product_reorder_ratio: int = 2
    product_reorder_share: float = 0.8
    product_poor_ratio: float = 3.0
    brick_compared_cells: int = 1 << 28
    brick_least_output_cells: int = 1 << 16
    streamed_join_cells: int = 1 << 22
    flat_join_cells: int = 1 << 20
    bucket_blocks: int = 2 * NOMINAL.processors
    uses_buckets: bool = True
    bucket_least_cells: int = 1024
    bucket_most_cells: int = 16384
    bucket_whole_states: int = 4096
    brick_most_blocks: int = 16 * NOMINAL.processors
    inner_sum_least_cells: int = 1 << 26
    inner_sum_price: float = 0.9
    inner_sum_ratio: int = 2
