"""The memory of a task comes from the workers: their limits, their machines, and the threads that share both."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from distributed import Client

import bucketflow
from bucketflow.cluster import memory
from bucketflow.cluster.address import WorkersDiedError
from bucketflow.cluster.memory import COMPILED_PROCESS_BYTES, limited_bytes
from bucketflow.cluster.version import __version__, source_digest
from bucketflow.cluster.worker_facts import Admission, UnfitWorkersError, WorkerFacts, describe_worker, task_memory
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.runs.pools import DaskPools
from tests.clusters import Cluster
from tests.models import grid

pytestmark = pytest.mark.filterwarnings("ignore")

GB = 10**9


def test_the_smallest_share_comes_first() -> None:
    """Two workers of one machine share what it has; threads share what their worker has."""
    workers = [
        WorkerFacts("a", "one", 1, 0, 20 * GB),
        WorkerFacts("b", "one", 3, 0, 20 * GB),
        WorkerFacts("c", "two", 2, 4 * GB, 64 * GB),
    ]
    found = {memory.worker.address: memory.task_bytes for memory in task_memory(workers)}
    assert found == {
        "a": 4 * GB - COMPILED_PROCESS_BYTES,
        "b": (12 * GB - COMPILED_PROCESS_BYTES) // 3,
        "c": (2_400_000_000 - COMPILED_PROCESS_BYTES) // 2,
    }
    assert [memory.worker.address for memory in task_memory(workers)] == ["c", "a", "b"]
    assert task_memory([]) == []


def test_workers_keep_freed_blocks_for_later_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's trim threshold would have every table of a task on pages that the system clears first."""
    calls: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda parameter, nbytes: calls.append((parameter, nbytes)))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: library)
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=1), memory_manager=SimpleNamespace(memory_limit=None))
    describe_worker(pickle.dumps(None), worker)
    assert calls == [(-3, 32 << 20), (-1, 64 << 20)]
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    describe_worker(pickle.dumps(None), worker)


def test_a_small_limit_leaves_something() -> None:
    assert limited_bytes(700_000_000) == 220_000_000
    assert 0 < limited_bytes(250_000_000) < 50_000_000


class _Client:
    """Answers for workers, by address, and counts how often each is asked."""

    status = "running"

    def __init__(self, limits: dict[str, int]):
        self.limits, self.asked = limits, list[str]()

    def run(self, _: object, __: bytes, workers: list[str] | None, on_error: str) -> dict[str, object]:
        addresses = list(self.limits) if workers is None else workers
        self.asked += addresses
        same = {
            "version": __version__,
            "sources": source_digest(),
            "host": "h",
            "threads": 1,
            "available_bytes": GB,
            "unreadable": "",
        }
        return {address: {**same, "limit_bytes": self.limits[address]} for address in addresses}


def test_workers_that_join_later_are_asked_once_and_small_ones_get_no_task() -> None:
    client = _Client({"a": 0, "b": 4 * GB})
    admission = Admission(client, GB)
    assert admission.admitted(["a", "b"]) == ["a", "b"]
    client.limits["c"] = GB
    assert admission.admitted(["a", "b", "c"]) == ["a", "b"]
    assert client.asked == ["a", "b", "c"]
    with pytest.raises(UnfitWorkersError, match="c has 400000000"):
        admission.admitted(["c"])
    assert admission.admitted([]) == []


def test_tasks_are_restricted_to_workers_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both workers report a limit of their own; all tasks run on the larger one."""
    from distributed import LocalCluster

    from bucketflow.cluster.dask_pool import DaskPool

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None
        ) as workers,
        Client(workers) as client,
    ):
        small, large = sorted(client.nthreads())
        monkeypatch.setattr(WorkerFacts, "most_task_bytes", property(lambda f: {small: 10, large: 20}[f.address]))
        pool = DaskPool(client, "restricted", admission=Admission(client, 20))
        assert pool.slots() == {large: 1}
        assert set(pool.stream(_worker, (() for _ in range(20)))) == {large}


def _worker() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def test_after_deaths_the_advice_is_a_smaller_budget(tmp_path: Path) -> None:
    died = WorkersDiedError("several workers died of the same task, probably short of memory")
    for folder, advice in (
        (None, "repeat the query with --memory 220MB, with --workdir"),
        (tmp_path, "--memory 220MB"),
    ):
        options = Options(workers=2, workdir=folder)
        error = DaskPools(Resources(options), task_bytes=440_000_000)._explained(died)
        assert advice in str(error)
        assert "allows a task 440 MB" in str(error)


def test_a_job_whose_workers_died_names_a_smaller_budget(tmp_path: Path) -> None:
    bucketflow.solve(grid(4, 4, 2), method="dense", workdir=tmp_path)
    why = bucketflow.Job(tmp_path)._explained("KilledWorker: Attempted to run task 4 times")
    assert re.search(rf"probably short of memory; bucketflow resume {tmp_path} --memory [0-9.]+k?B$", why)
    assert bucketflow.Job(tmp_path)._explained("ValueError: x") == "ValueError: x"


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers of 500 MB, each with a nanny that kills it above 475 MB."""
    made = Cluster(tmp_path)
    try:
        made.start_scheduler()
        for _ in range(2):
            limit = ("--memory-limit", "500MB", "--nthreads", "1", "--local-directory", str(tmp_path / "scratch"))
            made.workers.append(made._started("worker", made.address, *limit))
        made.ready(2)
        yield made
    finally:
        for nanny in made.workers:  # a nanny that is killed leaves its worker
            nanny.terminate()
            nanny.wait()
        made.kill()


def test_no_worker_dies_of_the_default_budget(
    limited: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)  # a fast machine would keep the sweep
    model = grid(24, 24, 2)
    bucketflow.save(model, tmp_path / "grid.wcsp")
    with Client(limited.address, set_as_default=False) as client:
        before = client.run(os.getpid)
        found = bucketflow.solve(model, method="dense", client=client)
        assert client.run(os.getpid) == before
        assert found.plan is not None
        assert found.dask is not None
        assert found.dask.tasks > 2
        assert found.plan.peak_bytes <= 100_000_000
        refused = "a task may take 300 MB, and no worker has that: tcp.*has a memory limit of 500 MB, 100 MB for"
        with pytest.raises(bucketflow.BudgetError, match=refused + ".*repeat the query with --memory 100MB"):
            bucketflow.solve(model, method="dense", client=client, memory="300MB")
    assert "memory budget" not in (tmp_path / "worker.log").read_text()
    asked = ["plan", str(tmp_path / "grid.wcsp"), "--method", "dense", "--scheduler", limited.address]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.stderr
    limit = " ".join(shown.stdout.split())
    assert "100 MB, of worker tcp://127.0.0.1:" in limit
    assert "with a memory limit of 500 MB" in limit
    facts = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    assert facts["plan"]["smallest_worker"]["limit_bytes"] == 500_000_000
