"""The resources for a caller's options: memory, cores, devices, workers; each measured once, on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...cluster.memory import default_memory_bytes
from ...storage.files import free_bytes
from ...tasks.steps.light_dataclass import dataclass
from ..errors import BucketflowError
from ..options import Options, parse_size

if TYPE_CHECKING:
    from ...cluster.gpus import GpuWorker
    from ...cluster.worker_facts import TaskMemory, WorkerFacts
    from ...tasks.steps.semiring import Semiring
    from .device import DeviceRates


@contextmanager
def connected(given: Any, address: str | None, *, with_workers: bool = True) -> Iterator[Any]:
    """Yield the caller's client, or a client of a scheduler; failures end as one sentence."""
    from ...cluster.connect import ClusterError, client_of

    try:
        with client_of(given, address, with_workers=with_workers) as client:
            yield client
    except ClusterError as error:
        raise BucketflowError(str(error)) from None


@dataclass(frozen=True)
class Resources:
    """Where a question can run, and within what.

    Parameters
    ----------
    asked : Options
    """

    asked: Options

    def without_devices(self) -> Resources:
        """The same without GPUs."""
        return self if self.asked.gpus is None else Resources(self.asked.without_gpus())

    def in_this_process(self) -> Resources:
        """The same without workers, and without devices that are not this process's own."""
        if not self.distributed:
            return self
        alone = replace(
            self.asked, workers=None, scheduler=None, client=None, tasks="auto", dashboard=False, dask_report=None
        )
        return Resources(alone.without_gpus())

    @cached_property
    def threads(self) -> int:
        """Threads of a large step in this process: all usable cores by default."""
        return self.asked.threads or len(os.sched_getaffinity(0))

    @cached_property
    def memory_bytes(self) -> int:
        """Memory budget in bytes for the tables of a task; with GPUs, from the free memory of a device."""
        if self.gpu_count:
            asked = [parse_size(size) for size in (self.asked.memory, self.asked.gpu_memory) if size is not None]
            return min([*asked[-1:], self._free_device_bytes])
        return self.task_bytes

    @property
    def task_bytes(self) -> int:
        """The budget for the host's memory of a task in bytes: of a running cluster, that of its smallest worker."""
        if self.asked.memory is not None or not self.asked.remote:
            return self.host_bytes
        smallest = self.smallest_worker
        return self.host_bytes if smallest is None else smallest.task_bytes

    @property
    def smallest_worker(self) -> TaskMemory | None:
        """The worker of a running cluster that has the least memory for a task; None if all workers have left."""
        from ...cluster.worker_facts import task_memory

        return next(iter(task_memory(self.workers)), None)

    @cached_property
    def workers(self) -> tuple[WorkerFacts, ...]:
        """The workers of a running cluster, as they report themselves."""
        from ...cluster.worker_facts import worker_facts

        with connected(self.asked.client, self.asked.scheduler) as client:
            return tuple(worker_facts(client))

    @property
    def device_budget(self) -> Callable[[], int] | None:
        """Return the function that measures the budget for tables on a device, which starts the device; None without
        GPUs.

        Raises
        ------
        BucketflowError
            If GPUs are missing, unless that cannot be known before a device is started.
        """
        return (lambda: self.memory_bytes) if self.device_sleeps or self.gpu_count else None

    @cached_property
    def device_sleeps(self) -> bool:
        """Whether this machine's device has to be started first, which takes longer than small questions."""
        if self.asked.gpus is None or self.asked.remote:
            return False
        from ...cluster.gpus import is_asleep

        return is_asleep()

    @property
    def _free_device_bytes(self) -> int:
        """Return the free memory of the device with the least free memory."""
        from ...cluster.gpus import free_gpu_bytes
        from ...tasks.gpu import arrays, kernels

        if self.asked.remote:
            return min(worker.free_bytes for worker in self.gpu_workers)
        arrays.free_pools()
        kernels.load_compiler()  # while a tree is searched for
        return free_gpu_bytes()

    @cached_property
    def host_bytes(self) -> int:
        """The budget for this machine's memory in bytes."""
        return default_memory_bytes() if self.asked.memory is None else parse_size(self.asked.memory)

    @property
    def disk_bytes(self) -> int:
        """Disk budget in bytes for tables; by default the free bytes at their place."""
        from tempfile import gettempdir

        asked = self.asked.disk_bytes
        return free_bytes(self.asked.folder or Path(gettempdir())) if asked is None else asked

    @cached_property
    def gpu_count(self) -> int:
        """GPUs to use; 0 for none.

        Raises
        ------
        BucketflowError
            If they, or CuPy, are missing.
        """
        if self.asked.gpus is None:
            return 0
        if self.asked.remote:
            return len(self.gpu_workers)
        from ...cluster.address import ClusterError
        from ...cluster.gpus import count_gpus

        try:
            return count_gpus(self.asked.gpus)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    @property
    def gpu_workers(self) -> tuple[GpuWorker, ...]:
        """The GPU workers of a running cluster to use, with their free memory.

        Raises
        ------
        BucketflowError
            If there are fewer than asked for.
        """
        return self._gpu_cluster[0]

    @cached_property
    def _gpu_cluster(self) -> tuple[tuple[GpuWorker, ...], dict[Semiring, tuple[DeviceRates, int]]]:
        """GPU workers, the measured rates of the first one, and the cells from which it beats the CPU beside it."""
        if self.asked.gpus is None or not self.asked.remote:
            return (), {}
        from ...cluster.gpus import gpu_workers
        from .device import known_device_rates

        with connected(self.asked.client, self.asked.scheduler) as client:
            workers = gpu_workers(client, self.asked.gpus)
            (rates,) = client.run(known_device_rates, workers=[workers[0].address]).values()
            return workers, rates

    def device_rates(self, semiring: Semiring) -> DeviceRates:
        """Return the rates of the devices: measured on the devices, or nominal."""
        from .device import cached_device_rates, nominal_device_rates

        if self.asked.remote:
            known = self._gpu_cluster[1].get(semiring)
            return known[0] if known else nominal_device_rates(semiring)
        return cached_device_rates(semiring) or nominal_device_rates(semiring)

    def least_cells(self, semiring: Semiring) -> int | None:
        """Return from how many cells on a step runs on the device, or None where that was not measured."""
        from .device import cached_device_rates, least_device_cells

        if self.asked.remote:
            return self._gpu_cluster[1].get(semiring, (None, None))[1]
        device = cached_device_rates(semiring)
        return None if device is None else least_device_cells(semiring, device)

    @property
    def distributed(self) -> bool:
        """Whether the tasks of a question may go to a Dask cluster.

        Threads of this process use the GPUs of this machine, unless each step is to be a task.
        """
        by_steps = self.asked.tasks == "steps" and self.asked.gpus is not None
        return bool(self.asked.remote or self.asked.workers or by_steps)

    @property
    def several_here(self) -> bool:
        """Whether several GPUs of this machine may be used, by threads of this process."""
        return not self.distributed and self.asked.gpus not in (None, 1) and self.gpu_count > 1
