"""GPU workers of a running Dask cluster: their devices, their free memory, and a pool that uses only these workers.

A worker has a GPU if it was started with the resource ``GPU``. If no worker has this resource, the pool uses the
workers that see a device. CPU workers of the same cluster hold values and forward them, but never use a device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from .cards import VISIBLE, take_most_free
from .connect import ClusterError, started
from .dask_pool import Begin, DaskPool, itself
from .starting import NO_DASHBOARD
from .version import install_hint
from .worker_facts import Admission

# GPUs of this machine: their number, their free memory, and a local cluster with one process per GPU.

# Left to the context of CUDA, the libraries and the pool's rounding.
SHARE = 0.9
# Boxes of tables that leave the device overlap; everything else takes the whole device, one task at a time.
_THREADS = 3
# Processes of this machine, which no other one needs to reach.
_HOST = "127.0.0.1"


def visible_gpus() -> list[str]:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` for each GPU that this process may use.

    Where CUDA was not used before in this process, the one with most free memory is first.

    Raises
    ------
    ClusterError
        If CuPy or a GPU is missing; the message says which.
    """
    cupy = _cupy()
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ClusterError(f"--gpus needs an NVIDIA GPU with its driver: {error}") from None
    if count == 0:
        raise ClusterError("--gpus needs an NVIDIA GPU, and this process finds none")
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


def _cupy() -> Any:
    if "cupy" not in sys.modules and find_spec("cupy") is not None:
        take_most_free()
    try:
        import cupy
    except ImportError:
        raise ClusterError(f"--gpus needs CuPy: {install_hint('cuda13')} (cuda12 for CUDA 12)") from None
    return cupy


def is_asleep() -> bool:
    """Whether CuPy and a device seem to be there and were not used in this process so far; nothing is loaded for it."""
    return "cupy" not in sys.modules and find_spec("cupy") is not None and any(Path("/dev").glob("nvidia[0-9]*"))


def count_gpus(asked: int | str) -> int:
    """Return how many GPUs ``--gpus all|N`` means.

    Raises
    ------
    ClusterError
        If there are fewer, or the text is neither a number nor ``all``.
    """
    there = len(visible_gpus())
    if asked == "all":
        return there
    try:
        count = int(asked)
    except ValueError:
        raise ClusterError(f"--gpus {asked}: write all or a number") from None
    if not 1 <= count <= there:
        raise ClusterError(f"--gpus {count}: this machine has {there}")
    return count


def free_gpu_bytes() -> int:
    """Return most of the memory that is free on the current GPU."""
    free, _ = _cupy().cuda.runtime.memGetInfo()
    return int(free * SHARE)


@contextmanager
def gpu_client(count: int) -> Iterator[Any]:
    """Start one worker process for each of ``count`` GPUs and yield their client; stop them on the way out."""
    from distributed import Client, Nanny, SpecCluster
    from distributed.scheduler import Scheduler

    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "host": _HOST,
                "nthreads": _THREADS,
                "resources": {"GPU": 1},
                "memory_limit": 0,
                "silence_logs": 50,
                "env": {VISIBLE: name},
                "name": f"gpu-{number}",
            },
        }
        for number, name in enumerate(visible_gpus()[:count])
    }
    scheduler = {"cls": Scheduler, "options": {**NO_DASHBOARD, "host": _HOST, "port": 0}}
    cluster = partial(SpecCluster, workers=workers, scheduler=scheduler, silence_logs=50)
    with started(cluster, f"{count} processes for GPUs") as opened, Client(opened) as client:
        client.wait_for_workers(count)
        yield client


RESOURCE: Final = "GPU"
# Shares of a device are multiples of a power of two: sums of thirds would not come back to one.
_UNITS: Final = 1024


@dataclass(frozen=True)
class GpuWorker:
    """A worker with a device.

    Parameters
    ----------
    address : str
    free_bytes : int
        Most of the device's free memory, shared fairly among the workers on the same device.
    """

    address: str
    free_bytes: int


def device_of_worker() -> tuple[str, int] | None:
    """Return the identity and the free bytes of the device that this process sees, or None."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
        if runtime.getDeviceCount() < 1:
            return None
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.MemoryAsyncPool().free_all_blocks()
        free, _ = runtime.memGetInfo()
        return str(cupy.cuda.Device().pci_bus_id), int(free)
    except Exception:
        # Missing CuPy, driver and device all show up as errors of their own kinds; each means: no device.
        return None


def gpu_workers(client: Any, asked: int | str) -> tuple[GpuWorker, ...]:
    """Find the workers that ``--gpus all|N`` means; those without the resource ``GPU`` get it.

    Raises
    ------
    ClusterError
        If there are fewer, or a worker has the resource but no usable device.
    """
    known: dict[str, tuple[str, float]] = client.run_on_scheduler(_hosts_and_resources)
    declared = [address for address, (_, resource) in known.items() if resource > 0]
    devices = client.run(device_of_worker, workers=declared or None)
    found = {address: device for address, device in devices.items() if device is not None}
    broken = [address for address in declared if address not in found]
    if broken:
        raise ClusterError(f"worker {broken[0]} has the resource {RESOURCE} but neither CuPy nor a device")
    workers = _shared(found, {address: known[address][0] for address in found})
    if asked != "all":
        if not str(asked).isdigit() or not 1 <= int(asked) <= len(workers):
            raise ClusterError(f"--gpus {asked}: the cluster has {len(workers)} GPU workers")
        workers = workers[: int(asked)]
    if not workers:
        raise ClusterError("--gpus needs workers with a GPU; the cluster has none")
    if not declared:
        # all of them: who asks for more the next time would find that those without the resource are not meant
        client.run(_claim, workers=list(found))
    return tuple(workers)


def _shared(found: dict[str, tuple[str, int]], hosts: dict[str, str]) -> list[GpuWorker]:
    """Divide each device among the workers that see it; those with the most memory first."""
    users: dict[tuple[str, str], int] = {}
    for address, (bus, _) in found.items():
        users[hosts[address], bus] = users.get((hosts[address], bus), 0) + 1
    workers = [
        GpuWorker(address, int(free * SHARE) // users[hosts[address], bus]) for address, (bus, free) in found.items()
    ]
    return sorted(workers, key=lambda worker: (-worker.free_bytes, worker.address))


def _hosts_and_resources(dask_scheduler: Any) -> dict[str, tuple[str, float]]:
    return {w.address: (w.host, float(w.resources.get(RESOURCE, 0))) for w in dask_scheduler.workers.values()}


async def _claim(dask_worker: Any) -> None:
    await dask_worker.set_resources(**{RESOURCE: 1})


class GpuPool(DaskPool):
    """Runs tasks on GPU workers.

    Parameters
    ----------
    workers : collection of str
        Addresses; empty for all with the resource.
    at_a_time : int
        Tasks that one device has room for.
    light : collection of functions
        Tasks that use no device and may run anywhere.
    priority, most_workers, begins, admission
        As of any pool.
    """

    def __init__(
        self,
        client: Any,
        key: str,
        workers: Sequence[str] = (),
        at_a_time: int = 1,
        light: Collection[Callable[..., Any]] = (),
        priority: int = 0,
        most_workers: int | None = None,
        begins: Mapping[Callable[..., Any], Begin] | None = None,
        admission: Admission | None = None,
    ):
        super().__init__(client, key, priority, most_workers, begins, admission)
        self._workers = self._allowed = list(workers)
        self._at_a_time = at_a_time
        self._light = {*light, itself}
        self._mixed = True

    def slots(self) -> dict[str, int]:
        """Return how many tasks each worker's device has room for, by address."""
        return {address: min(threads, self._at_a_time) for address, threads in super().slots().items()}

    def _ahead(self, count: int) -> int:
        """Return how many calls a slot is given at a time: one where tables of each are made by tasks of their own."""
        return 1 if self._begins else super()._ahead(count)

    def _chosen(self, addresses: Collection[str]) -> list[str]:
        """Return the workers with a device, or as many of them as are allowed."""
        chosen = super()._chosen([address for address in self._workers or addresses if address in addresses])
        self._mixed = len(chosen) < len(addresses)
        if self._most_workers is not None:
            self._allowed = chosen
        return chosen

    def where(self, function: Callable[..., Any], worker: str | None) -> dict[str, Any]:
        """Restrict a task to workers whose device has room for it, unless it uses none.

        Dask may move a task that is allowed to leave its worker to any idle worker, without checking its resources. A
        worker without the resource then fails. Therefore, if there are other workers, no task is bound to one of
        several devices.
        """
        if function in self._light:
            return super().where(function, worker)
        loose = worker is not None and not self._mixed
        return {
            "resources": {RESOURCE: (_UNITS // self._at_a_time) / _UNITS},
            "workers": [worker] if loose else self._allowed or None,
            "allow_other_workers": loose,
        }
