"""Jobs under fire, and what handing a run over costs: processes of a cluster are killed at random moments of jobs.

Then runs on clusters as they are: workers of 700 MB, an S3 server instead of a shared disk, workers that come and go, a
scheduler that restarts.

Run by hand: ``python tests/bench/jobs.py --trials 200``, or ``--trials 0`` for the clusters alone.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from parts.conditions import all_rows

import bucketflow
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.storage import ledger
from bucketflow.storage.spec import Key, Receipt
from tests.clusters import Cluster
from tests.models import grid

_WORKERS = 3
_VICTIMS = ("client", "driver", "worker", "scheduler")


@dataclass(frozen=True)
class Case:
    """A model in a file, how it is asked, and its answer."""

    name: str
    path: Path
    options: dict[str, Any]
    value: int
    seconds: float


@dataclass
class Tally:
    """What happened in the trials of one kind."""

    trials: int = 0
    killed: int = 0
    right: int = 0
    redone: int = 0
    """Finished chunks and groups that were computed again."""
    at_once: int = 0
    """Those that were not finished when they were started again; both tasks came to their end."""
    resumed: int = 0
    remarks: list[str] = field(default_factory=list)


def make_cases(folder: Path, running: Cluster) -> list[Case]:
    """A run with tables on disk and one in slices, each timed once."""
    made = []
    for name, side, share in (("spill", 10, 8), ("slice", 10, 12)):
        path = folder / f"{name}.wcsp"
        bucketflow.save(grid(side, side, 4), path)
        model = bucketflow.load(path)
        plan = bucketflow.plan(model, tree="bucket")
        assert plan is not None
        options = {"tree": "bucket", "fit": name, "memory": plan.peak_bytes // share, "method": "dense"}
        value = bucketflow.solve(model, tree="bucket", method="dense").value
        for again in range(2):  # compiled code is loaded everywhere after the first
            start = time.perf_counter()
            job = bucketflow.submit(path, scheduler=running.address, workdir=folder / f"{name}-{again}", **options)
            assert job.result(timeout=300).value == value
            seconds = time.perf_counter() - start
        assert isinstance(value, int)
        made.append(Case(name, path, options, value, seconds))
    return made


def command_of(case: Case, running: Cluster, run: Path) -> list[str]:
    """The command line that submits a case."""
    options = [f"--{name}={value}" for name, value in case.options.items()]
    place = [f"--scheduler={running.address}", f"--workdir={run}"]
    return [sys.executable, "-m", "bucketflow", "submit", str(case.path), *options, *place]


def mend(running: Cluster) -> None:
    """Start what is missing."""
    if running.scheduler is None or running.scheduler.poll() is not None:
        running.start_scheduler()
    running.workers = [worker for worker in running.workers if worker.poll() is None]
    while len(running.workers) < _WORKERS:
        running.start_worker()
    running.ready(_WORKERS)


def attempt(case: Case, running: Cluster, run: Path, victim: str, draw: random.Random, tally: Tally) -> None:
    """Submit a job, kill something at a random moment, mend the cluster, and look at the answer."""
    tally.trials += 1
    client = subprocess.Popen(command_of(case, running, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if victim == "client":
        time.sleep(draw.uniform(0, 3.0))
        tally.killed += client.poll() is None
        client.kill()
    client.wait()
    if victim != "client":
        time.sleep(draw.uniform(0, case.seconds))
        tally.killed += kill(victim, running, run, draw)
    mend(running)
    job = bucketflow.Job(run)
    try:
        ended = job.wait(timeout=120).state
    except BucketflowError:  # the client died before there was a job
        ended = "none"
    if ended == "none":
        subprocess.run(command_of(case, running, run), check=True, stdout=subprocess.DEVNULL)
    elif ended == "interrupted":
        tally.resumed += 1
        job.resume()
    elif ended != "finished":
        tally.remarks.append(f"{ended}: {job.record.message}")
        return
    found: Any = job.result(timeout=120)
    tally.right += found.value == case.value
    count_again(ledger.history(run / "tables"), tally)


def count_again(written: list[tuple[str, Receipt]], tally: Tally) -> None:
    """Count what left several receipts, by whether it was finished when it was begun again."""
    first: dict[Key, float] = {}
    for _, receipt in sorted(written, key=lambda found: found[1].ended):
        if receipt.key in first:
            again = receipt.ended - receipt.seconds > first[receipt.key]
            tally.redone += again
            tally.at_once += not again
        first.setdefault(receipt.key, receipt.ended)


def kill(victim: str, running: Cluster, run: Path, draw: random.Random) -> bool:
    """Kill a part of the cluster; whether the job was still under way."""
    under_way = bucketflow.Job(run).record.state in ("waiting", "running")
    process = running.scheduler
    if victim == "worker":
        process = draw.choice(running.workers)
    elif victim == "driver":
        worker = bucketflow.Job(run).record.worker
        process = running.worker_at(worker) if worker else draw.choice(running.workers)
    assert process is not None
    process.kill()
    process.wait()
    if victim == "scheduler":
        for worker_process in running.workers:  # they end with it, sooner or later
            worker_process.kill()
            worker_process.wait()
    return under_way


def overhead(case: Case, running: Cluster, folder: Path, rounds: int) -> Table:
    """Time a submitted job beside the same run with the client staying, in turns."""
    solve = [part if part != "submit" else "solve" for part in command_of(case, running, folder / "run")]
    times: dict[str, list[float]] = {"solve --scheduler": [], "submit, result --wait": []}

    def timed(name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        times[name].append(time.perf_counter() - start)

    def submitted(run: Path) -> None:
        subprocess.run(command_of(case, running, run), check=True, stdout=subprocess.DEVNULL)
        waiting = [sys.executable, "-m", "bucketflow", "result", str(run), "--wait", "--json"]
        subprocess.run(waiting, check=True, stdout=subprocess.DEVNULL)

    for k in range(rounds):
        place = [f"--workdir={folder / f'stay{k}'}" if p.startswith("--workdir") else p for p in solve]
        timed("solve --scheduler", lambda p=place: subprocess.run(p, check=True, stdout=subprocess.DEVNULL))
        timed("submit, result --wait", lambda k=k: submitted(folder / f"leave{k}"))
    table = Table(title=f"The same run ({case.name}) with its client and without, {rounds} times in turns")
    for heading in ("way", "best s", "all"):
        table.add_column(heading)
    for name, seconds in times.items():
        table.add_row(name, f"{min(seconds):.2f}", ", ".join(f"{s:.2f}" for s in seconds))
    return table


def conditions(folder: Path) -> Table:
    """Run on clusters as they are."""
    table = Table(title="Runs on clusters as they are")
    for heading in ("what", "wall s", "CPU-s", "right", "remark"):
        table.add_column(heading)
    for cells in all_rows(folder):
        table.add_row(*cells)
        print(*cells, sep="; ", file=sys.stderr, flush=True)
    return table


@click.command()
@click.option("--trials", default=200, show_default=True, help="0 for the runs on clusters as they are alone.")
@click.option("--rounds", default=3, show_default=True, help="Of the comparison with a client that stays.")
@click.option("--seed", default=0, show_default=True)
def main(trials: int, rounds: int, seed: int) -> None:
    """Print what jobs survived, and what they cost."""
    draw = random.Random(seed)
    console = Console(width=110)
    with TemporaryDirectory() as place:
        folder = Path(place)
        console.print(conditions(folder))
        if trials:
            console.print(under_fire(folder, trials, rounds, draw, console))


def under_fire(folder: Path, trials: int, rounds: int, draw: random.Random, console: Console) -> Table:
    """Kill one process in each trial; print first what jobs cost."""
    running = Cluster(folder)
    try:
        mend(running)
        cases = make_cases(folder, running)
        console.print(overhead(cases[0], running, folder, rounds))
        tallies: dict[tuple[str, str], Tally] = {}
        for k in range(trials):
            case, victim = cases[k % len(cases)], _VICTIMS[k // len(cases) % len(_VICTIMS)]
            tally = tallies.setdefault((case.name, victim), Tally())
            attempt(case, running, folder / f"run{k}", victim, draw, tally)
            print(f"{k + 1}/{trials}", end="\r", file=sys.stderr, flush=True)
    finally:
        running.kill()
    table = Table(title=f"{trials} jobs, one process killed in each at a random moment")
    for heading in ("job", "killed", "trials", "in time", "right", "resumed", "redone", "twice at once", "remarks"):
        table.add_column(heading)
    for (name, victim), t in tallies.items():
        numbers = (t.trials, t.killed, t.right, t.resumed, t.redone, t.at_once)
        table.add_row(name, victim, *map(str, numbers), "; ".join(Counter(t.remarks))[:200])
    return table


if __name__ == "__main__":
    main()
