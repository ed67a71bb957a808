"""One answer on 1, 2, 4, … GPUs: ``python tests/bench/gpu_scaling.py [--counts 1,2,4] [--long] [--only WORD]``.

Threads of one process use the GPUs; with ``--cluster`` each GPU has a worker process of a Dask cluster.

CELAR6-SUB0 fits one device and is one huge step and what belongs to it, which is cut over the devices; sixteen copies
of it are independent subtrees; Promedas_41 is given little memory and is many slices; ``--long`` adds Grids_28, its
sum, and a part of CELAR6-SUB1's slices. The GPUs are started before the clock starts, and short runs are repeated.
Efficiency is the time on one GPU over the time on N and N; runs of less than a second show what a run costs besides.

Then, through the public interface: 2,000 cases of munin3 and diabetes of which a fifth of the variables is observed, a
grid whose tables pass through files, and the same with a worker that is killed once 40 of its chunks are there.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gpu_models import BUDGET, CASES, planned, stored_trees
from parts.instances import grid_model, labels
from parts.needs import cupy, data_folder

import bucketflow
from bucketflow.cluster.gpus import gpu_client, visible_gpus
from bucketflow.pipeline.answering.placement import divided
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget.fit import Prices
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.trees.costs import gpu_rates
from bucketflow.storage import ledger

REPEATS = 2
LONG_SECONDS = 6.0
"""A first run that takes so long is not repeated: what it did once does not matter."""


@dataclass(frozen=True)
class Job:
    """A case of ``gpu_models``, and the memory of a device that its plan may use."""

    title: str
    case: str
    memory_bytes: int = BUDGET


JOBS = [
    Job("one huge step", "CELAR6-SUB0"),
    Job("independent subtrees", "16 x CELAR6-SUB0"),
    Job("many slices", "Promedas_41 MPE", 2 * 10**9),
]
LONG = [
    Job("many large slices", "Grids_28 MPE"),
    Job("sums in slices", "Grids_28 Z"),
    Job("44 states in slices", "CELAR6-SUB1, part"),
]


def timed(job: Job, client: Any, count: int) -> tuple[float, str]:
    """Return the seconds of the fastest run on ``count`` GPUs, and what it was."""
    case = next(c for c in CASES if c.name == job.case)
    prepared = planned(case, stored_trees().get(case.tree), None, job.memory_bytes, count)
    resources = Resources(Options(client=client, gpus=count))
    plan = prepared.plan
    assert plan is not None
    assert resources.gpu_count == count
    plan = divided(plan, resources, gpu_rates(prepared.problem.semiring), lambda: job.memory_bytes)
    prepared = replace(prepared, prices=Prices(plan), resources=resources)
    times: list[float] = []
    while len(times) <= REPEATS and (not times or times[0] < LONG_SECONDS):
        start = time.perf_counter()
        result = answered(prepared, None, None, [])
        assert isinstance(result, Result)
        times.append(time.perf_counter() - start)
    value = result.log10 if result.value is None else float(result.value)
    right = "" if case.answer is None else ", right" if value == case.answer else f", WRONG, not {case.answer}"
    figures = f"{plan.slices} slices (x{plan.slice_overhead:.2f}), {plan.tasks} tasks, first run {times[0]:.2f} s"
    return min(times), f"{figures}, {value}{right}"


#: Rows, columns and states of the grid whose tables are files, and what each device may take.
GRID, SPILL_MEMORY = (12, 12, 4), "60MB"
NETWORKS = ("munin3", "diabetes")


def batch_seconds(name: str, count: int) -> tuple[float, str]:
    """Return the seconds of 2,000 cases of a network, and how many variables have posteriors."""
    model = bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz")
    rng, cases = np.random.default_rng(3), 2_000
    drawn = bucketflow.sample(model, 50, seed=1)
    columns = {v: labels(model, v, np.array(drawn[v])[rng.integers(50, size=cases)]) for v in model.names}
    findings = {v: np.where(rng.random(cases) < 0.2, column, None) for v, column in columns.items()}
    compiled = bucketflow.compile(model, gpus=count)
    compiled.marginals_batch({v: column[:8] for v, column in findings.items()})
    start = time.perf_counter()
    found = compiled.marginals_batch(findings)
    return time.perf_counter() - start, f"{len(found)} variables"


def spill_seconds(client: Any, count: int, killed: bool) -> tuple[float, str]:
    """Return the seconds of a grid whose tables are files, and its value; perhaps a worker is killed on the way."""
    model = grid_model(*GRID)
    told: dict[str, Any] = {"gpus": count, "gpu_memory": SPILL_MEMORY, "client": client, "fit": "spill"}
    remark = ""
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"

        def kill() -> None:
            nonlocal remark
            while not finished.wait(0.05):
                if len(list((run / "tables").glob("*/c.*"))) >= 40:
                    victim = next(iter(client.run(os.getpid).values()))
                    os.kill(victim, signal.SIGKILL)
                    remark = ", a worker was killed"
                    return

        finished = threading.Event()
        thread = threading.Thread(target=kill)
        start = time.perf_counter()
        if killed:
            thread.start()
        result = bucketflow.solve(model, workdir=run, **told)
        seconds = time.perf_counter() - start
        finished.set()
        if killed:
            thread.join()
        receipts = len(ledger.load(run / "tables"))
    return seconds, f"{receipts} receipts, value {result.value}{remark}"


def public(client: Any, count: int, only: str) -> None:
    """Print a line for each run through the public interface."""
    runs: dict[str, Any] = {f"2,000 cases of {name}": lambda name=name: batch_seconds(name, count) for name in NETWORKS}
    runs["tables in files"] = lambda: spill_seconds(client, count, False)
    if client is not None and count > 1:
        runs["a worker is killed"] = lambda: spill_seconds(client, count, True)
    for title, run in runs.items():
        if only in title:
            seconds, figures = min(run() for _ in range(1 if "killed" in title else REPEATS))
            print(f"{title:24s} {count} GPUs {seconds:8.3f} s; {figures}", flush=True)


def main() -> None:
    """Print a line for each job and number of GPUs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default="1,2,4,8")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--cluster", action="store_true", help="worker processes instead of threads")
    parser.add_argument("--only", default="", metavar="WORD", help="runs whose titles have it")
    chosen = parser.parse_args()
    cupy()
    there = len(visible_gpus())
    busy: dict[Job, float] = {}
    for count in (n for n in map(int, chosen.counts.split(",")) if n <= there):
        with gpu_client(count) if chosen.cluster else nullcontext() as client:
            for job in (job for job in JOBS + (LONG if chosen.long else []) if chosen.only in job.title):
                seconds, figures = timed(job, client, count)
                efficiency = busy.setdefault(job, seconds * count) / (seconds * count)
                print(
                    f"{job.title:20s} {job.case:16s} {count} GPUs {seconds:8.3f} s, efficiency {efficiency:4.0%}; "
                    f"{figures}",
                    flush=True,
                )
            public(client, count, chosen.only)


if __name__ == "__main__":
    main()
