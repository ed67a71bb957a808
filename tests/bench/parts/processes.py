"""CPU seconds of this process and of its workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")


@dataclass(frozen=True)
class Spent:
    """Wall seconds of some work, and CPU seconds of this process and of the processes that it started."""

    wall: float
    here: float
    workers: float

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes."""
        return self.here + self.workers


def timed(work: Callable[[], T]) -> tuple[T, Spent]:
    """Return the result of some work, and what it took."""
    start, (here, workers) = time.perf_counter(), _seconds()
    found = work()
    wall, (here_after, workers_after) = time.perf_counter() - start, _seconds()
    return found, Spent(wall, here_after - here, workers_after - workers)


def _seconds() -> tuple[float, float]:
    """CPU seconds of this process, and of all that it started; those that ended count once their parent noticed."""
    this = psutil.Process()
    own = this.cpu_times()
    workers = own.children_user + own.children_system
    for process in this.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        workers += times.user + times.system + times.children_user + times.children_system
    return own.user + own.system, workers
