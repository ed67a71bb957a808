"""Opening the pool that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...cluster.address import ClusterError, ClusterLostError, WorkersDiedError, verify_listening
from ...cluster.dask_pool import Begin, DaskPool
from ...cluster.pool import Pool, SerialPool
from ...storage.faults import disk_full
from ...storage.files import Place
from ...tasks.sweeps.program import pick
from ..errors import BucketflowError, BudgetError, StoppedError, format_bytes, size_option
from ..machine.resources import Resources
from ..options import Options
from ..results.proof import DaskWork

if TYPE_CHECKING:
    from ...cluster.worker_facts import UnfitWorkersError


class DaskPools(AbstractContextManager[Pool]):
    """Opens the client that was asked for and closes it if it was opened here.

    Parameters
    ----------
    resources : Resources
    at_a_time : int
        With GPUs, how many tasks one device has room for.
    begins : mapping of function to callable, optional
        Functions that are cut into several tasks.
    task_bytes : int
        The memory of one task; workers of a running cluster that have less get none.
    model : str
        The name that Dask shows beside tasks.
    """

    def __init__(
        self,
        resources: Resources,
        at_a_time: int = 1,
        begins: Mapping[Callable[..., Any], Begin] | None = None,
        task_bytes: int = 0,
        model: str = "",
    ):
        options, self._begins = resources.asked, begins
        self._resources, self._task_bytes, self._model = resources, task_bytes, model
        self._at_a_time = at_a_time
        self._reporting = ExitStack()
        self._opened: AbstractContextManager[Any]
        if options.remote:
            from ...cluster.connect import client_of

            self._opened = client_of(options.client, options.scheduler)
        elif resources.gpu_count:
            from ...cluster.gpus import gpu_client

            self._opened = gpu_client(resources.gpu_count)
        else:
            from ...cluster.connect import local_client

            self._opened = local_client(options.workers or 1, told_address if options.dashboard else None)

    def __enter__(self) -> Pool:
        from ...cluster.connect import reported, verify_report

        file: Any = self._resources.asked.dask_report
        if file is not None:
            try:
                verify_report(file)
            except ClusterError as error:
                raise BucketflowError(str(error)) from None
        pool = self._entered()
        pool.about["model"] = self._model or "in memory"
        if file is not None:
            self._reporting.enter_context(reported(pool.client, file))
        return pool

    def _entered(self) -> DaskPool:
        from uuid import uuid4

        from ...cluster.worker_facts import Admission

        try:
            client, key = self._opened.__enter__(), uuid4().hex[:8]
            asked = self._resources.asked
            needed = 0 if asked.gpus else self._task_bytes
            admission = Admission(client, needed, (pick, np.zeros(1))) if asked.remote else None
            limits = asked.priority, asked.most_workers, self._begins, admission
            if not self._resources.gpu_count:
                return DaskPool(client, key, *limits)
            addresses = [worker.address for worker in self._resources.gpu_workers]
            from ...cluster.gpus import GpuPool

            return GpuPool(client, key, addresses, self._at_a_time, (pick,), *limits)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    def __exit__(self, *details: Any) -> bool | None:
        self._reporting.close()
        closed = self._opened.__exit__(*details)
        if isinstance(details[1], ClusterError):
            raise self._explained(details[1]) from None
        return closed

    def _explained(self, error: ClusterError) -> BucketflowError:
        """Return the error that says how to go on."""
        from ...cluster.worker_facts import UnfitWorkersError

        folder = self._resources.asked.folder
        again = "repeat the query" if folder is None else f"continue with: bucketflow resume {folder}"
        if isinstance(error, UnfitWorkersError):
            return BudgetError(refused_workers(error, again))
        if isinstance(error, WorkersDiedError):
            error = ClusterLostError(f"{error}: the plan allows a task {format_bytes(self._task_bytes)}")
            again += f" {'with ' if folder is None else ''}--memory {size_option(self._task_bytes // 2)}"
        elif folder is None and isinstance(error, ClusterLostError):
            again += " once there are workers"
        if folder is not None:
            return StoppedError(f"{error}; {again}")
        kept = ", with --workdir DIR to keep finished work" if isinstance(error, ClusterLostError) else ""
        return BucketflowError(f"{error}; {again}{kept}")


def refused_workers(error: UnfitWorkersError, again: str = "repeat the query") -> str:
    """Return the sentence about workers that have too little memory for a task.

    Parameters
    ----------
    again : str
        How the user repeats the query, to which an option is added.
    """
    worker = error.worker
    limit, left = format_bytes(worker.limit_bytes), int(worker.most_task_bytes)
    shared = f" of {worker.threads} threads" if worker.threads > 1 else ""
    return (
        f"a task may take {format_bytes(error.task_bytes)}, and no worker has that: {worker.address}{shared}, the "
        f"largest, has a memory limit of {limit}, {format_bytes(left)} for the tables of a task; {again} with "
        f"--memory {size_option(left)}, or start workers with a larger --memory-limit"
    )


def told_address(address: str) -> None:
    """Print where Dask's page is, at once: it goes with the workers."""
    print(f"bucketflow: Dask's dashboard is at {address} while workers run", file=sys.stderr, flush=True)


NOTHING_SENT: Final = "no task was sent to workers: Dask has nothing to report"
"""The note of an answer whose report of Dask was requested and is not written."""


def sent_work(pool: DaskPool, asked: Options) -> DaskWork:
    """Return the tasks that a pool sent."""
    workers = 0
    with suppress(ClusterLostError):
        workers = len(pool.slots())
    return DaskWork(pool.sent, workers, workers_of(asked))


def not_sent(asked: Options, why: str) -> DaskWork:
    """Return that no task was sent."""
    return DaskWork(0, 0, workers_of(asked), why)


def workers_of(asked: Options) -> str:
    """Return whose workers were asked for, in words."""
    if asked.client is not None:
        return "workers of the client's cluster"
    if asked.scheduler is not None:
        return f"workers of {asked.scheduler}"
    if asked.workers or asked.tasks == "steps":
        return f"{asked.workers or asked.gpus} processes of this machine"
    return "processes of this machine's GPUs"


def width_of(resources: Resources) -> int:
    """Return how many tasks run at the same time: one a GPU, or as many as the workers have threads."""
    if resources.gpu_count or not resources.asked.remote:
        return resources.gpu_count or resources.asked.workers or 1
    with DaskPools(resources) as pool:
        return pool.width


@contextmanager
def serial_pool(resources: Resources) -> Iterator[Pool]:
    """Yield a pool of this thread, for runs too small for a cluster. The address of a given scheduler is still checked.

    Raises
    ------
    BucketflowError
        If no scheduler is there.
    """
    asked = resources.asked
    if asked.scheduler is not None and asked.client is None:
        try:
            verify_listening(asked.scheduler)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None
    yield SerialPool()


def open_tables(pool: Pool, folder: Place, attributes: Mapping[str, Any]) -> None:
    """Make a Zarr group, and room for receipts beside it, in a folder that all workers of a pool share.

    Parameters
    ----------
    attributes : mapping
        Attributes of the group of tables.

    Raises
    ------
    BucketflowError
        If a worker does not share the folder.
    DiskFullError
        If no space is left.
    """
    from ...storage import ledger
    from ...storage.run_folder import sweep_partial_files
    from ...storage.tables import create_group, drop_damaged_tables

    create_group(folder, attributes)
    ledger.folder_of(folder).mkdir(parents=True, exist_ok=True)
    try:
        pool.share(folder.absolute())
    except ClusterLostError:
        raise
    except ClusterError as error:
        raise BucketflowError(str(error)) from None
    except OSError as error:
        raise disk_full(error, f"no space left in {folder}") from None
    sweep_partial_files(folder)
    drop_damaged_tables(folder)
