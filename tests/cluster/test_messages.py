"""Messages as Dask futures: mini-buckets and DPOP give the bits of one process, and report the tasks that were sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import bucketflow
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.starting import NO_DASHBOARD
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.minibuckets.bucket_elimination import (
    BucketElimination,
    MessageWorkers,
    message_graph,
    task_count,
)
from bucketflow.pipeline.minibuckets.joins import BucketTable, Joins
from bucketflow.pipeline.minibuckets.least_costs import LeastCosts, beginning, eliminate
from bucketflow.pipeline.minibuckets.log_sums import log_sum_bounds
from bucketflow.pipeline.minibuckets.partition import Size, partition
from bucketflow.pipeline.runs.slices import SlicePolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.cluster.test_steps import Needs
from tests.models import grid
from tests.pipeline.minibuckets.test_mini_buckets import random_network

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers in this process."""
    kwargs: dict[str, Any] = {
        "scheduler_kwargs": NO_DASHBOARD,
        "dashboard_address": None,
        "memory_limit": 0,
        "n_workers": 2,
        "processes": False,
        "silence_logs": 50,
    }
    with (
        LocalCluster(host="tcp://127.0.0.1", **kwargs) as cluster,
        Client(cluster, set_as_default=False) as opened,
    ):
        yield opened


def workers_of(client: Client, key: str) -> MessageWorkers:
    return MessageWorkers(DaskPool(client, key), lambda v: f"x{v}")


@pytest.mark.parametrize("seed", range(6))
def test_least_costs_are_the_same_bits(client: Client, seed: int) -> None:
    network = random_network(seed, [3, 2, 3, 2, 3, 2, 2], 14, [0.0, 1.0, 5.0, 9.0, np.inf])
    split = partition(network.dims, network.scopes, (3, 1, 0, 5, 2, 6, 4), Size(variables=2 + seed % 2))
    for upper in (None, 20, 12):
        here = eliminate(network, split, upper=upper)
        there = eliminate(network, split, upper=upper, workers=workers_of(client, f"costs{seed}{upper}"))
        assert here is not None
        assert there is not None
        assert (here.lower, here.feasible) == (there.lower, there.feasible)
        if here.feasible:
            assert here.offsets == there.offsets
            for name in ("buckets", "messages"):
                one, other = (np.concatenate([t.costs for b in getattr(x, name) for t in b]) for x in (here, there))
                assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_the_same_bits(client: Client, seed: int) -> None:
    network = random_network(seed, [3, 2, 3, 2, 3, 2], 9, [0.5, 1.25, 5.0, np.inf])
    split = partition(network.dims, network.scopes, tuple(range(6)), Size(variables=2))
    tables = [
        BucketTable(s, -t.costs.transpose([t.scope.index(v) for v in s]).reshape(-1))
        for t, s in zip(network.tables, split.scopes, strict=False)
    ]
    found = log_sum_bounds(tables, split, workers=workers_of(client, f"sums{seed}"))
    assert found == log_sum_bounds(tables, split)


def test_an_elimination_on_workers_stops(client: Client) -> None:
    network = random_network(1, [3] * 7, 12, [0.0, 1.0, 5.0])
    split = partition(network.dims, network.scopes, tuple(range(7)), Size(variables=3))
    asked = iter(range(3))
    stop = lambda: next(asked, None) is None  # noqa: E731
    assert eliminate(network, split, stop=stop, workers=workers_of(client, "stopped")) is None


def test_a_message_is_cut_off_by_its_own_subtree_only() -> None:
    """Two variables without a common function: the message of one does not depend on the order of both."""
    tables = [((0, 2), [[1.0, 9.0], [1.0, 9.0]]), ((1, 2), [[6.0, 7.0], [6.0, 7.0]])]
    functions = [CostTable(s, np.array(t)) for s, t in tables]
    network = CostNetwork((2, 2, 2), tuple(functions))
    kept = []
    for order in ((0, 1, 2), (1, 0, 2)):
        split = partition(network.dims, network.scopes, order, Size())
        own, reach = beginning(network, split, 12)
        work = BucketElimination(split, own, LeastCosts(reach), Joins(split.dims, MIN_PLUS), keep=True)
        assert work.run(None)
        kept.append(work.messages[0][0].costs.tolist())
    assert kept[0] == kept[1]


@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_bounds_are_the_same(client: Client, query: str) -> None:
    model = grid(4, 4, 3, "markov")
    here = bucketflow.bound(model, query, z=3)
    there = bucketflow.bound(model, query, z=3, client=client, tasks="steps")
    assert (here.lower, here.upper, here.assignment) == (there.lower, there.upper, there.assignment)
    assert here.dask is None
    assert there.dask is not None
    assert (there.dask.workers, there.dask.why_none) == (2, "")
    assert there.to_dict()["dask"]["tasks"] == there.dask.tasks >= len(there.graph()) >= 16
    small = bucketflow.bound(model, query, z=3, client=client)
    assert small.dask is not None
    assert (small.dask.tasks, small.lower) == (0, here.lower)
    assert "sending its messages takes longer" in small.dask.why_none


def test_every_message_is_a_future_that_depends_on_those_it_joins(client: Client) -> None:
    assert client.cluster is not None
    scheduler = client.cluster.scheduler
    needs = Needs(scheduler)
    scheduler.add_plugin(needs, name="needs")
    try:
        found = bucketflow.bound(grid(4, 4, 3, "cost"), z=3, client=client, tasks="steps")
    finally:
        scheduler.remove_plugin("needs")
    graph = found.graph()
    sent = {key.split("-")[1]: key for key in needs.found if key.startswith("eliminate-")}
    assert sent.keys() == {key.split("-")[1] for key in graph.nodes}

    def behind(key: str) -> set[str]:
        """Messages that a task reads, directly or through comparisons."""
        return {
            other
            for need in needs.found[key]
            for other in ([need.split("-")[1]] if need.startswith("eliminate-") else behind(need))
        }

    for key, node in graph.nodes.items():
        assert behind(sent[key.split("-")[1]]) == {need.split("-")[1] for need in node.needs}


def test_the_graph_has_a_task_for_each_message() -> None:
    network = random_network(3, [2, 3, 2, 3, 2], 9, [0.0, 1.0])
    split = partition(network.dims, network.scopes, (0, 1, 2, 3, 4), Size(variables=2))
    graph = message_graph(split, lambda v: f"x{v}")
    minis = [mini for bucket in split.buckets for mini in bucket]
    assert [node.cells for node in graph.nodes.values()] == [mini.cells for mini in minis]
    assert len(graph.outputs) == sum(not mini.message for mini in minis)
    assert task_count(split) >= len(graph)


def test_too_many_tasks_are_refused(client: Client) -> None:
    with SlicePolicy.using(step_tasks=3), pytest.raises(bucketflow.ModelError, match=r"at most 3; leave out tasks"):
        bucketflow.bound("grid", z=4, client=client, tasks="steps")


def test_gpus_of_a_cluster_are_refused(client: Client) -> None:
    with pytest.raises(bucketflow.ModelError, match="leave out gpus"):
        bucketflow.bound("grid", z=4, client=client, gpus=1)


@pytest.mark.parametrize("command", ["bound", "dpop"])
def test_the_command_line(client: Client, command: str, tmp_path: Path) -> None:
    asked = ["meetings", "--z", "3", "--scheduler", client.scheduler_info()["address"], "--json"]
    for tasks, sent in (("auto", False), ("steps", True)):
        file = tmp_path / f"{tasks}.json"
        found = CliRunner().invoke(main, [command, *asked, "--tasks", tasks, "--graph", str(file)])
        assert found.exit_code == 0, found.output
        assert bool(json.loads(found.stdout)["dask"]["tasks"]) == sent
        assert json.loads(file.read_text())["tasks"] > 0
    refused = CliRunner().invoke(main, [command, "meetings", "--tasks", "steps"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert CliRunner().invoke(main, [command, "meetings", "--graph", "x.doc"]).exit_code == 2


def test_agents_stay_here_if_their_messages_are_small(client: Client) -> None:
    problem = bucketflow.load_dcop("meetings")
    found = bucketflow.dpop(problem, client=client)
    assert found.dask is not None
    assert found.dask.tasks == 0
    assert "pays only from" in found.dask.why_none
    assert bucketflow.DpopResult.from_dict(found.to_dict()).dask == found.dask
