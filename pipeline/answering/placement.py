"""Where a plan runs: its parts, its pool, the folder of its tables, and with how much of a device's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...cluster.dask_pool import DaskPool
from ...cluster.driver import leave_slot
from ...cluster.pool import DeviceThreads, Pool, ThreadPool, begun_devices
from ...storage.files import Place, free_bytes
from ...storage.locks import scratch_folder
from ...tasks.gpu.memory import is_short
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..options import parse_size
from ..plans.plan import Plan, with_rates
from ..plans.problem import PlanningPolicy
from ..plans.worker_parts import TASK_SECONDS, for_workers, run_seconds, seconds_on_devices
from ..results.proof import DaskWork
from ..runs.pools import DaskPools, not_sent, refused_workers, sent_work, serial_pool, width_of
from ..runs.slices import SlicePolicy
from ..trees.costs import Rates
from .run_folder import check_space

if TYPE_CHECKING:
    from ...tasks.gpu.kernels import Kernel
    from ...tasks.steps.semiring import Semiring

# A file system in memory, for tables that several processes of this machine share.
_SHARED_MEMORY: Final = Path("/dev/shm")


def divided(plan: Plan, resources: Resources, rates: Rates, memory: Callable[[], int]) -> Plan:
    """Divide a plan among workers or GPUs if that pays; a run directory keeps propagations in one piece."""
    whole = plan.results and (plan.slices > 1 or resources.asked.folder is not None)
    if resources.asked.tasks == "steps":
        verify_steps(plan)
        # beliefs of slices are added up in the groups that they always have
        return for_workers(plan, 1, TASK_SECONDS, rates, 0) if plan.slices > 1 and plan.results else plan
    if plan.way == "slices" and not plan.results and (devices := devices_of(plan, resources)) > 1:
        return for_workers(plan, devices, PlanningPolicy.current().device_group_seconds, rates, 0)
    several = resources.distributed and not whole and plan.way != "disk"
    seconds = run_seconds(plan) if plan.device and plan.results else plan.seconds
    width = width_of(resources) if several and seconds >= 2 * TASK_SECONDS else 1
    # memory is measured only where several workers divide a plan
    return for_workers(plan, width, TASK_SECONDS, rates, memory() if width > 1 else 0)


def devices_of(plan: Plan | None, resources: Resources) -> int:
    """Return on how many GPUs of this machine threads run a plan: the number with the shortest predicted time.

    A GPU that this process has not used yet has to gain the time of its start.
    """
    if plan is None or not plan.device or plan.rows_stored or not resources.several_here:
        return 1
    begin, begun = PlanningPolicy.current().device_begin_seconds, begun_devices()
    return min(
        range(1, resources.gpu_count + 1),
        key=lambda devices: seconds_on_devices(plan, devices, begin if devices > begun else 0.0),
    )


def rows_on_threads(plan: Plan, resources: Resources) -> bool:
    """Whether sparse tables in memory are on several GPUs of this process, for which its threads wait."""
    here = plan.way == "memory" and not resources.asked.remote and resources.asked.tasks != "steps"
    return bool(plan.device and plan.row_bounds is not None and here and not plan.cuts and resources.gpu_count > 1)


def _threads_are_worth_it(plan: Plan, resources: Resources) -> bool:
    """Whether this plan takes long enough for several GPUs."""
    return rows_on_threads(plan, resources) and run_seconds(plan) >= 2 * TASK_SECONDS


def verify_steps(plan: Plan) -> None:
    """Refuse tasks of single steps where a plan has too many of them.

    Raises
    ------
    ModelError
        With both numbers.
    """
    count, most = plan.step_tasks, SlicePolicy.current().step_tasks
    if count > most:
        raise ModelError(
            f"tasks 'steps' do not apply: the steps of all slices or boxes are {count:,} tasks, and a scheduler "
            "receives "
            f"at most {most:,}; leave out tasks, or give more memory"
        )


def verify_kept(plan: Plan | None, resources: Resources) -> None:
    """Refuse to keep the tables of a plan that has them in pieces, elsewhere, or too many for the disk.

    Raises
    ------
    ModelError
        Naming what does not go together.
    BudgetError
        With both numbers.
    """
    least = resources.asked.kept_bytes
    if plan is None or least is None:
        return
    why = ""
    if plan.way == "slices":
        why = f"each of {plan.slices:,} slices has its own tables, which are not kept; give more memory, or fit 'spill'"
    elif plan.way == "memory" and resources.distributed:
        why = "only this process can keep tables in memory; leave out workers, or use fit 'spill'"
    elif plan.way == "memory" and plan.row_bounds is not None:
        why = "sparse tables in memory are not kept; use fit 'spill'"
    if why:
        raise ModelError(f"keep_tables: {why}")
    needed, allowed = plan.kept_tables_bytes(least), resources.disk_bytes
    if needed > allowed:
        raise BudgetError(
            f"the tables to be kept take {format_bytes(needed)} of disk, allowed {format_bytes(allowed)}; keep only "
            "larger ones, or give more --disk"
        )


def pool_for(plan: Plan | None, resources: Resources, model: str = "") -> AbstractContextManager[Pool]:
    """A pool for the plan: serial unless a cluster was asked for and there is enough for some of its tasks."""
    if plan is None:
        return serial_pool(resources)
    there = resources.gpu_count > 0
    at_a_time = 1
    if there and plan.spill is not None:
        from ..budget.device_fit import boxes_at_a_time

        at_a_time = boxes_at_a_time(plan, resources.memory_bytes)
    if _threads_are_worth_it(plan, resources):
        return nullcontext(DeviceThreads(resources.gpu_count, 1))
    if (devices := devices_of(plan, resources)) > 1:
        return nullcontext(DeviceThreads(devices, at_a_time))
    if resources.distributed and not why_here(plan, resources):
        leave_slot()
        from ..runs.step_tasks import BEGINS

        begins = BEGINS if resources.asked.tasks == "steps" else None
        return DaskPools(resources, at_a_time, begins, task_bytes_of(plan, resources), model)
    return nullcontext(ThreadPool(at_a_time)) if at_a_time > 1 else serial_pool(resources)


def task_bytes_of(plan: Plan, resources: Resources) -> int:
    """Return the bytes that a task of a plan may take; sparse tables may take the whole budget."""
    return plan.peak_bytes if plan.row_bounds is None else resources.memory_bytes


def verify_workers_memory(plan: Plan, resources: Resources, stored: bool) -> None:
    """Refuse a budget that no worker of a running cluster has.

    Parameters
    ----------
    stored : bool
        Whether the plan is that of a run directory, which needs its own memory whatever is asked now.

    Raises
    ------
    BudgetError
        Naming the largest worker and its memory limit.
    """
    asked = resources.asked
    if not asked.remote or asked.gpus is not None or why_here(plan, resources):
        return
    if asked.memory is None and not stored:
        return  # the plan was made for the smallest worker
    from ...cluster.worker_facts import UnfitWorkersError, largest_worker

    needed = task_bytes_of(plan, resources) if stored or asked.memory is None else parse_size(asked.memory)
    if resources.workers and needed > (largest := largest_worker(resources.workers)).most_task_bytes:
        again = "repeat the query" if asked.folder is None or not stored else f"bucketflow resume {asked.folder}"
        raise BudgetError(refused_workers(UnfitWorkersError(largest, needed), again))


def why_here(plan: Plan | None, resources: Resources) -> str:
    """Return why the query does not use workers; an empty text if it does.

    One whole propagation runs in one process, here or on a device of a cluster.

    Parameters
    ----------
    plan : Plan or None
        None if preprocessing gives the answer.
    resources : Resources
        Workers and devices that the query may use.
    """
    if plan is None:
        return "preprocessing gives the answer"
    if resources.asked.tasks == "steps":
        return ""
    if _threads_are_worth_it(plan, resources):
        return f"threads of this process use its {resources.gpu_count} GPUs"
    if (devices := devices_of(plan, resources)) > 1:
        return f"threads of this process use {devices} GPUs"
    seconds = run_seconds(plan)
    if resources.several_here:
        return f"one GPU takes {seconds:.2g} s, and several GPUs are not predicted to be faster"
    in_one = plan.results and plan.slices == 1 and plan.way != "disk" and plan.parts is None
    if in_one and not (plan.device and resources.asked.remote):
        return f"the propagation takes {seconds:.2g} s, and sending parts of it to workers would take longer"
    if resources.gpu_workers:  # otherwise it runs on this machine's CPU
        seconds = inf if plan.way == "disk" else with_rates(plan, Rates()).sweep_seconds
    least = 2 * TASK_SECONDS
    if resources.asked.remote and not plan.device and plan.peak_bytes > resources.host_bytes:
        return ""  # it needs the memory of a worker
    return (
        ""
        if seconds >= least
        else f"the whole sweep takes {seconds:.2g} s, and sending it to workers pays only from {least:.2g} s on"
    )


def dask_work(pool: Pool, plan: Plan | None, resources: Resources) -> DaskWork | None:
    """Return the tasks that a run sent to the requested cluster; None if no cluster was requested."""
    if not resources.distributed and not resources.several_here:
        return None
    if not isinstance(pool, DaskPool):
        return not_sent(resources.asked, why_here(plan, resources))
    return sent_work(pool, resources.asked)


@contextmanager
def temporary_folder(plan: Plan | None, resources: Resources) -> Iterator[Place | None]:
    """A folder for the tables of a plan that spills; None where they stay in this process's memory.

    Processes that share one machine's memory do so through its file system in memory.
    """
    if plan is not None and plan.rows_stored:
        with scratch_folder() as folder:
            yield folder
        return
    here = plan is not None and plan.spill is not None and plan.spill.resident and not resources.distributed
    if plan is None or plan.spill is None or here:
        yield None
        return
    shared = plan.spill.resident and _has_room(_SHARED_MEMORY, plan.spill.disk_bytes)
    with scratch_folder(_SHARED_MEMORY if shared else None) as folder:
        check_space(folder, plan, 0)
        yield folder


def _has_room(folder: Path, nbytes: int) -> bool:
    return os.access(folder, os.W_OK) and free_bytes(folder) >= nbytes


def compile_seconds_of(plan: Plan, semiring: Semiring, resources: Resources) -> float:
    """Predict the seconds until the kernels of a plan are compiled for a device: 0 if all were compiled before.

    Raises
    ------
    LongStepError
        If a step has more parts than a launch counts.
    """
    from ...tasks.gpu.kernels import compile_seconds

    return compile_seconds(plan_kernels(plan, semiring, resources))


def plan_kernels(plan: Plan, semiring: Semiring, resources: Resources) -> Iterator[Kernel]:
    """Yield the kernels of a plan on a device, some of them more than once.

    The kernels of sparse tables are missing, because they depend on rows that do not exist yet.

    Raises
    ------
    LongStepError
        If a step has more parts than a launch counts.
    """
    if plan.row_bounds is not None:
        return
    from ...tasks.sweeps import device_sweep

    if plan.results and plan.spill is None:
        from ...tasks.gpu.messages.propagation import propagation_kernels

        yield from propagation_kernels(semiring.name)
        return
    steps = plan.steps if plan.spill is None else [step for stage in plan.spill.stages for step in stage.steps]
    asleep = resources.asked.gpus is None or resources.device_sleeps
    least_cells = None if asleep else resources.least_cells(semiring)
    yield from device_sweep.kernels_of(steps, least_cells, decoded=plan.around.evaluated > 0)


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
