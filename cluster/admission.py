"""Choosing the workers for the tasks of a run: workers of this build that have the memory for a task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .address import ClusterError
from .worker_facts import WorkerFacts, largest_worker, worker_facts


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
