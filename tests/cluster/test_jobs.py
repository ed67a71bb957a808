"""Jobs: handed to a cluster of processes, driven there, killed, cancelled, resumed; the answer is the serial one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Event

import bucketflow
from bucketflow.cluster import connect
from bucketflow.cluster.connect import local_client
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.pool import Node
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.results.posteriors import marginals_before
from bucketflow.storage import ledger
from tests.clusters import Cluster, cluster, receipt_lines, receipts, until
from tests.models import grid

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bucketflow.Model:
    """A model in a file."""
    path = tmp_path_factory.mktemp("model") / "grid.wcsp"
    bucketflow.save(grid(9, 9, 4), path)
    return bucketflow.load(path)


@pytest.fixture(scope="module")
def boxes(model: bucketflow.Model) -> dict[str, Any]:
    """Options that make many tasks of it."""
    plan = bucketflow.plan(model, tree="bucket")
    assert plan is not None
    return {"tree": "bucket", "fit": "spill", "memory": plan.peak_bytes // 4, "method": "dense"}


@pytest.fixture(scope="module")
def expected(model: bucketflow.Model) -> bucketflow.Result:
    return bucketflow.solve(model, method="dense", tree="bucket")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, 3) as started:
        yield started


def command(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bucketflow", *map(str, args)], capture_output=True, text=True)


def as_arguments(options: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def test_the_whole_life_of_a_job(
    running: Cluster, tmp_path: Path, model: bucketflow.Model, boxes: dict[str, Any], expected: bucketflow.Result
) -> None:
    run = tmp_path / "run"
    running.allow(3)
    asked = as_arguments({**boxes, "scheduler": running.address, "workdir": run})
    submitted = command("submit", model.source, *asked, "--json")
    assert submitted.returncode == 0, submitted.stderr
    facts = json.loads(submitted.stdout)
    assert facts["price"]["tasks"]
    job = bucketflow.Job(run)  # nothing is left of whoever submitted
    assert job.id == facts["job"]
    until(lambda: receipts(run) >= 3)
    assert job.status == "running"

    watching = subprocess.Popen([sys.executable, "-m", "bucketflow", "watch", str(run)], stdout=subprocess.PIPE)
    driver = running.worker_at(job.record.worker)
    driver.kill()
    driver.wait()
    running.allow(30)  # more than the boxes of all but the last stage leave
    until(lambda: job.record.starts == 2)
    until(lambda: receipts(run) >= 30)

    (listed,) = bucketflow.jobs(scheduler=running.address)
    assert listed.id == job.id
    assert job.cancel() == "cancelled"
    assert b"cancelled" in watching.communicate()[0]
    assert watching.returncode == 4
    with pytest.raises(bucketflow.StoppedError, match="bucketflow resume"):
        job.result()
    running.allow(1 << 30)

    assert command("resume", run).returncode == 0
    found = job.result(timeout=600)
    assert (found.value, found.assignment) == (expected.value, expected.assignment)
    assert len(receipt_lines(run)) == receipts(run)
    assert command("result", run, "--json").returncode == 0
    assert [line["event"] for line in job.log() if line["event"] != "progress"] == [
        *("waiting", "running", "waiting", "running", "cancelling", "cancelled", "waiting", "running", "finished")
    ]


def test_a_scheduler_keeps_nothing_of_jobs_that_ended(tmp_path: Path, model: bucketflow.Model) -> None:
    with cluster(tmp_path, 1) as running, connect.connection(running.address) as client:
        done = bucketflow.submit(model, scheduler=running.address, workdir=tmp_path / "runs" / "done")
        value = done.result(timeout=600).value
        until(lambda: not client.list_datasets())
        assert bucketflow.jobs(scheduler=running.address) == []
        running.allow(0)  # its task waits with its receipt
        waiting = bucketflow.submit(
            model, scheduler=running.address, workdir=tmp_path / "runs" / "open", fit="spill", method="dense"
        )
        until(lambda: waiting.status == "running")
        assert len(client.list_datasets()) == 1
        refused = CliRunner().invoke(main, ["forget", str(waiting.folder)])
        assert refused.exit_code == 2
        assert f"is running; cancel it first: bucketflow cancel {waiting.folder}" in refused.stderr

        assert CliRunner().invoke(main, ["prune", str(tmp_path / "runs"), "--older", "1h"]).stdout == ""
        name = done.id
        pruned = CliRunner().invoke(main, ["prune", str(tmp_path / "runs"), "--older", "0s"])
        assert pruned.stdout == f"{name} forgotten\n"
        assert [job.id for job in bucketflow.jobs(tmp_path / "runs")] == [waiting.id]
        assert bucketflow.resume(done.folder).value == value  # the answer stays

        name = waiting.id
        waiting.folder.rename(tmp_path / "moved")
        forgotten = CliRunner().invoke(main, ["forget", name, "--scheduler", running.address])
        assert forgotten.stdout == f"{name} forgotten\n", forgotten.stderr
        assert not client.list_datasets()


@pytest.mark.parametrize("age", ["30", "d", "-1d", "30 years"])
def test_ages_that_are_none(age: str) -> None:
    done = CliRunner().invoke(main, ["prune", ".", "--older", age])
    assert done.exit_code == 2
    assert done.stderr == f"bucketflow: {age!r} is not an age; write for example 30d, 12h or 90m\n"


def test_a_scheduler_that_is_gone_interrupts(
    running: Cluster, tmp_path: Path, model: bucketflow.Model, boxes: dict[str, Any], expected: bucketflow.Result
) -> None:
    run = tmp_path / "run"
    running.allow(2)
    job = bucketflow.submit(model, scheduler=running.address, workdir=run, **boxes)
    until(lambda: receipts(run) >= 2)
    running.kill()
    assert job.status == "interrupted"
    running.allow(1 << 30)
    running.start_scheduler()
    running.start_worker()
    running.ready(1)
    assert job.status == "interrupted"
    assert job.resume().result(timeout=600).value == expected.value
    assert len(receipt_lines(run)) == receipts(run)


def test_a_worker_that_dies_between_receipt_and_result(
    running: Cluster, tmp_path: Path, model: bucketflow.Model, boxes: dict[str, Any], expected: bucketflow.Result
) -> None:
    run = tmp_path / "run"
    running.allow(0)  # every worker waits once it has left a receipt
    job = bucketflow.submit(model, scheduler=running.address, workdir=run, **{**boxes, "fit": "slice"})
    until(lambda: receipts(run) >= 2)
    driver = running.worker_at(job.record.worker)
    writers = {int(name.rpartition("-")[2]) for name, _ in ledger.history(run / "tables")}
    victim = next(worker for worker in running.workers if worker.pid in writers and worker is not driver)
    victim.kill()
    victim.wait()
    running.allow(1 << 30)
    assert job.result(timeout=600).value == expected.value
    assert len(receipt_lines(run)) == receipts(run)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a file system of a few MB; whether that is possible here."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no room on the file system of a folder."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
    yield
    ballast.unlink()


@pytest.mark.parametrize("fit", ["spill", "slice"])
def test_a_full_disk_interrupts(
    running: Cluster,
    tmp_path: Path,
    model: bucketflow.Model,
    boxes: dict[str, Any],
    expected: bucketflow.Result,
    fit: str,
) -> None:
    run = tmp_path / "disk" / "run"
    running.allow(2)
    with small_disk(tmp_path / "disk") if fit == "spill" else nullcontext(False) as mounted:
        job = bucketflow.submit(model, scheduler=running.address, workdir=run, **{**boxes, "fit": fit})
        until(lambda: receipts(run) >= 2)
        with filled(tmp_path / "disk") if mounted else running.full_disk(run):
            running.allow(1 << 30)
            with pytest.raises(bucketflow.StoppedError, match=r"no space left .*free some space and resume"):
                job.result(timeout=600)
            assert job.status == "interrupted"
            with pytest.raises(bucketflow.StoppedError, match=r"no space left|was interrupted"):
                job.resume().result(timeout=600)
        finished = ledger.load(run / "tables")
        found = job.resume().result(timeout=600)
        assert (found.value, found.assignment) == (expected.value, expected.assignment)
        written = [receipt.key for _, receipt in ledger.history(run / "tables")]
        assert sorted(key for key in written if key in finished) == sorted(finished)
        assert job.log()[-1]["event"] == "finished"


def test_jobs_take_turns(
    running: Cluster, tmp_path: Path, model: bucketflow.Model, boxes: dict[str, Any], expected: bucketflow.Result
) -> None:
    first, second = (
        bucketflow.submit(model, scheduler=running.address, workdir=tmp_path / name, most_workers=most, **boxes)
        for name, most in (("first", None), ("second", 1))
    )

    async def both() -> list[Any]:
        return list(await asyncio.gather(first, second))

    assert [found.value for found in asyncio.run(both())] == [expected.value] * 2
    assert {job.id for job in bucketflow.jobs(tmp_path)} == {first.id, second.id}
    assert "finished" in first._repr_html_()


def test_what_is_no_job_is_refused(tmp_path: Path, model: bucketflow.Model) -> None:
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("needs a --workdir", model, {"scheduler": "tcp://127.0.0.1:1"}),
        ("needs a running cluster", model, {"workdir": tmp_path / "run"}),
        ("needs a model that the workers can read", grid(2, 2, 2), {"scheduler": "x:1", "workdir": tmp_path / "run"}),
    ]
    for sentence, asked, options in refused:
        with pytest.raises(bucketflow.ModelError, match=sentence):
            bucketflow.submit(asked, **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="holds no job"):
        _ = bucketflow.Job(tmp_path).status
    assert bucketflow.jobs(tmp_path) == []
    with pytest.raises(bucketflow.ModelError, match="is not a folder of run directories"):
        bucketflow.jobs(tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_not_handed_over(tmp_path: Path, model: bucketflow.Model) -> None:
    with local_client(1) as client:
        with pytest.raises(bucketflow.BudgetError):
            bucketflow.submit(
                model, client=client, workdir=tmp_path / "run", memory=1 << 20, fit="refuse", method="dense"
            )
        assert bucketflow.jobs(client=client) == []
        other = bucketflow.submit(
            model, "count", client=client, workdir=tmp_path / "run", evidence={"x4": 1}, tree="bucket"
        )
        assert other.result(timeout=600).value == 4**80
        with pytest.raises(bucketflow.IncompatibleRunError, match="belongs to another run"):
            bucketflow.submit(model, "optimum", client=client, workdir=tmp_path / "run", method="dense")


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    path = tmp_path / "grid.wcsp"
    bucketflow.save(grid(3, 3, 2), path)
    with local_client(1) as client:
        job = bucketflow.submit(path, client=client, workdir=tmp_path / "run")
        job.result(timeout=600)
        bucketflow.save(grid(3, 3, 2, seed=1), path)
        job._dir.write({**job._dir.read(), "state": "cancelled"})
        with pytest.raises(bucketflow.BucketflowError, match="belongs to another run") as caught:
            job.resume(client=client).result(timeout=600)
        assert caught.value.exit_code == 2
        assert job.facts.state == "failed"


@pytest.mark.parametrize(("query", "kind"), [("marginals", "markov"), ("max-marginals", "cost")])
def test_marginals_come_back_as_they_were(tmp_path: Path, query: str, kind: str) -> None:
    model = grid(3, 3, 3, kind)
    found = bucketflow.marginals(model, max_marginals=query == "max-marginals", joint=[("x0", "x4")])
    again = marginals_before(json.loads(found.to_json()), model, max_marginals=found.max_marginals)
    assert again.to_json() == found.to_json() or again.plan is None
    for name, table in found.items():
        assert np.array_equal(again[name], table)
    assert np.array_equal(again.joint["x0", "x4"], found.joint["x0", "x4"])
    assert (again.value, again.log10_evidence) == (found.value, found.log10_evidence)


def test_who_waits_connects_once(
    tmp_path: Path, model: bucketflow.Model, boxes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    connection = connect.connection

    def counted(address: str, *rest: float) -> Any:
        opened.append(address)
        return connection(address, *rest)

    with local_client(1) as client:
        gate = Event("gate", client=client)
        held = client.submit(lambda: Event("gate").wait(), pure=False)
        job = bucketflow.submit(model, scheduler=client.scheduler.address, workdir=tmp_path / "run", **boxes)
        monkeypatch.setattr(connect, "connection", counted)
        looks: list[str] = []
        with pytest.raises(TimeoutError, match="waiting"):
            job.wait(0.3, lambda seen: looks.append(seen.id))
        assert len(looks) > len(opened) == 1
        gate.set()
        assert held.result()
        assert job.cancel() in ("cancelled", "finished")


def test_higher_priorities_go_first() -> None:
    with local_client(1) as client:
        gate = Event("gate", client=client)
        held = client.submit(lambda: Event("gate").wait(), pure=False)
        low, high = DaskPool(client, "low"), DaskPool(client, "high", priority=1)
        (worker,) = low.slots()
        later = [low.submit(time.monotonic, worker=worker) for _ in range(3)]
        sooner = [high.submit(time.monotonic, worker=worker) for _ in range(3)]
        until(lambda: client.run(lambda dask_worker: len(dask_worker.state.ready), workers=[worker])[worker] == 6)
        gate.set()
        assert held.result()
        assert max(map(high.get, sooner)) < min(map(low.get, later))


def test_a_limited_run_keeps_one_worker_busy() -> None:
    def spent(key: int) -> tuple[float, float]:
        begin = time.monotonic()
        return begin, max(time.monotonic(), begin)

    with local_client(2) as client:
        pool = DaskPool(client, "limited", most_workers=1)
        assert pool.width == 1
        assert list(pool.slots()) == list(pool.slots())
        spans = sorted(span for _, span in pool.run_graph({k: Node(set(), lambda k: (spent, k)) for k in range(8)}))
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
