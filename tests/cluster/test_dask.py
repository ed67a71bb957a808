"""Distributed runs equal serial ones bit for bit, on a local cluster and through a scheduler's address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.cluster import crew
from bucketflow.cluster.connect import ClusterError, local_client, remote_client, verify_shared
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import placement, proof_workers
from bucketflow.pipeline.proofs import team
from tests.clusters import until
from tests.models import grid
from tests.policies import InForce
from tests.strategies import NEVER_QUICK, solve_by

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client(2) as opened:
        yield opened


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even small plans become many tasks."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov")])
@pytest.mark.parametrize("share", [1, 4])
def test_equal_to_serial(client: Any, query: str, kind: str, share: int) -> None:
    model = grid(9, 9, 4, kind)
    free = bucketflow.plan(model, query)
    assert free is not None
    options: dict[str, Any] = {"method": "dense"}
    if share > 1:
        options |= {"memory": free.peak_bytes // share, "tree": "bucket", "fit": "slice"}
    serial = bucketflow.solve(model, query, **options)
    done: list[int] = []
    distributed = bucketflow.solve(
        model, query, client=client, progress=lambda count, planned: done.append(count), **options
    )
    assert distributed.value == serial.value
    assert distributed.log10 == serial.log10
    assert distributed.assignment == serial.assignment
    assert distributed.plan is not None
    if share > 1:
        assert distributed.plan.slices > 1
        assert done == sorted(done)
        assert len(done) > 1


def test_the_plan_that_is_shown_is_the_plan_that_runs(client: Any) -> None:
    model = grid(9, 9, 4)
    shown = bucketflow.plan(model, client=client)
    alone = bucketflow.plan(model)
    ran = bucketflow.solve(model, client=client, method="dense").plan
    assert shown is not None
    assert alone is not None
    assert ran is not None
    assert shown.cuts
    assert not alone.cuts
    assert (ran.cuts, ran.peak_bytes, ran.tasks) == (shown.cuts, shown.peak_bytes, shown.tasks)
    assert "parts" in repr(shown)


@pytest.fixture
def helpers_only(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """Optima are proved by bounds, and a portfolio leaves everything but preparing to its helpers."""
    in_force(proof_workers.HelperPolicy, worth_seconds=0.0)
    monkeypatch.setattr(team.Turns, "begin", lambda self, name, seconds: None)


@pytest.mark.parametrize(("method", "kind"), [("auto", "cost"), ("search", "markov")])
def test_workers_prove_what_is_left_to_them(client: Any, method: Any, kind: str, helpers_only: None) -> None:
    model = grid(5, 5, 4, kind)
    wanted = bucketflow.solve(model, method="dense")
    found = solve_by(NEVER_QUICK, model, method=method, prune=False, client=client)
    assert (found.status, found.value, found.log10) == ("optimal", wanted.value, wanted.log10)
    assert found.proof is not None
    assert found.proof.lower == found.proof.upper


def test_time_ends_what_workers_do(client: Any, helpers_only: None) -> None:
    found = solve_by(NEVER_QUICK, grid(12, 12, 4), method="search", client=client, time=1.0)
    assert found.status == "bounded"
    until(lambda: not any(client.processing().values()))


def test_a_lost_worker_changes_nothing(client: Any, helpers_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model, start, left = grid(5, 5, 4), crew.WorkerCrew.start, [1]

    def started(self: Any, key: Any, *call: Any) -> None:
        start(self, key, *call)
        if left:
            left.pop()
            ((_, pid),) = client.run(os.getpid, workers=[next(iter(client.nthreads()))]).items()
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(crew.WorkerCrew, "start", started)
    found = bucketflow.solve(model, method="search", prune=False, client=client)
    assert not left
    assert found.value == bucketflow.solve(model, method="dense").value
    assert found.status == "optimal"


def test_counts_are_equal(client: Any) -> None:
    model = grid(5, 5, 4, "forbids")
    assert bucketflow.solve(model, "count", client=client).value == bucketflow.solve(model, "count").value < 4**25


def test_scheduler_address_on_the_command_line(client: Any) -> None:
    address = client.scheduler.address
    command = [sys.executable, "-m", "bucketflow", "solve", "grid", "--scheduler", address, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "optimal"


def test_workers_option() -> None:
    model = grid(6, 6, 3)
    assert bucketflow.solve(model, workers=2).value == bucketflow.solve(model).value


def test_no_scheduler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketflow.cluster.address.LISTENING_SECONDS", 0.0)
    sentence = "no Dask scheduler answers at tcp://127.0.0.1:1 .*; check that `dask scheduler --port 1` runs"
    with pytest.raises(bucketflow.BucketflowError, match=sentence):
        bucketflow.solve(grid(6, 6, 3), scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ClusterError, match="no Dask scheduler"), remote_client("nonsense://"):
        pass


def test_pools_keep_order_and_raise(client: Any) -> None:
    for pool in (SerialPool(), DaskPool(client, "test")):
        assert list(pool.stream(divmod, [(i, 3) for i in range(40)])) == [divmod(i, 3) for i in range(40)]
        total = pool.submit(sum, pool.put([1, 2, 3]))
        assert pool.get(pool.submit(abs, total)) == 6
        with pytest.raises(ZeroDivisionError):
            pool.get(pool.submit(divmod, 1, 0))


def test_workers_that_share_a_folder_leave_nothing_there(client: Any, tmp_path: Path) -> None:
    verify_shared(client, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("blind", ["reading", "writing"])
def test_a_worker_that_sees_another_folder_is_named(tmp_path: Path, blind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "run").mkdir()
    elsewhere.mkdir()
    with local_client(2) as client:
        odd = list(client.nthreads())[1]

        def read_nothing() -> None:
            import_module("bucketflow.cluster.connect")._read = lambda _: None

        def write_elsewhere() -> None:
            module = import_module("bucketflow.cluster.connect")
            look = module._looked_into

            def looked(path: Path) -> Any:
                (elsewhere / path.name).write_text(path.read_text())
                return look(elsewhere / path.name)

            module._looked_into = looked

        client.run(read_nothing if blind == "reading" else write_elsewhere, workers=[odd])
        options: dict[str, Any] = {"fit": "spill", "memory": "2MB", "workdir": tmp_path / "run", "client": client}
        with pytest.raises(bucketflow.BucketflowError, match=f"worker {odd} does not share .*--workdir"):
            bucketflow.solve(grid(7, 7, 4), **options)
        assert not list((tmp_path / "run" / "tables").glob("view-*"))
