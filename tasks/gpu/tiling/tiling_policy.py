"""The GPU that launches are laid out for, and tuned parameters of launches. Pure.

The GPU is one value, so that what is planned is the same on every machine. The parameters are the passes that a step
becomes, and the sizes of their tiles.
"""

from __future__ import annotations

from typing import Final

from ...steps.light_dataclass import dataclass
from ...steps.policy import Policy


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Numbers of a device that tilings assume: the numbers of an H200, where devices differ in more than speed.

    Attributes
    ----------
    processors
        Multiprocessors of the device.
    warp
        Threads of a warp, which run in step.
    resident_threads
        Threads that a multiprocessor holds at a time.
    registers
        32-bit registers of a multiprocessor, which the threads it holds share.
    usual_shared_bytes
        Shared memory of a block that every kernel may use without asking.
    most_shared_bytes
        Shared memory of a block that a kernel may ask for: less than the 227 KiB of data-centre GPUs since 2022.
    processor_shared_bytes
        Bytes of shared memory of a multiprocessor, which its resident blocks share: the size of data-centre GPUs since
        2022.
    bank_row_bytes
        Bytes of one row of all banks of shared memory: cells that far apart collide.
    line_bytes
        Bytes of a cache line.
    sector_bytes
        Bytes of the device's memory that are read or written at least.
    vector_bytes
        Bytes of the widest load or store of a thread.
    cached_bytes
        Bytes of tables that stay in the second-level cache of the device.
    """

    processors: int = 132
    warp: int = 32
    resident_threads: int = 2048
    registers: int = 1 << 16
    usual_shared_bytes: int = 48 << 10
    most_shared_bytes: int = 200_000
    processor_shared_bytes: int = 228 << 10
    bank_row_bytes: int = 128
    line_bytes: int = 128
    sector_bytes: int = 32
    vector_bytes: int = 16
    cached_bytes: int = 1 << 25


NOMINAL: Final = DeviceLimits()
"""The limits from which all tilings take their numbers, on every device, so that plans and sums do not depend on it."""


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
