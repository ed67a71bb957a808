"""Where a plan runs: its parts, its pool, the folder of its tables, and with how much of a device's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...cluster.driver import leave_slot
from ...cluster.pool import Pool, ThreadPool
from ...storage.files import free_bytes
from ...storage.scratch import scratch_folder
from ...tasks.boxes.box_policy import BoxPolicy
from ...tasks.gpu.memory import is_short
from ..machine.resources import Resources
from ..plans.plan import Plan
from ..plans.repricing import with_rates
from ..plans.worker_parts import TASK_SECONDS, for_workers, run_seconds
from ..runs.pools import DaskPools, serial_pool, width_of
from ..trees.costs import Rates
from .run_folder import check_space

# A file system in memory, for tables that several processes of this machine share.
_SHARED_MEMORY: Final = Path("/dev/shm")


def divided(plan: Plan, resources: Resources, rates: Rates, memory: Callable[[], int]) -> Plan:
    """Divide a plan that is worth several workers among those there are; a run directory keeps whole propagations."""
    whole = plan.results and (plan.slices > 1 or plan.device or resources.asked.folder is not None)
    several = resources.distributed and not whole and plan.way != "disk"
    width = width_of(resources) if several and plan.seconds >= 2 * TASK_SECONDS else 1
    # memory is measured only where several workers divide a plan
    return for_workers(plan, width, TASK_SECONDS, rates, memory() if width > 1 else 0)


def pool_for(plan: Plan | None, resources: Resources) -> AbstractContextManager[Pool]:
    """A pool for the plan: serial unless a cluster was asked for and there is enough for some of its tasks."""
    if plan is None:
        return serial_pool(resources)
    there = resources.gpu_count > 0
    at_a_time = BoxPolicy.current().device_boxes if there and plan.rows_stored else 1
    if there and plan.spill is not None:
        from ..budget.device_fit import boxes_at_a_time

        at_a_time = boxes_at_a_time(plan, resources.memory_bytes)
    if resources.distributed and _pays(plan, resources):
        leave_slot()
        return DaskPools(resources, at_a_time)
    return nullcontext(ThreadPool(at_a_time)) if at_a_time > 1 else serial_pool(resources)


def _pays(plan: Plan, resources: Resources) -> bool:
    """Whether workers are worth it; a propagation in one piece is for one place, here or a device of a cluster."""
    in_one = plan.results and plan.slices == 1 and plan.way != "disk" and plan.parts is None
    if in_one and not (plan.device and resources.asked.remote):
        return False
    if resources.gpu_workers:  # otherwise it runs on this machine's CPU
        return plan.way == "disk" or with_rates(plan, Rates()).sweep_seconds >= 2 * TASK_SECONDS
    return run_seconds(plan) >= 2 * TASK_SECONDS


@contextmanager
def temporary_folder(plan: Plan | None, resources: Resources) -> Iterator[Path | None]:
    """A folder for the tables of a plan that spills; None where they stay in this process's memory.

    Processes that share one machine's memory do so through its file system in memory.
    """
    if plan is not None and plan.rows_stored:
        with scratch_folder() as folder:
            yield folder
        return
    if plan is None or plan.spill is None or (plan.spill.resident and resources.gpu_count == 1):
        yield None
        return
    shared = plan.spill.resident and _has_room(_SHARED_MEMORY, plan.spill.disk_bytes)
    with scratch_folder(_SHARED_MEMORY if shared else None) as folder:
        check_space(folder, plan, 0)
        yield folder


def _has_room(folder: Path, nbytes: int) -> bool:
    return os.access(folder, os.W_OK) and free_bytes(folder) >= nbytes


def with_less_device_memory(plan: Plan | None, resources: Resources, error: MemoryError) -> Resources:
    """Return resources with half the device memory that a plan took when a device ran out of it.

    Raises
    ------
    MemoryError
        The error itself, if it was not a device's.
    """
    if plan is None or not plan.device or not is_short(error):
        raise error
    return Resources(replace(resources.asked, gpu_memory=min(resources.memory_bytes, plan.peak_bytes) // 2))
