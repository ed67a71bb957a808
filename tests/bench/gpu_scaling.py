"""One answer on 1, 2, 4, … GPUs: ``python tests/bench/gpu_scaling.py [--counts 1,2,4] [--long]``.

CELAR6-SUB0 fits one device and is one huge step and what belongs to it, which is cut over the devices; sixteen copies
of it are independent subtrees; Promedas_41 is given little memory and is many slices; ``--long`` adds Grids_28. The
workers are up before the clock starts, and short runs are repeated. Efficiency is the time on one GPU over the time on
N and N; runs of less than a second show what a run costs besides.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

from gpu_models import BUDGET, CASES, planned, stored_trees
from parts.needs import cupy

from bucketflow.cluster.gpus import gpu_client, visible_gpus
from bucketflow.pipeline.answering.placement import divided
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget.fit import Prices
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.trees.costs import gpu_rates

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
LONG = [Job("many large slices", "Grids_28 MPE")]


def timed(job: Job, client: Any, count: int) -> tuple[float, str]:
    """Return the seconds of the fastest run on ``count`` GPUs, and what it was."""
    case = next(c for c in CASES if c.name == job.case)
    prepared = planned(case, stored_trees().get(case.tree), None, job.memory_bytes, count)
    resources = Resources(Options(client=client, gpus=count))
    plan = prepared.plan
    assert plan is not None
    assert len(resources.gpu_workers) == count
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


def main() -> None:
    """Print a line for each job and number of GPUs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default="1,2,4,8")
    parser.add_argument("--long", action="store_true")
    chosen = parser.parse_args()
    cupy()
    there = len(visible_gpus())
    busy: dict[Job, float] = {}
    for count in (n for n in map(int, chosen.counts.split(",")) if n <= there):
        with gpu_client(count) as client:
            for job in JOBS + (LONG if chosen.long else []):
                seconds, figures = timed(job, client, count)
                efficiency = busy.setdefault(job, seconds * count) / (seconds * count)
                print(
                    f"{job.title:20s} {job.case:16s} {count} GPUs {seconds:8.3f} s, efficiency {efficiency:4.0%}; "
                    f"{figures}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
