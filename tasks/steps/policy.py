"""Tuned parameters as values: one frozen dataclass for each room, of which one value is in force. Pure.

The policies of sparse tables, of decoding sweeps and of tables outside memory stand here too, because planning reads
them without the rooms that compute such tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

from .light_dataclass import dataclass


class Policy:
    """Base of the rooms' tuned numbers.

    A room derives one frozen dataclass, whose fields have defaults, units in their names and reasons beside them. Each
    field is one that a test or a bench sets; other numbers are constants beside the code that uses them. Code
    reads ``RowPolicy.current().merged_rows``; a test or an experiment puts another value in force for a while with
    ``with RowPolicy.using(merged_rows=4): …``, in all threads of this process.
    """

    _in_force: ClassVar[dict[type[Policy], Policy]] = {}

    @classmethod
    def current(cls) -> Self:
        """Return the value in force: the defaults, unless another one is used."""
        value = cls._in_force.get(cls)
        if value is None:
            value = cls._in_force.setdefault(cls, cls())
        assert isinstance(value, cls)
        return value

    @classmethod
    @contextmanager
    def using(cls, **changes: Any) -> Iterator[Self]:
        """Put the value in force, with some fields changed, in force until the block ends.

        Raises
        ------
        TypeError
            When a name is no field of this policy.
        """
        before = cls.current()
        value = replace(before, **changes)  # type: ignore[type-var]
        cls._in_force[cls] = value
        try:
            yield value
        finally:
            cls._in_force[cls] = before


@dataclass(frozen=True)
class RowPolicy(Policy):
    """Tuned numbers of joins, sorts and layers of sparse tables.

    Parameters
    ----------
    small_cells : int
        Tables of at most this number of cells are arrays, and steps on such arrays are loops: analysing their rows
        would take longer than the loops.
    cells_of_a_row : int
        Ratio of the time of a row of a join to the time of a cell of a loop.
    rows_per_second : float
        Rows of joins on this machine's cores in a second.
    hopeless_ratio : float
        Sparse joins are skipped if the expected number of rows exceeds the limit by more than this factor. The
        expectation assumes independent tables. Real tables agree in far fewer rows, but not in this many fewer.
    array_share : float
        A table is an array of all cells if the array takes at most this multiple of the bytes of its rows; 0: never.
    merged_copies : int
        Memory of a result while it is merged from blocks, as a multiple of the bytes of its rows and their places.
    warm_rows, cold_rows : int
        NumPy processes this number of rows in the time of loading compiled loops, with the compiler loaded or not.
    block_rows : int
        Rows of a block. The block stays in the second-level cache.
    plain_cells : int
        Maximum expanded rows of a layer that NumPy computes. NumPy would take too long for a larger layer.
    shared_rows : int
        A thread sorts or expands at least this number of rows.
    device_rows : int
        If tables together, or joins at a time, have fewer rows, the host joins them. A join on a device takes a dozen
        launches, and waits for some of them.
    device_shared_joins : int
        Joins that have more rows before their reduction are divided among all devices of a run, by ranges of keys. For
        smaller joins, one device is faster: starting threads takes 5 ms, and copies between devices take time (390 GB/s
        on an H100, which joins 18 rows in a nanosecond).
    device_spare_rows : int
        Additional rows that a layer on a device has memory for, beyond the rows that it keeps.
    """

    small_cells: int = 1 << 10
    cells_of_a_row: int = 50
    rows_per_second: float = 1e7
    hopeless_ratio: float = 1e12
    array_share: float = 1.0
    merged_copies: int = 5
    warm_rows: int = 1 << 19
    cold_rows: int = 1 << 21
    block_rows: int = 1 << 14
    plain_cells: int = 1 << 17
    shared_rows: int = 1 << 15
    device_rows: int = 1 << 14
    device_shared_joins: int = 1 << 29
    device_spare_rows: int = 1 << 20


@dataclass(frozen=True)
class SweepPolicy(Policy):
    """Tuned numbers for reading assignments and samples from the tables of a sweep.

    Parameters
    ----------
    joint_states : int
        Maximum joint states that are compared or drawn together. With more states, some variables are chosen first.
    joined_cells : int
        Maximum cells of a join that eliminates variables first. Larger tables stay on the device. Draws whose tables
        are read together have at most this number of cells, too.
    drawn_cells : int
        Maximum cells of a table that is built for draws. With its derived arrays, it takes 40 MB.
    rows_a_draw : int
        One table serves all draws if it has at most this number of rows for each draw.
    walked_draws : int
        Number of draws that walk down the tree together and share the tables of steps.
    drawn_cells_there : int
        Maximum cells of all tables for draws on a device: 1 GB. The host stores at most twice this number.
    walked_draws_there : int
        ``walked_draws`` on a device. Each of its 270,000 resident threads takes four draws.
    least_walk_seconds : float
        Draws that one core makes in less time stay on the host, because their tables are built there.
    tries_a_draw : int
        If more draws than this are made for each allowed draw, the request is refused.
    sliced_cells : int
        Maximum cells of leaf tables that are cut into all slices together. Copying larger tables takes longer than the
        Python code, and their places would take more memory than the tables.
    sliced_together : int
        Maximum number of cells of such tables together: with their places they take 24 bytes each, 6 MB.
    enough_kept : float
        If at least this fraction of draws is accepted, no other temperature is searched.
    packed_cells : int
        Maximum total cells of leaf tables that are packed and sent together. Hundreds of small tables then travel
        several times faster. Packing larger tables would take longer than it saves.
    batch_draws : int
        Number of draws that are computed together. Their rows of 20 states stay in a cache of 2 MB.
    """

    joint_states: int = 1 << 11
    joined_cells: int = 1 << 16
    drawn_cells: int = 1 << 20
    rows_a_draw: int = 2
    walked_draws: int = 1 << 16
    drawn_cells_there: int = 1 << 27
    walked_draws_there: int = 1 << 20
    least_walk_seconds: float = 0.2
    tries_a_draw: int = 1000
    sliced_cells: int = 1 << 12
    sliced_together: int = 1 << 18
    enough_kept: float = 0.25
    packed_cells: int = 1 << 21
    batch_draws: int = 1 << 13


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
    """

    device_input_part: int = 3
    device_chunk_part: int = 16
    least_chunk_bytes: int = 1 << 14
    device_block_cells: int = 1 << 24
    reading_threads: int = 8
    least_shared_read_bytes: int = 1 << 21
    compiled_read_bytes: int = 1 << 30
    compact_part: int = 2
    memory_first: bool = True
    large_part: int = 32
    merged_copies: int = 4
    receipt_bytes: int = 1000
