"""GPUs of this process: threads of their own for each, for calls that wait for a device most of the time.

Such calls need no process for each GPU, which takes seconds to start and to which everything travels.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import count, islice
from typing import Any, Final

from .pool import Call, SerialPool

_HERE: Final = threading.local()
_BEGUN: Final[set[int]] = {0}
# Calls and results in flight for each thread.
_AHEAD: Final = 2


def present_device() -> int:
    """Return the number of the GPU that this thread uses, among those that the process sees."""
    return int(getattr(_HERE, "number", 0))


def begun_devices() -> int:
    """Return how many GPUs were used in this process, which takes each of them a while the first time."""
    return len(_BEGUN)


class DeviceThreads(SerialPool):
    """Streams calls over the first GPUs of this process; each goes to the device that is free first.

    Parameters
    ----------
    devices : int
    at_a_time : int
        Calls of a device at the same time: of two, one prepares and reads while the other computes.
    """

    def __init__(self, devices: int, at_a_time: int = 2) -> None:
        self.width, self._at_a_time = devices, at_a_time

    def stream(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """Yield results in the order of their calls; who leaves early waits for the calls that were begun."""
        threads, numbers, pending = self.width * self._at_a_time, count(), iter(calls)

        def begin() -> None:
            _HERE.number = next(numbers) % self.width
            _BEGUN.add(_HERE.number)
            cupy = sys.modules.get("cupy")
            if cupy is not None:
                cupy.cuda.Device(_HERE.number).use()

        def submit(call: Call) -> Future[Any]:
            # limits that hold where the calls are made hold for them
            return executor.submit(copy_context().run, function, *call)

        executor = ThreadPoolExecutor(threads, "device", begin)
        try:
            window = deque(map(submit, islice(pending, _AHEAD * threads)))
            while window:
                found = window.popleft().result()
                window.extend(map(submit, islice(pending, 1)))
                yield found
        finally:
            executor.shutdown(cancel_futures=True)
