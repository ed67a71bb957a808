"""Messages that are dropped and made again: within a smaller budget, at most one more sweep, the same posteriors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.compiled.structure import skeleton_of
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.problem import Problem
from bucketflow.pipeline.plans.recompute import with_parts_again
from bucketflow.pipeline.plans.two_way_steps import choose_readings
from bucketflow.pipeline.plans.worker_parts import both_ways_in_parts
from bucketflow.pipeline.queries.arithmetic import ScaledPartition
from bucketflow.pipeline.trees.costs import Rates
from tests.models import bayes_models, grid, markov_models
from tests.pipeline.runs.test_spread import in_one_piece, run_of


@given(model=st.one_of(markov_models(), bayes_models()), data=st.data())
def test_a_plan_that_makes_messages_again_finds_the_same(model: Model, data: st.DataObject) -> None:
    skeleton = skeleton_of(model, (), True, Options())
    plan, network = skeleton.plan, skeleton.network
    if plan is None or skeleton.fixed is None:
        return
    semiring = ScaledPartition(network).semiring
    problem = Problem(network.dims, network.scopes, semiring, semiring.itemsize, 0, tuple(plan.results))
    inner = [step.node for step in plan.up if plan.tree.parent[step.node] >= 0]
    cuts = data.draw(st.frozensets(st.sampled_from(inner))) if inner else frozenset()
    again = with_parts_again(plan, problem, choose_readings(plan.tree, tuple(plan.results)), cuts)
    assert again.results.keys() == plan.results.keys()
    assert len(again.steps) <= len(plan.steps) + len(plan.up)
    whole = in_one_piece(run_of(network, plan))
    parts = in_one_piece(run_of(network, again))
    for target, table in plan.results.items():
        np.testing.assert_allclose(parts[again.results[target]].values, whole[table].values, rtol=1e-13)


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize("max_marginals", [False, True])
@pytest.mark.parametrize("share", [2.0, 2.5])
def test_posteriors_of_a_long_grid_fit_a_part_of_their_memory(share: float, max_marginals: bool) -> None:
    model = grid(8, 24, 3, "markov")
    whole = bucketflow.marginals(model, threads=1, max_marginals=max_marginals)
    assert whole.plan is not None
    memory = int(whole.plan.peak_bytes / share)
    found = bucketflow.marginals(model, threads=1, max_marginals=max_marginals, memory=memory, fit="slice")
    tracemalloc.start()
    try:
        bucketflow.marginals(model, threads=1, max_marginals=max_marginals, memory=memory, fit="slice")
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    plan = found.plan
    assert plan is not None
    assert plan.slices == 1
    assert plan.cuts
    assert plan.peak_bytes <= memory
    assert plan.cells < 2 * whole.plan.cells
    assert used <= whole.plan.peak_bytes + (4 << 20)
    assert all(found[name] == pytest.approx(whole[name], rel=1e-12) for name in whole)
    assert both_ways_in_parts(plan, 4, 0.0, Rates(step_seconds=1.0), 1 << 62) is plan
