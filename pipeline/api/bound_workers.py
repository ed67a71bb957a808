"""Workers for the messages of mini-buckets, started for the first round that is large enough."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ..errors import ModelError
from ..machine.resources import Resources
from ..minibuckets.partition import Partition
from ..minibuckets.worker_messages import WorkerPool, task_bytes, task_count
from ..plans.worker_parts import SENT_SECONDS, TASK_SECONDS
from ..results.proof import DaskWork
from ..runs.pools import NOTHING_SENT, DaskPools, not_sent, sent_work
from ..runs.run_policy import SlicePolicy
from ..trees.costs import Rates


class BoundWorkers(ExitStack):
    """The pool of a query for bounds, if workers were requested.

    Parameters
    ----------
    resources : Resources
    model : str
        The name that Dask shows beside tasks.

    Raises
    ------
    ModelError
        If GPUs were requested too.
    """

    def __init__(self, resources: Resources, model: str) -> None:
        super().__init__()
        if resources.distributed and resources.asked.gpus is not None:
            raise ModelError("the workers of a cluster compute messages on CPUs; leave out gpus, or use this machine")
        self._resources, self._model = resources, model
        self._pool: Any = None
        self._seconds: float | None = None

    def pool_of(self, split: Partition) -> WorkerPool | None:
        """Return the pool for an elimination; None if sending the messages would take longer.

        Raises
        ------
        ModelError
            If a task for each message was requested, and there are too many of them.
        """
        if not self._resources.distributed:
            return None
        by_steps, most = self._resources.asked.tasks == "steps", SlicePolicy.current().step_tasks
        count, seconds = task_count(split), split.cells / Rates().cells_per_second
        self._seconds = max(self._seconds or 0.0, seconds)
        if by_steps and count > most:
            raise ModelError(
                f"tasks 'steps' do not apply: the messages are {count:,} tasks, and a scheduler receives at most "
                f"{most:,}; leave out tasks, or give a larger z"
            )
        if not by_steps and (seconds < max(2 * TASK_SECONDS, count * SENT_SECONDS) or count > most):
            return None
        if self._pool is None:
            pools = DaskPools(self._resources, task_bytes=task_bytes(split), model=self._model)
            self._pool = self.enter_context(pools)
        pool: WorkerPool = self._pool
        return pool

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about a report that has no tasks."""
        return () if self._pool or self._resources.asked.dask_report is None else (NOTHING_SENT,)

    @property
    def work(self) -> DaskWork | None:
        """The tasks sent so far; None if no workers were requested."""
        asked = self._resources.asked
        if not self._resources.distributed:
            return None
        if self._pool is None:
            why = "preprocessing gives the answer" if asked.folder is None else "messages on disk are computed here"
            if self._seconds is not None:
                why = f"the longest elimination takes {self._seconds:.2g} s, and sending its messages takes longer"
            return not_sent(asked, why)
        return sent_work(self._pool, asked)
