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


def traced(run: Callable[[], R]) -> tuple[int, R]:
    """Return the peak of what Python and NumPy allocate in a run, and what it returns; the lesser peak of two runs."""
    return min((_once(run) for _ in range(2)), key=lambda found: found[0])


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
