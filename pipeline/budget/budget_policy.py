"""Tuned numbers of making plans fit. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Bytes per second of a typical disk. Plans are chosen by this rate, because a measured rate would change the plan from
# run to run. It also stands for the rate of a disk that cannot be measured.
DISK_RATE = 5e8


@dataclass(frozen=True)
class BudgetPolicy(Policy):
    """The numbers behind slices, boxes, tables of rows, and plans for several devices.

    Parameters
    ----------
    most_slices : int
        Beyond this many slices,
    close : float
        A plan within this factor of the cheapest is not worth looking for a better one.
    rearrangings : int
        Maximum planning time for rearranging a tree for its slices, and the number of turns.
    behind : float
        Seconds of the first turn if slices are far from the whole plan. If slices are still slower than another method
        by the second factor, rearranging ends.
    far : float
        Slices with this many times the work need another tree before other slices of this tree are tried.
    repeated_search, repeated_search_least : float
        Slices on a device are searched longer by this fraction of the time of repeated work, between the two numbers of
        nominal seconds.
    stored_runs : tuple of int
        Lengths of the runs of tables that are tried as unstored, and the maximum number of places per length. Fewer
        stored tables merge stages at the price of more and smaller chunks, so a run often pays when a single table does
        not.
    searched_rows : float
        Minimum expected rows for a search for another tree; below it, the search takes longer than its gain.
    worth_storing : float
        Slices with this many times the cells of a sweep take longer than writing and reading its tables.
    margin_bytes : int
        Bytes for receipts, buffers of strided chunks and the interpreter's temporaries, in addition to tables.
    chunk_bytes : tuple of int
        A chunk is 1 / this of the budget, because it is compressed in memory as a whole, and each chunk is a file;
        minimum and maximum bytes of a chunk.
    spread_seconds, device_slices : float, int
        Shorter plans run on one device. More slices for each device hardly make rounds more even.
    """

    most_slices: int = 1 << 20
    close: float = 1.1
    rearrangings: int = 2
    behind: float = 2.0
    far: float = 8.0
    repeated_search: float = 0.3
    repeated_search_least: float = 0.3
    stored_runs: tuple[int, ...] = (16, 8, 4, 2, 1)
    searched_rows: float = 1e6
    worth_storing: float = 2.0
    margin_bytes: int = 1 << 20
    chunk_bytes: tuple[int, int] = (1 << 20, 1 << 26)
    spread_seconds: float = 0.5
    device_slices: int = 16
