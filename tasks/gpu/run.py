"""Dense steps on an NVIDIA GPU, as launches of the kernels of ``cuda/*.cu``.

The array module follows from the array: `bucketflow.tasks.dense.run` comes here with CuPy arrays. Integers are
bit-equal to the CPU; sums of floats are in an order that depends on sizes only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ..steps.lowering import Lowered
from ..steps.semiring import Semiring
from . import arrays
from .kernels import cupy
from .launches.bricks import BrickLaunch
from .launches.buckets import launch
from .launches.products import product_launch
from .launches.streams import RowsLaunch, StreamLaunch
from .tiling.lowering import device_step
from .tiling.passes import BrickPass, BucketPass, DeviceStep, JoinPass, Pass, RowsPass, StreamPass

# Arguments are written into records that all threads share, and copied when a kernel is launched.
_LAUNCHING: Final = threading.RLock()


class DeviceRun:
    """A step with its kernels and their arguments, ready to run on any tables of its scopes."""

    def __init__(self, step: DeviceStep, semiring: Semiring, cells: int) -> None:
        self.semiring = semiring
        self.cells = cells
        self.out_bytes = cells * semiring.itemsize
        self.workspace_bytes = step.workspace_cells * semiring.itemsize
        self._temporaries = [
            (cells, place * semiring.itemsize) for cells, place in zip(step.temporaries, step.places, strict=True)
        ]
        self._launches = [_launch_of(each, semiring) for each in step.passes]

    def __call__(self, tables: Sequence[Any], out: Any = None, workspace: Any = None) -> Any:
        """Run on device tables; returns ``out`` or a new table of shape ``(cells,)``.

        A workspace is a place in device memory with `workspace_bytes` behind it; without one it is allocated.
        """
        dtype = self.semiring.dtype
        given = [arrays.aligned(table) for table in tables]
        if self._temporaries:
            block = arrays.empty(self.workspace_bytes, "uint8").data if workspace is None else workspace
            new = cupy().ndarray
            given += [new(cells, dtype, block + at) for cells, at in self._temporaries]
        result = arrays.empty(self.cells, dtype) if out is None else out.reshape(-1)
        given.append(result)
        with _LAUNCHING:
            for launch in self._launches:
                launch(given)
        return result if out is None else out


def run(lowered: Lowered, tables: Sequence[Any], out: Any = None) -> Any:
    """Run a lowered step on device tables; tables that are still on the host are copied first."""
    return prepare(lowered)(tables, out)


@lru_cache(maxsize=4096)
def prepare(lowered: Lowered) -> DeviceRun:
    """Choose the launches of a step, once for all that look alike."""
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells)


def _launch_of(each: Pass, semiring: Semiring) -> Any:
    if isinstance(each, StreamPass):
        return StreamLaunch(each, semiring)
    if isinstance(each, BrickPass):
        return BrickLaunch(each, semiring)
    if isinstance(each, RowsPass):
        return RowsLaunch(each, semiring)
    if isinstance(each, BucketPass | JoinPass):
        return launch(each, semiring)
    return product_launch(each, semiring)
