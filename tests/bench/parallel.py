"""What more cores gain on hard optima: ``parallel.py [--rounds 3] [--limit 60] [--only KIND] [NAME ...]``.

Layers of rows by two threads beside one, and all ways with two workers beside none. Each run is a process of its own,
the two of a pair one after the other, the first in turn; the least seconds of all rounds are shown, with the load of
the machine before each. As others that run take from what is gained, there is also the path: CPU seconds that follow
each other, which are those of the main process, and of what threads share only the longest share.

Also what two workers cost that have run the query before: dense sweeps beside one process (kind ``warm``), and tasks of
single steps (kind ``steps``).
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
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memory import DATA, file_of
from parts.processes import Spent, timed
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.cluster.connect import local_client
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
#: Dense sweeps of 5 CPU seconds and more, with what is asked.
WARM: dict[str, dict[str, Any]] = {
    "pdb1a62": {"query": "partition", "method": "dense", "memory": "1GB"},
    "myciel5_3": {"method": "dense", "memory": "1GB"},
}
#: Bayesian networks whose marginals take many small steps.
STEPS = ("pigs", "barley")


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


def least(rounds: int, work: Callable[[], Any]) -> tuple[Any, Spent]:
    """Repeat some work after a first time that does not count; return what it found, and the round of the least CPU."""
    work()
    return min((timed(work) for _ in range(rounds)), key=lambda one: one[1].cpu)


def warm(client: Any, names: Sequence[str], rounds: int) -> Table:
    """CPU seconds of one process and of two workers."""
    table = Table(title=f"dense sweeps on two warm workers, least CPU of {rounds} rounds")
    headings = ("wall 1", "wall 2", "CPU-s 1", "client and scheduler", "workers", "CPU-s 2", "ratio", "tasks")
    for heading in ("instance", *headings):
        table.add_column(heading)
    for name in names:
        model, asked = bucketflow.load(file_of(name)), WARM[name]
        _, one = least(rounds, partial(bucketflow.solve, model, threads=1, **asked))
        found, two = least(rounds, partial(bucketflow.solve, model, client=client, **asked))
        numbers = one.wall, two.wall, one.cpu, two.here, two.workers, two.cpu, two.cpu / one.cpu
        table.add_row(name, *[f"{number:.2f}" for number in numbers], str(found.dask.tasks))
    return table


def steps(client: Any, names: Sequence[str], rounds: int) -> Table:
    """CPU milliseconds a task of single steps."""
    table = Table(title=f"marginals by --tasks steps on two warm workers, least CPU of {rounds} rounds")
    for heading in ("instance", "tasks", "wall s", "client and scheduler, ms a task", "workers", "CPU-ms a task"):
        table.add_column(heading)
    for name in names:
        model = bucketflow.load(next(DATA.rglob(f"{name}.bif.gz")))
        found, spent = least(rounds, partial(bucketflow.marginals, model, client=client, tasks="steps"))
        tasks = found.dask.tasks
        each = [f"{1e3 * seconds / tasks:.2f}" for seconds in (spent.here, spent.workers, spent.cpu)]
        table.add_row(name, str(tasks), f"{spent.wall:.2f}", *each)
    return table


def main() -> None:
    """Run all pairs, and print a line for each instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", choices=(*PAIRS, "warm", "steps"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--ask", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(answer(options.names[0], options.ask)))
        return
    kinds = {"warm": (warm, WARM), "steps": (steps, STEPS)}
    chosen = [kind for kind in kinds if options.only in (None, kind)]
    with local_client(2) if chosen else nullcontext() as client:
        for kind in chosen:
            measure, own = kinds[kind]
            Console(width=190).print(measure(client, [n for n in own if n in (options.names or own)], options.rounds))
    if options.only in kinds:
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
