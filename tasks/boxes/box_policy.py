"""What is tuned of tables that leave memory, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class BoxPolicy(Policy):
    """The numbers behind boxes, of which those by rows have most; parts are one of so many.

    Parameters
    ----------
    input_part : int
        The inputs of a box take at most one such part of its memory: they are put together, and sorted for their joins.
    device_input_part : int
        The same on a device, where a box takes milliseconds of Python whatever it holds: 1.6 GB of rows in 1,024 boxes
        of a twelfth took 9.6 s on an H100.
    input_copies : int
        What a box has read takes so many times its bytes.
    chunk_part, device_chunk_part, least_chunk_bytes, most_chunk_bytes : int
        Chunks of rows are one such part of what a task may take, here or on a device, within these bounds.
    block_cells : int
        An array is written as rows in blocks of so many cells.
    device_block_cells : int
        The same where the array is on a device: few launches each.
    device_boxes : int
        Boxes by rows that a device has at a time; each takes one such part of the device's memory. Two of half the
        size wait for the interpreter, and for threads that read for the other: on an H100 a join of 6.4 GB of stored
        rows within 322 MB took 1.4 and 1.5 s one at a time, 1.9 and 2.0 two at a time, 4.5 three at a time.
    reading_threads, least_shared_read_bytes : int
        Threads that read the chunks of a box on a device, where those behind the first have so many bytes: eight read
        twice as fast as three, twelve and sixteen no faster.
    sampled_keys, chunk_samples : int
        About so many keys of a table in memory, and as many of each chunk, tell how a box is cut.
    least_compressed_bytes : int
        Chunks of keys of fewer bytes stay as they are: a file takes as much.
    compact_part : int
        Values are compressed, too, where tables are expected to take more than one such part of the disk that is left.
    memory_first : bool
        Whether steps are tried in memory before they are cut into boxes.
    held_part, large_part : int
        Tables that stay in memory take one such part together, and each of them no more than that.
    merged_copies : int
        Runs, what they become together, and what that takes.
    kept_join_rows : int
        What took a join of so many rows is stored, and not done again after a stop.
    repair_part : int
        A box that is repaired may take what it took first, if that exceeds what is left by one such part at most.
    told_bytes : int
        Up to so many bytes what the answer is read from is kept in the ledger itself.
    summed_out : float
        What a variable has to gain more, as a part of what is read, to be cut though it is summed out: its boxes make
        runs of the same rows, which readers merge.
    most_cuts : int
        Parts that a box by rows is cut into at once.
    receipt_bytes, run_bytes : int
        What a receipt, and a run that is read, take in memory.
    box_receipts : int
        Receipts that a box by rows leaves at least: its own, and those of a chunk of keys and one of values.
    device_parts : int
        What parts of a box have in common is computed in each of them: one that needs more of them to fit a device is
        planned again, or given up.
    kept_chunk_cells : int
        A table that is kept for others is cut into chunks of at most so many cells: Zarr reads them whole.
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
