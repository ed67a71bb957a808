"""What the ladder asks of a GPU: how much of it each child may use, and what an answer took there; the CPU's beside it.

CUDA does not survive a fork, so only children look at the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parts.instances import Question
from parts.measure import run_child

import bucketflow
from bucketflow.cluster.gpus import free_gpu_bytes
from bucketflow.pipeline.results.result import Result
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.kernels import cupy
from bucketflow.tasks.sweeps import device_sweep as gpu_sweep

#: Left to the context and the kernels of each further process on a device.
CONTEXT_BYTES = 700_000_000
#: Answers that took more than this on the GPU are not computed again on one core.
COMPARED_CELLS = 1 << 31
ROUNDING = 1e-11


@dataclass(frozen=True)
class Used:
    """What an answer took on the device: how many of its steps ran there, and the most that the pools held."""

    steps: int
    peak_bytes: int


def share_bytes(jobs: int) -> int:
    """Return the device memory of each of some processes side by side."""
    outcome = run_child(free_gpu_bytes, seconds=60, memory_bytes=1 << 40)
    if outcome.end != "done":
        raise SystemExit(f"no GPU: {outcome.message}")
    return int(outcome.value - (jobs - 1) * CONTEXT_BYTES) // jobs


def send_steps(least_cells: int) -> None:
    """Run steps of so many cells on the device, in this process."""
    gpu_sweep.DevicePlaces.__init__.__defaults__ = (least_cells,)


def used() -> Used:
    """Return what this process has taken on its device so far."""
    counted = gpu.prepare.cache_info()
    steps = counted.hits + counted.misses
    if not steps:
        return Used(0, 0)
    cuda = cupy().cuda
    pool = cuda.runtime.deviceGetDefaultMemPool(cuda.Device().id)
    large = cuda.runtime.memPoolGetAttribute(pool, cuda.runtime.cudaMemPoolAttrReservedMemHigh)
    return Used(steps, large + cupy().get_default_memory_pool().total_bytes())


def difference(model: bucketflow.Model, question: Question, result: Result, options: Mapping[str, Any]) -> str:
    """Say how an answer differs from the CPU's, if the CPU can say so soon."""
    if result.plan is None or result.plan.cells > COMPARED_CELLS:
        return ""
    memory, tree = options["memory"], options["tree"]
    again = bucketflow.solve(
        model, question.query, evidence=question.evidence, memory=memory, tree=tree, order=options["order"]
    )
    if (again.status, again.value) != (result.status, result.value):
        return f"the CPU says {again.status} {again.value}"
    if again.log10 is None or result.log10 is None:
        return "" if again.log10 is result.log10 else f"the CPU says {again.log10}"
    close = abs(again.log10 - result.log10) <= ROUNDING * max(1.0, abs(again.log10))
    return "" if close else f"the CPU says {again.log10!r}, not {result.log10!r}"
