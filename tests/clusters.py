"""Clusters of real processes, which tests kill; their workers go on only as far as a test allows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bucketflow.cluster.connect import connection
from bucketflow.storage import ledger

# Run by every worker before its first task: small plans become many tasks, and after its receipt a task waits until so
# many are allowed. On a disk that is said to be full nothing can be opened to be written.
_GATE = """
import errno
import os
import time
from pathlib import Path
from bucketflow.pipeline.answering import placement
from bucketflow.storage import ledger

placement.TASK_SECONDS = 1e-4
append = ledger.append if ledger.append.__module__ == ledger.__name__ else ledger.append.first  # it is loaded twice

def gated(folder, receipts):
    append(folder, receipts)
    while len(ledger.load(folder)) > int(Path({allowed!r}).read_text()):
        time.sleep(0.01)

gated.first = append
ledger.append = gated

def on_a_full_disk(path, flags, *rest, **more):
    full = Path({full!r})
    if flags & os.O_CREAT and full.exists() and full.read_text() in str(path) and not str(path).endswith("lock"):
        raise OSError(errno.ENOSPC, "no space left")
    return opening(path, flags, *rest, **more)

opening = getattr(os.open, "first", os.open)
on_a_full_disk.first = opening
os.open = on_a_full_disk
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def until(condition: Callable[[], Any]) -> Any:
    """Wait for what a condition returns once it is true; ten minutes are taken for never."""
    end = time.monotonic() + 600
    while not (found := condition()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)
    return found


class Cluster:
    """A scheduler and workers, each a process."""

    def __init__(self, folder: Path, *options: str, scheme: str = "tcp"):
        self.folder, self._options = folder, options
        self.port = free_port()
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._gate = folder / "gate.py"
        self._gate.write_text(_GATE.format(allowed=str(folder / "allowed"), full=str(folder / "full")))
        self.allow(1 << 30)

    def allow(self, receipts: int) -> None:
        """Let tasks go on after so many receipts."""
        new = self.folder / "allowed.new"
        new.write_text(str(receipts))
        os.replace(new, self.folder / "allowed")

    @contextmanager
    def full_disk(self, run: Path) -> Iterator[None]:
        """Let workers find no space left for a run."""
        (self.folder / "full").write_text(str(run))
        yield
        (self.folder / "full").unlink()

    def start_scheduler(self) -> None:
        """Start the scheduler, or another one at the same address."""
        self.scheduler = self._started("scheduler", "--host", self.address)

    def start_worker(self) -> None:
        """Start a worker of one thread."""
        place = ("--local-directory", str(self.folder / "scratch"), "--preload", str(self._gate))
        self.workers.append(self._started("worker", self.address, "--no-nanny", "--nthreads", "1", *place))

    def _started(self, what: str, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *args, "--no-dashboard", *self._options]
        with open(self.folder / f"{what}.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def ready(self, workers: int) -> None:
        """Wait for workers."""
        with connection(self.address, 30.0) as client:
            client.wait_for_workers(workers, timeout=30)

    def worker_at(self, address: str) -> subprocess.Popen[bytes]:
        """Return the process of a worker."""
        with connection(self.address, 30.0) as client:
            pid = client.run(os.getpid, workers=[address])[address]
        return next(worker for worker in self.workers if worker.pid == pid)

    def kill(self) -> None:
        """Kill everything that is left."""
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            process.kill()
            process.wait()
        self.workers = []


@contextmanager
def cluster(folder: Path, workers: int = 2, *options: str, scheme: str = "tcp") -> Iterator[Cluster]:
    """Start a cluster, and kill it at the end."""
    made = Cluster(folder, *options, scheme=scheme)
    try:
        made.start_scheduler()
        for _ in range(workers):
            made.start_worker()
        made.ready(workers)
        yield made
    finally:
        made.kill()


def receipts(run: Path) -> int:
    """How many chunks or groups of slices a run has finished."""
    return len(ledger.load(run / "tables"))


def receipt_lines(run: Path) -> list[str]:
    """All lines of a run's ledger."""
    files = sorted(ledger.folder_of(run / "tables").glob("*.jsonl"))
    return [line for file in files for line in file.read_text().splitlines() if line]
