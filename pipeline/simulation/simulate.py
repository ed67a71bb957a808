"""Simulations of a plan on workers of several numbers, with checked arguments."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ...cluster.deployed import MOST_WORKERS
from ...cluster.memory import limited_task_bytes
from ..errors import BudgetError, ModelError, checks_keywords, format_bytes, size_option
from ..models.checks import integer
from ..plans.plan import Plan
from ..plans.planning_policy import PlanningPolicy
from ..plans.worker_parts import SENT_SECONDS
from ..public_names import public
from ..sizes import parse_rate, parse_size
from .simulated_cluster import SimulatedCluster
from .simulated_runs import Simulation, simulated_run
from .simulated_tasks import divided_for, simulated_tasks


@public
@checks_keywords
def simulate(
    plan: Plan,
    workers: int | Iterable[int] = (1, 8, 64),
    *,
    worker_memory: int | str | None = None,
    slots: int = 1,
    bandwidth: float | str = "1GB/s",
    storage_bandwidth: float | str | None = None,
    worker_start: float = 0.0,
    losses: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Predict the run of a plan on workers of several numbers. No task is run.

    The seconds of a task are those that the plan predicts. Slices that bounds exclude count as swept.

    Parameters
    ----------
    plan : Plan
    workers : int or iterable of int
        Numbers of workers.
    worker_memory : size, optional
        Memory limit of each worker. A plan whose tasks need more is refused.
    slots : int
        Tasks that a worker runs at a time: its threads, or its GPUs.
    bandwidth : rate
        Rate of the link of each worker.
    storage_bandwidth : rate, optional
        Rate of the storage that all workers share. By default the rate of this machine's disk.
    worker_start : float
        Seconds until a worker takes tasks, at the beginning and after a loss.
    losses : float
        Losses of each worker in an hour, at random times.
    seed : int

    Returns
    -------
    Simulation
        A run for each number of workers.

    Raises
    ------
    ModelError
        If a number is not acceptable, tables are sparse, or the run has too many tasks.
    BudgetError
        If a task needs more memory than a worker has.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.simulate(bucketflow.plan("diagnosis", "marginals"), (1, 8))
    >>> [run.workers for run in found.runs]
    [1, 8]
    """
    numbers = [workers] if isinstance(workers, int) else list(workers)
    slots, seed = integer(slots, "slots", 1), integer(seed, "seed", 0)
    for number in numbers:
        if integer(number, "workers", 1) > MOST_WORKERS:
            raise ModelError(f"workers is {number:,}; a simulation takes at most {MOST_WORKERS:,}")
    if not numbers:
        raise ModelError("workers is empty; give at least one number of workers, such as 8")
    for name, value in (("worker_start", worker_start), ("losses", losses)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise ModelError(f"{name} is {value!r}; it must be a number, 0 or more")
    memory = worker_memory_bytes(plan, worker_memory, slots)
    policy, spill = PlanningPolicy.current(), plan.spill
    storage = inf if spill is None else spill.disk_rate
    runs = []
    for number in numbers:
        tasks = simulated_tasks(divided_for(plan, number * slots, memory))
        cluster = SimulatedCluster(
            number,
            slots,
            parse_rate(bandwidth),
            storage if storage_bandwidth is None else parse_rate(storage_bandwidth),
            # a single task runs in the client, which neither starts nor is lost
            float(worker_start) if len(tasks) > 1 else 0.0,
            SENT_SECONDS,
            policy.submit_seconds,
            float(losses) if len(tasks) > 1 else 0.0,
            seed,
        )
        runs.append(simulated_run(tasks, cluster))
    return Simulation(tuple(runs))


def worker_memory_bytes(plan: Plan, limit: int | str | None, slots: int) -> int:
    """Return the bytes for a task on a worker; on GPUs, the memory of the plan.

    Raises
    ------
    BudgetError
        If the plan needs more.
    """
    if limit is None or plan.device:
        return plan.peak_bytes if limit is None else max(plan.peak_bytes, plan.kept_bytes)
    allowed = limited_task_bytes(parse_size(limit), slots)
    if plan.peak_bytes > allowed:
        raise BudgetError(
            f"a task of the plan takes {format_bytes(plan.peak_bytes)}, and a worker with a memory limit of "
            f"{format_bytes(parse_size(limit))} has {format_bytes(allowed)} for it; plan with memory "
            f"{size_option(allowed)} or less, or give more worker memory"
        )
    return allowed
