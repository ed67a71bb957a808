"""Cold kernels (not compiled yet): decide whether the cores end before a device has compiled its kernels.

The seconds of questions that run on the cores for this reason are added up. When their sum has reached the seconds of
starting or compiling, the device is used. Repeated questions therefore take at most twice the time of the better
choice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from .kernels import Kernel, compile_seconds
from .memory import LongStepError


class AvoidedStart:
    """Seconds that this process computed on its cores, because a device would have to start or to compile first.

    Threads may count concurrently, and blocks may contain blocks: each second of the process counts once.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._running, self._counted_until = 0, 0.0

    def remaining(self, seconds: float) -> float:
        """Return the seconds of a start, or of compiling, less the seconds that were computed on the cores."""
        return max(seconds - self.seconds, 0.0)

    def pay(self, seconds: float) -> None:
        """Use up counted seconds for a start or for compiling."""
        with self._lock:
            self.seconds = max(self.seconds - seconds, 0.0)

    def add(self, seconds: float) -> None:
        """Count predicted seconds of work that begins now on the cores."""
        with self._lock:
            self.seconds += seconds

    @contextmanager
    def counted(self, here: bool = True) -> Iterator[None]:
        """Count the seconds of a block that runs on the cores, even if it fails; ``here`` is False on a device."""
        if not here:
            yield
            return
        self._change_running(1)
        try:
            yield
        finally:
            self._change_running(-1)

    def _change_running(self, blocks: int) -> None:
        with self._lock:
            now = time.perf_counter()
            if self._running:
                self.seconds += now - self._counted_until
            self._counted_until = now
            self._running += blocks


AVOIDED_START: Final = AvoidedStart()


def cores_end_first(kernels: Iterable[Kernel], cores: float, device: float = 0.0, start: float = 0.0) -> bool:
    """Return whether this machine's cores end before a device has started, compiled its kernels and computed.

    Return False if the device has started and all kernels are compiled: then the sizes of steps decide. Return True if
    a step has too many parts for a launch. If the device is chosen, the added seconds are used up by its compiling.

    Parameters
    ----------
    kernels : iterable of Kernel
        Kernels of the device. Kernels that the decision does not need are not read.
    cores, device : float
        Predicted seconds on the cores, and on a device with compiled kernels.
    start : float
        Predicted seconds until the device starts; 0 if it has started.
    """
    try:
        compiling = start + compile_seconds(kernels, cores - device + AVOIDED_START.seconds - start)
    except LongStepError:
        return True
    if not compiling:
        return False
    if cores < device + AVOIDED_START.remaining(compiling):
        return True
    AVOIDED_START.pay(compiling)
    return False
