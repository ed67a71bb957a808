"""Seconds that were spent on work, and those on compiling the loops that do it; who wants to know when they are.

Pure: planning alone need not import a compiler for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# CPU seconds of a compiled search between two looks at the clock.
LOOK_SECONDS = 0.03
# CPU seconds, and seconds of a clock.
_compiling = [0.0, 0.0]
# CPU seconds of other processes that worked for this one, in all and by thread.
_outside = [0.0]
_by_thread = threading.local()
_listeners: list[Callable[[bool], None]] = []


def working_seconds() -> float:
    """Return the CPU seconds of this process and of those that work for it, without the seconds of compilation."""
    return time.process_time() + _outside[0] - _compiling[0]


def thread_seconds() -> float:
    """Return the CPU seconds of this thread and of the processes that work for it."""
    return time.thread_time() + getattr(_by_thread, "seconds", 0.0)


def count_outside(cpu_seconds: float) -> None:
    """Enter CPU seconds of another process that worked for this thread."""
    _outside[0] += cpu_seconds
    _by_thread.seconds = getattr(_by_thread, "seconds", 0.0) + cpu_seconds


def compiling_seconds() -> float:
    """Return how many seconds compiling took in this process, by the clock."""
    return _compiling[1]


def count_compiling(cpu_seconds: float, seconds: float = 0.0) -> None:
    """Enter seconds that went into compiling: of the CPU, and of the clock."""
    _compiling[0] += cpu_seconds
    _compiling[1] += seconds


def say_compiling(begins: bool) -> None:
    """Notify the listeners that compilation begins or ended."""
    for listener in tuple(_listeners):
        listener(begins)


@contextmanager
def told_of_compiling(listener: Callable[[bool], None]) -> Iterator[None]:
    """Call a function whenever compiling begins, and when it ends."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
