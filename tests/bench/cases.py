"""Many cases of evidence beside Fast-BNI: ``python tests/bench/cases.py [NAME …] [--gpus 1] [--sample N]``.

Its benchmark (Jiang, Wen, Mansoor and Mian, Fast Parallel Exact Inference on
Bayesian Networks, PPoPP 2023): 2,000 cases, in
each of which 20% of the variables, other ones in each, are observed in states that are drawn together, and all
posteriors are asked for. Theirs are seconds on at most 32 threads; how many gave them is not at hand, so core-seconds
are theirs times 32, the most that they can be, and times 1, the least. Ours is the call ``marginals_batch`` of a
compiled model, which planning is not part of. With ``--sample`` fewer cases are answered and seconds are those of all
in proportion, marked with ~. ``differs`` is the largest difference from single questions, of a few cases.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.reproduce.papers import Instances

PUBLISHED: Mapping[str, float | None] = {
    "hailfinder": 2.5,
    "pathfinder": 11.1,
    "pigs": 222.0,
    "munin2": 242.0,
    "munin3": None,
    "munin4": 3021.0,
    "munin": None,
    "diabetes": 559.0,
    "link": None,
}
"""Seconds that are published; ``munin`` is the whole network, which has three nodes more than Munin4."""
THREADS = 32
CASES = 2000
OBSERVED = 0.2
CHECKED = 3

States = NDArray[np.int32]


@dataclass(frozen=True)
class Took:
    """Wall and CPU seconds of all cases, from how many were answered, and what was found."""

    wall: float
    cpu: float
    answered: int
    found: Any


def forward_samples(model: bucketflow.Model, count: int, rng: np.random.Generator) -> States:
    """Draw joint states of a Bayesian network, parents first; returns (variables, samples)."""
    drawn = np.full((len(model.dims), count), -1, dtype=np.int32)
    waiting = {f.child: f for f in model.functions}
    while waiting:
        for v, f in list(waiting.items()):
            parents = [u for u in f.scope if u != v]
            if any(u in waiting for u in parents):
                continue
            table = np.moveaxis(np.asarray(f.values, dtype=np.float64), f.scope.index(v), -1)
            shares = table[tuple(drawn[u] for u in parents)] if parents else np.broadcast_to(table, (count, len(table)))
            ends = np.cumsum(shares, axis=-1)
            drawn[v] = (rng.random((count, 1)) * ends[:, -1:] >= ends).sum(axis=1)
            del waiting[v]
    return drawn


def cases_of(model: bucketflow.Model, count: int) -> dict[str, States]:
    """Draw cases, each with 20% of the variables observed; -1 is not observed."""
    rng = np.random.default_rng(32)
    drawn = forward_samples(model, count, rng)
    observed = round(OBSERVED * len(model.dims))
    ranks = rng.random(drawn.shape).argsort(axis=0).argsort(axis=0)
    return dict(zip(model.names, np.where(ranks < observed, drawn, -1), strict=True))


def timed(answer: Callable[[dict[str, States]], Any], cases: dict[str, States], sample: int) -> Took:
    """Answer a sample of the cases, after as small a one that loads compilers; scale what it took to all."""

    def first(n: int) -> dict[str, States]:
        return {name: column[:n] for name, column in cases.items()}

    answer(first(min(sample, 64)))
    wall, cpu = time.perf_counter(), time.process_time()
    found = answer(first(sample))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = len(next(iter(cases.values())))
    return Took(wall * count / sample, cpu * count / sample, sample, found)


def difference(compiled: bucketflow.Compiled, cases: dict[str, States], found: Any) -> float:
    """Largest difference of the first cases from what they are alone."""
    worst = 0.0
    for k in range(CHECKED):
        compiled.set_evidence({name: int(column[k]) for name, column in cases.items() if column[k] >= 0})
        alone = compiled.marginals()
        worst = max([worst, *(float(np.abs(alone[name] - found[name][k]).max()) for name in alone)])
        worst = max(worst, abs(alone.log10_evidence - found.log10_evidence[k]))
    compiled.set_evidence({})
    return worst


def line(name: str, options: Any, instances: Instances) -> list[str]:
    """Return a network's line of the table."""
    path = instances.path(f"bn/{name}.bif", f"bn/{name}.net", f"bn/net/{name}.net")
    if path is None:
        return [name, "no file"]
    model = bucketflow.load(str(path))
    cases = cases_of(model, options.cases)
    compiled = bucketflow.compile(model, threads=options.threads, memory="16GB", background=False)
    sample = min(options.sample or options.cases, options.cases)
    ours = timed(compiled.marginals_batch, cases, sample)
    gap, theirs = difference(compiled, cases, ours.found), PUBLISHED[name]
    about = "" if sample == options.cases else "~"
    cells = [name, f"{sample:,}", _figure(theirs), f"{about}{ours.wall:.3g}", f"{about}{ours.cpu:.3g}"]
    ratios = [] if theirs is None else [theirs * t / ours.cpu for t in (THREADS, 1)]
    cells.append(" – ".join(f"{ratio:,.1f}" for ratio in reversed(ratios)))
    if options.gpus:
        device = bucketflow.compile(model, gpus=options.gpus)
        there = timed(device.marginals_batch, cases, options.cases)
        gap = max(gap, *(float(np.abs(there.found[n][:sample] - ours.found[n]).max()) for n in ours.found))
        cells += [f"{there.wall:.3g}", "" if theirs is None else f"{theirs / there.wall:,.0f}"]
    else:
        cells += ["", ""]
    return [*cells, f"{gap:.1g}"]


def _figure(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PUBLISHED))
    parser.add_argument("--cases", type=int, default=CASES, metavar="N")
    parser.add_argument("--sample", type=int, metavar="N", help="answer so many on the CPU")
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU; all without it")
    parser.add_argument("--gpus", help="answer all on so many GPUs too")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PUBLISHED]:
        raise SystemExit(f"no network {unknown[0]!r}; there are {', '.join(PUBLISHED)}")
    instances = Instances(data_folder())
    table = Table(title=f"{options.cases:,} cases, {OBSERVED:.0%} observed, all posteriors: seconds")
    headings = ("network", "answered", "Fast-BNI", "CPU wall", "CPU-s", "× its core-s")
    for heading in (*headings, "GPU wall", "× its s", "differs"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for name in options.names or PUBLISHED:
        cells = line(name, options, instances)
        print("  ".join(cells), flush=True)
        table.add_row(*cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
