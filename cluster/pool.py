"""Where tasks run, behind one small interface: in this process, or on the workers of a Dask client."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

Call = tuple[Any, ...]


@dataclass(frozen=True)
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
    """

    needs: set[Any]
    call: Callable[[Any], Call]
    priority: int = 0


class Pool(Protocol):
    """Runs functions on values and on the results of earlier submissions."""

    @property
    def width(self) -> int:
        """Number of tasks that run at the same time."""
        ...

    def put(self, value: Any) -> Any:
        """Make a value available to tasks; returns what stands for it in :meth:`submit`."""
        ...

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Any:
        """Start a task; its result is fetched by :meth:`get` or passed on to other tasks."""
        ...

    def get(self, handle: Any) -> Any:
        """Wait for a result."""
        ...

    def stream(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """Yield the results of many calls in their order, with a bounded number in flight."""
        ...

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Run tasks in an order that their needs allow; yield each key with its result or its exception.

        What needs a failed task never starts.
        """
        ...


class SerialPool:
    """Runs everything at once in the calling thread; the reference for every other pool."""

    width = 1

    def put(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Any:
        """Call the function now."""
        return function(*args)

    def get(self, handle: Any) -> Any:
        """Return the result."""
        return handle

    def stream(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """Call one after the other."""
        return (function(*call) for call in calls)

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Run one task after the other, depth first as the priorities ask."""
        ready = _Ready(nodes)
        while (key := ready.pop()) is not None:
            function, *args = nodes[key].call(key)
            try:
                outcome = function(*args)
            except Exception as error:
                yield key, error
                continue
            yield key, outcome
            ready.finish(key)


class _Ready:
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
        for key, count in self._missing.items():
            if count == 0:
                self._push(key)

    def _push(self, key: Hashable) -> None:
        heapq.heappush(self._heap, (-self._nodes[key].priority, self._order[key], key))

    def pop(self) -> Any:
        """Return the next key, or None if no task may start now."""
        return heapq.heappop(self._heap)[2] if self._heap else None

    def finish(self, key: Hashable) -> None:
        """Let those start that waited for this task only."""
        for user in self._users[key]:
            self._missing[user] -= 1
            if self._missing[user] == 0:
                self._push(user)


class DaskPool:
    """Runs tasks on the workers of a ``distributed.Client``.

    Parameters
    ----------
    client : distributed.Client
    key : str
        Prefix of the task keys, unique to the run: Dask takes equal keys for equal results.
    """

    def __init__(self, client: Any, key: str):
        self.client = client
        self._key = key
        self._count = 0

    @property
    def width(self) -> int:
        """Number of worker threads."""
        return max(1, sum(int(n) for n in self.client.nthreads().values()))

    def put(self, value: Any) -> Any:
        """Send a value as a task of its own, so that it outlives the worker that happens to hold it."""
        return self.submit(_itself, value)

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Any:
        """Start a task on some worker."""
        return self.client.submit(function, *args, key=self.next_key(function), priority=priority, pure=False)

    def next_key(self, function: Callable[..., Any]) -> str:
        """Return a key that no other task has."""
        self._count += 1
        return f"{function.__name__}-{self._key}-{self._count}"

    def get(self, handle: Any) -> Any:
        """Wait for a result; a failed task raises here."""
        return handle.result()

    def stream(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """Keep a few calls in flight for each worker thread."""
        pending = iter(calls)
        window = [self.submit(function, *call) for call in islice(pending, 3 * self.width)]
        while window:
            yield self.get(window.pop(0))
            window.extend(self.submit(function, *call) for call in islice(pending, 1))

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Keep a few tasks in flight for each worker thread; a lost worker's tasks start again elsewhere."""
        from distributed import as_completed

        ready = _Ready(nodes)
        running: dict[Any, Hashable] = {}
        done = as_completed(loop=self.client.loop)
        while True:
            while len(running) < 2 * self.width and (key := ready.pop()) is not None:
                function, *args = nodes[key].call(key)
                future = self.submit(function, *args)
                running[future.key] = key
                done.add(future)
            if not running:
                return
            future = next(done)
            key = running.pop(future.key)
            error = future.exception()
            if error is None:
                outcome = future.result()
                ready.finish(key)
            else:
                outcome = error
            yield key, outcome
            future.release()


def _itself(value: Any) -> Any:
    return value
