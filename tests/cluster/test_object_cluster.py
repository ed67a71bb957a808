"""A cluster whose workers share nothing but the URL of a run directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.connect import connection
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine import rates
from bucketflow.storage import ledger
from bucketflow.storage.object_store import ObjectPath
from tests.clusters import free_port
from tests.models import grid
from tests.object_server import Bucket, needs_server
from tests.pipeline.runs.test_damage import budget

pytestmark = needs_server

# Small plans become many tasks.
_PRELOAD = "from bucketflow.pipeline.answering import placement\nplacement.TASK_SECONDS = 1e-4\n"


@contextmanager
def cluster(folder: Path, **last: str) -> Iterator[str]:
    """Start a scheduler and two workers, each in an empty folder of its own; yield the address.

    Parameters
    ----------
    folder : Path
    **last : str
        Variables of the environment that the last worker has instead of ours.
    """
    address = f"tcp://127.0.0.1:{free_port()}"
    processes = list[subprocess.Popen[bytes]]()
    (folder / "preload.py").write_text(_PRELOAD)

    def start(name: str, *words: str, **more: str) -> None:
        place = folder / name
        place.mkdir()
        command = [sys.executable, "-m", f"distributed.cli.dask_{name.partition('-')[0]}", *words, "--no-dashboard"]
        environment = {**os.environ, "TMPDIR": str(place), **more}
        with open(folder / f"{name}.log", "ab") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=place, env=environment))

    try:
        start("scheduler", "--host", address)
        for name, more in (("worker-a", {}), ("worker-b", last)):
            start(name, address, "--no-nanny", "--nthreads", "1", "--preload", str(folder / "preload.py"), **more)
        with connection(address, 60.0) as client:
            client.wait_for_workers(2, timeout=600)
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small plans become many tasks here too, and do not depend on how fast the server is."""
    monkeypatch.setattr("bucketflow.pipeline.answering.placement.TASK_SECONDS", 1e-4)
    monkeypatch.setattr(rates, "sampled_store_rate", lambda _: 1e8)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, in which nothing is written."""
    folder = tmp_path / "client"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    assert [*folder.iterdir()] == []
    for name in ("worker-a", "worker-b", "scheduler"):  # Dask's own scratch space is all that is there
        assert [path.name for path in (tmp_path / name).iterdir() if "dask" not in path.name] == []


@pytest.mark.usefixtures("elsewhere")
def test_workers_that_share_nothing_but_a_url_solve_and_resume(bucket: Bucket, tmp_path: Path) -> None:
    model = grid(6, 6, 4)
    wanted, options = bucketflow.solve(model), budget(model, "optimum", "spill", 2)
    run = f"{bucket.url}run"

    def stop(done: int, planned: int) -> None:
        if done > planned // 2:
            raise KeyboardInterrupt

    with cluster(tmp_path) as address:
        with pytest.raises(bucketflow.StoppedError, match=f"bucketflow resume {run}"):
            bucketflow.solve(model, workdir=run, scheduler=address, progress=stop, **options)
        before = ledger.load(ObjectPath.of_url(run) / "tables")
        assert before
        found = bucketflow.solve(model, workdir=run, scheduler=address, **options)
    assert (found.value, found.assignment) == (wanted.value, wanted.assignment)
    history = ledger.history(ObjectPath.of_url(run) / "tables")
    assert len({writer for writer, _ in history}) == 2
    ended = {receipt.key: receipt.ended for _, receipt in history}
    assert all(ended[key] == receipt.ended for key, receipt in before.items())


@pytest.mark.usefixtures("elsewhere")
def test_a_job_in_an_object_store_is_listed_watched_and_answered(bucket: Bucket, tmp_path: Path) -> None:
    model, path, job = grid(5, 5, 4), tmp_path / "grid.wcsp", f"{bucket.url}jobs/one"
    wanted, options = bucketflow.solve(model), budget(model, "optimum", "spill", 2)
    bucketflow.save(model, path)
    flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]

    def called(*words: str) -> str:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    with cluster(tmp_path) as address:
        called("submit", str(path), "--workdir", job, "--scheduler", address, *flags)
        called("watch", job)
        assert json.loads(called("result", job, "--wait", "--json"))["value"] == wanted.value
        assert [each["state"] for each in json.loads(called("jobs", f"{bucket.url}jobs", "--json"))] == ["finished"]
        assert json.loads(called("log", job).splitlines()[-1])["event"] == "finished"
        called("forget", job)
        assert json.loads(called("jobs", f"{bucket.url}jobs", "--json")) == []


def test_a_worker_that_does_not_reach_the_store_is_named(bucket: Bucket, tmp_path: Path) -> None:
    with cluster(tmp_path, AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}") as address:
        model = grid(5, 5, 4)
        options = budget(model, "optimum", "spill", 2)
        with pytest.raises(bucketflow.BucketflowError, match=r"does not share s3://.* the same credentials"):
            bucketflow.solve(model, workdir=f"{bucket.url}run", scheduler=address, **options)
