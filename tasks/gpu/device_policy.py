"""Tuned numbers of devices other than tilings: copies, decoding, places of tables, and propagations in one launch.

Pure.
"""

from __future__ import annotations

from ..steps.light_dataclass import dataclass
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
    far_cells : int
        Cells of a table from which positions take more than 32 bits, and kernels count with 64.
    decode_joint_states : int
        Steps with more joint states are left to the caller: they take long, and may be decoded variable by
        variable.
    decode_item_cells, decode_item_states : int
        Cells of all inputs of a step that a block looks at at a time, or joint states, if these are more.
    packed_cells : int
        Host tables of at most this many cells are copied together, and larger ones one by one. Copying together is
        faster for small tables only, and needs 8 bytes per cell for its index, which is cached for repeated sweeps.
    packed_together : int
        Most cells that are put side by side all at once: 8 MB of where they go.
    packed_bytes : int
        Most bytes that the host has of tables on their way to a device at a time.
    placed_least_bytes : int
        Smaller tables are left to the pool.
    """

    step_least_cells: int = SMALL_CELLS
    small_step_cells: int = 1 << 16
    small_lane_cells: int = 1 << 6
    far_cells: int = 1 << 32
    decode_joint_states: int = 1 << 26
    decode_item_cells: int = 1 << 12
    decode_item_states: int = 1 << 8
    packed_cells: int = 1 << 8
    packed_together: int = 1 << 20
    packed_bytes: int = 1 << 24
    placed_least_bytes: int = 1 << 18
