"""What is tuned of making plans fit, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BudgetPolicy(Policy):
    """The numbers behind slices, boxes, tables of rows, and plans for several devices.

    Parameters
    ----------
    hoped_memory, hoped_seconds : float
        A longer search makes plans that need less than this factor less memory. What fits only then is not hoped for
        where it would take longer than this all the same, some twelve days.
    first_boxes : int
        The first boxes that fit take so many times the work of a plan.
    most_slices : int
        Beyond this many slices,
    most_overhead : float
        or this much repeated work, conditioning is no answer to a small budget.
    close : float
        A plan within this factor of the cheapest is not worth looking for a better one.
    rearranging_seconds, rearrangings : float, int
        Planning time for rearranging a tree for its slices, at most, in so many turns.
    short_rearranging_seconds, behind : float
        The first turn where slices are far from the whole; slices that are then still so many times behind another way
        are left at that.
    tries_a_tree, fewest_estimated : int
        A tree is planned so often until it fits; of so many trees one is chosen before.
    far : float
        Slices that take so many times the work need another tree before others are tried of this one.
    repeated_search, repeated_search_least, repeated_search_most : float
        Slices on a device are searched for so much longer as this part of the time that they repeat work, from so many
        nominal seconds up to so many: 90-30-5 within 1 GB is predicted 11 s at first, then 1.1.
    stored_shares : tuple of int
        Tables of less than one part of so many of the budget stay in memory within a stage, to begin with.
    stored_work_share : float
        A subtree that costs this share of the whole is swept once and stored, to begin with, not again in every box.
    stored_runs, stored_trials : tuple of int, int
        Tables are tried to be left out in runs of so many, each time from so many places at most: two stages become one
        at the price of more and smaller chunks, which only pays once several have.
    rows_search_seconds, rows_function_seconds : float
        Nominal seconds of the search for a tree, unless told, and for each function: cells say little about rows.
    searched_rows, enough_rows : float
        Fewer rows are joined before another tree is found; whoever ends after the latter does not gain what it takes.
    sparse_states : tuple of int
        Sparse variables count as so many times the states that they have left: with more, wide tables are avoided.
    clearly_fewer : float
        Another tree is taken from this share of the rows on.
    slices_at_once : int
        Slices of rows grow by this factor at most before it is tried again.
    worth_storing : float
        Slices that take so many times the cells of a sweep take longer than writing and reading its tables.
    margin_bytes : int
        What receipts, buffers of strided chunks and the interpreter's own temporaries need besides tables.
    most_boxes : int
        More boxes than this cost more to keep account of than they save.
    repeated_share : float
        Work and reading that this share of a stage repeats do not decide about the order of its variables.
    shares_beyond : float
        Boxes that are predicted to take so many times what the whole plan does are compared with boxes that write
        shares of their output: 75-26-5 on two cards of 1 GB is predicted 0.05 s without them and 0.03 with.
    chunk_share, chunk_bytes : int, tuple of int
        A chunk goes through memory whole when it is compressed, so it is one part of so many of the budget, and a file
        of its own, so it is not a very small one: bytes at least and at most.
    spread_seconds, device_slices : float, int
        Shorter plans run on one device, and have no tables spread over several: 75-26-5, predicted 0.03 s either way,
        took two H100 0.07 s in slices and 0.15 spread. More slices for each device hardly make rounds more even.
    box_shares : tuple of float
        Where tables are spread over devices, a box has one of so many parts of the memory of its device, and as many
        boxes at a time as take half of it: small ones leave room for tables, large ones repeat less.
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
    box_shares: tuple[float, ...] = (1.25, 1.5, 2, 3, 4, 6, 12, 24, 48)
