"""Dense steps on an NVIDIA GPU, as launches of the kernels of ``cuda/*.cu``.

The array module follows from the array: `bucketflow.tasks.cpu.dense.run` comes here with CuPy arrays. Integers are
bit-equal to the CPU; sums of floats are in an order that depends on sizes only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ..steps.lowering import Lowered
from ..steps.semiring import Semiring
from . import arrays
from .brick_launch import brick_launch
from .bucket_launch import bucket_launch, join_launch
from .kernels import Kernel, Launch
from .memory import LongStepError
from .product_launch import product_launch
from .stream_launch import reorder_launch, rows_launch, stream_launch
from .tiling.device_lowering import device_step
from .tiling.passes import (
    BrickPass,
    BucketPass,
    DeviceStep,
    JoinPass,
    Pass,
    ProductPass,
    ReorderPass,
    RowsPass,
    StreamPass,
)

# Arguments are written into records that all threads share, and copied when a kernel is launched.
_LAUNCHING: Final = threading.RLock()


class DeviceRun:
    """A step with its kernels and their arguments, ready to run on any tables of its scopes."""

    def __init__(self, step: DeviceStep, semiring: Semiring, cells: int) -> None:
        self.semiring = semiring
        self.cells = cells
        self.out_bytes = cells * semiring.itemsize
        self.workspace_bytes = step.workspace_cells * semiring.itemsize
        self.waits = step.waits
        self._temporaries = [place * semiring.itemsize for place in step.places]
        try:
            self.launches = [_LAUNCHES[type(each)](each, semiring) for each in step.passes]
        except OverflowError:
            raise LongStepError(
                "a step has more parts than a launch on a GPU counts (2^32); leave out --gpus, or eliminate in another "
                "order"
            ) from None

    def __call__(self, tables: Sequence[Any], out: Any = None, workspace: Any = None) -> Any:
        """Run on device tables; returns ``out`` or a new table of shape ``(cells,)``.

        A workspace is a place in device memory with `workspace_bytes` behind it; without one it is allocated.
        """
        held, addresses = arrays.aligned(tables)
        if self._temporaries:
            block = arrays.empty(self.workspace_bytes, "uint8").data if workspace is None else workspace
            first = block.ptr
            addresses += [first + at for at in self._temporaries]
        result = arrays.empty(self.cells, self.semiring.dtype) if out is None else out.reshape(-1)
        addresses.append(result.data.ptr)
        with _LAUNCHING:
            for launch in self.launches:
                launch(addresses)
        del held  # launches are in order with later uses of the memory
        return result if out is None else out

    def bound(self, inputs: Sequence[int], out: int, workspace: int) -> list[tuple[Launch, list[int]]]:
        """Return its launches, each with where the step's tables lie, for `bound_launches`; only where it `repeats`."""
        addresses = [*inputs, *[workspace + at for at in self._temporaries], out]
        return [(launch, addresses) for launch in self.launches if isinstance(launch, Launch)]

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of its launches; cuBLAS has its own."""
        return [launch.kernel for launch in self.launches if isinstance(launch, Launch)]

    @property
    def repeats(self) -> bool:
        """Whether its launches can be bound to tables."""
        return all(isinstance(launch, Launch) for launch in self.launches)


def run(lowered: Lowered, tables: Sequence[Any], out: Any = None) -> Any:
    """Run a lowered step on device tables; tables that are still on the host are copied first."""
    return prepare(lowered)(tables, out)


@lru_cache(maxsize=4096)
def prepare(lowered: Lowered) -> DeviceRun:
    """Choose the launches of a step, once for all that look alike."""
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells)


def step_kernels(lowered: Lowered) -> Sequence[Kernel]:
    """Return the kernels of a step. Before CuPy is loaded, these are the kernels of the nominal device."""
    return prepare(lowered).kernels if "cupy" in sys.modules else _nominal_kernels(lowered)


@lru_cache(maxsize=4096)
def _nominal_kernels(lowered: Lowered) -> Sequence[Kernel]:
    # not a prepared launch: the device may have less shared memory than the nominal one
    return DeviceRun(device_step(lowered), lowered.semiring, lowered.out_cells).kernels


# How each kind of pass is launched; a new kind is a class of passes, and a row here.
_LAUNCHES: Final[Mapping[type[Pass], Callable[[Any, Semiring], Callable[[Sequence[int]], None]]]] = {
    StreamPass: stream_launch,
    ReorderPass: reorder_launch,
    BrickPass: brick_launch,
    RowsPass: rows_launch,
    BucketPass: bucket_launch,
    JoinPass: join_launch,
    ProductPass: product_launch,
}
