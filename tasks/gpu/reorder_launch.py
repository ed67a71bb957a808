"""Launches of ``cuda/reorder.cu``, which copies a table with its axes in another order."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..steps.semiring import Semiring
from .device_policy import DevicePolicy
from .kernels import Launch, kernel
from .stream_launch import fill_axes
from .tiling.passes import ReorderPass
from .tiling.products.product_tiles import AXES, cells_of
from .tiling.streams import THREADS


def reorder_launch(each: ReorderPass, semiring: Semiring) -> Launch:
    """Prepare a copy; the kernel knows bytes only, so that all types of values share it."""
    reorder = each.reorder
    constants = {"BYTES": reorder.width * semiring.itemsize, "ITEMS": reorder.items_of_thread}
    _, slow, fast, *written = reorder.segments
    read = sum((a.size - 1) * a.strides[0] for a in (*slow, *fast))
    reach = max(read, sum((a.size - 1) * a.out for half in written for a in half))
    if reach >= DevicePolicy.current().far_cells:
        constants["FAR"] = 1
    record = np.zeros((), _REORDER)
    fill_axes(record, reorder.segments, 2)
    record["counts"] = (reorder.items, reorder.tiles, reorder.tiles_per_block)
    record["parts"] = [cells_of(segment) for segment in reorder.segments]
    blocks = -(-reorder.tiles // reorder.tiles_per_block)
    compiled = kernel("reorder", "min_plus", "int16", **constants)
    return Launch(compiled, record, (each.reads, each.writes), blocks, THREADS)


_REORDER: Final = np.dtype(
    [
        ("inputs", "u8", 1),
        ("out", "u8"),
        ("stride", "i8", (2, AXES)),
        ("size", "u4", AXES),
        ("segment", "i4", 6),
        ("counts", "u4", 3),
        ("parts", "u4", 5),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/reorder.cu``."""
