"""A few cases of every test of the GPU's kernels, for a checker that makes them slow: ``tests/gpu/few.py N [FILE …]``.

N cases of each test function are taken, spread over all; tests that draw their cases at random or fill a device are
left out. Every table is an allocation of its own, so that a checker of memory sees where it ends; CuPy's pool would
hide that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from math import gcd
from pathlib import Path
from typing import Any

import cupy
import pytest

TASKS = Path(__file__).resolve().parents[1] / "tasks"
OPTIONS = ["-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider", "-W", "default", "--durations=5"]
LARGE = {"test_all_tables_together_may_have_more_cells_than_32_bits_count"}


class Few:
    """A pytest plugin."""

    def __init__(self, cases: int) -> None:
        self.cases = cases

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep some items of each test function."""
        found = defaultdict(list)
        for item in items:
            drawn = getattr(item.function, "is_hypothesis_test", False)
            if item.get_closest_marker("gpu") and not drawn and item.originalname not in LARGE:
                found[item.function].append(item)
        items[:] = [item for some in found.values() for item in spread(some, self.cases)]


def spread(items: list[Any], count: int) -> list[Any]:
    """Choose some items such that products of several parameters are not all met with one value of a parameter."""
    step = next(s for s in range(max(1, round(0.618 * len(items))), 2 * len(items) + 1) if gcd(s, len(items)) == 1)
    return [items[i * step % len(items)] for i in range(min(count, len(items)))]


if __name__ == "__main__":
    cupy.cuda.set_allocator(None)
    cases, *files = sys.argv[1:]
    sys.exit(
        pytest.main([*OPTIONS, *(files or map(str, sorted(TASKS.glob("test_gpu*.py"))))], plugins=[Few(int(cases))])
    )
