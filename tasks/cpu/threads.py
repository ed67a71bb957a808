"""Sharing a compiled loop among threads; kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Condition


def split(count: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into at most `parts` non-empty ranges at multiples of `unit`."""
    units = -(-count // unit)
    parts = max(1, min(parts, units))
    edges = [min(count, units * i // parts * unit) for i in range(parts + 1)]
    return list(pairwise(edges))


def share(work: Callable[[int, int, int], None], ranges: Sequence[tuple[int, int]]) -> None:
    """Call ``work(number, start, stop)`` for every range, each in its own thread.

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
            for done in [pool.submit(guarded, i, start, stop) for i, (start, stop) in enumerate(ranges)]:
                done.result()
    finally:
        gate.close()


class _Gate:
    """Counts the threads inside; once closed, nobody enters."""

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
        """Let nobody in any more and wait until all are out."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)
