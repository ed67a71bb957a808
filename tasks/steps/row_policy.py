"""Tuned parameters of tables of rows. Pure."""

from __future__ import annotations

from .light_dataclass import dataclass
from .policy import Policy


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
