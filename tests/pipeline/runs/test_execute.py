"""What workers are given: equal shares of slices, programs in one block, and parts that end at small tables."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow import Model
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import Question
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.query import Query
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.problem import PlanningPolicy
from bucketflow.pipeline.plans.worker_parts import in_parts, slices_per_task
from bucketflow.pipeline.preprocessing import leaf_groups
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.queries.arithmetic import arithmetic_for
from bucketflow.pipeline.runs.run import Run
from bucketflow.pipeline.runs.slices import Slices, run_group, slices_of
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.trees.memory import partition, table_bytes
from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.sweeps import program as module
from bucketflow.tasks.sweeps.scaled import Scaled
from tests.models import bayes_models, cost_models, grid, markov_models
from tests.policies import InForce


def run_of(share: int = 1, **options: Any) -> Run[Any]:
    model = grid(8, 8, 3)
    free = prepare(Question(model, "optimum"), Resources(Options(tree="bucket", **options)))
    assert free.plan is not None
    memory = free.plan.peak_bytes // share
    asked = Options(tree="bucket", fit="slice", memory=memory, **options)
    prepared = prepare(Question(model, "optimum"), Resources(asked))
    return Run(prepared.network, prepared.plan, prepared.problem, prepared.arithmetic, SerialPool())


@pytest.mark.parametrize("width", [1, 3, 4, 7])
@pytest.mark.parametrize("slices", [2, 36, 64, 100, 625])
def test_no_worker_waits_long_for_another(width: int, slices: int) -> None:
    plan: Any = SimpleNamespace(slices=slices, sweep_seconds=1e-6 * slices, results={}, device=False)
    size = slices_per_task(plan, width, 0.2)
    rounds = -(-slices // (size * width))
    assert rounds * size <= max(1.25 * slices / width, 1)
    assert size == 1 or slices >= 2 * width * size


def slices_in_groups(size: int) -> tuple[Plan, Slices[Any]]:
    run = run_of(share=4)
    return run.plan, slices_of(replace(run, planned=replace(run.plan, group=size)))


@pytest.mark.parametrize("cells", [0, 1 << 21])
def test_programs_travel(cells: int, in_force: InForce) -> None:
    in_force(SweepPolicy, packed_cells=cells)
    _, slices = slices_in_groups(3)
    expected, program = run_group(slices, 0, 1), slices.program
    assert len(expected.totals) == 3
    assert program.shared
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(program, 5, buffer_callback=buffers.append)
    assert bool(buffers) == (cells == 0)
    arrived = pickle.loads(sent, buffers=buffers)
    assert not arrived.shared
    assert run_group(replace(slices, program=arrived), 0, 1) == expected


def test_what_all_slices_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, slices = slices_in_groups(1)
    ran: list[int] = []
    original = module.sweep

    def counted(steps: Any, *args: Any, **options: Any) -> Any:
        ran.append(len(steps))
        return original(steps, *args, **options)

    monkeypatch.setattr(module, "sweep", counted)
    first = run_group(slices, 0, 1)
    again = run_group(slices, 0, 1)
    assert first == again
    varying = len(plan.steps) - plan.variant_from
    assert plan.variant_from > 0
    assert ran == [plan.variant_from, varying, varying]


def test_parts_end_at_small_tables() -> None:
    plan = run_of().plan
    sizes = [table_bytes(plan.tree.dims, s.axes, plan.itemsize) for s in plan.steps]
    limit = sorted(sizes)[len(sizes) // 4]
    with PlanningPolicy.using(sent_bytes=limit):
        parts = in_parts(plan, 4, 0.0, Rates(), 1 << 40)
    assert len(parts.cuts) > 1
    assert all(size <= limit for s, size in zip(plan.steps, sizes, strict=True) if s.node in parts.cuts)
    order = [s.node for s in plan.steps]
    everywhere = partition(plan.tree, order, lambda node: 1.0, 4.0)
    assert not partition(plan.tree, order, lambda node: 1.0, 4.0, lambda node: False)
    assert partition(plan.tree, order, lambda node: 1.0, 4.0, everywhere.__contains__) <= everywhere


def test_an_arithmetic_travels_without_the_model() -> None:
    _, slices = slices_in_groups(1)
    found = run_group(slices, 0, 1)
    sent = pickle.dumps(slices.arithmetic)
    assert len(sent) < slices.arithmetic.network.model.nbytes / 4
    assert run_group(replace(slices, arithmetic=pickle.loads(sent)), 0, 1) == found


@given(
    model=st.one_of(cost_models(), markov_models(), bayes_models()),
    query=st.sampled_from(["optimum", "partition", "count"]),
    observed=st.lists(st.integers(0, 9), max_size=2),
    reverse=st.booleans(),
    together=st.sampled_from([0, 4, 1 << 17]),
)
def test_leaf_tables_made_together_are_those_made_one_by_one(
    model: Model, query: Query, observed: list[int], reverse: bool, together: int
) -> None:
    if model.kind == "cost" and query == "partition":
        query = "count"
    network = reduce_model(model, query, {v: 0 for v in observed if v < len(model.dims)})
    arithmetic = arithmetic_for(network)
    axes = {node: leaf.scope[::-1] if reverse else leaf.scope for node, leaf in enumerate(network.leaves)}
    with PreprocessingPolicy.using(group_cells=together), pytest.MonkeyPatch.context() as patched:
        patched.setattr(leaf_groups, "FEW", 0)
        found = arithmetic.leaves(axes)
    assert list(found) == list(axes)
    for node, leaf in enumerate(network.leaves):
        together_made, alone = found[node], arithmetic.leaf(leaf, axes[node])
        if isinstance(alone, Scaled):
            assert [together_made.log_scale, together_made.low, together_made.high, together_made.logs] == [
                alone.log_scale,
                alone.low,
                alone.high,
                alone.logs,
            ]
            together_made, alone = together_made.values, alone.values
        assert together_made.dtype == alone.dtype
        np.testing.assert_array_equal(together_made, alone)
