"""Memory that a run takes, without what happens once in a process.

The interpreter keeps every part of a path in one table of names. After thousands of tests that takes megabytes when it
grows, in the middle of whatever is measured then, and not again for a long time. So do tables of what was planned
before, layouts of keys say: thousands of entries, and the one that doubles the table takes a hundred kilobytes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


def traced(run: Callable[[], R], within: float | Callable[[R], float]) -> tuple[int, R]:
    """Return the peak of what Python and NumPy allocate in a run, and what it returns.

    Parameters
    ----------
    run : callable
    within : float or callable
        What the peak has to be within, of what the run returns if it depends on that. Only a run that took more is run
        once more, and the lesser peak of both is returned.
    """
    peak, found = _once(run)
    if peak <= (within(found) if callable(within) else within):
        return peak, found
    return min((peak, found), _once(run), key=lambda one: one[0])


def traced_boxes(run: Callable[[], R], ratios: list[float]) -> R:
    """Run with tracing on, and once more if a box took more than its part; return what the last run returns."""
    for _ in range(2):
        ratios.clear()
        _, found = _once(run)
        if max(ratios) <= 1:
            break
    return found


def _once(run: Callable[[], R]) -> tuple[int, R]:
    tracemalloc.start()
    try:
        found = run()
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()
