"""Tuned numbers of making plans fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BudgetPolicy(Policy):
    """The numbers behind slices, boxes, tables of rows, and plans for several devices.

    Parameters
    ----------
    hoped_memory, hoped_seconds : float
        A longer search finds plans that need at most this factor less memory. A plan that fits only with this factor is
        not pursued if it would take longer than the second number of seconds.
    first_boxes : int
        The first boxes that fit take this many times the planning work of a plan.
    most_slices : int
        Beyond this many slices,
    most_overhead : float
        or this much repeated work, conditioning is no answer to a small budget.
    close : float
        A plan within this factor of the cheapest is not worth looking for a better one.
    rearranging_seconds, rearrangings : float, int
        Maximum planning time for rearranging a tree for its slices, and the number of turns.
    short_rearranging_seconds, behind : float
        Seconds of the first turn if slices are far from the whole plan. If slices are still slower than another method
        by the second factor, rearranging ends.
    tries_a_tree, fewest_estimated : int
        Maximum attempts to plan a tree until it fits; the number of trees from which one is chosen before.
    far : float
        Slices with this many times the work need another tree before other slices of this tree are tried.
    repeated_search, repeated_search_least, repeated_search_most : float
        Slices on a device are searched longer by this fraction of the time of repeated work, between the two numbers of
        nominal seconds.
    stored_shares : tuple of int
        Tables smaller than 1 / this of the budget initially stay in memory within a stage.
    stored_work_share : float
        A subtree that costs this share of the whole is swept once and stored, to begin with, not again in every box.
    stored_runs, stored_trials : tuple of int, int
        Lengths of the runs of tables that are tried as unstored, and the maximum number of places per length. Fewer
        stored tables merge stages at the price of more and smaller chunks, so a run often pays when a single table does
        not.
    rows_search_seconds, rows_function_seconds : float
        Nominal seconds of the search for a tree by default, and per function: cells say little about sparse tables.
    searched_rows, enough_rows : float
        Minimum expected rows for a search for another tree; below it, the search takes longer than its gain.
    sparse_states : tuple of int
        Factor of sparse variables' remaining states in prices; a larger factor avoids wide tables.
    clearly_fewer : float
        Another tree is taken from this share of the rows on.
    slices_at_once : int
        Slices of rows grow by this factor at most before it is tried again.
    worth_storing : float
        Slices with this many times the cells of a sweep take longer than writing and reading its tables.
    margin_bytes : int
        Bytes for receipts, buffers of strided chunks and the interpreter's temporaries, in addition to tables.
    most_boxes : int
        More boxes than this cost more to keep account of than they save.
    repeated_share : float
        Work and reading that this share of a stage repeats do not decide about the order of its variables.
    shares_beyond : float
        Boxes predicted to take this many times the whole plan's time are compared with boxes that write partial results
        of their output.
    chunk_share, chunk_bytes : int, tuple of int
        A chunk is 1 / this of the budget, because it is compressed in memory as a whole, and each chunk is a file;
        minimum and maximum bytes of a chunk.
    spread_seconds, device_slices : float, int
        Shorter plans run on one device. More slices for each device hardly make rounds more even.
    """

    hoped_memory: int = 4
    hoped_seconds: float = 1e6
    first_boxes: int = 2
    most_slices: int = 1 << 20
    most_overhead: float = 64.0
    close: float = 1.1
    rearranging_seconds: float = 4.0
    rearrangings: int = 2
    short_rearranging_seconds: float = 0.5
    behind: float = 2.0
    tries_a_tree: int = 2
    fewest_estimated: int = 3
    far: float = 8.0
    repeated_search: float = 0.3
    repeated_search_least: float = 0.3
    repeated_search_most: float = 3.0
    stored_shares: tuple[int, ...] = (8, 32, 128, 512)
    stored_work_share: float = 0.02
    stored_runs: tuple[int, ...] = (16, 8, 4, 2, 1)
    stored_trials: int = 256
    rows_search_seconds: float = 0.25
    rows_function_seconds: float = 1e-3
    searched_rows: float = 1e6
    enough_rows: float = 1e8
    sparse_states: tuple[int, ...] = (1, 8)
    clearly_fewer: float = 0.9
    slices_at_once: int = 64
    worth_storing: float = 2.0
    margin_bytes: int = 1 << 20
    most_boxes: int = 1 << 16
    repeated_share: float = 0.02
    shares_beyond: float = 1.5
    chunk_share: int = 32
    chunk_bytes: tuple[int, int] = (1 << 20, 1 << 26)
    spread_seconds: float = 0.5
    device_slices: int = 16
