"""Tuned numbers of tables outside memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class BoxPolicy(Policy):
    """The numbers of boxes, mostly of sparse ones; a part is 1 / the number.

    Parameters
    ----------
    input_part : int
        The inputs of a box take at most one such part of its memory: they are put together, and sorted for their joins.
    device_input_part : int
        The same on a device, where a box takes milliseconds of Python whatever it holds: 1.6 GB of rows in 1,024 boxes
        of a twelfth took 9.6 s on an H100.
    input_copies : int
        Memory factor of the tables that a box has read.
    chunk_part, device_chunk_part, least_chunk_bytes, most_chunk_bytes : int
        Chunks of rows are 1 / this of a task's memory, on the host or on a device, within these bounds.
    block_cells : int
        An array is written as rows in blocks of this many cells.
    device_block_cells : int
        The same where the array is on a device: few launches each.
    device_boxes : int
        Sparse boxes on a device at a time; each gets an equal part of the device's memory. Several smaller boxes wait
        for the interpreter and for each other's reading threads, so that one at a time is fastest.
    reading_threads, least_shared_read_bytes : int
        Threads that read the chunks of a box on a device, and the minimum bytes for each thread after the first. More
        threads than this are no faster.
    sampled_keys, chunk_samples : int
        About this many keys of a table in memory, and of each chunk, are sampled to decide how a box is cut.
    least_compressed_bytes : int
        Chunks of keys of fewer bytes stay as they are: a file takes as much.
    compact_part : int
        Values are compressed, too, where tables are expected to take more than one such part of the disk that is left.
    memory_first : bool
        Whether steps are tried in memory before they are cut into boxes.
    held_part, large_part : int
        Tables that stay in memory take at most 1 / this together, and each at most 1 / this.
    merged_copies : int
        Limits for merging runs: their number, the size of the result, and the memory of the merge.
    kept_join_rows : int
        Results of joins with at least this many rows are stored, and not computed again after a stop.
    repair_part : int
        A repaired box may take its first memory if this exceeds the remaining memory by at most 1 / this.
    told_bytes : int
        Maximum bytes of an answer's tables that are stored in the ledger itself.
    summed_out : float
        Additional gain, as a fraction of the input, that a summed-out variable needs to be cut: its boxes make runs of
        the same rows, which readers must merge.
    most_cuts : int
        Parts that a box by rows is cut into at once.
    receipt_bytes, run_bytes : int
        Bytes of a receipt, and of a run that is read, in memory.
    box_receipts : int
        Minimum receipts of a sparse box: its own, one of a chunk of keys and one of a chunk of values.
    device_parts : int
        The common work of a box's parts is computed in each part. A box that needs more parts than this to fit a device
        is planned again, or given up.
    kept_chunk_cells : int
        Maximum cells of a chunk of a table kept for inspection: Zarr reads whole chunks.
    """

    input_part: int = 12
    device_input_part: int = 4
    input_copies: int = 2
    chunk_part: int = 64
    device_chunk_part: int = 16
    least_chunk_bytes: int = 1 << 14
    most_chunk_bytes: int = 1 << 26
    block_cells: int = 1 << 16
    device_block_cells: int = 1 << 24
    device_boxes: int = 1
    reading_threads: int = 8
    least_shared_read_bytes: int = 1 << 21
    sampled_keys: int = 1 << 12
    chunk_samples: int = 8
    least_compressed_bytes: int = 1 << 12
    compact_part: int = 2
    memory_first: bool = True
    held_part: int = 4
    large_part: int = 32
    merged_copies: int = 4
    kept_join_rows: int = 1 << 21
    repair_part: int = 16
    told_bytes: int = 1 << 14
    summed_out: float = 0.3
    most_cuts: int = 16
    receipt_bytes: int = 1000
    run_bytes: int = 2000
    box_receipts: int = 3
    device_parts: int = 1 << 6
    kept_chunk_cells: int = 1 << 23
