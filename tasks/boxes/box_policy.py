"""Tuned numbers of tables outside memory. Pure."""

from __future__ import annotations

from typing import Final

from ..steps.light_dataclass import dataclass
from ..steps.policy import Policy

# The inputs of a box take at most one such part of its memory: they are put together, and sorted for their joins.
INPUT_PART: Final = 12
# Parts that a box by rows is cut into at once.
MOST_CUTS: Final = 16
# Maximum bytes of a chunk of rows, and of all chunks that are transferred to an object store concurrently.
MOST_CHUNK_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class BoxPolicy(Policy):
    """Tuned numbers of boxes, mostly of sparse tables; a number named part stands for the fraction 1 / number.

    Parameters
    ----------
    device_input_part : int
        The inputs of a box on a device take at most this part of its memory. Each box takes milliseconds of Python, so
        larger boxes are faster. In boxes of half of the memory, joins that need more memory than their inputs are cut
        again too often.
    device_chunk_part, least_chunk_bytes : int
        Chunks of rows are 1 / this of a task's memory, on the host or on a device, within these bounds.
    device_block_cells : int
        Cells of a block of an array that a device writes as rows. Larger blocks need fewer launches and more memory.
    device_boxes : int
        Concurrent sparse boxes on a device; each gets an equal part of its memory. One box at a time is fastest,
        because several boxes wait for the interpreter and for each other's reading threads.
    reading_threads, least_shared_read_bytes : int
        Threads that read the chunks of a box on a device, and the minimum bytes for each thread after the first. More
        threads than this are no faster.
    compiled_read_bytes : int
        Compiled code reads files once Python has read this many bytes in the process, eight times as many if the code
        is not compiled yet. Loading it takes as long as reading a gigabyte.
    compact_part : int
        Values are compressed too if tables are expected to take more than this part of the free disk space.
    memory_first : bool
        Whether steps are tried in memory before they are cut into boxes.
    large_part : int
        Tables that stay in memory take at most this part of it together, and each table at most this part of their
        total.
    merged_copies : int
        Limits for merging runs: their number, the size of the result, and the memory of the merge.
    receipt_bytes : int
        Bytes of a receipt in memory. A run that is read takes twice as many.
    kept_chunk_cells : int
        Maximum cells of a chunk of a table kept for inspection: Zarr reads whole chunks.
    """

    device_input_part: int = 3
    device_chunk_part: int = 16
    least_chunk_bytes: int = 1 << 14
    device_block_cells: int = 1 << 24
    device_boxes: int = 1
    reading_threads: int = 8
    least_shared_read_bytes: int = 1 << 21
    compiled_read_bytes: int = 1 << 30
    compact_part: int = 2
    memory_first: bool = True
    large_part: int = 32
    merged_copies: int = 4
    receipt_bytes: int = 1000
    kept_chunk_cells: int = 1 << 23
