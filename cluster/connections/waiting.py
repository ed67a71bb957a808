"""Waiting for tasks of a cluster that may go away while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from .address import ClusterLostError

# Workers come back: a nanny starts the next one, a batch system grants more. After this long nobody is expected.
PATIENCE_SECONDS = 30.0

# How often a task that has not ended makes us look whether somebody is still at work.
_GLANCE_SECONDS = 1.0


class Watch:
    """Waits for futures and notices when nobody is left to finish them.

    Parameters
    ----------
    slots : callable
        Returns the workers there are now.
    """

    def __init__(self, slots: Callable[[], dict[str, int]]):
        self._slots = slots
        self._deserted: float | None = None

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
                return arrived.get(timeout=_GLANCE_SECONDS)
            except Empty:
                self.look()

    def outcome(self, future: Any) -> Any:
        """Return the result of a task that has ended, or the exception that it raised; see :meth:`ended`."""
        from distributed.scheduler import KilledWorker

        if future.status == "cancelled":
            raise _disconnected()
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise ClusterLostError("several workers died of the same task, probably short of memory")
            return error
        return self._fetched(future)

    def _fetched(self, future: Any) -> Any:
        """Fetch a result; if its worker is gone by now it is computed again."""
        try:
            arriving = fetching(future)
            while not wait([arriving], timeout=_GLANCE_SECONDS).done:
                self.look()  # a large result takes its time
            return arriving.result()
        except ClusterLostError:
            raise
        except Exception as error:
            if future.status in ("error", "cancelled"):
                return self.outcome(future)
            raise _disconnected() from error

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


@contextmanager
def connected(client: Any) -> Iterator[None]:
    """Turn what talking to a scheduler that is gone raises into one error; where that is known, nobody is called."""
    if client.status != "running":
        raise _disconnected()
    try:
        yield
    except (CancelledError, OSError):
        raise _disconnected() from None


def _disconnected() -> ClusterLostError:
    return ClusterLostError("the connection to the scheduler was lost")
