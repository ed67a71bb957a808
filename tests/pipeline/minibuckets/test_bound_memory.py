"""Ways to prove optima stay within their memory, where they would take any amount of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = 24_000_000
#: What the allocator keeps, and arrays too small to be counted.
SLACK = 8_000_000
MEASURE = """
import sys
from pathlib import Path
import numpy as np
import bucketflow
from bucketflow.tasks.compiler.code_cache import impatient

def grid(n, d):
    rng = np.random.default_rng(0)
    names = {f"x{r}_{c}": d for r in range(n) for c in range(n)}
    pairs = [((r, c), (r + a, c + b)) for r in range(n) for c in range(n) for a, b in ((0, 1), (1, 0))]
    functions = [
        ([f"x{r}_{c}", f"x{s}_{e}"], rng.integers(0, 100_000, (d, d))) for (r, c), (s, e) in pairs if s < n and e < n
    ]
    return bucketflow.Model.build("cost", names, functions)

def resident(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])

method, memory = sys.argv[1], int(sys.argv[2])
options = {"method": method, "prune": False, "memory": memory}
with impatient():  # loads what it needs
    bucketflow.solve(grid(5, 4), time=60, **options)
hard = grid(16, 8)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = resident("VmRSS")
status = bucketflow.solve(hard, time=2, **options).status
print(resident("VmHWM") - before, status)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is measured on Linux only")
@pytest.mark.parametrize("method", ["rows", "diagram", "search"])
def test_ways_stay_within_their_memory(method: str) -> None:
    command = [sys.executable, "-c", MEASURE, method, str(MEMORY)]
    grown, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert status == "bounded"
    assert int(grown) <= MEMORY + SLACK
