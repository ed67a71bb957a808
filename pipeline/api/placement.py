"""Where a prepared query runs: its pool, the folder of its tables, and with how much of a device's memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...cluster.pool import Pool
from ...cluster.threads import ThreadPool
from ...storage.scratch import scratch_folder
from ...tasks.gpu.memory import is_short
from ..budget.device_fit import boxes_at_a_time
from ..options import Options
from ..plans.plan import Plan
from ..plans.planner import with_rates
from ..runs.pools import DaskPools, serial_pool
from ..trees.costs import Rates
from .workdir import check_space, free_bytes

if TYPE_CHECKING:
    from .prepared import Prepared

# A file system in memory, for tables that several processes of this machine share.
_SHARED_MEMORY: Final = Path("/dev/shm")


def pool_for(options: Options, plan: Plan | None, task_seconds: float) -> AbstractContextManager[Pool]:
    """A pool for the plan: serial unless a cluster was asked for and there is enough for some of its tasks."""
    if plan is None:
        return serial_pool(options)
    at_a_time = boxes_at_a_time(plan, options.memory_bytes) if options.gpu_count and plan.spill else 1
    seconds = plan.seconds
    if options.gpu_workers:  # otherwise it runs on this machine's CPU
        seconds = inf if plan.spill else with_rates(plan, Rates()).seconds
    if options.distributed and (plan.slices > 1 or seconds >= 2 * task_seconds):
        return DaskPools(options, at_a_time)
    return nullcontext(ThreadPool(at_a_time)) if at_a_time > 1 else serial_pool(options)


@contextmanager
def temporary_folder(plan: Plan | None, options: Options) -> Iterator[Path | None]:
    """A folder for the tables of a plan that spills; None where they stay in this process's memory.

    Processes that share one machine's memory do so through its file system in memory.
    """
    if plan is None or plan.spill is None or (plan.spill.resident and options.gpu_count == 1):
        yield None
        return
    shared = plan.spill.resident and _has_room(_SHARED_MEMORY, plan.spill.disk_bytes)
    with scratch_folder(_SHARED_MEMORY if shared else None) as folder:
        check_space(folder, plan, 0)
        yield folder


def _has_room(folder: Path, nbytes: int) -> bool:
    return os.access(folder, os.W_OK) and free_bytes(folder) >= nbytes


def with_less_device_memory(options: Options, prepared: Prepared, error: MemoryError) -> Options:
    """Return options with half the device memory that a plan took when a device ran out of it.

    Raises
    ------
    MemoryError
        The error itself, if it was not a device's.
    """
    if not options.gpu_count or prepared.plan is None or not is_short(error):
        raise error
    return replace(options, gpu_memory=min(prepared.memory_bytes, prepared.plan.peak_bytes) // 2)
