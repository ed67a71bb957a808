"""GPUs of this machine: how many there are, what memory they have free, and a local cluster with one process each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .connections.connect import NO_DASHBOARD, ClusterError, children_ignore_interrupts, without_web_server

# Left to the context of CUDA, the libraries and the pool's rounding.
SHARE = 0.9
# Boxes of tables that leave the device overlap; everything else takes the whole device, one task at a time.
_THREADS = 3


def visible_gpus() -> list[str]:
    """Return what ``CUDA_VISIBLE_DEVICES`` should hold for each GPU that this process may use.

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
        raise ClusterError("--gpus needs an NVIDIA GPU, and this process sees none")
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise ClusterError("--gpus needs CuPy: pip install 'bucketflow[cuda13]' (or cuda12)") from None
    return cupy


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
                "nthreads": _THREADS,
                "resources": {"GPU": 1},
                "memory_limit": 0,
                "silence_logs": 50,
                "env": {"CUDA_VISIBLE_DEVICES": name},
                "name": f"gpu-{number}",
            },
        }
        for number, name in enumerate(visible_gpus()[:count])
    }
    scheduler = {"cls": Scheduler, "options": {**NO_DASHBOARD, "port": 0}}
    with ExitStack() as opened:
        with children_ignore_interrupts():
            cluster = opened.enter_context(SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50))
        without_web_server(cluster)
        client = opened.enter_context(Client(cluster))
        client.wait_for_workers(count)
        yield client
