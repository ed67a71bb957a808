"""Memory of each way to prove an optimum: ``python tests/bench/memory.py [--memory MB] [--seconds S] [NAME ...]``.

Every method alone, and all together (local search is one of these), is a process of its own that ends after some
seconds. Its largest resident size must not exceed the budget and what Python with compiled code takes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Hard for most ways.
INSTANCES = ("linkage_15", "scen07", "CELAR6-SUB4", "Grids_18", "75-26-5")
METHODS = ("rows", "search", "diagram", "dense", "auto")
#: What a process may take beside its budget.
BASE_BYTES = 200_000_000
DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))


def file_of(name: str) -> Path:
    """Return the file of an instance."""
    endings = [f"{kind}{packed}" for kind in ("uai", "wcsp") for packed in (".xz", "")]
    return next(path for ending in endings for path in sorted(DATA.rglob(f"{name}.{ending}")))


def measured(path: Path, method: str, budget: int, seconds: float) -> tuple[int, str]:
    """Return the largest resident size of a process, and how it ended."""
    options = ["--memory", f"{budget // 10**6}MB", "--method", method, "--time", str(seconds), "--json"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "bucketflow", "solve", str(path), *options], stdout=out, stderr=errors
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        answer = out.read()
        text = json.loads(answer)["status"] if answer else errors.read().decode().strip()[:60]
    return usage.ru_maxrss * 1024, text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=INSTANCES)
    parser.add_argument("--memory", type=int, default=64, metavar="MB")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    budget, over = options.memory * 10**6, 0
    for name in options.names:
        for method in METHODS:
            peak, text = measured(file_of(name), method, budget, options.seconds)
            left = budget + BASE_BYTES - peak
            over += left < 0
            print(f"{name:16}{method:10}{peak / 1e6:8.0f} MB  {left / 1e6:+8.0f} MB left  {text}", flush=True)
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
