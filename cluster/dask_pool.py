"""A pool of Dask workers: every task goes to the worker with the fewest under way.

Workers count the cells that tasks have swept so far, and report them through the scheduler's event log.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from .address import (
    ANSWER_SECONDS,
    GLANCE_SECONDS,
    GONE_SECONDS,
    LOOK_SECONDS,
    ClusterLostError,
    WorkersDiedError,
    connected,
    disconnected,
)
from .logs import log_on_workers
from .pool import Call, LabelOf, Node, ReadyTasks, TaskLabel, in_a_row

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .worker_facts import Admission

# One topic for all runs: the scheduler keeps a bounded number of events of each topic.
_TOPIC: Final = "bucketflow-cells"

_lock = threading.Lock()
_here = threading.local()

# On workers: the task's run and its cells so far, by thread; and of each run the cells, and when they were reported.
_swept: dict[str, tuple[int, float]] = {}


def counting_cells(run: str, cells: int, function: Callable[..., Any], *args: Any) -> Any:
    """Task: call a function and count its cells: some by :func:`count_cells` before its end, the others at its end."""
    _here.run, _here.cells = run, 0
    try:
        found = function(*args)
        count_cells(cells - _here.cells)
    finally:
        _here.run = None
    return found


def count_cells(cells: int) -> None:
    """Count cells that the task of this thread has swept."""
    run = getattr(_here, "run", None)
    if run is None or cells <= 0:
        return
    _here.cells += cells
    now = time.monotonic()
    with _lock:
        total, reported = _swept.pop(run, (0, 0.0))
        total += cells
        due = now - reported >= 2 * LOOK_SECONDS
        _swept[run] = total, now if due else reported
        while len(_swept) > 64:
            del _swept[next(iter(_swept))]
    if due:
        from distributed import get_worker

        worker = get_worker()
        worker.log_event(_TOPIC, {"run": run, "worker": worker.address, "cells": total})


# In the process that drives runs: the cells of each worker by its address, for each run; and who receives events.
_runs: dict[str, dict[str, int]] = {}
_subscribed: WeakSet[Any] = WeakSet()


@contextmanager
def received_cells(client: Any, run: str) -> Iterator[Callable[[], int]]:
    """Receive the reports of a run; yield a function that returns the cells of all workers so far."""
    cells = _runs[run] = {}
    if client not in _subscribed:
        _subscribed.add(client)
        client.subscribe_topic(_TOPIC, _take)
    try:
        yield lambda: sum([*cells.values()])
    finally:
        del _runs[run]


def _take(event: tuple[float, dict[str, Any]]) -> None:
    """Enter a report; reports of runs of other processes are ignored."""
    _, told = event
    if (cells := _runs.get(told["run"])) is not None:
        cells[told["worker"]] = max(told["cells"], cells.get(told["worker"], 0))


T = TypeVar("T")

Begin = Callable[..., Any]
"""Submits a call as several tasks: takes the pool, a worker, the call's label and the arguments.

It returns the future of the last task.
"""

# Waiting for tasks of a cluster that may go away while they run.

# Workers come back: a nanny starts the next one, a batch system grants more. After this long no worker is expected.
PATIENCE_SECONDS = 6 * ANSWER_SECONDS


class Watch:
    """Waits for futures and notices when no worker is left to finish them.

    Parameters
    ----------
    slots : callable
        Returns the workers there are now.
    """

    def __init__(self, slots: Callable[[], dict[str, int]]):
        self._slots = slots
        self._deserted: float | None = None
        # Called whenever the run checks its tasks.
        self.glance: Callable[[], None] = lambda: None

    def ended(self, future: Any) -> Any:
        """Wait until a task has ended, and return its future.

        Raises
        ------
        ClusterLostError
            If its scheduler or all workers are gone.
        """
        arrived: SimpleQueue[Any] = SimpleQueue()
        future.add_done_callback(arrived.put)
        return self.next_of(arrived)

    def next_of(self, arrived: SimpleQueue[Any]) -> Any:
        """Return the next of the futures that a queue receives when they end; see :meth:`ended`."""
        while True:
            try:
                return arrived.get(timeout=GLANCE_SECONDS)
            except Empty:
                self.look()
                self.glance()

    def outcome(self, future: Any) -> Any:
        """Return the result of a task that has ended, or the exception that it raised; see :meth:`ended`."""
        from distributed.scheduler import KilledWorker

        if future.status == "cancelled":
            raise disconnected()
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise WorkersDiedError("several workers died of the same task, probably short of memory")
            return error
        return self._fetched(future)

    def _fetched(self, future: Any) -> Any:
        """Fetch a result; if its worker is gone by now it is computed again."""
        from concurrent.futures import wait

        try:
            arriving = fetching(future)
            while not wait([arriving], timeout=GLANCE_SECONDS).done:
                self.look()  # a large result takes its time
            return arriving.result()
        except ClusterLostError:
            raise
        except Exception as error:
            if future.status in ("error", "cancelled"):
                return self.outcome(future)
            raise disconnected() from error

    def look(self) -> None:
        """Raise if there have been no workers for a while."""
        if self._slots():
            self._deserted = None
            return
        now = time.monotonic()
        if self._deserted is None:
            self._deserted = now
        if now - self._deserted >= PATIENCE_SECONDS:
            raise ClusterLostError("all workers are gone")


def fetching(future: Any) -> Future[Any]:
    """Begin to fetch the result of a task.

    Who waits for it may leave, which does not end it: a client that was stopped while it fetched, as by the timeout of
    ``future.result``, fetches nothing any more.
    """
    client = future.client
    import asyncio

    return asyncio.run_coroutine_threadsafe(client.gather(future, asynchronous=True), client.loop.asyncio_loop)


_ANY_SIZE = "1 PiB"


class DaskPool:
    """Runs tasks on the workers of a ``distributed.Client``.

    Parameters
    ----------
    client : distributed.Client
    key : str
        Prefix of the task keys, unique to the run: Dask takes equal keys for equal results.
    priority : int
        Of two runs on one cluster the tasks of that with the higher priority go first; equal ones take turns.
    most_workers : int, optional
        Most workers that are kept busy.
    begins : mapping of function to callable
        Functions that are cut into several tasks when they are streamed or run as a graph.
    admission : Admission, optional
        Which workers may have tasks; by default all of them.
    """

    def __init__(
        self,
        client: Any,
        key: str,
        priority: int = 0,
        most_workers: int | None = None,
        begins: Mapping[Callable[..., Any], Begin] | None = None,
        admission: Admission | None = None,
    ):
        self.client = client
        self._key = key
        self._priority = priority
        self._most_workers = most_workers
        self._begins = begins or {}
        self._count = 0
        self._watch = Watch(self.slots)
        self._admission = admission
        self._counts = False
        # Annotations of every task.
        self.about: dict[str, str] = {"run": key}
        # The workers that tasks are restricted to, where others of the cluster may have none.
        self._only: list[str] | None = None
        log_on_workers(client)

    @property
    def sent(self) -> int:
        """How many tasks were submitted."""
        return self._count

    @contextmanager
    def counting(self, tell: Callable[[int], None]) -> Iterator[None]:
        """Count the cells of tasks on workers; while this thread waits, ``tell`` is called with their number so far."""
        with received_cells(self.client, self._key) as cells:
            self._counts, self._watch.glance = True, lambda: tell(cells())
            try:
                yield
            finally:
                self._counts, self._watch.glance = False, lambda: None

    def slots(self) -> dict[str, int]:
        """Return how many tasks each worker runs at the same time, by address."""
        while True:
            with connected(self.client), suppress(TimeoutError):
                found = self.client.nthreads(callback_timeout=GONE_SECONDS)
                return {address: int(found[address]) for address in self._chosen(self._admitted(found))}

    def _admitted(self, addresses: Collection[str]) -> Collection[str]:
        """Return the workers that may have tasks; if others are there, tasks are restricted to these from now on."""
        if self._admission is None:
            return addresses
        admitted = self._admission.admitted(addresses)
        self._only = admitted if len(admitted) < len(addresses) else None
        return admitted

    def _chosen(self, addresses: Collection[str]) -> list[str]:
        """Return all workers, or as many as are allowed: as long as those are there, the same ones."""
        from hashlib import sha256

        if self._most_workers is None:
            return list(addresses)
        return sorted(addresses, key=lambda address: sha256(f"{self._key} {address}".encode()).digest())[
            : self._most_workers
        ]

    def _ahead(self, count: int) -> int:
        """Return how many tasks a thread is given at a time: one where idle workers must not take the others over."""
        return count if self._most_workers is None else 1

    @property
    def width(self) -> int:
        """Number of tasks that run at the same time."""
        return max(1, sum(self.slots().values()))

    def put(self, value: Any, label: TaskLabel | None = None) -> Any:
        """Send a value as a task of its own, so that it outlives the worker that happens to hold it."""
        return self.submit(itself, value, label=label or TaskLabel("load"))

    def share(self, folder: Any) -> None:
        """Write and read on every worker; see :func:`.connect.verify_shared`."""
        from .connect import verify_shared

        with connected(self.client):
            verify_shared(self.client, folder)

    def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        priority: int = 0,
        label: TaskLabel | None = None,
        worker: str | None = None,
    ) -> Any:
        """Start a task, at the given worker if it is still there when the task may run.

        Its key begins with the name in its label. Its annotations in Dask are the run, the model, the stage and the
        cells.
        """
        from dask import annotate  # type: ignore[attr-defined]

        where, label = self.where(function, worker), label or _label_of(function)
        function, args = self.counted_call(function, args, label)
        key, first = self.next_key(label), self._priority + priority
        with annotate(**self.about, stage=label.stage, cells=label.cells):
            return self.client.submit(function, *args, key=key, priority=first, pure=False, **where)

    def counted_call(
        self, function: Callable[..., Any], args: tuple[Any, ...], label: TaskLabel
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a call that also counts the cells that its task sweeps, if progress is requested."""
        if not self._counts or not label.cells:
            return function, args
        return counting_cells, (self._key, label.cells, function, *args)

    def batch(self, function: Callable[..., Any], worker: str | None = None) -> TaskBatch:
        """Return a batch of tasks, which Dask places as tasks of ``function``."""
        return TaskBatch(self, self._priority, self.where(function, worker))

    def _begun(
        self, function: Callable[..., Any], args: Iterable[Any], worker: str | None, label: TaskLabel | None
    ) -> Any:
        """Start a task, or the tasks that it is split into."""
        begin, label = self._begins.get(function), label or _label_of(function)
        if begin is None:
            return self.submit(function, *args, worker=worker, label=label)
        return begin(self, worker, label, *args)

    def where(self, function: Callable[..., Any], worker: str | None) -> dict[str, Any]:
        """Return the restrictions with which Dask places a task."""
        if self._only is not None:
            return {"workers": self._only, "allow_other_workers": False}
        return {} if worker is None else {"workers": [worker], "allow_other_workers": True}

    def next_key(self, label: TaskLabel) -> str:
        """Return a key that no other task has."""
        self._count += 1
        return f"{label.name}-{self._key}-{self._count}"

    def get(self, handle: Any) -> Any:
        """Wait for a result; a failed task raises here."""
        outcome = self._watch.outcome(self._watch.ended(handle))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def stream(
        self, function: Callable[..., Any], calls: Iterable[Call], label: LabelOf | None = None
    ) -> Iterator[Any]:
        """Keep a few calls in flight for each worker thread."""
        pending, balance = iter(calls), _Balance(self.slots)

        def started(call: Call) -> tuple[Any, str | None]:
            worker = balance.take()
            return self._begun(function, call, worker, label and label(*call)), worker

        window = deque(started(call) for call in islice(pending, self._ahead(3) * balance.width))
        while window:
            future, worker = window.popleft()
            outcome = self.get(future)
            balance.give_back(worker)
            window.extend(started(call) for call in islice(pending, 1))
            yield outcome

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Keep a few tasks in flight for each worker thread; a lost worker's tasks start again elsewhere."""
        ready, balance = ReadyTasks(nodes), _Balance(self.slots)
        running: dict[Any, tuple[Hashable, str | None]] = {}
        done: SimpleQueue[Any] = SimpleQueue()
        while True:
            while len(running) < self._ahead(2) * balance.width and (key := ready.pop()) is not None:
                function, *args = nodes[key].call(key)
                worker, label = balance.take(), nodes[key].label or _label_of(function)
                if function not in self._begins:
                    function, args = in_a_row, [function, *args]
                future = self._begun(function, args, worker, label)
                running[future.key] = key, worker
                future.add_done_callback(done.put)
            if not running:
                return
            future = self._watch.next_of(done)
            key, worker = running.pop(future.key)
            balance.give_back(worker)
            outcome = self._watch.outcome(future)
            if not isinstance(outcome, BaseException):
                ready.finish(key)
            yield key, outcome
            future.release()


class TaskBatch:
    """Tasks that are sent to the scheduler as one graph, at less than two thirds of the CPU time of single messages.

    Among the tasks that can start, the task that was added first starts, because this order bounds the memory of a
    sweep. Dask's own order held up to 1.27 times as much.

    Parameters
    ----------
    pool : DaskPool
    priority : int
    where : dict
        Restrictions with which Dask places the tasks.
    """

    def __init__(self, pool: DaskPool, priority: int, where: dict[str, Any]):
        self._pool, self._priority, self._where = pool, priority, where
        self._tasks: dict[Any, Any] = {}
        self._annotations: dict[str, dict[str, Any]] = {"priority": {}, "stage": {}, "cells": {}}

    def put(self, value: Any, label: TaskLabel | None = None) -> Any:
        """Add a task that holds a value; returns a reference."""
        return self.submit(itself, value, label=label or TaskLabel("load"))

    def submit(self, function: Callable[..., Any], *args: Any, label: TaskLabel | None = None) -> Any:
        """Add a task; arguments may be futures, and references to tasks of the batch. Returns a reference."""
        from dask._task_spec import Task, TaskRef

        label = label or _label_of(function)
        key = self._pool.next_key(label)
        function, args = self._pool.counted_call(function, args, label)
        # a future is a reference too, but cannot be sent
        self._tasks[key] = Task(key, function, *[TaskRef(a.key) if isinstance(a, TaskRef) else a for a in args])
        # the priorities of two runs differ by at least 1: sixteen million tasks fit between
        self._annotations["priority"][key] = self._priority - self._pool.sent / (1 << 24)
        self._annotations["stage"][key], self._annotations["cells"][key] = label.stage, label.cells
        return TaskRef(key)

    def send(self, references: Mapping[T, Any]) -> dict[T, Any]:
        """Send the tasks; return the futures that references stand for. Other tables go after their last reader."""
        from dask import config
        from dask.base import annotate
        from dask.highlevelgraph import HighLevelGraph

        if not references:
            return {}
        keys = [reference.key for reference in references.values()]
        each = {name: values.__getitem__ for name, values in self._annotations.items()}
        with annotate(**self._pool.about, **each):
            graph = HighLevelGraph.from_collections("batch", self._tasks)
        with config.set({"distributed.admin.large-graph-warning-threshold": _ANY_SIZE}):  # leaf tables are part of it
            futures = self._pool.client.get(graph, keys, sync=False, **self._where)
        return dict(zip(references, futures, strict=True))


class _Balance:
    """Chooses a worker for every task of a run, the least busy one; workers may come and go.

    Left to itself, Dask gives all tasks to the worker that holds what they share, until others steal them.
    """

    def __init__(self, slots: Callable[[], dict[str, int]]) -> None:
        self._read = slots
        self._slots: dict[str, int] = {}
        self._busy: dict[str, int] = {}
        self._read_at = -float("inf")

    @property
    def width(self) -> int:
        """Number of tasks that run at the same time."""
        return max(1, sum(self._current().values()))

    def take(self) -> str | None:
        """Return the worker for the next task; None if there are no workers now."""
        slots = self._current()
        if not slots:
            return None
        worker = min(slots, key=lambda address: self._busy.get(address, 0) / max(1, slots[address]))
        self._busy[worker] = self._busy.get(worker, 0) + 1
        return worker

    def _current(self) -> dict[str, int]:
        """Ask for the workers now and then: the answer takes milliseconds."""
        if time.monotonic() - self._read_at > GLANCE_SECONDS:
            self._slots, self._read_at = self._read(), time.monotonic()
        return self._slots

    def give_back(self, worker: str | None) -> None:
        """Count a task of a worker as ended."""
        if worker is not None:
            self._busy[worker] -= 1


def _label_of(function: Callable[..., Any]) -> TaskLabel:
    """Return the label of a task that was given none: its function."""
    return TaskLabel(function.__name__.replace("_", "-"))


def itself(value: Any) -> Any:
    """Task: hold a value."""
    return value
