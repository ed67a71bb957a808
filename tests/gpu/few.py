"""A few cases of every test of the GPU's kernels, for a checker that makes them slow: ``tests/gpu/few.py N [FILE …]``.

N cases of each test function are taken, spread over all; tests that draw their cases at random or fill a device are
left out. Every table is an allocation of its own, so that a checker of memory sees where it ends; CuPy's pool would
hide that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cupy
import pytest

TASKS = Path(__file__).resolve().parents[1] / "tasks"
OPTIONS = ["-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider", "-W", "default", "--durations=5"]
LARGE = {"test_all_tables_together_may_have_more_cells_than_32_bits_count"}


class Few:
    """A pytest plugin."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out what is drawn at random or fills a device."""
        items[:] = [
            item
            for item in items
            if not getattr(item.function, "is_hypothesis_test", False) and item.originalname not in LARGE
        ]


if __name__ == "__main__":
    cupy.cuda.set_allocator(None)
    cases, *files = sys.argv[1:]
    sys.exit(
        pytest.main(
            [*OPTIONS, "--cases", cases, *(files or map(str, sorted(TASKS.glob("test_gpu*.py"))))], plugins=[Few()]
        )
    )
