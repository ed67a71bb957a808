"""Sharing a compiled loop among threads; kernels release the GIL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from threading import Condition


def split(count: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into at most `parts` non-empty ranges at multiples of `unit`."""
    units = -(-count // unit)
    parts = max(1, min(parts, units))
    edges = [min(count, units * i // parts * unit) for i in range(parts + 1)]
    return list(pairwise(edges))


def share(work: Callable[[int, int, int], None], ranges: Sequence[tuple[int, int]]) -> None:
    """Call ``work(number, start, stop)`` for every range, each in its own thread and in the context of the caller.

    When this returns or raises, no thread is at work any more: tables are given to kernels as addresses, which keep
    nothing alive. The executor alone does not promise that: it forgets a thread whose start Ctrl-C interrupts.
    """
    if len(ranges) == 1:
        work(0, *ranges[0])
        return
    gate = _Gate()

    def guarded(number: int, start: int, stop: int) -> None:
        if gate.enter():
            try:
                work(number, start, stop)
            finally:
                gate.leave()

    try:
        with ThreadPoolExecutor(len(ranges)) as pool:
            calls = [partial(copy_context().run, guarded, i, start, stop) for i, (start, stop) in enumerate(ranges)]
            for done in [pool.submit(call) for call in calls]:
                done.result()
    finally:
        gate.close()


class _Gate:
    """Counts the threads inside; once closed, no thread enters."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> bool:
        """Go in, if the gate is open."""
        with self._changed:
            self._inside += not self._closed
            return not self._closed

    def leave(self) -> None:
        """Go out."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Admit no more threads, and wait until all have left."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)


# Freed memory held by the C library. Once a block of up to 32 MB was freed, the library keeps such blocks in its heap,
# where blocks of other sizes do not fit: a process may grow by half of its budget. Pure: nothing is computed here.

#: Blocks of this many bytes are returned: smaller ones are quicker to keep.
_LARGE = 1 << 20


def return_freed_pages() -> None:
    """Give pages back that hold only freed blocks, of whatever size; takes milliseconds."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_large_blocks() -> None:
    """Have every freed block of a megabyte and more given back to the system, where the C library can do that."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(-3, _LARGE)  # M_MMAP_THRESHOLD
