"""Tuned parameters of launches on devices: the passes that a step becomes, and the sizes of their tiles. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...steps.policy import Policy
from .device_limits import NOMINAL


@dataclass(frozen=True)
class TilingPolicy(Policy):
    """Numbers by which a step is cut into launches and tiles; measured on an H200 with ``tests/bench/gpu.py``.

    Parameters
    ----------
    cellwise_join_cells, cellwise_join_cells_of_large : int
        A join of more cells is computed in blocks, if a launch of buckets exists for it. The second number is for joins
        before a large step; runs of small steps were slower with it.
    cellwise_large_cells : int
        Cells of a step that is large.
    bucket_output_cells : int
        Outputs of more cells are streamed, not summed up in buckets.
    bucket_least_reads : int
        A step of few inputs is joined in shared memory where each value is read at least this often, over at
        least as many eliminated states.
    crowded_share : float
        A bucket is crowded where a block reads more values than this share of the cells of its join; half of it
        for few inputs.
    crowded_cells : tuple[int, int]
        Streaming is faster than a crowded bucket from this many cells of the join and of the output on.
    bucket_stride_share : float
        Share of the strides of a bucket launch that inputs may take: cutting axes adds some.
    product_least_sizes : tuple[int, int, int]
        Rows, columns and depth from which a matrix-like step is computed as a product in tiles.
    matrix_least_sizes : tuple[int, int, int]
        The same where matrix units do the arithmetic.
    product_tile_cells : int
        Rows, and columns, of a tile of a product, about.
    product_busy_tiles : int
        Tiles that keep the device busy. Where a product has less than a quarter of them, its depth is cut into
        pieces.
    product_piece_states : int
        Least depth of such a piece, in eliminated states.
    brick_least_cells : int
        Cells of a join from which bricks pay where streaming would need joins before; elsewhere four times as
        many.
    brick_join_least_cells : int
        The same threshold for joins before a step, which are otherwise made by launches of buckets, and for the
        remainder of a step of which a part was summed first.
    join_seconds, bucket_seconds : tuple of float
        The minimum time of a launch of joins and of a launch of a bucket, and the time for each cell that it writes.
        Fitted to 256 launches on one H100, all of which take between two thirds and one and a half times the
        prediction.
    launch_seconds, joined_bytes_per_second : float
        The minimum time of a launch; and the bytes per second that a launch without bricks reads and writes.
    reorder_seconds, reordered_bytes_per_second : float
        The same for a launch that copies a table in another order of axes.
    reorder_least_cells : int
        Smaller tables are copied by a stream.
    product_searched_cells : int
        Cells of a product from which other orders of its tables are tried.
    product_reorder_ratio : int
        Factors and the output of a product are copied in another order if these copies together have at most one in
        this many cells of the step's tables.
    product_reorder_share : float
        Share of a product's price that is left at most by such copies, or by bricks instead.
    product_poor_ratio : float
        Bricks are tried instead of a product that is predicted to take this many times its arithmetic and its bytes.
    brick_compared_cells, brick_searched_cells : int
        Cells of a join from which a large and a small brick are compared; and several, and those that begin with lines
        of inputs, or with longer ones of the output.
    brick_way_shapes, brick_way_rounds : int
        Bricks that are compared for each choice of joins before them, if there are many inputs; and how often this
        choice is repeated for the best of them. Three times as many bricks win 2% and take twice as long.
    brick_way_bytes_per_second : float
        About how many bytes per second the joins before bricks write, used to compare several ways.
    far_bytes : int
        Bytes of a table from which reading short runs of it takes longer.
    brick_usual_columns : int
        Neighbours in the output from which no other columns are tried.
    brick_store_loads : float
        Work of storing a vector, in loads from shared memory.
    brick_item_loads : float
        Work of copying some neighbouring cells into shared memory at once.
    brick_read_loads : tuple[float, float]
        Work of reading a byte of a table from the device's memory, and of a table that stays in its cache.
    brick_least_output_cells : int
        Smaller outputs are left to launches that keep them in shared memory, or are added up from partial sums.
    brick_summed_cells : int
        Cells of a join in each partial sum of bricks, about: adding up sums of this length takes little time.
    free_join_log2 : int
        log2 of how many times smaller than the largest input a join must be to cost nothing beside it.
    streamed_join_cells : int
        Joins of more cells are streamed, as vectors pay for them.
    join_cells : int
        Joins before a step have at most this many cells, or at most this share of the cells of its largest input.
    parallel_cells : int
        An output with fewer cells is computed in partial sums: about the threads that a device holds.
    flat_join_cells : int
        Joins of fewer cells are computed from all their members at once.
    small_join_ratio : int
        A join of some members costs nothing beside the join of all where it is this many times smaller.
    short_sum_states : int
        Sums over fewer states are not cut into partial sums.
    row_cells : int
        Cells that a warp reads side by side; outputs of fewer cells are added up along rows.
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
    bucket_most_lanes : int
        Most values of a vector along eliminated states.
    bucket_few_steps : int
        Rounds of eliminated states up to which one block takes all of them, without partial sums.
    bucket_large_ratio : int
        The largest input decides about the order of axes unless it is this many times smaller than all inputs
        together.
    bucket_merge_ratio : int
        A table less saves reads of shared memory; joining it with another costs that many times more for each
        value.
    brick_counted_cells : int
        Cells of an input from which it counts when a brick is chosen.
    brick_counted_inputs : int
        Inputs that count at most, the largest ones.
    brick_least_gain_share : float
        Share of all reads that another choice of axes must save.
    brick_copy_reads : float
        The work of copying a cell into shared memory in addition to reading it, in reads.
    brick_copy_cycles : float
        Cycles that a thread takes to copy a cell.
    brick_word_bytes : int
        Bytes that are copied into shared memory at once from which a vector of neighbours is not stored one by one.
    brick_least_threads : int
        Least threads of a block, where rows of a thread would leave fewer.
    brick_states_before : int
        Eliminated states that a brick takes before its outputs are chosen.
    brick_states_after : int
        Eliminated states that it takes after them, where there is room.
    brick_most_blocks : int
        Most blocks of a launch of bricks, if the device holds so many at a time; and the fewest that are left where a
        block takes several bricks that read the same.
    brick_run_bricks : int
        Most bricks that a block takes one after another.
    brick_least_blocks : int
        Bricks of a launch, about, below which the elimination is cut into partial sums.
    brick_join_most_cells : int
        Inputs whose join has more cells are not joined before bricks read them.
    brick_join_loads : tuple of float
        Work of a cell of such a join, in loads from shared memory: as of few inputs, and others that are compared where
        there are many.
    brick_copy_loads : float
        Work of a cell of a slice, in loads from shared memory.
    brick_reorder_saved_reads : float
        An input is copied into another order first where bricks then read at least this many cells less for
        each cell copied.
    brick_reorder_launch_reads : int
        The number of reads that pays for the launch of such a copy.
    brick_reorder_ratio : int
        Such a copy has at most one in this many cells of a step's other tables.
    product_depth_states : tuple[int, int, int, int, int, int]
        Depths of a round of a product, in the order of preference.
    product_depth_gain_share : float
        Share of a product that a depth other than the usual one must save.
    product_batch_blocks : int
        Blocks that a product has at least before a block takes several batches.
    product_long_states : int
        Depth from which a block takes one batch, which is work enough.
    product_near_bytes : int
        Bytes of the right factor that all rows are computed from before the next ones are read.
    product_deep_ratio : int
        Columns follow the right factor, not the output, where the depth has this many times the rows of a tile.
    product_full_share : float
        Share of a tile that must be filled for parts of axes to be taken.
    reorder_blocks : int
        Blocks of a launch that copies a table in another order, about: of more tiles a block takes several, as each
        block finds out where its items lie first.
    stream_poor_seconds : float
        Bricks are tried instead of a stream that is predicted to take longer.
    stream_blocks : int
        Blocks that keep a large device busy to the end: several for each place on a multiprocessor.
    inner_sum_least_cells : int
        Cells of a step from which a part of its inputs is summed first, a table of its own.
    inner_sum_share : float
        Share of a step's cells that is left at most by that.
    inner_sum_price : float
        Share of the price that is left at most by that.
    inner_sum_ratio : int
        Such a table has at most one in this many cells of a step's other tables: it takes memory beside them.
    inner_sum_cell : float
        The work of writing and reading such a table for each of its cells, in cells of a step.
    """

    cellwise_join_cells: int = 1 << 14
    cellwise_join_cells_of_large: int = 1 << 18
    cellwise_large_cells: int = 1 << 26
    bucket_output_cells: int = 1 << 20
    bucket_least_reads: int = 8
    crowded_share: float = 0.5
    crowded_cells: tuple[int, int] = 1 << 22, 1 << 14
    bucket_stride_share: float = 0.8
    product_least_sizes: tuple[int, int, int] = (16, 16, 12)
    matrix_least_sizes: tuple[int, int, int] = (8, 16, 8)
    product_tile_cells: int = 64
    product_busy_tiles: int = 4 * NOMINAL.processors
    product_piece_states: int = 64
    brick_least_cells: int = 1 << 25
    brick_join_least_cells: int = 1 << 20
    join_seconds: tuple[float, float] = (6.8e-6, 18.3e-12)
    bucket_seconds: tuple[float, float] = (8.6e-6, 8.5e-12)
    launch_seconds: float = 6e-6
    joined_bytes_per_second: float = 0.7e12
    reorder_seconds: float = 15e-6
    reordered_bytes_per_second: float = 1.7e12
    reorder_least_cells: int = 1 << 22
    product_searched_cells: int = 1 << 26
    product_reorder_ratio: int = 2
    product_reorder_share: float = 0.8
    product_poor_ratio: float = 3.0
    brick_compared_cells: int = 1 << 28
    brick_searched_cells: int = 1 << 28
    brick_way_shapes: int = 2
    brick_way_rounds: int = 2
    brick_way_bytes_per_second: float = 1.6e12
    far_bytes: int = 1 << 30
    brick_usual_columns: int = 4
    brick_store_loads: float = 18.0
    brick_least_output_cells: int = 1 << 16
    brick_summed_cells: int = 1 << 4
    free_join_log2: int = 4
    streamed_join_cells: int = 1 << 22
    join_cells: int = 1 << 22
    parallel_cells: int = 1 << 18
    flat_join_cells: int = 1 << 20
    small_join_ratio: int = 8
    short_sum_states: int = 32
    row_cells: int = 32
    bucket_blocks: int = 2 * NOMINAL.processors
    uses_buckets: bool = True
    bucket_least_cells: int = 1024
    bucket_most_cells: int = 16384
    bucket_whole_states: int = 4096
    bucket_most_lanes: int = 4
    bucket_few_steps: int = 4
    bucket_large_ratio: int = 16
    bucket_merge_ratio: int = 16
    brick_counted_cells: int = 1 << 12
    brick_counted_inputs: int = 8
    brick_least_gain_share: float = 0.005
    brick_copy_reads: float = 0.5
    brick_copy_cycles: float = 8.0
    brick_word_bytes: int = 4
    brick_least_threads: int = 64
    brick_states_before: int = 4
    brick_states_after: int = 16
    brick_most_blocks: int = 16 * NOMINAL.processors
    brick_run_bricks: int = 16
    brick_least_blocks: int = 2 * NOMINAL.processors
    brick_join_most_cells: int = 1 << 28
    brick_join_loads: tuple[float, float, float] = (40.0, 20.0, 160.0)
    brick_copy_loads: float = 4.0
    brick_reorder_saved_reads: float = 16.0
    brick_reorder_launch_reads: int = 1 << 25
    brick_reorder_ratio: int = 16
    product_depth_states: tuple[int, int, int, int, int, int] = (8, 9, 10, 7, 6, 5)
    product_depth_gain_share: float = 0.15
    product_batch_blocks: int = 32 * NOMINAL.processors
    product_long_states: int = 256
    product_near_bytes: int = 1 << 21
    product_deep_ratio: int = 8
    product_full_share: float = 0.9
    reorder_blocks: int = 8 * NOMINAL.processors
    stream_poor_seconds: float = 1e-4
    stream_blocks: int = 16 * NOMINAL.processors
    inner_sum_least_cells: int = 1 << 28
    inner_sum_share: float = 0.7
    inner_sum_price: float = 0.9
    inner_sum_ratio: int = 2
    inner_sum_cell: float = 16.0
