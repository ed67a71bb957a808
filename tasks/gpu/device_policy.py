"""Tuned numbers of devices other than tilings: copies, decoding, places of tables, and propagations in one launch.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.lowering import SMALL_CELLS
from ..steps.policy import Policy


@dataclass(frozen=True)
class DevicePolicy(Policy):
    """Numbers of launches and copies that no tiling decides; measured on an H200 with ``tests/bench/gpu*.py``.

    Parameters
    ----------
    step_least_cells : int
        A step on host tables goes to the device from here, unless it was measured: below, NumPy is done before tables
        are copied and a kernel launched; above, the CPU's kernels would have to be compiled for few steps.
    small_step_cells : int
        Steps without a launch of their own, with at most this many cells, share launches of small steps.
    small_lane_cells : int
        Approximate number of input cells that a lane of such a launch reads.
    own_block_bytes : int
        Tables from this size on get a block of the pool of their own; smaller ones share blocks.
    far_cells : int
        Cells of a table from which positions take more than 32 bits, and kernels count with 64.
    cublas_least_cells : int
        Rows, columns and depth from which cuBLAS pays.
    product_small_stage_bytes : int
        Bytes of a stage of both factors up to which four stages are in shared memory, not three.
    decode_joint_states : int
        Steps with more joint states are left to the caller: they take long, and may be decoded variable by
        variable.
    decode_item_cells, decode_item_states : int
        Cells of all inputs of a step that a block looks at at a time, or joint states, if these are more.
    decode_step_items : int
        Most items of a step for each block that there may be.
    decode_host_bytes : int
        Most bytes of the host's tables that go to the device once more, where a sweep has freed its memory.
    decode_blocks : int
        Maximum blocks per multiprocessor; the result is the same for any number.
    decode_workspace_bytes : int
        Bytes in which all blocks write down where inputs lie; a single block takes what it needs.
    gather_blocks : int
        Maximum blocks per multiprocessor; the copy is the same for any number.
    fetched_table_bytes : int
        Tables up to this size are copied whole, in 2 to some 30 microseconds; a slice of one takes a launch and
        a wait.
    fetched_bytes : int
        Most bytes of such copies together.
    touching_threads : int
        Threads that touch the pages of a new block of the host.
    reused_block_share : float
        A block that was given back serves a request that fills at least this share of it.
    packed_cells : int
        Host tables of at most this many cells are copied together, and larger ones one by one. Copying together is
        faster for small tables only, and needs 8 bytes per cell for its index, which is cached for repeated sweeps.
    packed_together : int
        Most cells that are put side by side all at once: 8 MB of where they go.
    packed_bytes : int
        Most bytes that the host has of tables on their way to a device at a time.
    placed_least_bytes : int
        Smaller tables are left to the pool.
    placed_least_share : float
        So are tables below this share of the largest one.
    placement_trials : int
        Orders in which requests are placed that are tried from each of the first ones.
    placed_tables : int
        The largest tables and workspaces are placed, at most this many; others are left to the pool.
    message_block_items : int
        Items that each block should have where there is enough work.
    message_item_seconds : float
        Shortest item: about as long as what it waits for besides its work.
    message_batch_item_seconds : float
        Length of an item with many cases, when no case waits for a single item.
    message_waiting_seconds : float
        Waiting cost of a message for the items of its inputs.
    message_small_cells : int
        Messages of less work are cut for threads of one block, larger ones for many items.
    message_short_states : int
        Eliminated states that a thread sums up at least, about, before several threads share an output.
    message_output_ns : float
        Nanoseconds that a thread waits for an output, on an H200 with little else to do.
    message_axis_ns : float
        The same for each axis of its outputs.
    message_high_ns : float
        The same for an eliminated state of the outer loop.
    message_lows_ns : float
        The same for all states of the inner loop that it reads at a time.
    message_pieces_ns : float
        Nanoseconds to add up the partial sums of several items.
    """

    step_least_cells: int = SMALL_CELLS
    small_step_cells: int = 1 << 16
    small_lane_cells: int = 1 << 6
    own_block_bytes: int = 1 << 25
    far_cells: int = 1 << 32
    cublas_least_cells: int = 64
    product_small_stage_bytes: int = 12 << 10
    decode_joint_states: int = 1 << 26
    decode_item_cells: int = 1 << 12
    decode_item_states: int = 1 << 8
    decode_step_items: int = 4
    decode_host_bytes: int = 1 << 22
    decode_blocks: int = 4
    decode_workspace_bytes: int = 1 << 22
    gather_blocks: int = 16
    fetched_table_bytes: int = 1 << 20
    fetched_bytes: int = 1 << 24
    touching_threads: int = 8
    reused_block_share: float = 0.875
    packed_cells: int = 1 << 8
    packed_together: int = 1 << 20
    packed_bytes: int = 1 << 24
    placed_least_bytes: int = 1 << 18
    placed_least_share: float = 1 / 256
    placement_trials: int = 16
    placed_tables: int = 128
    message_block_items: int = 14
    message_item_seconds: float = 1e-6
    message_batch_item_seconds: float = 40e-6
    message_waiting_seconds: float = 2e-6
    message_small_cells: int = 4096
    message_short_states: int = 4
    message_output_ns: float = 150.0
    message_axis_ns: float = 25.0
    message_high_ns: float = 50.0
    message_lows_ns: float = 350.0
    message_pieces_ns: float = 3000.0
