"""Simulations of runs on workers: schedules that are known exactly, and the tasks of real plans."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.plans.plan import Plan, empty_plan, with_rates
from bucketflow.pipeline.simulation.simulate import SimulatedRun, simulated_run
from bucketflow.pipeline.simulation.simulated_cluster import SimulatedCluster, SimulatedTask
from bucketflow.pipeline.simulation.simulated_tasks import divided_for, simulated_tasks
from bucketflow.pipeline.trees.costs import Rates
from tests.models import grid

CHAIN = [SimulatedTask("a", 1), SimulatedTask("b", 2, ((0, 10),)), SimulatedTask("c", 3, ((1, 10),))]
FORK = [
    SimulatedTask("fork", 1),
    *[SimulatedTask(f"part {i}", 2, ((0, 100),)) for i in range(6)],
    SimulatedTask("join", 1, tuple((i, 0) for i in range(1, 7))),
]


def run(tasks: list[SimulatedTask], workers: int, **more: Any) -> SimulatedRun:
    return simulated_run(tasks, SimulatedCluster(workers, **more))


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_a_chain_takes_its_sum_on_one_worker_without_moving_tables(workers: int) -> None:
    found = run(CHAIN, workers, bandwidth=1.0)
    assert found.seconds == 6
    assert found.network_bytes == 0
    assert found.utilisation == pytest.approx(1 / workers)
    assert found.limited_by == "dependent tasks, 100%"
    assert [part[0] for part in found.chain] == ["a", "b", "c"]


@pytest.mark.parametrize(("workers", "seconds"), [(1, 14), (2, 8), (3, 6), (6, 4), (50, 4)])
def test_a_fork_and_join_takes_its_rounds(workers: int, seconds: float) -> None:
    assert run(FORK, workers).seconds == seconds


def test_transfers_take_the_time_of_the_link() -> None:
    # the tasks beside the first worker wait one second each for 100 bytes
    found = run(FORK, 6, bandwidth=100.0)
    assert found.seconds == 5
    assert found.network_bytes == 500
    slow = run(FORK, 6, bandwidth=10.0)
    assert slow.seconds < run(FORK, 1).seconds + 10
    assert slow.limits["network"] == 10


def test_two_places_of_a_worker_share_its_link_and_its_tables() -> None:
    sent = SimulatedTask("send", sent_bytes=100, place="client")
    tasks = [sent, *[SimulatedTask(f"slice {i}", 1, ((0, 100),)) for i in range(4)]]
    found = run(tasks, 1, slots=2, bandwidth=100.0)
    assert found.network_bytes == 200  # to the worker's client side and once to the worker
    assert found.seconds == 1 + 1 + 1 + 1


def test_storage_is_shared_by_all_workers() -> None:
    tasks = [SimulatedTask(f"block {i}", 0, (), read_bytes=60, written_bytes=40) for i in range(8)]
    for workers in (1, 2, 8):
        found = run(tasks, workers, storage_bandwidth=100.0)
        assert found.seconds == pytest.approx(8)
        assert found.storage_bytes == 800
        assert found.limited_by.startswith("storage")
    assert run(tasks, 8, storage_bandwidth=inf, bandwidth=100.0).seconds == pytest.approx(1)


def test_the_client_submits_one_task_after_the_other_and_workers_start_late() -> None:
    tasks = [SimulatedTask(f"slice {i}", 1) for i in range(4)]
    found = run(tasks, 4, submit_seconds=0.5)
    assert found.seconds == 3
    assert found.limits["submission of tasks"] == 2
    late = run(tasks, 4, start_seconds=10.0)
    assert late.seconds == 11
    assert late.limits["start of workers"] == 10


def test_tables_that_slices_share_are_computed_once_on_each_worker() -> None:
    tasks = [SimulatedTask(f"slice {i}", 1, shared_seconds=5) for i in range(4)]
    assert (run(tasks, 1).seconds, run(tasks, 2).seconds, run(tasks, 4).seconds) == (9, 7, 6)


def test_a_lost_worker_computes_its_results_again() -> None:
    whole = [SimulatedTask("long", 3600), SimulatedTask("end", 3600, ((0, 1),))]
    found = [run(whole, 1, losses=0.5, seed=seed) for seed in range(30)]
    assert found == [run(whole, 1, losses=0.5, seed=seed) for seed in range(30)]
    assert all((each.losses == 0) == (each.seconds == 7200) for each in found)
    assert any(each.losses for each in found)
    assert any(not each.losses for each in found)
    # without stored tables both tasks must fit between two losses
    lost = next(each for each in found if each.losses)
    assert lost.seconds > 7200
    assert lost.limits["lost work"] == pytest.approx(lost.seconds - 7200)


def test_losses_do_not_lose_stored_tables() -> None:
    stored = [SimulatedTask("long", 3600, written_bytes=1), SimulatedTask("end", 3600, ((0, 0),))]
    kept = [SimulatedTask("long", 3600), SimulatedTask("end", 3600, ((0, 1),))]
    seconds = [(run(stored, 1, losses=1, seed=s).seconds, run(kept, 1, losses=1, seed=s).seconds) for s in range(30)]
    assert all(a <= b + 1e-6 for a, b in seconds)
    assert any(a < b for a, b in seconds)


def test_a_run_that_never_ends_is_refused() -> None:
    with pytest.raises(bucketflow.ModelError, match="smaller rate of losses"):
        run([SimulatedTask("long", 3600)], 4, losses=3600)


def planned(query: str, **options: Any) -> Plan:
    kind = "cost" if query == "optimum" else "markov"
    return with_rates(bucketflow.plan(grid(12, 12, 4, kind), query, threads=1, **options), Rates())


SLICED = {"memory": "20MB", "fit": "slice", "order_time": 0.1}
SPILLED = {"memory": "60MB", "fit": "spill", "disk": "1GB", "order_time": 0.1}


@pytest.mark.parametrize("options", [SLICED, SPILLED])
def test_a_simulation_has_the_tasks_and_the_work_of_the_plan(options: dict[str, Any]) -> None:
    plan = divided_for(planned("partition", **options), 4, 60_000_000)
    tasks = simulated_tasks(plan)
    assert all(need < i for i, task in enumerate(tasks) for need, _ in task.needs)
    own = [task for task in tasks if task.place == "worker"]
    if plan.spill is None:
        assert len(own) == plan.groups > 1
    else:
        assert len(own) == plan.spill.tasks > 1
        assert sum(task.written_bytes for task in own) == pytest.approx(plan.spill.written_bytes, rel=0.01)
    rate = inf if plan.spill is None else plan.spill.disk_rate
    alone = run(tasks, 1, storage_bandwidth=rate)
    assert alone.seconds == pytest.approx(plan.predicted_seconds, rel=0.1)
    times = [run(tasks, workers).seconds for workers in (1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[2] == pytest.approx(4, rel=0.2)


def test_small_plans_run_in_the_client() -> None:
    plan = bucketflow.plan(grid(3, 3, 2, "markov"), "partition")
    found = bucketflow.simulate(plan, (1, 4), losses=10.0, worker_start=5.0)
    assert {each.losses for each in found.runs} == {0}
    assert [each.chain[0][0] for each in found.runs] == ["run in the client's process"] * 2
    assert bucketflow.simulate(empty_plan(), 2).runs[0].seconds == 0


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": []}, "workers is empty"),
        ({"workers": 1_000_000}, "at most 100,000"),
        ({"bandwidth": "fast"}, "'fast' is not a rate"),
        ({"storage_bandwidth": 0}, "0 is not a rate"),
        ({"losses": -1.0}, "losses is -1.0"),
        ({"worker_start": inf}, "worker_start is inf"),
        ({"slots": 0}, "slots"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(more: dict[str, Any], text: str) -> None:
    plan = bucketflow.plan(grid(3, 3, 2, "markov"), "partition")
    with pytest.raises(bucketflow.ModelError, match=text):
        bucketflow.simulate(plan, **more)


def test_a_worker_with_too_little_memory_is_refused() -> None:
    with pytest.raises(bucketflow.BudgetError, match="plan with memory"):
        bucketflow.simulate(planned("partition", order_time=0.1), 2, worker_memory="4MB")


def test_the_command_prints_a_table_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    args = ["plan", "diagnosis", "--query", "partition", "--simulate", "workers=1,8", "--worker-memory", "16GB"]
    shown = CliRunner().invoke(main, [*args, "--timeline", str(picture)])
    assert shown.exit_code == 0
    assert "utilisation" in shown.output
    assert "chain of 8" in shown.output
    ElementTree.parse(picture)
    told = json.loads(CliRunner().invoke(main, [*args, "--json"]).output)
    assert [each["workers"] for each in told["runs"]] == [1, 8]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--simulate", "8"], "workers=1,8,64"),
        (["--simulate", "workers=0"], "workers=1,8,64"),
        (["--simulate", "workers=2", "--bandwidth", "9 bananas"], "not a rate"),
        (["--simulate", "workers=2", "--worker-memory", "much"], "not a size"),
        (["--simulate", "workers=2", "--gpus-per-worker", "1"], "--gpus"),
        (["--simulate", "workers=2", "--workers", "2"], "leave out --workers"),
        (["--bandwidth", "1GB/s"], "--simulate"),
    ],
)
def test_bad_options_end_in_one_sentence(args: list[str], text: str) -> None:
    found = CliRunner().invoke(main, ["plan", "diagnosis", *args])
    assert found.exit_code == 2
    assert text in found.output
    assert "Traceback" not in found.output
