"""Reports of workers before they get tasks: their build of bucketflow, and the memory of one of their tasks.

A task of a worker with ``t`` threads may use ``min(0.6 L - P, 0.8 A t / T - P) / t`` bytes. ``L`` is the memory limit
that Dask enforces. ``A`` is the memory that is available on the worker's machine or in its control group. ``T`` is the
number of threads of all workers on that machine, and ``P`` the memory of a process without tables. Only workers of this
build that have the memory for a task are admitted to a run.
"""

from __future__ import annotations

import math
import os
import pickle
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .address import ClusterError, connected
from .memory import available_bytes, keep_freed_blocks, limited_task_bytes, shared_bytes
from .version import __version__, source_digest


@dataclass(frozen=True)
class WorkerFacts:
    """A worker of a cluster.

    Parameters
    ----------
    address : str
    host : str
        The name of its machine.
    threads : int
    limit_bytes : int
        The memory limit that Dask enforces; 0 for none.
    available_bytes : int
        What is available on its machine, within its control groups.
    """

    address: str
    host: str
    threads: int
    limit_bytes: int
    available_bytes: int

    @property
    def most_task_bytes(self) -> float:
        """The bytes that its memory limit allows the tables of one task; infinite without a limit."""
        return limited_task_bytes(self.limit_bytes, self.threads) if self.limit_bytes else math.inf


@dataclass(frozen=True)
class TaskMemory:
    """The memory of one task of a worker.

    Parameters
    ----------
    worker : WorkerFacts
    task_bytes : int
        For the model and the tables of one task.
    """

    worker: WorkerFacts
    task_bytes: int


def describe_worker(sample: bytes, dask_worker: Any) -> dict[str, Any]:
    """Return the report of this worker, in plain types that any other build can read.

    Parameters
    ----------
    sample : bytes
        A pickled task. A worker that could not load a task would leave the cluster without a word.
    """
    keep_freed_blocks()  # every worker comes here before its first task
    unreadable = ""
    try:
        pickle.loads(sample)
    except Exception as error:
        unreadable = f"{type(error).__name__}: {error}"
    return {
        "unreadable": unreadable,
        "version": __version__,
        "sources": source_digest(),
        "host": os.uname().nodename,
        "threads": int(dask_worker.state.nthreads),
        "limit_bytes": int(dask_worker.memory_manager.memory_limit or 0),
        "available_bytes": available_bytes(),
    }


def worker_facts(client: Any, addresses: Collection[str] | None = None, task: object = None) -> list[WorkerFacts]:
    """Ask workers, by default all of a cluster, and refuse a worker of another build.

    Parameters
    ----------
    task : object
        What every worker must be able to load.

    Raises
    ------
    ClusterError
        Naming a worker that has another build of bucketflow, or none, or that cannot load the task.
    ClusterLostError
        If the scheduler is gone.
    """
    workers = None if addresses is None else list(addresses)
    with connected(client):
        answers = client.run(describe_worker, pickle.dumps(task), workers=workers, on_error="return")
    return [_checked(address, answer) for address, answer in answers.items() if not _has_left(answer)]


def _has_left(answer: object) -> bool:
    """Whether a worker went away while it was asked; the pool notices that itself."""
    return isinstance(answer, OSError)


def _checked(address: str, answer: Any) -> WorkerFacts:
    ours = build_text(__version__, source_digest())
    if not isinstance(answer, Mapping):
        theirs = "no bucketflow" if _is_missing(answer) else "another version of bucketflow"
        raise ClusterError(f"worker {address} has {theirs} ({answer}), this is {ours}; install the same one there")
    if (answer["version"], answer["sources"]) != (__version__, source_digest()):
        theirs = build_text(answer["version"], answer["sources"])
        raise ClusterError(f"worker {address} has {theirs}, this is {ours}; install the same one there")
    if answer["unreadable"]:
        raise ClusterError(
            f"worker {address} cannot load a task ({answer['unreadable']}); install the packages of this process there"
        )
    return WorkerFacts(address, *[answer[name] for name in ("host", "threads", "limit_bytes", "available_bytes")])


def _is_missing(answer: object) -> bool:
    return isinstance(answer, ModuleNotFoundError) and answer.name == "bucketflow"


def build_text(version: str, sources: str) -> str:
    """Return a version and the digest of its sources in words."""
    return f"bucketflow {version} with the sources {sources}"


def task_memory(workers: Collection[WorkerFacts]) -> list[TaskMemory]:
    """Return the memory of a task of each worker, the smallest first; workers of one machine share what it has."""
    threads = Counter[str]()
    for worker in workers:
        threads[worker.host] += worker.threads
    found = []
    for worker in workers:
        share = shared_bytes(worker.available_bytes * worker.threads // threads[worker.host]) // worker.threads
        found.append(TaskMemory(worker, int(min(share, worker.most_task_bytes))))
    return sorted(found, key=lambda memory: (memory.task_bytes, memory.worker.address))


def largest_worker(workers: Collection[WorkerFacts]) -> WorkerFacts:
    """Return the worker whose memory limit allows a task the most."""
    return max(workers, key=lambda worker: worker.most_task_bytes)


class UnfitWorkersError(ClusterError):
    """No worker has the memory for a task.

    Parameters
    ----------
    worker : WorkerFacts
        The worker with the most memory.
    task_bytes : int
        What a task needs.
    """

    def __init__(self, worker: WorkerFacts, task_bytes: int):
        super().__init__(worker, task_bytes)
        self.worker, self.task_bytes = worker, task_bytes

    def __str__(self) -> str:
        worker = self.worker
        return f"no worker has {self.task_bytes} bytes for a task; {worker.address} has {worker.most_task_bytes}"


class Admission:
    """Asks every worker once, before its first task, and workers that join later when they are first seen.

    Parameters
    ----------
    client : distributed.Client
    task_bytes : int
        The memory of one task; workers with less get none.
    task : object
        A sample of the functions and values of tasks, which every worker must be able to load.
    """

    def __init__(self, client: Any, task_bytes: int = 0, task: object = None):
        self._client, self._task_bytes, self._task = client, task_bytes, task
        self._known: dict[str, WorkerFacts] = {}

    def admitted(self, addresses: Collection[str]) -> list[str]:
        """Return the workers that may have tasks.

        Raises
        ------
        ClusterError
            If a worker has another build, or cannot load a task.
        UnfitWorkersError
            If no worker has the memory.
        """
        new = [address for address in addresses if address not in self._known]
        if new:
            self._known |= {worker.address: worker for worker in worker_facts(self._client, new, self._task)}
        there = [self._known[address] for address in addresses if address in self._known]
        fit = [worker.address for worker in there if worker.most_task_bytes >= self._task_bytes]
        if there and not fit:
            raise UnfitWorkersError(largest_worker(there), self._task_bytes)
        return fit
