"""GPU workers of a cluster that was started from the command line, beside a worker that has no device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import bucketflow
from tests.models import grid

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not cupy.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)

SECONDS = 120


@contextmanager
def started(log: Path, module: str, *options: str, **environment: str) -> Iterator[None]:
    """Run one of Dask's commands until the end of the block."""
    command = [sys.executable, "-m", f"distributed.cli.{module}", *options]
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(SECONDS / 4)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def cluster(folder: Path, declared: bool) -> Iterator[Client]:
    """A scheduler, a worker with the device, and one without."""
    file = folder / "scheduler.json"
    shared = ["--scheduler-file", str(file), "--local-directory", str(folder), "--nthreads", "2"]
    shared += ["--no-dashboard", "--no-nanny", "--death-timeout", "30"]
    resources = ["--resources", "GPU=1"] if declared else []
    with ExitStack() as running:

        def start(name: str, *options: str, **environment: str) -> None:
            running.enter_context(started(folder / f"{name}.log", *options, **environment))

        own = ["--port", "0", "--no-dashboard", "--idle-timeout", f"{SECONDS}s"]  # where the test is killed
        start("scheduler", "dask_scheduler", "--scheduler-file", str(file), *own)
        start("gpu", "dask_worker", *shared, "--name", "gpu", *resources)
        start("cpu", "dask_worker", *shared, "--name", "cpu", CUDA_VISIBLE_DEVICES="")
        end = time.monotonic() + SECONDS
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.1)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=SECONDS)
            yield client


def device_steps() -> Callable[[], int]:
    """Return what a worker is asked: how many steps it has prepared for a device. As a closure it travels by value."""

    def asked() -> int:
        from bucketflow.tasks.gpu import launch as gpu

        counted = gpu.prepare.cache_info()
        return int(counted.hits + counted.misses)

    return asked


def steps_by_worker(client: Client) -> dict[str, int]:
    """Return how many steps each worker has prepared for a device."""
    names = {address: info["name"] for address, info in client.scheduler_info()["workers"].items()}
    return {names[address]: steps for address, steps in client.run(device_steps()).items()}


def solved(file: Path, *options: str) -> dict[str, Any]:
    """Run the command line: a sweep of every cell."""
    command = [sys.executable, "-m", "bucketflow", "solve", str(file), "--json", "--method", "dense", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


SMALL, LARGE = (8, 8, 4), (9, 9, 7)
"""Grids; a run in memory that takes this machine's CPU less than 0.4 s is not worth the cluster, LARGE is."""


@pytest.mark.parametrize(
    ("declared", "ways"),
    [
        (True, [(LARGE, "--fit", "slice", "--gpu-memory", "60MB"), (SMALL, "--fit", "spill", "--gpu-memory", "4MB")]),
        (False, [(LARGE,)]),  # whole
    ],
    ids=["the resource", "a device without the resource"],
)
def test_the_command_line_uses_the_gpu_worker_of_a_mixed_cluster(
    declared: bool, ways: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    file = tmp_path / "grid.wcsp"
    before = 0
    with cluster(tmp_path, declared) as client:
        for size, *options in ways:
            network = grid(*size)
            bucketflow.save(network, file)
            expected = bucketflow.solve(network)
            answer = solved(file, "--scheduler", client.scheduler.address, "--gpus", "all", *options)
            assert (answer["value"], answer["status"]) == (expected.value, expected.status)
            states = [network.state_index(v, answer["assignment"][name]) for v, name in enumerate(network.names)]
            assert network.cost(states) == expected.value
            assert answer["plan"]["tasks"] > 1 or not options
            steps = steps_by_worker(client)
            assert steps["cpu"] == 0
            assert steps["gpu"] > before
            before = steps["gpu"]
