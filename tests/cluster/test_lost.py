"""Clusters that are not there, or go away in the middle of a run: one sentence, and what is done stays."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.process import AsyncProcess

import bucketflow
from bucketflow.cluster import address, dask_pool
from bucketflow.cluster.address import ClusterError, host_and_port
from bucketflow.cluster.connect import local_client, remote_client
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.starting import NO_DASHBOARD
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.runs.pools import DaskPools
from tests.models import grid

pytestmark = pytest.mark.filterwarnings("ignore")

MALFORMED = ["foo", "foo:", "tcp://foo", "tcp://:8786", "tcp://foo:port", "tcp://foo:99999", "http://foo:1", ""]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for."""
    monkeypatch.setattr(address, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(address, "LISTENING_SECONDS", 0.0)
    monkeypatch.setattr(dask_pool, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(dask_pool, "GLANCE_SECONDS", 0.01)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("wrong", MALFORMED)
def test_malformed_addresses_are_refused_before_anybody_connects(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("it connects"))
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler can be at .*write its address like"),
        remote_client(wrong),
    ):
        pass
    with pytest.raises(bucketflow.BucketflowError, match="no Dask scheduler can be at"):
        bucketflow.solve(grid(2, 2, 2), scheduler=wrong)


def test_addresses() -> None:
    assert host_and_port("tcp://host:8786") == host_and_port("host:8786") == ("host", 8786)
    assert host_and_port("tls://[::1]:80") == ("::1", 80)


@pytest.mark.usefixtures("impatient")
def test_small_plans_notice_a_missing_scheduler(listening: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    small: list[Callable[[str], Any]] = [
        lambda place: bucketflow.solve(grid(2, 2, 2), scheduler=place),
        lambda place: bucketflow.solve(grid(1, 1, 2), evidence={"x0": 0}, scheduler=place),
        lambda place: bucketflow.marginals(grid(2, 2, 2, "markov"), scheduler=place),
    ]
    for ask in small:
        ask(f"tcp://127.0.0.1:{listening}")
        with pytest.raises(bucketflow.BucketflowError, match="no Dask scheduler answers at tcp"):
            ask(f"tcp://127.0.0.1:{free}")


def test_encryption_without_certificates_is_one_sentence(listening: int) -> None:
    with pytest.raises(ClusterError, match="needs certificates"), remote_client(f"tls://127.0.0.1:{listening}"):
        pass


def test_local_clusters_open_no_port_but_their_own() -> None:
    with local_client(1) as client:
        server = client.cluster.scheduler.http_server
        client.run_on_scheduler(lambda: None)  # what was asked of the scheduler's thread before is done
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))


def sliced() -> tuple[bucketflow.Model, dict[str, Any]]:
    """A model that takes many slices, and options that make it do so."""
    model = grid(8, 8, 4)
    plan = bucketflow.plan(model, tree="bucket")
    assert plan is not None
    return model, {"tree": "bucket", "fit": "slice", "memory": plan.peak_bytes // 4}


def lost(client: Any, lose: Callable[[], None], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lose a cluster in the middle of two runs, with a run directory and without."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    model, options = sliced()
    expected = bucketflow.solve(model, **options)
    with pytest.raises(bucketflow.StoppedError, match=r"; continue with: bucketflow resume .*run$"):
        bucketflow.solve(model, client=client, workdir=folder / "run", progress=lambda *_: lose(), **options)
    with pytest.raises(
        bucketflow.BucketflowError, match=r"; repeat the query once there are workers, with --workdir"
    ) as caught:
        bucketflow.solve(model, client=client, **options)
    assert caught.value.exit_code == 2
    assert bucketflow.solve(model, workdir=folder / "run").assignment == expected.assignment


@pytest.mark.usefixtures("impatient")
def test_all_workers_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_client(1) as client:
        lost(client, lambda: client.cluster.scale(0), monkeypatch, tmp_path)


@pytest.mark.usefixtures("impatient")
def test_the_scheduler_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scheduler.json"
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    command = [sys.executable, "-m", "distributed.cli.dask_"]
    programs = []
    try:
        for name, own in (("scheduler", ["--port", "0"]), ("worker", ["--no-nanny", "--nthreads", "1"])):
            line = [*command[:2], f"{command[2]}{name}", *shared, *own]
            programs.append(subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        from distributed import Client

        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1)
            lost(client, programs[0].kill, monkeypatch, tmp_path)
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_workers_ignore_what_the_terminal_sends_to_all() -> None:
    import signal

    with local_client(1) as client:
        (blocked,) = client.run(lambda: signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])).values()
        assert blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert NO_DASHBOARD["dashboard_address"].startswith("127.0.0.1")


def test_results_that_take_longer_than_a_glance_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose fetching is ended by a timeout fetches nothing any more."""
    monkeypatch.setattr(dask_pool, "GLANCE_SECONDS", 1e-4)
    with (
        LocalCluster(2, threads_per_worker=2, processes=False, dashboard_address=None) as workers,
        Client(workers) as c,
    ):
        pool = DaskPool(c, "glance")
        for n in range(100):
            assert len(pool.get(pool.submit(np.arange, n))) == n


@pytest.mark.parametrize("deaths", [1, 99])
def test_a_worker_that_dies_as_it_starts(
    deaths: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All are started again; if one dies again, that is one sentence."""
    start, left = AsyncProcess.start, [deaths]

    async def killed(process: Any) -> None:
        await start(process)
        if left[0]:
            left[0] -= 1
            os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(AsyncProcess, "start", killed)
    if deaths == 1:
        with local_client(2) as client:
            assert len(client.nthreads()) == 2
    else:
        pools = DaskPools(Resources(Options(workers=2)))
        with pytest.raises(bucketflow.BucketflowError, match="2 worker processes did not start: ") as found:
            pools.__enter__()
        assert found.value.exit_code == 2
    gc.collect()  # what nobody looked at would be told now
    assert capfd.readouterr() == ("", "")
