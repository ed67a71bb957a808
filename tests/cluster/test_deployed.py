"""Clusters that Dask's deployers start for a command, and clusters that are reached with certificates only."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml

import bucketflow
from bucketflow.cluster import address
from bucketflow.cluster.address import ClusterError
from bucketflow.cluster.connect import connection, remote_client
from bucketflow.cluster.deployed import deployed_client, read_deployment
from tests.clusters import Cluster, cluster, free_port

pytestmark = pytest.mark.filterwarnings("ignore")

LOCAL = {
    "class": "distributed.LocalCluster",
    "arguments": {"n_workers": 0, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None},
    "adapt": {"minimum": 1, "maximum": 2},
}


def written(folder: Path, what: Any) -> str:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(what))
    return str(path)


def solved_on(name: str, *more: str) -> dict[str, Any]:
    """Solve an example from the command line on a cluster of its own."""
    command = [sys.executable, "-m", "bucketflow", "solve", "satellite", "--cluster", name, "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_local_cluster_from_a_file(tmp_path: Path) -> None:
    assert solved_on(written(tmp_path, LOCAL))["status"] == "optimal"


def test_a_section_of_the_configuration() -> None:
    with dask.config.set({"bucketflow.clusters": {"laptop": LOCAL}}):
        assert read_deployment("laptop").adapt == {"minimum": 1, "maximum": 2}
        with pytest.raises(ClusterError, match=r"no cluster .desk.: .* has laptop"):
            read_deployment("desk")


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ({"arguments": {}}, "has no 'class'"),
        ({**LOCAL, "workers": 3}, "says 'workers'; expected"),
        ({**LOCAL, "scale": "many"}, "needs numbers"),
        ({**LOCAL, "arguments": 3}, "expected names with values"),
        ({"class": "dask_nowhere.Cluster"}, "dask_nowhere.Cluster is not installed here"),
        ({**LOCAL, "arguments": {"n_workers": "x"}}, "did not start a cluster"),
    ],
)
def test_clusters_that_cannot_be(tmp_path: Path, what: Any, sentence: str) -> None:
    with pytest.raises(ClusterError, match=sentence), deployed_client(written(tmp_path, what)):
        pass


@pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
def test_a_batch_system(tmp_path: Path) -> None:
    """The class of dask-jobqueue that runs its job scripts here stands in for Slurm and the like."""
    what = {
        "class": "dask_jobqueue.local.LocalCluster",
        "arguments": {"cores": 1, "memory": "2GB", "processes": 1, "log_directory": str(tmp_path)},
        "scale": 1,
    }
    with deployed_client(written(tmp_path, what)) as client:
        assert len(client.nthreads()) == 1
        assert bucketflow.solve(bucketflow.load("satellite"), client=client).status == "optimal"


def test_modules_of_clusters_leave_ctrl_c_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of dask-jobqueue lets it end the process with exit code 0, as if it had answered."""
    (tmp_path / "silent.py").write_text("import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit())\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    with (
        pytest.raises(ClusterError, match=r"silent\.Cluster is not installed"),
        deployed_client(written(tmp_path, {"class": "silent.Cluster"})),
    ):
        pass
    assert signal.getsignal(signal.SIGINT) == before


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A port of an SSH server that lets us in, and our key."""
    server = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(server).exists() or find_spec("asyncssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs an SSH server and asyncssh")
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    port = free_port()
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "own.pub",
        "PidFile": tmp_path / "sshd.pid",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "UsePAM": "no",
    }
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([server, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.DEVNULL)
    address.verify_listening(f"127.0.0.1:{port}", 10.0)
    yield port, tmp_path / "own"
    process.terminate()
    process.wait()


def test_ssh(tmp_path: Path, ssh_server: tuple[int, Path]) -> None:
    port, key = ssh_server
    what = {
        "class": "distributed.SSHCluster",
        "arguments": {
            "hosts": ["127.0.0.1", "127.0.0.1"],
            "connect_options": {
                "port": port,
                "known_hosts": None,
                "username": getpass.getuser(),
                "client_keys": [str(key)],
            },
            "worker_options": {"nthreads": 1},
            "scheduler_options": {"port": 0, "dashboard": False},
            "remote_python": f"env PYTHONPATH={os.environ.get('PYTHONPATH', '')} {sys.executable}",
        },
    }
    assert solved_on(written(tmp_path, what))["status"] == "optimal"


class Certificates:
    """Files of an authority and of a certificate that it signed, as Dask's configuration names them."""

    def __init__(self, folder: Path):
        from distributed.security import Security

        made = Security.temporary()
        folder.mkdir()
        self.ca, self.key = folder / "ca.pem", folder / "key.pem"
        self.ca.write_text(made.tls_ca_file)
        self.key.write_text(made.tls_scheduler_key)

    @property
    def configuration(self) -> dict[str, Any]:
        tls = "distributed.comm.tls"
        roles = ("client", "scheduler", "worker")
        own = {f"{tls}.{role}.{what}": path for role in roles for what, path in (("cert", self.ca), ("key", self.key))}
        return {name: str(path) for name, path in {f"{tls}.ca-file": self.ca, **own}.items()}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Cluster, Certificates]]:
    """A cluster that is reached with certificates only."""
    pytest.importorskip("cryptography")
    right = Certificates(tmp_path / "right")
    files = ("--tls-ca-file", str(right.ca), "--tls-cert", str(right.ca), "--tls-key", str(right.key))
    with dask.config.set(right.configuration), cluster(tmp_path, 1, *files, scheme="tls") as started:
        yield started, right


def test_certificates(secured: tuple[Cluster, Certificates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, right = secured
    with dask.config.set(right.configuration):
        job = bucketflow.submit("satellite", scheduler=running.address, workdir=tmp_path / "run")
        assert job.result(timeout=60).status == "optimal"
    wrong = Certificates(tmp_path / "wrong")
    with (
        dask.config.set(wrong.configuration),
        pytest.raises(ClusterError, match="do not accept"),
        remote_client(running.address),
    ):
        pass
    with (
        dask.config.set(dict.fromkeys(right.configuration)),
        pytest.raises(ClusterError, match="needs certificates"),
        remote_client(running.address),
    ):
        pass
    monkeypatch.setattr("bucketflow.cluster.connect.ANSWER_SECONDS", 0.5)
    with (
        pytest.raises(ClusterError, match="no Dask scheduler answers"),
        connection(running.address.replace("tls", "tcp")),
    ):
        pass


def test_a_server_that_hangs_up_is_told(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    right = Certificates(tmp_path / "right")
    with closing(socket.create_server(("127.0.0.1", 0))) as server, dask.config.set(right.configuration):
        server.settimeout(5)
        port = server.getsockname()[1]
        thread = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(2)])
        thread.start()
        with pytest.raises(ClusterError), connection(f"tls://127.0.0.1:{port}"):
            pass
        thread.join()


@pytest.mark.parametrize(
    "text",
    [
        "scale: .inf",
        "scale: -3",
        "wait: .nan",
        "wait: .inf",
        f"wait: 0x{'f' * 2000}",
        f"scale: {'9' * 5000}",
        f"scale: 0x{'f' * 4000}",
        f"arguments: {{n_workers: {'9' * 5000}}}",
        "when: 2024-13-45",
        "arguments: " + "[" * 3000 + "]" * 3000,
    ],
    ids=range(10),
)
def test_files_that_start_nothing_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"class: distributed.LocalCluster\n{text}\n")
    with pytest.raises(ClusterError):
        read_deployment(str(path))
