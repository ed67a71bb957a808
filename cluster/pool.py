"""Where tasks run, behind one small interface: in this process, on its GPUs, or on the workers of a Dask client.

The function of a task in a graph may be a generator function with three phases: transfers in, computation, transfers
out. Its value is what it returns at the end. Without a cluster, the transfers go on beside other tasks' computation.

GPUs of this process have threads of their own, for calls that wait for a device most of the time. Such calls need no
process for each GPU, which takes seconds to start and to which everything travels.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from inspect import isgeneratorfunction
from itertools import count, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Call = tuple[Any, ...]
Phases = Generator[None, None, Any]

#: Seconds until a thread that waits for the interpreter gets it while graphs run. Python's own 5 ms are as long as all
#: that a box computes: 1.6 GB of rows through a device took 0.95 s with them, and 0.77 s with this.
_SWITCH_SECONDS: Final = 5e-4


class TaskLabel:
    """What Dask's pages show of a task.

    Parameters
    ----------
    name : str
        Begins the key: the kind of the task, a hyphen, and a word that is not letters only. Dask colours tasks by kind.
    stage : str
        Where in the plan the task runs.
    cells : int
        Cells that it sweeps; 0 if they are unknown.
    """

    __slots__ = ("cells", "name", "stage")

    def __init__(self, name: str, stage: str = "", cells: int = 0) -> None:
        self.name, self.stage, self.cells = name, stage, cells

    def of(self, what: str) -> TaskLabel:
        """Return the label of the task in one of several slices or boxes."""
        return TaskLabel(f"{self.name}-{what}", self.stage, self.cells)


LabelOf = Callable[..., TaskLabel]
"""Returns the label of a call from its arguments."""


class Node:
    """A task of a graph.

    Parameters
    ----------
    needs : set
        Keys of the tasks that must be finished before.
    call : callable
        Takes the key when the task may start, and returns the function and its arguments.
    priority : int
        Of two tasks that may start, the one with the higher priority does.
    moving_bytes : int
        Memory that the transfers of the task take.
    room_bytes : int
        Memory that the transfers of others may take while the task computes.
    near : callable, optional
        Called with the key when the task may start. Returns the place that holds most of its inputs, or None.
    label : TaskLabel, optional
    """

    def __init__(
        self,
        needs: set[Any],
        call: Callable[[Any], Call],
        priority: int = 0,
        moving_bytes: int = 0,
        room_bytes: int = 0,
        near: Callable[[Any], int | None] | None = None,
        label: TaskLabel | None = None,
    ) -> None:
        self.needs, self.call, self.priority = needs, call, priority
        self.moving_bytes, self.room_bytes = moving_bytes, room_bytes
        self.near, self.label = near, label


class _Switches:
    """How often threads of this process hand over the interpreter: as before, once no graph runs any more."""

    def __init__(self) -> None:
        self._lock, self._graphs, self._before = Lock(), 0, 0.0

    @contextmanager
    def quick(self) -> Iterator[None]:
        """Let threads wait for the interpreter less than half a millisecond."""
        with self._lock:
            if self._graphs == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SWITCH_SECONDS))
            self._graphs += 1
        try:
            yield
        finally:
            with self._lock:
                self._graphs -= 1
                if self._graphs == 0:
                    sys.setswitchinterval(self._before)


_SWITCHES: Final = _Switches()


class Pool(Protocol):
    """Runs functions on values and on the results of earlier submissions."""

    @property
    def width(self) -> int:
        """Number of tasks that run at the same time."""
        ...

    def put(self, value: Any, label: TaskLabel | None = None) -> Any:
        """Make a value available to tasks; returns what stands for it in :meth:`submit`."""
        ...

    def share(self, folder: Any) -> None:
        """Make sure that tasks see the same folder as this process."""
        ...

    def submit(
        self, function: Callable[..., Any], *args: Any, priority: int = 0, label: TaskLabel | None = None
    ) -> Any:
        """Start a task; its result is fetched by :meth:`get` or passed on to other tasks."""
        ...

    def get(self, handle: Any) -> Any:
        """Wait for a result."""
        ...

    def stream(
        self, function: Callable[..., Any], calls: Iterable[Call], label: LabelOf | None = None
    ) -> Iterator[Any]:
        """Yield the results of calls in their order, with a bounded number of calls in flight."""
        ...

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Run tasks in an order that their needs allow; yield each key with its result or its exception.

        Tasks that need the result of a failed task never start.
        """
        ...


class SerialPool:
    """Runs everything at once in the calling thread; the reference for every other pool."""

    width = 1

    def put(self, value: Any, label: TaskLabel | None = None) -> Any:
        """Return the value itself."""
        return value

    def share(self, folder: Any) -> None:
        """Nothing to do: tasks run in this process."""

    def submit(
        self, function: Callable[..., Any], *args: Any, priority: int = 0, label: TaskLabel | None = None
    ) -> Any:
        """Call the function now."""
        return function(*args)

    def get(self, handle: Any) -> Any:
        """Return the result."""
        return handle

    def stream(
        self, function: Callable[..., Any], calls: Iterable[Call], label: LabelOf | None = None
    ) -> Iterator[Any]:
        """Call one after the other."""
        return (function(*call) for call in calls)

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Run the tasks of a graph, keeping ``width`` of them running; see :class:`Pool`.

        Parameters
        ----------
        nodes : mapping
            Node of each task.

        Yields
        ------
        key, outcome
            The result or the exception of each task.
        """
        from concurrent.futures import ThreadPoolExecutor

        ready = ReadyTasks(nodes)
        other = ThreadPoolExecutor(2, "transfers")
        try:
            with _SWITCHES.quick():
                yield from _overlapped(ready, nodes, other)
        finally:
            other.shutdown(cancel_futures=True)


class _ThreadTask:
    """A task under way: its phases, the phase in the other thread, and the outcome once it is known."""

    def __init__(self, key: Any, phases: Phases | None) -> None:
        self.key, self.phases = key, phases
        self.transfer: Future[None] | None = None
        self.outcome: Any = None
        self.done: bool = False

    def advance(self, before: Future[None] | None = None) -> None:
        """Run the next phase, here and now, or once another task's is over."""
        if before is not None:
            _wait_for(before)
        assert self.phases is not None
        try:
            next(self.phases)
        except StopIteration as end:
            self.outcome, self.done = end.value, True
        except Exception as error:
            self.outcome, self.done = error, True
        if self.done:
            self.phases = None

    def close(self) -> None:
        """End a task that is given up, once the other thread has left it.

        Its generator is let go here. A closed generator may keep its local variables for as long as it is referenced,
        and the traceback of an interruption references this task.
        """
        if self.transfer is not None:
            _wait_for(self.transfer)
        phases, self.phases = self.phases, None
        if phases is not None:
            phases.close()

    def transferred(self) -> bool:
        """Wait for the other thread; whether there is an outcome now."""
        if self.transfer is not None:
            self.transfer.result()
        return self.done


def _wait_for(future: Future[None]) -> None:
    """Wait until a future has ended in any way."""
    from concurrent.futures import wait

    wait([future])


def _overlapped(ready: ReadyTasks, nodes: Mapping[Any, Node], other: ThreadPoolExecutor) -> Iterator[tuple[Any, Any]]:
    """Run tasks one after the other and yield keys and outcomes, while another thread reads the next inputs and writes
    the last outputs.

    Parameters
    ----------
    ready : ReadyTasks
    nodes : mapping
        Node of each task: its call, and the bytes that it moves while others compute.
    other : ThreadPoolExecutor
        One thread for reads and writes.
    """

    reading: _ThreadTask | None = None
    writing: _ThreadTask | None = None

    # context limits of this thread also apply to the phases in other threads
    def begun(beside: _ThreadTask | None = None) -> _ThreadTask | None:
        key = ready.first()
        if key is None or (beside is not None and not has_room(beside, key)):
            return None
        ready.pop()
        function, *args = nodes[key].call(key)
        task = _ThreadTask(key, _phases(function, args))
        before = None
        # if nothing computes, the memory of the writing task was counted when it computed
        if writing is not None and not has_room(beside or writing, key, writing.key):
            before = writing.transfer
        task.transfer = other.submit(copy_context().run, task.advance, before)
        return task

    def has_room(computing: _ThreadTask, *moving: Any) -> bool:
        return sum(nodes[key].moving_bytes for key in moving) <= nodes[computing.key].room_bytes

    def settled(task: _ThreadTask) -> Iterator[tuple[Any, Any]]:
        yield task.key, task.outcome
        if not isinstance(task.outcome, BaseException):
            ready.finish(task.key)

    current: _ThreadTask | None = None
    try:
        while True:
            current = reading or begun()
            reading = None
            if current is None:
                if writing is None:
                    return
                writing.transferred()
                yield from settled(writing)
                writing = None
                continue
            if not current.transferred():
                if writing is not None and not has_room(current, writing.key):
                    writing.transferred()
                    yield from settled(writing)
                    writing = None
                reading = begun(current)
                current.advance()
            if writing is not None:
                writing.transferred()
                yield from settled(writing)
                writing = None
            if current.done:
                yield from settled(current)
            else:
                writing = current
                writing.transfer = other.submit(copy_context().run, writing.advance)
    finally:
        for task in (reading, current, writing):
            if task is not None:
                task.close()


def _phases(function: Callable[..., Any], args: Iterable[Any]) -> Phases:
    """Call a generator function; any other has nothing to transfer."""
    return function(*args) if isgeneratorfunction(function) else _computation(function, args)


def _computation(function: Callable[..., Any], args: Iterable[Any]) -> Phases:
    yield
    return function(*args)


def in_a_row(function: Callable[..., Any], *args: Any) -> Any:
    """Task: run all phases of a task of a graph."""
    task = _ThreadTask(None, _phases(function, args))
    while not task.done:
        task.advance()
    if isinstance(task.outcome, BaseException):
        raise task.outcome
    return task.outcome


class ReadyTasks:
    """Which tasks of a graph may start."""

    def __init__(self, nodes: Mapping[Any, Node]):
        self._nodes = nodes
        self._missing = {key: len(node.needs) for key, node in nodes.items()}
        self._users: dict[Hashable, list[Hashable]] = {key: [] for key in nodes}
        for key, node in nodes.items():
            for need in node.needs:
                self._users[need].append(key)
        self._heap: list[tuple[int, int, Hashable]] = []
        self._order = {key: i for i, key in enumerate(nodes)}
        for key, missing in self._missing.items():
            if missing == 0:
                self._push(key)

    def _push(self, key: Hashable) -> None:
        heapq.heappush(self._heap, (-self._nodes[key].priority, self._order[key], key))

    def pop_with_affinity(self, place: int, looked_at: int) -> Any:
        """Take the first of the next keys that is nearest to a place, or to none; failing those, the next key."""
        for at, entry in enumerate(heapq.nsmallest(looked_at, self._heap)):
            near = self._nodes[entry[2]].near
            where = None if near is None else near(entry[2])
            if where is None or where == place:
                if at == 0:
                    return self.pop()
                self._heap.remove(entry)
                heapq.heapify(self._heap)
                return entry[2]
        return self.pop()

    def first(self) -> Any:
        """Return the next key, or None if no task may start now."""
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Any:
        """Take the next key, or None if no task may start now."""
        return heapq.heappop(self._heap)[2] if self._heap else None

    def finish(self, key: Hashable) -> None:
        """Let those start that waited for this task only."""
        for user in self._users[key]:
            self._missing[user] -= 1
            if self._missing[user] == 0:
                self._push(user)


# A pool of threads in this process: tasks that wait for a device or a disk most of the time overlap.


class ThreadPool(SerialPool):
    """Runs graphs with some tasks at the same time, everything else at once in the calling thread.

    Parameters
    ----------
    width : int
        Threads of each place.
    places : int
        Threads of one place take first what lies near it.
    looked_at : int
        Number of ready tasks of a graph that are searched for a task near a free place.
    """

    def __init__(self, width: int, places: int = 1, looked_at: int = 64):
        self.width = width * places
        self._each, self._places, self._looked_at = width, places, looked_at

    def begin(self, place: int) -> None:
        """Prepare the calling thread, which is one of a place from now on."""

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Keep ``width`` tasks running; see :class:`Pool`."""
        with _SWITCHES.quick():
            yield from self._run_graph(nodes)

    def _run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

        ready = ReadyTasks(nodes)
        running: dict[Future[Any], tuple[Hashable, int]] = {}
        free = [self._each] * self._places
        threads = [ThreadPoolExecutor(self._each, f"place-{i}", self.begin, (i,)) for i in range(self._places)]
        try:
            while True:
                while max(free):
                    place = free.index(max(free))
                    key = ready.pop() if self._places == 1 else ready.pop_with_affinity(place, self._looked_at)
                    if key is None:
                        break
                    function, *args = nodes[key].call(key)
                    # limits that hold where the graph is run hold for its tasks
                    task = threads[place].submit(copy_context().run, in_a_row, function, *args)
                    running[task] = key, place
                    free[place] -= 1
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    key, place = running.pop(future)
                    free[place] += 1
                    error = future.exception()
                    if error is None:
                        ready.finish(key)
                    yield key, error or future.result()
        finally:
            for each in threads:
                each.shutdown(wait=False, cancel_futures=True)
            for each in threads:
                each.shutdown(wait=True)


_HERE: Final = threading.local()
_BEGUN: Final[set[int]] = {0}
# Unfinished calls for each thread; and results for each thread that wait for an earlier one.
_AHEAD: Final = 2
_WAITING: Final = 32


def present_device() -> int:
    """Return the number of the GPU that this thread uses, among the GPUs that the process sees."""
    return int(getattr(_HERE, "number", 0))


def begun_devices() -> int:
    """Return how many GPUs were used in this process, which takes each of them a while the first time."""
    return len(_BEGUN)


def begin_beside(devices: int) -> list[threading.Thread]:
    """Start the first GPUs of this process in threads, while the caller goes on; return the threads.

    A GPU that cannot be started stays as it is: a caller that uses it gets the error.
    """

    def begin(place: int) -> None:
        with suppress(Exception):
            import cupy

            cupy.cuda.Device(place).use()
            cupy.cuda.runtime.free(0)  # the first call makes the driver's context
            _BEGUN.add(place)

    waiting = [place for place in range(devices) if place not in _BEGUN]
    threads = [threading.Thread(target=begin, args=(place,), daemon=True) for place in waiting]
    for thread in threads:
        thread.start()
    return threads


class CallThreads(ThreadPool):
    """Runs graphs of tasks, and single calls, several of them concurrently; see :class:`ThreadPool`.

    Attributes
    ----------
    results_ahead : int
        Maximum calls of each thread that run, or whose results wait for an earlier call.
    """

    results_ahead = _AHEAD

    def stream(
        self, function: Callable[..., Any], calls: Iterable[Call], label: LabelOf | None = None
    ) -> Iterator[Any]:
        """Yield results in the order of their calls.

        A place that is slow, or still starting, delays no other place. The end of the stream does not wait for a place
        that is still starting. A caller that leaves early waits for the running calls.
        """
        from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

        numbers, pending = count(), iter(calls)
        window: deque[Future[Any]] = deque()

        def submit() -> None:
            for call in islice(pending, self._room(window)):
                # limits that hold where the calls are made hold for them
                window.append(executor.submit(copy_context().run, function, *call))

        executor = ThreadPoolExecutor(self.width, "call", lambda: self.begin(next(numbers) % self._places))
        finished = False
        try:
            submit()
            while window:
                while not window[0].done():
                    wait([future for future in window if not future.done()], return_when=FIRST_COMPLETED)
                    submit()
                found = window.popleft().result()
                submit()
                finished = not window
                yield found
        finally:
            executor.shutdown(wait=not finished, cancel_futures=True)

    def _room(self, window: Iterable[Future[Any]]) -> int:
        """Return how many calls may be submitted beside those in a window."""
        done = [future.done() for future in window]
        return max(min(_AHEAD * self.width - done.count(False), self.results_ahead * self.width - len(done)), 0)


class DeviceThreads(CallThreads):
    """Runs calls, and graphs of tasks, on the first GPUs of this process; each goes to a device that is free.

    Parameters
    ----------
    devices : int
    at_a_time : int
        Calls of a device at the same time: of two, one prepares and reads while the other computes.
    looked_at : int
        Number of ready tasks of a graph that are searched for a task near a free device.
    """

    results_ahead = _WAITING

    def __init__(self, devices: int, at_a_time: int = 2, looked_at: int = 64) -> None:
        super().__init__(at_a_time, devices, looked_at)
        self.devices = devices

    def begin(self, place: int) -> None:
        """Let the calling thread work on a device from now on."""
        _HERE.number = place
        _BEGUN.add(place)
        cupy = sys.modules.get("cupy")
        if cupy is not None:
            cupy.cuda.Device(place).use()
