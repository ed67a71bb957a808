"""GPUs of this process: threads of their own for each, for calls that wait for a device most of the time.

Such calls need no process for each GPU, which takes seconds to start and to which everything travels.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from itertools import count, islice
from typing import Any, Final

from .pool import Call, LabelOf, ThreadPool

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


class DeviceThreads(ThreadPool):
    """Runs calls, and graphs of tasks, on the first GPUs of this process; each goes to a device that is free.

    Parameters
    ----------
    devices : int
    at_a_time : int
        Calls of a device at the same time: of two, one prepares and reads while the other computes.
    looked_at : int
        Number of ready tasks of a graph that are searched for a task near a free device.
    """

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

    def stream(
        self, function: Callable[..., Any], calls: Iterable[Call], label: LabelOf | None = None
    ) -> Iterator[Any]:
        """Yield results in the order of their calls.

        A device that is slow, or still being started, holds up no other one. The end of the stream does not wait for a
        device that is still being started; a caller that leaves early waits for the running calls.
        """
        numbers, pending = count(), iter(calls)
        window = deque[Future[Any]]()

        def submit() -> None:
            for call in islice(pending, self._room(window)):
                # limits that hold where the calls are made hold for them
                window.append(executor.submit(copy_context().run, function, *call))

        executor = ThreadPoolExecutor(self.width, "device", lambda: self.begin(next(numbers) % self.devices))
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
        return max(min(_AHEAD * self.width - done.count(False), _WAITING * self.width - len(done)), 0)
