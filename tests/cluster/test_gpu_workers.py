"""GPU workers of a running cluster: found, given the resource, asked for nothing they lack; CPU workers beside them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Scheduler, SpecCluster, Worker, get_worker

import bucketflow
from bucketflow.cluster import gpus as module
from bucketflow.cluster.connect import ClusterError
from bucketflow.cluster.gpus import GpuPool, GpuWorker, gpu_workers
from bucketflow.cluster.pool import Node
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.batches.models import BatchPolicy
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.device_fit import SLOTS
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.runs.pools import DaskPools
from bucketflow.tasks.gpu.memory import DeviceMemoryError
from tests.cluster.test_steps import answers, assert_same
from tests.device_stand_in import StandIn, device
from tests.models import grid
from tests.pipeline.devices.test_device_spill import small
from tests.policies import InForce

FREE = {"gpu-a": 1 << 32, "gpu-b": 1 << 33, "gpu-c": 1 << 34}


def pretended_device(dask_worker: Any) -> tuple[str, int] | None:
    """What a worker sees: those named so have a GPU; a and b share one."""
    free = FREE.get(dask_worker.name)
    return None if free is None else ("0" if dask_worker.name in ("gpu-a", "gpu-b") else "1", free)


@contextmanager
def cluster(*names: str, declared: Sequence[str] = (), threads: int = 2) -> Iterator[Client]:
    """Workers in this process."""
    workers = {
        name: {
            "cls": Worker,
            "options": {"nthreads": threads, "name": name, "resources": {"GPU": 1} if name in declared else None},
        }
        for name in names
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "protocol": "inproc://"}}
    with (
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=40) as started,
        Client(started, set_as_default=False) as client,
    ):
        client.wait_for_workers(len(names))
        yield client


@pytest.fixture(autouse=True)
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "device_of_worker", pretended_device)


def names_of(client: Client, workers: Sequence[GpuWorker]) -> list[str]:
    names = {address: info["name"] for address, info in client.scheduler_info()["workers"].items()}
    return [names[worker.address] for worker in workers]


def test_devices_decide_where_nobody_declared_the_resource() -> None:
    with cluster("cpu", "gpu-a", "gpu-b", "gpu-c") as client:
        found = gpu_workers(client, "all")
        assert names_of(client, found) == ["gpu-c", "gpu-b", "gpu-a"]
        shares = {name: worker.free_bytes for name, worker in zip(names_of(client, found), found, strict=True)}
        assert shares["gpu-c"] == int(FREE["gpu-c"] * 0.9)
        assert shares["gpu-a"] == int(FREE["gpu-a"] * 0.9) // 2
        resources = {w["name"]: w["resources"] for w in client.scheduler_info()["workers"].values()}
        assert resources["gpu-a"] == {"GPU": 1}
        assert not resources["cpu"]
        assert names_of(client, gpu_workers(client, 1)) == ["gpu-c"]


def test_the_resource_decides_where_somebody_declared_it() -> None:
    with cluster("cpu", "gpu-a", "gpu-b", declared=["gpu-a"]) as client:
        found = gpu_workers(client, "all")
        assert names_of(client, found) == ["gpu-a"]
        assert found[0].free_bytes == int(FREE["gpu-a"] * 0.9)


@pytest.mark.parametrize(("asked", "text"), [(3, "has 2 GPU"), (0, "has 2"), ("two", "has 2")])
def test_too_many_are_refused(asked: int | str, text: str) -> None:
    with cluster("gpu-a", "gpu-c") as client, pytest.raises(ClusterError, match=text):
        gpu_workers(client, asked)


def test_clusters_without_gpus_are_refused() -> None:
    with cluster("cpu", declared=["cpu"]) as client, pytest.raises(ClusterError, match="has the resource GPU but"):
        gpu_workers(client, "all")
    with cluster("cpu") as client:
        with pytest.raises(ClusterError, match="the cluster has none"):
            gpu_workers(client, "all")
        with pytest.raises(bucketflow.BucketflowError, match="the cluster has none"):
            bucketflow.solve(grid(4, 4, 2), gpus="all", client=client)


class Busy:
    """Counts how many tasks of each worker run at the same time, and waits for company."""

    def __init__(self, wanted: int) -> None:
        self.most = 0
        self.now: dict[str, int] = {}
        self.names: set[str] = set()
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(wanted) if wanted > 1 else None

    def task(self, number: int) -> int:
        name = get_worker().name
        with self.lock:
            self.names.add(name)
            self.now[name] = self.now.get(name, 0) + 1
            self.most = max(self.most, self.now[name])
        if self.barrier is not None:
            self.barrier.wait(20)
        with self.lock:
            self.now[name] -= 1
        return number


BUSY = [Busy(1)]


def task(number: int) -> int:
    """What runs on the workers of this process."""
    return BUSY[0].task(number)


@pytest.mark.parametrize("names", [("gpu-a", "gpu-b", "gpu-c"), ("cpu", "gpu-a", "gpu-b", "gpu-c")])
def test_a_limited_run_keeps_so_many_devices_busy(names: tuple[str, ...]) -> None:
    with cluster(*names) as client:
        asked = Resources(Options(client=client, gpus="all", most_workers=2))
        vars(asked)["_gpu_cluster"] = gpu_workers(client, "all"), {}
        with DaskPools(asked) as pool:
            assert isinstance(pool, GpuPool)
            assert pool.width == 2
            busy = BUSY[0] = Busy(1)
            assert sorted(pool.stream(task, [(i,) for i in range(12)])) == list(range(12))
            assert len(busy.names) <= 2
            assert "cpu" not in busy.names


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_a_device_gets_as_many_tasks_as_it_has_room_for(at_a_time: int) -> None:
    with cluster("cpu", "gpu-c", threads=4) as client:
        addresses = [worker.address for worker in gpu_workers(client, "all")]
        pool = GpuPool(client, "run", addresses, at_a_time)
        busy = BUSY[0] = Busy(at_a_time)
        assert pool.width == at_a_time
        assert sorted(pool.stream(task, [(i,) for i in range(4 * at_a_time)])) == list(range(4 * at_a_time))
        assert busy.most == at_a_time
        assert busy.names == {"gpu-c"}


def waiting(number: int) -> str:
    """Take some time; return who did."""
    time.sleep(0.05)
    return str(get_worker().name)


@pytest.mark.parametrize("names", [("cpu", "gpu-c"), ("cpu", "gpu-a", "gpu-c")])
def test_idle_cpu_workers_do_not_take_what_waits_for_a_device(names: Sequence[str]) -> None:
    with cluster(*names) as client:
        addresses = [worker.address for worker in gpu_workers(client, "all")]
        pool = GpuPool(client, "run", addresses, at_a_time=2)
        nodes = {i: Node(set(), lambda i: (waiting, i)) for i in range(60)}
        done = Counter(outcome for _, outcome in pool.run_graph(nodes))
        done.update(pool.stream(waiting, [(i,) for i in range(60)]))
        assert len(client.nthreads()) == len(names)
    assert set(done) == {name for name in names if name != "cpu"}
    assert done.total() == 120
    assert max(done.values()) <= 1.5 * min(done.values())


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StandIn, set[str]]]:
    """The stand-in, and the names of the workers that used it."""
    used: set[str] = set()
    with device(monkeypatch) as there:

        def note() -> None:
            try:
                used.add(get_worker().name)
            except ValueError:
                used.add("client")

        there.on_step = note
        monkeypatch.setattr(placement, "TASK_SECONDS", 1e-9)
        yield there, used


def peak_bytes(model: bucketflow.Model, query: str) -> int:
    """What the plan takes whole."""
    plan = bucketflow.plan(model, query, gpus=1, tree="bucket")
    assert plan is not None
    return plan.peak_bytes


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov")])
@pytest.mark.parametrize("fit", ["slice", "spill", "auto"])
def test_a_mixed_cluster_answers_on_its_gpu_workers(
    query: str, kind: str, fit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(6, 6, 3, kind)
    free = bucketflow.solve(model, query)
    with watched(monkeypatch) as (_, used), cluster("cpu", "gpu-a", "gpu-c", threads=3) as client:
        options: dict[str, Any] = {"gpus": "all", "client": client, "fit": fit, "tree": "bucket"}
        if fit == "spill":
            options["gpu_memory"] = small(model, query, 3)
        elif fit == "slice":
            options["gpu_memory"] = peak_bytes(model, query) * 2 // 3
        got = bucketflow.solve(model, query, **options)
    assert used
    assert used <= {"gpu-a", "gpu-c"}
    assert got.plan is not None
    assert (got.plan.slices > 1) == (fit == "slice")
    assert (got.plan.spill is not None) == (fit == "spill")
    assert got.value == free.value
    if free.log10 is not None:
        assert got.log10 == pytest.approx(free.log10, rel=1e-12)


@pytest.mark.parametrize(
    ("query", "kind", "fit"),
    [
        ("optimum", "cost", "auto"),
        ("optimum", "cost", "slice"),
        ("partition", "markov", "auto"),
        ("partition", "steep", "slice"),
        ("marginals", "markov", "auto"),
    ],
)
def test_steps_are_futures_of_the_gpu_workers(query: str, kind: str, fit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 6, 3, kind)
    ask: Callable[..., Any] = bucketflow.marginals if query == "marginals" else partial(bucketflow.solve, query=query)
    free = ask(model)
    with watched(monkeypatch) as (_, used), cluster("cpu", "gpu-a", "gpu-c") as client:
        options: dict[str, Any] = {"gpus": "all", "client": client, "fit": fit, "tree": "bucket", "tasks": "steps"}
        if fit == "slice":
            options["gpu_memory"] = peak_bytes(model, query) * 2 // 3
        got = ask(model, **options)
    assert used
    assert used <= {"gpu-a", "gpu-c"}
    assert got.plan.device
    assert got.dask.tasks > got.plan.step_tasks >= len(got.plan.steps)
    assert got.value == free.value
    if query == "marginals":
        assert all(got[name] == pytest.approx(free[name], rel=1e-12) for name in free)
    elif free.log10 is not None:
        assert got.log10 == pytest.approx(free.log10, rel=1e-12)


@pytest.mark.parametrize(("workers", "tasks"), [({}, "auto"), ({"scheduler": "tcp://x:1"}, "steps")])
def test_a_run_that_leaves_its_gpus_has_steps_as_tasks_where_workers_stay(workers: dict[str, str], tasks: str) -> None:
    asked = Resources(Options(gpus=1, tasks="steps", **workers))
    assert asked.without_devices().asked.tasks == tasks
    assert Resources(Options(workers=2, tasks="steps", dashboard=True)).in_this_process().asked.tasks == "auto"


@pytest.mark.parametrize("how", [{}, {"z": 3}, {"memory": 60}])
def test_agents_are_tasks_of_several_gpus(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = grid(4, 4, 4)
    alone = bucketflow.dpop(problem, order="planned", **how)
    with watched(monkeypatch) as (_, used), cluster("cpu", "gpu-a", "gpu-c") as client:
        there = bucketflow.dpop(problem, order="planned", client=client, gpus="all", **how)
    assert used
    assert used <= {"gpu-a", "gpu-c"}
    assert (there.status, there.value, there.bound) == (alone.status, alone.value, alone.bound)
    assert there.metrics.message_bytes == alone.metrics.message_bytes
    assert there.assignment == alone.assignment


@pytest.mark.parametrize(
    ("query", "kind", "names"),
    [
        ("optimum", "cost", ("gpu-a",)),
        ("marginals", "markov", ("gpu-a",)),
        ("optimum", "cost", ("cpu", "gpu-a", "gpu-c")),
        ("partition", "markov", ("cpu", "gpu-a", "gpu-c")),
        ("partition", "steep", ("cpu", "gpu-a", "gpu-c")),
        ("count", "forbids", ("cpu", "gpu-a", "gpu-c")),
        ("marginals", "markov", ("cpu", "gpu-a", "gpu-c")),
        ("max-marginals", "cost", ("cpu", "gpu-a", "gpu-c")),
    ],
)
def test_steps_of_boxes_are_futures_of_the_gpu_workers(
    query: str, kind: str, names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as boxes that one device runs whole, and receipts from which such a run ends."""
    model = grid(6, 6, 3, kind)
    with watched(monkeypatch) as (_, used), cluster(*names, threads=3) as client:
        how: dict[str, Any] = {"fit": "spill", "tree": "bucket", "gpu_memory": small(model, query, 3)}
        alone = answers(model, query, gpus=1, **how)
        used.clear()
        how |= {"gpus": "all", "client": client, "workdir": tmp_path / "run"}
        found = answers(model, query, tasks="steps", **how)
        assert used
        assert used <= {*names} - {"cpu"}
        (tmp_path / "run" / "result.json").unlink()
        again = answers(model, query, **how)
    assert found.plan.device
    assert found.plan.spill is not None
    assert found.dask.tasks > found.plan.step_tasks >= len(found.plan.steps)
    assert_same(alone, found)
    assert_same(alone, again)


def test_a_device_holds_what_the_steps_of_its_slots_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that wait for the way back are on the host."""
    model = grid(6, 6, 3, "markov")
    with watched(monkeypatch) as (there, used), cluster("gpu-a", threads=3) as client:
        how: dict[str, Any] = {"fit": "spill", "tree": "bucket", "gpu_memory": small(model, "marginals", 3)}
        found = bucketflow.marginals(model, gpus="all", client=client, tasks="steps", **how)
    assert used == {"gpu-a"}
    assert 0 < there.peaks[0] <= SLOTS * largest_bytes(found.plan, 0)
    assert there.held[0] == 0


def test_a_box_that_a_device_has_no_memory_for_is_done_in_parts(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, stored_runs=())  # all large tables are stored, so that boxes have variables left to fix
    model = grid(6, 6, 3)
    with watched(monkeypatch) as (there, _), cluster("gpu-a", "gpu-c", threads=3) as client:
        how: dict[str, Any] = {"fit": "spill", "tree": "bucket", "gpu_memory": small(model, "optimum", 2)}
        alone = bucketflow.solve(model, gpus=1, **how)
        there.largest_table_bytes = largest_bytes(alone.plan, -1) // 2
        found = bucketflow.solve(model, gpus="all", client=client, tasks="steps", **how)
        assert there.refused
    assert (found.value, found.assignment) == (alone.value, alone.assignment)
    assert "they were split" in found.notes[0]


def largest_bytes(plan: bucketflow.Plan | None, last: int) -> int:
    """What the largest table of a box takes, but for those of the last stages."""
    assert plan is not None
    assert plan.spill is not None
    return max(s.lowered.out_cells for stage in plan.spill.stages[: last or None] for s in stage.steps) * plan.itemsize


@BatchPolicy.using(large_seconds=0.0)
def test_large_questions_of_a_batch_use_gpu_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("a.wcsp", "cost"), ("b.uai", "markov")):
        bucketflow.save(grid(6, 6, 3, kind), tmp_path / name)
    (tmp_path / "list.csv").write_text("model,query\na.wcsp,optimum\nb.uai,partition\nb.uai,optimum\n")
    alone = bucketflow.batch(tmp_path / "list.csv", tmp_path / "alone")
    with watched(monkeypatch) as (_, used), cluster("cpu", "gpu-a", "gpu-c", threads=3) as client:
        there = bucketflow.batch(tmp_path / "list.csv", tmp_path / "there", client=client, gpus="all")
    assert (there.answered, there.exit_code) == (alone.answered, 0) == (3, 0)
    assert used
    assert used <= {"gpu-a", "gpu-c"}
    ours, theirs = ((tmp_path / out / "results.jsonl").read_text().splitlines() for out in ("alone", "there"))
    for one, other in zip(map(json.loads, ours), map(json.loads, theirs), strict=True):
        assert other["answer"]["value"] == one["answer"]["value"]
        assert other["answer"]["log10"] == pytest.approx(one["answer"]["log10"] or 0) or one["answer"]["log10"] is None


def test_a_worker_without_memory_is_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 6, 3)
    free = bucketflow.solve(model)
    with watched(monkeypatch) as (there, _), cluster("gpu-a", "gpu-c") as client:
        there.largest_table_bytes, there.patience = 1 << 9, 1
        options: dict[str, Any] = {"gpus": "all", "client": client, "fit": "slice", "tree": "bucket"}
        room = peak_bytes(model, "optimum") * 32 // 31 + 1  # with what is left between tables
        got = bucketflow.solve(model, **options, gpu_memory=room)
    assert got.value == free.value
    assert "planned again" in got.notes[0]


def test_errors_of_a_device_travel() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(DeviceMemoryError("so many bytes")))
    assert isinstance(error, DeviceMemoryError)
    assert "so many bytes" in str(error)


def where_it_runs(_: object) -> str:
    """Say which worker this is, after about as long as a short task takes."""
    time.sleep(0.02)
    return str(get_worker().address)


def test_short_tasks_that_share_a_value_are_spread() -> None:
    with cluster("gpu-a", "gpu-b", "gpu-c", declared=["gpu-a", "gpu-b", "gpu-c"]) as client:
        pool = GpuPool(client, "spread")
        shared = pool.put(b"x" * 1_000_000)
        streamed = Counter(pool.stream(where_it_runs, [(shared,)] * 30))
        nodes = {i: Node(set(), lambda _: (where_it_runs, shared)) for i in range(30)}
        graph = Counter(worker for _, worker in pool.run_graph(nodes))
        for found in (streamed, graph):
            assert len(found) == 3
            assert min(found.values()) >= 5
