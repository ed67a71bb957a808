"""One propagation in parts: the same tables as in one piece, on one worker or several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import placement, running
from bucketflow.pipeline.compiled.compiled import compile_model
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.problem import PlanningPolicy, Problem
from bucketflow.pipeline.plans.worker_parts import both_ways_in_parts
from bucketflow.pipeline.preprocessing.preprocess import Network
from bucketflow.pipeline.queries.arithmetic import ScaledPartition
from bucketflow.pipeline.runs.parts import sweep_parts
from bucketflow.pipeline.runs.run import Run
from bucketflow.pipeline.trees.costs import Rates
from tests.models import bayes_models, markov_models, named_model
from tests.policies import InForce


def run_of(network: Network, plan: Plan) -> Run[Any]:
    """Return a run in this process, to be given other plans and pools."""
    arithmetic = ScaledPartition(network)
    problem = Problem(network.dims, network.scopes, arithmetic.semiring, arithmetic.semiring.itemsize)
    return Run(network, plan, problem, arithmetic, SerialPool(), compiled=False)


def in_one_piece(run: Run[Any]) -> dict[int, Any]:
    return run.program(run.plan.steps, run.plan.outputs).run()


def planned(model: Model) -> tuple[Plan, Run[Any]] | None:
    skeleton = compile_model(model, families=True).skeleton
    if skeleton.plan is None or skeleton.fixed is None:
        return None
    return skeleton.plan, run_of(skeleton.network, skeleton.plan)


def divided(plan: Plan, width: int, seconds: float = 1.0) -> Plan:
    """Divide a plan of which every step takes a second."""
    return both_ways_in_parts(plan, width, seconds, Rates(step_seconds=1.0), 1 << 62)


def same(found: dict, expected: dict) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[i].values, t.values) and found[i].log_scale == t.log_scale for i, t in expected.items()
    )


def branching(depth: int, arms: int, size: int) -> Model:
    """A tree of variables with the same number of children everywhere."""
    rng = np.random.default_rng(5)
    functions, level, n = [], [0], 1
    for _ in range(depth):
        below = []
        for v in level:
            for _ in range(arms):
                functions.append(Function((v, n), rng.random((size, size))))
                below.append(n)
                n += 1
        level = below
    return named_model("markov", [size] * n, functions)


@given(model=st.one_of(markov_models(), bayes_models()), width=st.integers(2, 5))
def test_parts_give_the_same_tables(model: Model, width: int) -> None:
    found = planned(model)
    if found is None:
        return
    plan, run = found
    plan = divided(plan, width)
    if plan.parts is not None:
        assert same(sweep_parts(replace(run, planned=plan)).tables, in_one_piece(run))


def test_a_bushy_tree_is_cut_into_parts_that_run_at_the_same_time() -> None:
    found = planned(branching(4, 3, 4))
    assert found is not None
    plan, run = found
    cut = divided(plan, 4)
    assert cut.parts is not None
    assert len(cut.parts.heads) > 4
    assert cut.parts.seconds < len(plan.steps) / 2
    assert same(sweep_parts(replace(run, planned=cut)).tables, in_one_piece(run))
    assert divided(plan, 1).parts is None
    assert divided(plan, 4, 1e6).parts is None


def test_a_chain_is_left_in_one_piece_where_parts_only_wait() -> None:
    rng = np.random.default_rng(2)
    chain = [Function((i, i + 1), rng.random((3, 3))) for i in range(30)]
    found = planned(named_model("markov", [3] * 31, chain))
    assert found is not None
    cut = divided(found[0], 8).parts
    # an order from both ends leaves two halves at best
    assert cut is None or cut.seconds > 0.4 * len(found[0].steps)


def test_small_trees_share_a_part() -> None:
    rng = np.random.default_rng(4)
    pairs = [Function((2 * i, 2 * i + 1), rng.random((3, 3))) for i in range(40)]
    found = planned(named_model("markov", [3] * 80, pairs))
    assert found is not None
    plan, run = found
    plan = divided(plan, 4)
    assert plan.parts is not None
    assert 4 <= len(plan.parts.heads) <= 20
    assert same(sweep_parts(replace(run, planned=plan)).tables, in_one_piece(run))


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_workers_give_the_same_tables(client) -> None:
    found = planned(branching(4, 3, 4))
    assert found is not None
    plan, run = found
    plan = divided(plan, 2)
    assert plan.parts is not None
    assert same(sweep_parts(replace(run, planned=plan, pool=DaskPool(client, "parts"))).tables, in_one_piece(run))


def test_marginals_of_a_cluster_are_those_of_one_process(
    client, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    model = branching(4, 3, 4)
    serial = bucketflow.marginals(model)
    runs = []
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    in_force(PlanningPolicy, part_seconds=0.0)
    in_force(PlanningPolicy, start_seconds=0.0)
    monkeypatch.setattr(running, "sweep_parts", lambda *args: runs.append(1) or sweep_parts(*args))
    seen = []
    found = bucketflow.marginals(model, client=client, progress=lambda done, planned: seen.append((done, planned)))
    assert runs == [1]
    assert seen[-1][0] == seen[-1][1] > 0
    assert found.log10_evidence == serial.log10_evidence
    assert all(np.array_equal(found[name], serial[name]) for name in serial)
    bucketflow.marginals(model, client=client, memory=serial.plan.kept_bytes - 1)
    assert runs == [1]
