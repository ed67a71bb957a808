"""What more cores gain on hard optima: ``parallel.py [--rounds 3] [--limit 60] [--only rows|workers] [NAME ...]``.

Layers of rows by two threads beside one, and all ways with two workers beside none. Each run is a process of its own,
the two of a pair one after the other, the first in turn; the least seconds of all rounds are shown, with the load of
the machine before each. As others that run take from what is gained, there is also the path: CPU seconds that follow
each other, which are those of the main process, and of what threads share only the longest share.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import file_of
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.tasks.cpu import threads

#: By what is compared, the instances and what both runs are asked.
PAIRS = {
    "rows": (
        ("linkage_13", "75-26-5", "Promedas_11", "linkage_15"),
        ({"method": "rows", "threads": 1}, {"method": "rows", "threads": 2}),
    ),
    "workers": (
        ("wcsp_14", "90-38-5", "linkage_15", "CELAR6-SUB1"),
        ({"threads": 1}, {"threads": 1, "workers": 2}),
    ),
}


@dataclass(frozen=True)
class Run:
    """Wall seconds, CPU seconds of all processes, and how it ended; those of the path are told by the process."""

    wall: float
    cpu: float
    path: float
    end: str


def measured(path: Path, asked: dict[str, Any], limit: float) -> Run:
    """Solve in a process of its own; workers are children of it."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, "--ask", json.dumps({**asked, "time": limit}), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall, cpu, *json.loads(done.stdout.splitlines()[-1]))


def answer(path: str, asked: dict[str, Any]) -> tuple[float, str]:
    """Solve; return the seconds of the path, and the optimum or how far bounds are apart."""
    saved = [0.0]
    share = threads.share

    def timed(work: Callable[[int, int, int], None], ranges: Sequence[tuple[int, int]]) -> None:
        took = [0.0] * len(ranges)

        def one(number: int, start: int, stop: int) -> None:
            begun = time.thread_time()
            work(number, start, stop)
            took[number] = time.thread_time() - begun

        share(one, ranges)
        saved[0] += sum(took) - max(took)

    threads.share = timed
    found = bucketflow.solve(bucketflow.load(path), **asked)
    seconds = time.process_time() - saved[0]
    if found.status != "bounded":
        return seconds, f"{found.value if found.log10 is None else found.log10:.8g}"
    return seconds, f"gap {found.proof.gap if found.proof and found.proof.gap is not None else math.inf:.3g}"


def main() -> None:
    """Run all pairs, and print a line for each instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", choices=PAIRS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--ask", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(answer(options.names[0], options.ask)))
        return
    table = Table(title=f"least of {options.rounds} rounds, {len(os.sched_getaffinity(0))} cores")
    numbers = [f"{kind} {which}" for kind in ("wall", "path", "CPU") for which in ("1", "2", "ratio")]
    for heading in ("what", "instance", *numbers, "ends", "load before"):
        table.add_column(heading, no_wrap=True)
    for what, (names, pair) in PAIRS.items():
        for name in options.names or names if options.only in (None, what) else ():
            runs: tuple[list[Run], list[Run]] = ([], [])
            loads = []
            for number in range(options.rounds):
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    loads.append(f"{os.getloadavg()[0]:.1f}")
                    runs[which].append(measured(file_of(name), pair[which], options.limit))
            least = [[min(getattr(run, kind) for run in each) for each in runs] for kind in ("wall", "path", "cpu")]
            figures = [f"{number:.2f}" for one, two in least for number in (one, two, two / one)]
            ends = " / ".join(sorted({run.end for run in each})[0] for each in runs)
            table.add_row(what, name, *figures, ends, " ".join(loads))
    Console(width=190).print(table)


if __name__ == "__main__":
    main()
