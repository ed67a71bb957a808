"""Where tasks run, behind one small interface: in this process, or on the workers of a Dask client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

Call = tuple[Any, ...]


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
        """Send a value to a worker, from which the others fetch it when they need it."""
        return self.client.scatter(value, hash=False)

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Any:
        """Start a task on some worker."""
        self._count += 1
        key = f"{function.__name__}-{self._key}-{self._count}"
        return self.client.submit(function, *args, key=key, priority=priority, pure=False)

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
