"""A discrete-event simulation of a task graph on the workers of a Dask cluster. No task is run. Pure.

The client submits tasks one after the other. A worker fetches its inputs over its own link, in turn with its other
tasks, and then reads stored tables, computes, and writes stored tables. All transfers to and from storage share its
rate equally, each at most at the rate of a link. The results of a lost worker are computed again if a task needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from random import Random
from typing import Final, Literal

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError

#: The worker that stands for the client's process.
CLIENT: Final = -1
_WAITING, _QUEUED, _RUNNING, _DONE, _MOVING = range(5)
# Losses after which a simulation is given up: no task ends between two losses.
_MOST_LOSSES: Final = 20_000


@dataclass(frozen=True)
class SimulatedTask:
    """A task as the simulation knows it.

    Parameters
    ----------
    key : str
    seconds : float
        Computing.
    needs : tuple of (int, int)
        Positions of the tasks before it, each with the bytes that it reads of their results in memory.
    read_bytes, written_bytes : int
        From and to storage.
    shared_seconds : float
        Computing in addition for the first task of each worker.
    sent_bytes : int
        Bytes that the client uploads. Workers keep copies of them.
    place : {"worker", "client", "gate"}
        A gate takes no time: it ends when all tasks before it have ended.
    priority : int
        Of the tasks that may start, tasks with the highest number start first.
    count : int
        Tasks of the scheduler that it stands for, which run one after the other.
    """

    key: str
    seconds: float = 0.0
    needs: tuple[tuple[int, int], ...] = ()
    read_bytes: int = 0
    written_bytes: int = 0
    shared_seconds: float = 0.0
    sent_bytes: int = 0
    place: Literal["worker", "client", "gate"] = "worker"
    priority: int = 0
    count: int = 1


@dataclass(frozen=True)
class SimulatedCluster:
    """The workers of a simulation.

    Parameters
    ----------
    workers, slots : int
        Number of workers, and of tasks that each runs at a time.
    bandwidth : float
        Bytes per second of the link of each worker.
    storage_bandwidth : float
        Bytes per second of the storage, shared by all workers.
    start_seconds : float
        Until a worker takes tasks, at the beginning and after a loss.
    task_seconds, submit_seconds : float
        For each task of the scheduler: on its worker, and in the client.
    losses : float
        Losses of each worker in an hour.
    seed : int
    """

    workers: int
    slots: int = 1
    bandwidth: float = inf
    storage_bandwidth: float = inf
    start_seconds: float = 0.0
    task_seconds: float = 0.0
    submit_seconds: float = 0.0
    losses: float = 0.0
    seed: int = 0


@dataclass
class SimulatedSpan:
    """A task on a worker: begin, end, and their parts in seconds.

    ``after`` is the position of the span that let it start, or -1; ``cause`` says why it did not start before.
    """

    task: int
    worker: int
    begin: float
    after: int
    cause: Literal["input", "slot", "start", "loss"]
    end: float = 0.0
    network: float = 0.0
    storage: float = 0.0
    computing: float = 0.0
    alive: bool = True


class Simulator:
    """The state of a simulation; :meth:`run` runs it.

    Parameters
    ----------
    tasks : sequence of SimulatedTask
        Each after the tasks that it needs.
    cluster : SimulatedCluster

    Attributes
    ----------
    now : float
        Seconds since the beginning.
    spans : list of SimulatedSpan
        In the order of their begins.
    network_bytes, losses : int
    """

    def __init__(self, tasks: Sequence[SimulatedTask], cluster: SimulatedCluster) -> None:
        """Prepare the simulation: all tasks wait, and only the client is present.

        Parameters
        ----------
        tasks : sequence of SimulatedTask
            Each with the tasks it needs, its seconds and its bytes.
        cluster : SimulatedCluster
        """
        self.now, self.tasks, self.cluster = 0.0, tasks, cluster
        self.spans: list[SimulatedSpan] = []
        self.network_bytes = self.losses = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = self._left = 0
        count, places = len(tasks), range(CLIENT, cluster.workers)
        self._users: list[list[int]] = [[] for _ in range(count)]
        self._held = [False] * count
        for position, task in enumerate(tasks):
            for need, nbytes in task.needs:
                self._users[need].append(position)
                self._held[need] |= nbytes > 0 and tasks[need].place == "worker"
        self._missing = [len(task.needs) for task in tasks]
        self._readers = [len(users) for users in self._users]
        self._state, self._left = [_WAITING] * count, count
        self._holders: list[set[int]] = [set() for _ in range(count)]
        self._queues: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._why: dict[int, tuple[int, str, float]] = {}
        self._busy = {place: set[int]() for place in places}
        self._there, self._warm = {CLIENT}, set[int]()
        self._link = dict.fromkeys(places, 0.0)
        self._idle: list[tuple[int, int]] = []
        self._submitted = 0.0
        self._storage = _Storage(self)
        # a generator for each worker, so that losses of one do not depend on the number of workers
        self._random = [Random(f"{cluster.seed} {worker}") for worker in range(cluster.workers)]

    def run(self) -> None:
        """Simulate until all tasks have ended.

        Raises
        ------
        ModelError
            If workers are lost faster than tasks end.
        """
        for worker in range(self.cluster.workers):
            self.at(self.cluster.start_seconds, lambda worker=worker: self._join(worker, -1))  # type: ignore[misc]
        for position, missing in enumerate(self._missing):
            if not missing and self._state[position] == _WAITING:
                self._ready(position, -1, "input")
        while self._left:
            self.now, _, event = heappop(self._events)
            event()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Let an event happen at a time."""
        self._order += 1
        heappush(self._events, (seconds, self._order, event))

    def _join(self, worker: int, after: int) -> None:
        self._there.add(worker)
        self._offer(worker)
        if self.cluster.losses:
            seconds = self._random[worker].expovariate(self.cluster.losses / 3600)
            self.at(self.now + seconds, lambda: self._lose(worker))
        self._dispatch(after, "start")

    def _ready(self, position: int, after: int, cause: str) -> None:
        """Submit a task whose inputs are there."""
        task = self.tasks[position]
        if task.place == "gate":
            self._end(position, after)
            return
        self._state[position], self._why[position] = _QUEUED, (after, cause, self.now)
        if task.place == "client":
            self._enqueue(position)
            return
        self._submitted = max(self._submitted, self.now) + self.cluster.submit_seconds * task.count
        self.at(self._submitted, lambda: self._enqueue(position))

    def _enqueue(self, position: int) -> None:
        if self._state[position] == _QUEUED:
            after, cause, _ = self._why[position]
            self._why[position] = after, cause, self.now
            task = self.tasks[position]
            heappush(self._queues[task.place == "client"], (-task.priority, position))
            self._dispatch(after, cause)

    def _dispatch(self, after: int, cause: str) -> None:
        """Start the tasks that have a place; ``after`` and ``cause`` say what has just happened."""
        for client, queue in self._queues.items():
            while queue:
                position = queue[0][1]
                if self._state[position] != _QUEUED:
                    heappop(queue)
                    continue
                worker = (None if self._busy[CLIENT] else CLIENT) if client else self._place(position)
                if worker is None:
                    break
                heappop(queue)
                why = self._why[position]
                self._start(position, worker, *(why[:2] if why[2] == self.now else (after, cause)))

    def _place(self, position: int) -> int | None:
        """Return the free worker that holds most of a task's inputs, or else the least busy one."""
        local: dict[int, int] = {}
        for need, nbytes in self.tasks[position].needs:
            if nbytes and self.tasks[need].place == "worker":
                for holder in self._holders[need]:
                    if holder in self._there and len(self._busy[holder]) < self.cluster.slots:
                        local[holder] = local.get(holder, 0) + nbytes
        if local:
            return max(local, key=lambda worker: (local[worker], -worker))
        while self._idle:
            busy, worker = self._idle[0]
            if worker in self._there and busy == len(self._busy[worker]) < self.cluster.slots:
                return worker
            heappop(self._idle)
        return None

    def _offer(self, worker: int) -> None:
        if worker != CLIENT and worker in self._there and len(self._busy[worker]) < self.cluster.slots:
            heappush(self._idle, (len(self._busy[worker]), worker))

    def _start(self, position: int, worker: int, after: int, cause: str) -> None:
        task, number = self.tasks[position], len(self.spans)
        span = SimulatedSpan(position, worker, self.now, after, cause)  # type: ignore[arg-type]
        self.spans.append(span)
        self._state[position] = _RUNNING
        self._busy[worker].add(number)
        self._offer(worker)
        moved = task.sent_bytes
        for need, nbytes in task.needs:
            if nbytes and worker not in self._holders[need]:
                moved += nbytes
                if self.tasks[need].sent_bytes:
                    self._holders[need].add(worker)
        begin = max(self.now, self._link[worker]) if moved else self.now
        end = begin + moved / self.cluster.bandwidth
        if moved:
            self._link[worker] = end
        self.network_bytes += moved
        span.network = end - self.now
        self.at(end, lambda: self._read(number))

    def _read(self, number: int) -> None:
        span = self.spans[number]
        if span.alive:
            self._storage.move(span, self.tasks[span.task].read_bytes, lambda: self._compute(number))

    def _compute(self, number: int) -> None:
        span = self.spans[number]
        task = self.tasks[span.task]
        span.computing = task.seconds
        if span.worker != CLIENT:
            span.computing += self.cluster.task_seconds * task.count
            if task.shared_seconds and span.worker not in self._warm:
                span.computing += task.shared_seconds
                self._warm.add(span.worker)
        self.at(self.now + span.computing, lambda: self._write(number))

    def _write(self, number: int) -> None:
        span = self.spans[number]
        if span.alive:
            self._storage.move(span, self.tasks[span.task].written_bytes, lambda: self._finish(number))

    def _finish(self, number: int) -> None:
        span = self.spans[number]
        span.end = self.now
        self._busy[span.worker].discard(number)
        self._offer(span.worker)
        self._holders[span.task] = {span.worker}
        self._end(span.task, number)
        self._dispatch(number, "slot")

    def _end(self, position: int, after: int) -> None:
        """Let the tasks start that waited for a task, and release its inputs."""
        self._state[position] = _DONE
        self._left -= 1
        for need, _ in self.tasks[position].needs:
            self._readers[need] -= 1
            if not self._readers[need] and not self.tasks[need].sent_bytes:
                self._holders[need] = set()
        for user in self._users[position]:
            if self._state[user] == _WAITING:
                self._missing[user] -= 1
                if not self._missing[user]:
                    self._ready(user, after, "input")

    def _lose(self, worker: int) -> None:
        """Lose a worker with its tasks and results; a new worker replaces it.

        Parameters
        ----------
        worker : int

        Raises
        ------
        ModelError
            If the rate of losses is so high that the run does not end.
        """
        self.losses += 1
        if self.losses > _MOST_LOSSES:
            raise ModelError(
                f"{self.losses - 1:,} workers were lost and the run had not ended; give a smaller rate of losses"
            )
        self._there.discard(worker)
        self._warm.discard(worker)
        self._link[worker] = 0.0
        killed, self._busy[worker] = sorted(self._busy[worker]), set()
        for number in killed:
            span = self.spans[number]
            span.alive, span.end = False, self.now
        self._storage.drop()
        lost = [i for i, holders in enumerate(self._holders) if worker in holders]
        for position in lost:
            self._holders[position].discard(worker)
        again = [self.spans[number].task for number in killed]
        after = killed[-1] if killed else -1
        for position in again:
            self._repeat(position, after)
        for position in lost:
            # a lost result is computed again only if a task still needs it and no other worker has it
            if self._held[position] and self._readers[position] and not self._holders[position]:
                self._repeat(position, after)
        self.at(self.now + self.cluster.start_seconds, lambda: self._join(worker, after))

    def _repeat(self, position: int, after: int) -> None:
        """Run a task again, and the tasks before it whose results are gone."""
        if self._state[position] not in (_DONE, _RUNNING):
            return
        if self._state[position] == _DONE:
            self._left += 1
            for need, _ in self.tasks[position].needs:
                self._readers[need] += 1
            for user in self._users[position]:
                if self._state[user] in (_WAITING, _QUEUED):
                    self._missing[user] += 1
                    self._state[user] = _WAITING
        self._state[position] = _MOVING
        for need, _ in self.tasks[position].needs:
            if self._held[need] and not self._holders[need]:
                self._repeat(need, after)
        self._missing[position] = sum(self._state[need] != _DONE for need, _ in self.tasks[position].needs)
        self._state[position] = _WAITING
        if not self._missing[position]:
            self._ready(position, after, "loss")


class _Storage:
    """Transfers that share one rate: each gets an equal part, and at most the rate of a link."""

    def __init__(self, simulator: Simulator) -> None:
        self._of = simulator
        self._served = self._since = 0.0
        self._version = self._order = 0
        self._waiting: list[tuple[float, int, SimulatedSpan, float, Callable[[], None]]] = []

    def move(self, span: SimulatedSpan, nbytes: int, then: Callable[[], None]) -> None:
        """Begin a transfer; call ``then`` at its end."""
        if not nbytes:
            then()
            return
        self._advance()
        self._order += 1
        heappush(self._waiting, (self._served + nbytes, self._order, span, self._of.now, then))
        self._plan()

    def drop(self) -> None:
        """Drop the transfers of lost workers."""
        self._advance()
        self._waiting = [entry for entry in self._waiting if entry[2].alive]
        heapify(self._waiting)
        self._plan()

    @property
    def _rate(self) -> float:
        cluster = self._of.cluster
        return min(cluster.bandwidth, cluster.storage_bandwidth / max(len(self._waiting), 1))

    def _advance(self) -> None:
        elapsed = self._of.now - self._since
        if self._waiting and elapsed:
            self._served += elapsed * self._rate
        self._since = self._of.now

    def _plan(self) -> None:
        """Announce the end of the next transfer."""
        self._version += 1
        if self._waiting:
            version, left = self._version, max(self._waiting[0][0] - self._served, 0.0)
            self._of.at(self._of.now + left / self._rate, lambda: self._fire(version))

    def _fire(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        self._served, ended = max(self._served, self._waiting[0][0]), []
        while self._waiting and self._waiting[0][0] <= self._served * (1 + 1e-12):
            ended.append(heappop(self._waiting))
        self._plan()
        for _, _, span, begin, then in ended:
            span.storage += self._of.now - begin
            then()
