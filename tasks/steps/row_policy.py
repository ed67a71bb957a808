"""Tuned parameters of tables of rows. Pure."""

from __future__ import annotations

from .light_dataclass import dataclass
from .policy import Policy


@dataclass(frozen=True)
class RowPolicy(Policy):
    """The numbers behind joins, sorts and layers of rows.

    Parameters
    ----------
    small_cells : int
        Tables of at most this number of cells are arrays, and steps on such arrays are loops: analysing their rows
        would take longer than the loops.
    cells_of_a_row : int
        A row of a join takes as long as this number of cells of a loop.
    rows_per_second : float
        Rows that joins on this machine's cores have in a second.
    hopeless_ratio : float
        Sparse joins are skipped if the expected number of rows exceeds the limit by more than this factor. The
        expectation assumes independent tables. Real tables agree in far fewer rows, but not in this many fewer.
    array_share : float
        A table is an array of all cells if the array takes at most this multiple of the bytes of its rows; 0: never.
    merged_copies : int
        A result takes this multiple of its rows, and their places, while it is merged from the results of blocks.
    warm_rows, cold_rows : int
        NumPy processes this number of rows in the time of loading compiled loops, with the compiler loaded or not.
    block_rows : int
        Rows of a block, which stay in the second-level cache.
    plain_cells : int
        Layers of more expanded rows are not run in NumPy, which takes this long:
    shared_rows : int
        A thread sorts or expands at least this number of rows.
    device_rows : int
        Tables with fewer rows together, or joins with fewer at a time, are joined on the host: a join on a device takes
        a dozen launches, and waits for some of them.
    device_shared_joins : int
        Joins that have more rows than this, before they are reduced, are done by ranges of keys on all devices that a
        run has. Beginning with threads takes 5 ms, and tables go from device to device at 390 GB/s, while one H100
        joins 18 rows a nanosecond that are read in order. On two, joins of 2^18 to 2^28 rows with arrays took 0.08 to
        0.51 times as long alone, joins of 2^24 rows with four each 0.42.
    device_spare_rows : int
        Spare rows beyond the rows that a layer on a device keeps, for any number of waiting rows.
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
