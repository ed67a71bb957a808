"""A few cases of every test of the GPU's kernels, for a checker that makes them slow: ``tests/gpu/few.py N [FILE …]``.

N cases of each test function are taken, evenly spaced; tests that draw their cases at random are left out. Every table
is an allocation of its own, so that a checker of memory sees where it ends; CuPy's pool would hide that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import cupy
import pytest

TASKS = Path(__file__).resolve().parents[1] / "tasks"
OPTIONS = ["-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider", "-W", "default", "--durations=5"]


class Few:
    """A pytest plugin."""

    def __init__(self, cases: int) -> None:
        self.cases = cases

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep some items of each test function."""
        found = defaultdict(list)
        for item in items:
            if item.get_closest_marker("gpu") and not getattr(item.function, "is_hypothesis_test", False):
                found[item.function].append(item)
        items[:] = [
            some[i * len(some) // n] for some in found.values() for n in [min(self.cases, len(some))] for i in range(n)
        ]


if __name__ == "__main__":
    cupy.cuda.set_allocator(None)
    cases, *files = sys.argv[1:]
    sys.exit(
        pytest.main([*OPTIONS, *(files or map(str, sorted(TASKS.glob("test_gpu*.py"))))], plugins=[Few(int(cases))])
    )
