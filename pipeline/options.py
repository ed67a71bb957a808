"""What a caller may ask of planning and running, read once at the edge."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from ..cluster.budget import default_memory_bytes
from ..cluster.connect import ClusterError, remote_client
from ..cluster.gpu import count_gpus, free_gpu_bytes
from ..cluster.gpu_workers import GpuWorker, gpu_workers
from ..tasks.gpu import arrays
from ..tasks.steps.semiring import Semiring
from .budget.fit import Fit
from .errors import BucketflowError, ModelError
from .plans.plan import TreeKind
from .rates.device import DeviceRates, known_device_rates


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to plan and where to run; see :func:`solve`."""

    memory: int | str | None = None
    order: str | Sequence[str] = "auto"
    order_time: float | None = None
    tree: TreeKind = "refined"
    seed: int = 0
    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    client: Any = None
    fit: Fit = "auto"
    disk: int | str | None = None
    workdir: str | PathLike[str] | None = None
    gpus: int | str | None = None
    gpu_memory: int | str | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("tree", self.tree, TreeKind), ("fit", self.fit, Fit)):
            if value not in get_args(known):
                raise ModelError(f"unknown {name} {value!r}; one of {', '.join(get_args(known))}")
        if self.order_time is not None and not 0 <= self.order_time < math.inf:
            raise ModelError(f"order_time is {self.order_time}; it must be a number of seconds, 0 or more")
        for name in ("memory", "disk", "gpu_memory"):
            if (size := getattr(self, name)) is not None:
                parse_size(size)

    @property
    def memory_bytes(self) -> int:
        """The budget for the tables of a task in bytes: with GPUs, of what is free on a device."""
        if self.gpu_count:
            asked = [parse_size(size) for size in (self.memory, self.gpu_memory) if size is not None]
            return min([*asked[-1:], self._free_device_bytes])
        return self.host_bytes

    @property
    def _free_device_bytes(self) -> int:
        """What the device with the least free memory has free."""
        if self.remote:
            return min(worker.free_bytes for worker in self.gpu_workers)
        arrays.free_pools()
        return free_gpu_bytes()

    @property
    def host_bytes(self) -> int:
        """The budget for this machine's memory in bytes."""
        return default_memory_bytes() if self.memory is None else parse_size(self.memory)

    @cached_property
    def gpu_count(self) -> int:
        """GPUs to use; 0 for none.

        Raises
        ------
        BucketflowError
            If they, or CuPy, are missing.
        """
        if self.gpus is None:
            return 0
        if self.remote:
            return len(self.gpu_workers)
        try:
            return count_gpus(self.gpus)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    @property
    def gpu_workers(self) -> tuple[GpuWorker, ...]:
        """The GPU workers of a running cluster that are to be used, with what memory they have free.

        Raises
        ------
        BucketflowError
            If there are fewer than asked for.
        """
        return self._gpu_cluster[0]

    @property
    def gpu_rates(self) -> dict[Semiring, tuple[DeviceRates, int]]:
        """What the first of them was measured to do, and from how many cells on it beats the CPU beside it."""
        return self._gpu_cluster[1]

    @cached_property
    def _gpu_cluster(self) -> tuple[tuple[GpuWorker, ...], dict[Semiring, tuple[DeviceRates, int]]]:
        if self.gpus is None or not self.remote:
            return (), {}
        opened = remote_client(self.scheduler) if self.scheduler and self.client is None else nullcontext(self.client)
        try:
            with opened as client:
                workers = gpu_workers(client, self.gpus)
                (rates,) = client.run(known_device_rates, workers=[workers[0].address]).values()
                return workers, rates
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    @property
    def remote(self) -> bool:
        """Whether the workers are those of a running cluster."""
        return self.client is not None or self.scheduler is not None

    @property
    def disk_bytes(self) -> int | None:
        """The budget for tables on disk in bytes, if one is given."""
        return None if self.disk is None else parse_size(self.disk)

    @property
    def folder(self) -> Path | None:
        """The run directory, if one is given."""
        return None if self.workdir is None else Path(self.workdir)

    @property
    def thread_count(self) -> int:
        """Threads of a large step in this process."""
        return self.threads or len(os.sched_getaffinity(0))

    @cached_property
    def width(self) -> int:
        """Tasks that run at the same time: one a GPU, or as many as the workers have threads."""
        if self.gpu_count:
            return self.gpu_count
        if not self.remote:
            return self.workers or 1
        opened = remote_client(self.scheduler) if self.scheduler and self.client is None else nullcontext(self.client)
        try:
            with opened as client:
                return max(1, sum(int(threads) for threads in client.nthreads().values()))
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    @property
    def distributed(self) -> bool:
        """Whether a Dask cluster was asked for."""
        return self.remote or bool(self.workers) or self.gpu_count > 1


def parse_size(size: int | str) -> int:
    """Read a size in bytes, as a number or as ``"4GB"`` or ``"512MiB"``.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = size if isinstance(size, int) else _parsed(size)
    except (ValueError, OverflowError, TypeError, AttributeError):
        found = -1
    if found < 0:
        raise ModelError(f"{size!r} is not a size; write for example 4GB or 512MiB")
    return found


def _parsed(size: str) -> int:
    from dask.utils import parse_bytes

    return int(parse_bytes(size))
