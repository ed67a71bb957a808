"""Runs on clusters as they are: short of memory, without a shared disk, growing from nothing, restarted meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import bucketflow
from bucketflow.cluster.starting import NO_DASHBOARD
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.storage import ledger
from tests.clusters import Cluster, cluster, receipts, until
from tests.models import grid

from .processes import timed

Row = tuple[str, str, str, str, str]
"""What runs, wall seconds, CPU seconds of all processes, whether the answer is right, and a remark."""

#: A plan in memory takes 1.1 GB, which a worker of 700 MB does not have.
WIDE = (13, 13, 4)
#: Tables on disk, in 32 boxes.
STORED: tuple[tuple[int, int, int], dict[str, Any]] = (
    (12, 12, 4),
    {"method": "dense", "fit": "spill", "memory": "24MB"},
)
SHORT_OF_MEMORY = "700MB"
MOST_WORKERS = 4


class Workers(SchedulerPlugin):
    """Counts workers that came and went."""

    def __init__(self) -> None:
        self.there, self.most, self.gone = 0, 0, 0

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker joined."""
        self.there += 1
        self.most = max(self.most, self.there)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker left."""
        self.there -= 1
        self.gone += 1


@contextmanager
def local(workers: int, **kwargs: Any) -> Iterator[tuple[LocalCluster, Client, Workers]]:
    """Start a local cluster as a user does, with nannies; yield the counts of its workers too."""
    settings: dict[str, Any] = {"scheduler_kwargs": NO_DASHBOARD, "dashboard_address": None, "silence_logs": 50}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, **settings, **kwargs) as opened,
        Client(opened) as client,
    ):
        counts = Workers()
        counts.there = counts.most = workers
        opened.scheduler.add_plugin(counts)
        yield opened, client, counts


def row(name: str, wanted: float, work: Callable[[], Any], remark: Callable[[Any], str]) -> Row:
    """Run some work, and say how it ended."""

    def answered() -> Any:
        try:
            return work()
        except BucketflowError as error:
            return error

    found, spent = timed(answered)
    seconds = f"{spent.wall:.1f}", f"{spent.cpu:.1f}"
    if isinstance(found, BucketflowError):
        return name, *seconds, "refused", str(found)[:120]
    value = found.value if found.log10 is None else found.log10
    right = isclose(value, wanted, rel_tol=1e-9)  # slices add up in another order
    return name, *seconds, "yes" if right else f"NO: {value} for {wanted}", remark(found)


def short_of_memory() -> Iterator[Row]:
    """A model whose tables a worker of 700 MB cannot hold all; the budget comes from the workers, or from the user."""
    model = grid(*WIDE, "markov")
    wanted = bucketflow.solve(model, "partition", method="dense").log10
    for memory in (None, "2GB"):
        with local(2, memory_limit=SHORT_OF_MEMORY) as (_, client, counts):
            asked = {"client": client} | ({} if memory is None else {"memory": memory})
            yield row(
                f"workers of {SHORT_OF_MEMORY}, {memory or 'default'} a task",
                wanted,
                partial(bucketflow.solve, model, "partition", method="dense", **asked),
                lambda found, counts=counts: f"{found.plan.slices} slices, {counts.gone} kills",  # type: ignore[misc]
            )


def without_shared_disk(folder: Path) -> Iterator[Row]:
    """The same run with its run directory on a local disk and on an S3 server."""
    from object_store import server

    shape, asked = STORED
    model = grid(*shape)
    wanted = bucketflow.solve(model, method="dense").value
    with server() as url, local(2, memory_limit=0) as (_, client, _):
        for name, run in (("warms up", folder / "warm"), ("local disk", folder / "disk"), ("S3 server", f"{url}run")):
            found = row(
                f"run directory: {name}",
                wanted,
                partial(bucketflow.solve, model, client=client, workdir=run, **asked),
                lambda found: f"{found.dask.tasks} tasks",
            )
            if name != "warms up":
                yield found


def growing() -> Iterator[Row]:
    """A cluster that starts at 0 workers and grows to 4."""
    model = grid(*WIDE, "markov")
    wanted = bucketflow.solve(model, "partition", method="dense").log10
    with local(0, memory_limit=0) as (opened, client, counts):
        opened.adapt(minimum=0, maximum=MOST_WORKERS, interval="200ms")
        client.submit(abs, -1).result()  # as the first task of a user asks for the first worker
        yield row(
            f"adaptive, 0 to {MOST_WORKERS} workers",
            wanted,
            lambda: bucketflow.solve(model, "partition", method="dense", memory="100MB", client=client),
            lambda found: f"{found.plan.slices} slices, up to {counts.most} workers",
        )


def restarted(folder: Path) -> Iterator[Row]:
    """A scheduler that is killed in the middle of a job and starts again at the same address."""
    shape, asked = STORED
    path, run = folder / "restarted.wcsp", folder / "restarted"
    bucketflow.save(grid(*shape), path)
    wanted = bucketflow.solve(bucketflow.load(path), method="dense").value
    with cluster(folder) as running:
        yield row("scheduler restarts", wanted, lambda: _restarted(running, path, run, asked), lambda _: _redone(run))


def _restarted(running: Cluster, path: Path, run: Path, asked: dict[str, Any]) -> Any:
    running.allow(3)
    job = bucketflow.submit(path, scheduler=running.address, workdir=run, **asked)
    until(lambda: receipts(run) >= 3)
    running.kill()
    running.allow(1 << 30)
    running.start_scheduler()
    for _ in range(2):
        running.start_worker()
    running.ready(2)
    if job.wait(timeout=120).state == "interrupted":
        job.resume(scheduler=running.address)
    return job.result(timeout=300)


def _redone(run: Path) -> str:
    written = ledger.history(run / "tables")
    keys = {receipt.key for _, receipt in written}
    return f"{len(keys)} receipts, {len(written) - len(keys)} written again"


def all_rows(folder: Path) -> Iterator[Row]:
    """Yield the rows of all conditions."""
    yield from short_of_memory()
    yield from without_shared_disk(folder)
    yield from growing()
    yield from restarted(folder)
