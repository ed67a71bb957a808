"""Sharing a compiled loop among threads; kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise


def split(count: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into at most `parts` non-empty ranges at multiples of `unit`."""
    units = -(-count // unit)
    parts = max(1, min(parts, units))
    edges = [min(count, units * i // parts * unit) for i in range(parts + 1)]
    return list(pairwise(edges))


def share(work: Callable[[int, int, int], None], ranges: Sequence[tuple[int, int]]) -> None:
    """Call ``work(number, start, stop)`` for every range, each in its own thread."""
    if len(ranges) == 1:
        work(0, *ranges[0])
        return
    with ThreadPoolExecutor(len(ranges)) as pool:
        for done in [pool.submit(work, i, start, stop) for i, (start, stop) in enumerate(ranges)]:
            done.result()
