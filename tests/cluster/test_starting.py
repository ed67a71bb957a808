"""Clusters that bucketflow starts: only this machine reaches their web servers, failures are one sentence."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
import yaml

import bucketflow
from bucketflow.cluster import gpus
from bucketflow.cluster.address import ClusterError
from bucketflow.cluster.connect import local_client
from bucketflow.cluster.deployed import deployed_client, heard_failures, same_way_to_stop
from bucketflow.cluster.starting import LOOPBACK, is_asked_for, kept_local, starting

pytestmark = pytest.mark.filterwarnings("ignore")

needs_jobqueue = pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
# What docs/clusters.md has for a laptop.
LAPTOP = {
    "class": "distributed.LocalCluster",
    "arguments": {"n_workers": 0, "threads_per_worker": 1, "memory_limit": 0},
    "adapt": {"minimum": 1, "maximum": 8},
}
SLURM = {
    "class": "dask_jobqueue.SLURMCluster",
    "arguments": {"cores": 1, "processes": 1, "memory": "1GB"},
    "adapt": {"minimum_jobs": 1, "maximum_jobs": 2},
}


def written(folder: Path, what: Any) -> str:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(what))
    return str(path)


def listening() -> list[tuple[int, str, int]]:
    """Process, address and port of every server of this process and of those that it started."""
    own = psutil.Process()
    return [
        (process.pid, socket.laddr.ip, socket.laddr.port)
        for process in (own, *own.children(recursive=True))
        for socket in sockets(process)
        if socket.status == psutil.CONN_LISTEN
    ]


def sockets(process: psutil.Process) -> list[Any]:
    """Return the sockets of a process, none if it has ended.

    Until its parent has collected a process that ended, Linux refuses everybody but root to list its files.
    """
    try:
        return [*process.net_connections(kind="inet")]
    except (psutil.AccessDenied, psutil.NoSuchProcess, PermissionError):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            raise
        return []


def test_a_process_that_ended_has_no_sockets() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(ended.pid)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert process.status() == psutil.STATUS_ZOMBIE
    assert sockets(process) == []
    ended.wait()
    assert sockets(process) == []


def reached_by_others() -> list[tuple[int, str, int]]:
    return [each for each in listening() if not ip_address(each[1]).is_loopback]


@contextmanager
def on_two_gpus() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "visible_gpus", lambda: ["0", "1"])
        with gpus.gpu_client(2) as client:
            yield client


@pytest.mark.parametrize("kind", ["workers", "gpus", "laptop"])
def test_no_server_is_reached_from_other_machines(kind: str, tmp_path: Path) -> None:
    """Neither schedulers, workers and nannies, nor the web servers that Dask starts in them."""
    if kind == "gpus" and find_spec("cupy") is not None and len(gpus.visible_gpus()) == 1:
        pytest.skip("this machine has one GPU")
    before = set(reached_by_others())
    opened: dict[str, AbstractContextManager[Any]] = {
        "workers": local_client(1),
        "gpus": on_two_gpus(),
        "laptop": deployed_client(written(tmp_path, LAPTOP)),
    }
    with opened[kind] as client:
        assert client.nthreads()
        assert listening()
        assert set(reached_by_others()) - before == set()


@needs_jobqueue
def test_web_servers_of_jobs_are_reached_from_their_machine_only(tmp_path: Path) -> None:
    """Schedulers and workers of a batch system talk over the network; nobody is told of their web servers."""
    what = {
        "class": "dask_jobqueue.local.LocalCluster",
        "arguments": {"cores": 1, "memory": "2GB", "processes": 1, "log_directory": str(tmp_path)},
        "scale": 1,
    }
    with deployed_client(written(tmp_path, what)) as client:
        info = client.scheduler_info()
        ports = {worker["services"]["dashboard"] for worker in info["workers"].values()}
        assert ports
        assert {ip for _, ip, port in listening() if port in ports} == {"127.0.0.1"}


def test_web_servers_are_where_they_are_asked_for(tmp_path: Path) -> None:
    arguments = {**LAPTOP["arguments"], "dashboard_address": "0.0.0.0:0"}  # type: ignore[dict-item]
    with deployed_client(written(tmp_path, {**LAPTOP, "arguments": arguments})):
        assert "0.0.0.0" in {ip for pid, ip, _ in listening() if pid == os.getpid()}


@needs_jobqueue
def test_arguments_of_deployers_are_kept() -> None:
    from distributed import LocalCluster, SSHCluster

    with same_way_to_stop():
        from dask_jobqueue import PBSCluster, SLURMCluster

    local, ssh = kept_local(LocalCluster, {"n_workers": 3}), kept_local(SSHCluster, {"worker_options": {"nthreads": 2}})
    assert local == {"n_workers": 3, "scheduler_kwargs": {"dashboard": False, "dashboard_address": LOOPBACK}}
    assert ssh["worker_options"] == {"nthreads": 2, "dashboard_address": LOOPBACK}
    for asked in ({"dashboard_address": ":8787"}, {"scheduler_kwargs": {"dashboard_address": ":1"}}):
        assert is_asked_for(asked)
    assert kept_local(LocalCluster, {"dashboard_address": ":8787"}) == {"dashboard_address": ":8787"}
    settings = {
        "jobqueue.slurm.worker-extra-args": ["--nthreads", "1"],
        "jobqueue.slurm.scheduler-options": {"port": 9},
    }
    with dask.config.set(settings):
        slurm, pbs = (kept_local(made_by, {}) for made_by in (SLURMCluster, PBSCluster))
    assert slurm["worker_extra_args"] == ["--nthreads", "1", "--dashboard-address", LOOPBACK]
    assert slurm["scheduler_options"]["port"] == 9
    assert pbs["worker_extra_args"] == ["--dashboard-address", LOOPBACK]
    given = ["--dashboard-address=:8788"]
    assert kept_local(PBSCluster, {"worker_extra_args": given})["worker_extra_args"] == given
    assert kept_local(dict, {"a": 1}) == {"a": 1}


UNGUARDED = """
import bucketflow
from bucketflow.pipeline.answering import placement

placement.TASK_SECONDS = 1e-5
model = bucketflow.generate("grid", variables=49, domain=4, density=0.3, seed=1).model
print(bucketflow.solve(model, workers=2, method="dense").value)
"""


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    """Each worker runs it again from its first line, and would start workers of its own."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    *_, last = done.stderr.splitlines()
    assert last.endswith(
        f"that runs {script} again from its first line: put the work of the script under if __name__ == '__main__':"
    )


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own process that is still importing the user's script."""
    import multiprocessing

    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)


def test_processes_that_are_not_ours_are_told_too(importing: None) -> None:
    with pytest.raises(ClusterError, match="each worker is a Python process that runs"), starting("workers"):
        pass


def test_whatever_does_not_start_is_one_sentence() -> None:
    with pytest.raises(ClusterError, match=r"^3 workers did not start: no\s+room$"), starting("3 workers"):
        raise RuntimeError("failed") from OSError("no\nroom")
    with pytest.raises(ClusterError, match=r"^nobody$"), starting("3 workers"):
        raise ClusterError("nobody")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that stands for those of a batch system; others are not found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def command(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@needs_jobqueue
def test_missing_commands_of_a_batch_system_are_named_at_once(tmp_path: Path, commands: Path) -> None:
    name = written(tmp_path, {**SLURM, "wait": 7200})
    with pytest.raises(ClusterError, match="needs the command sbatch, which is not on the PATH"), deployed_client(name):
        pass
    command(commands / "sbatch", "exit 1")
    with pytest.raises(ClusterError, match="needs the command scancel"), deployed_client(name):
        pass


@needs_jobqueue
def test_what_a_batch_system_refuses_is_said_at_once(tmp_path: Path, commands: Path) -> None:
    command(commands / "sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    command(commands / "scancel", "exit 0")
    name = written(tmp_path, {**SLURM, "wait": 7200})
    with (
        pytest.raises(ClusterError, match=r"started no worker: .*invalid partition"),
        deployed_client(name),
    ):
        pass


@needs_jobqueue
def test_jobs_that_do_not_begin_are_named(tmp_path: Path, commands: Path) -> None:
    command(commands / "sbatch", "echo Submitted batch job 4711")
    command(commands / "scancel", "exit 0")
    sentence = r"had no worker after 0.1 s \('wait'\)"
    with pytest.raises(ClusterError, match=sentence), deployed_client(written(tmp_path, {**SLURM, "wait": 0.1})):
        pass


@pytest.mark.parametrize(("name", "extra"), [("dask_gateway.GatewayCluster", "gateway"), ("dask_nowhere.Cluster", "")])
def test_extras_of_missing_deployers_are_named(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name.partition(".")[0], None)
    with pytest.raises(ClusterError) as caught, deployed_client(written(tmp_path, {"class": name})):
        pass
    assert f"{name} is not installed here" in str(caught.value)
    assert (f"pip install -e '.[{extra}]'" in str(caught.value)) == bool(extra)


def test_failures_in_the_background_are_kept_and_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tornado.application")
    before = logger.propagate, list(logger.handlers)
    with heard_failures() as failures:
        try:
            raise OSError("no\nroom")
        except OSError:
            logger.error("Exception in callback", exc_info=True)
        logger.error("it %s", "failed")
    assert failures == ["no room", "it failed"]
    assert caplog.text == ""
    assert (logger.propagate, list(logger.handlers)) == before


def test_a_script_that_is_imported_again_asks_nothing_again(
    importing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small its question is; a process of the user's own hears why."""
    model = bucketflow.load("satellite")
    with pytest.raises(bucketflow.BucketflowError, match="put the work of the script under if __name__"):
        bucketflow.solve(model, workers=2)
    assert bucketflow.solve(model).value == 49
    monkeypatch.setattr("os._exit", lambda code: (_ for _ in ()).throw(SystemExit(code)))
    monkeypatch.setenv("BUCKETFLOW_STARTING", str(tmp_path / "told"))
    with pytest.raises(SystemExit):
        bucketflow.solve(model, workers=2)
    assert (tmp_path / "told").read_text()
