"""The best of sums: max over some variables after the sum over all others, in one sweep, against brute force."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow import Model
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.budget.fit import fitted
from bucketflow.pipeline.budget.rows_fit import rows_plan
from bucketflow.pipeline.budget.spill import plan_spill
from bucketflow.pipeline.errors import BudgetError, ModelError
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.plans.worker_parts import in_parts
from bucketflow.pipeline.preprocessing.preprocess import Network, fixed_value, full_states, reduce_model
from bucketflow.pipeline.queries.best_of_sums import ENERGIES, BestOfSums
from bucketflow.pipeline.runs.decoding import decode_parts
from bucketflow.pipeline.runs.parts import sweep_parts
from bucketflow.pipeline.runs.run import Run
from bucketflow.pipeline.trees.costs import Rates
from tests.models import assignments, bayes_models, grid, markov_models


def problem_of(network: Network, wanted: frozenset[int]) -> Problem:
    last = frozenset(network.local[v] for v in wanted if v in network.local)
    arithmetic = BestOfSums(network, last=last)
    semiring = arithmetic.semiring
    return Problem(network.dims, network.scopes, semiring, semiring.itemsize, last=last, last_semiring=ENERGIES)


def best_of_sums(
    model: Model, wanted: frozenset[int], *, compiled: bool = True, share: int = 1, parts: int = 1, **asked: Any
) -> tuple[float, list[int]] | None:
    """Return log10 of the best sum and the states of all variables, of which only those of ``wanted`` mean something.

    ``share`` is by how much less memory decoding may take, ``parts`` the workers that the tree is cut for.
    """
    network = reduce_model(model, "partition", {}, wanted)
    if (fixed := fixed_value(network)) is None:
        return None
    states: dict[int, int] = {}
    energy: float | None = 0.0
    if network.leaves:
        problem = problem_of(network, wanted)
        planner = Planner(problem, PlanOptions(decode=True, **asked))
        plan = planner.whole()
        plan = planner.with_options(memory_bytes=plan.peak_bytes // share).of(plan.tree)
        if parts > 1:
            plan = in_parts(plan, parts, 0.0, Rates(), 1 << 62)
            assert len(plan.cuts) > 1
        arithmetic: Any = BestOfSums(network, last=problem.last)
        run: Run[Any] = Run(network, plan, problem, arithmetic, SerialPool(), compiled=compiled)
        swept = sweep_parts(run, keep=True)
        energy = arithmetic.total([swept.tables[root] for root in plan.tree.roots])
        if energy is None:
            return None
        states = decode_parts(run, swept)
        assert problem.last <= states.keys()
    summed = math.prod(len(network.domains[v]) for v in network.free if v not in wanted)
    return (fixed - energy + math.log(summed)) / math.log(10), full_states(network, states)


def sums_by_states(model: Model, wanted: list[int]) -> dict[tuple[int, ...], float]:
    """log10 of the sum over all assignments with some states of the wanted variables, by looking at all."""
    logs = defaultdict[tuple[int, ...], list[float]](list)
    for states in assignments(model, {}):
        logs[tuple(states[v] for v in wanted)].append(model.log10_value(states))
    tops = {key: max(found) for key, found in logs.items()}
    return {
        key: top + math.log10(math.fsum(10 ** (v - top) for v in logs[key])) if top > -math.inf else top
        for key, top in tops.items()
    }


def check(model: Model, wanted: frozenset[int], **asked: Any) -> None:
    listed = sorted(wanted)
    sums = sums_by_states(model, listed)
    best = max(sums.values())
    found = best_of_sums(model, wanted, **asked)
    if best == -math.inf:
        assert found is None
        return
    assert found is not None
    assert found[0] == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert sums[tuple(found[1][v] for v in listed)] == pytest.approx(best, rel=1e-9, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_the_best_states_and_their_sum(model: Model, data: Any) -> None:
    wanted = frozenset(data.draw(st.sets(st.integers(0, len(model.dims) - 1))))
    tree = data.draw(st.sampled_from(["refined", "bucket", "junction"]))
    check(model, wanted, tree=tree, compiled=data.draw(st.booleans()), share=data.draw(st.sampled_from([1, 2, 4])))


@pytest.mark.parametrize("kind", ["markov", "steep"])
@pytest.mark.parametrize(
    "asked", [{}, *({"tree": "bucket", **more} for more in ({}, {"share": 3}, {"share": 8}, {"parts": 3}))]
)
def test_grids(kind: str, asked: dict[str, Any]) -> None:
    check(grid(3, 4, 2, kind), frozenset({0, 5, 7, 11}), **asked)


def test_the_order_of_sum_and_maximum_matters() -> None:
    """Else the tests above would show little: the best sum is neither the sum of bests nor the best of all."""
    model = grid(3, 4, 2, "markov")
    best = max(sums_by_states(model, [0, 5, 7, 11]).values())
    everything = max(sums_by_states(model, list(range(12))).values())
    (whole,) = sums_by_states(model, []).values()
    assert everything < best - 0.1 < whole - 0.2


@pytest.mark.parametrize("compiled", [False, True])
def test_large_steps_compiled_and_not(compiled: bool) -> None:
    """A star of three wide functions: sums of 2^20 cells, then a maximum over 2^15."""
    rng = np.random.default_rng(4)
    dims = [32, 32, 32, 32, 32]
    tables = {(0, 1, 2, 3): rng.random((32,) * 4), (3, 4): rng.random((32, 32)), (0, 4): rng.random((32, 32))}
    model = Model.build("markov", {f"v{v}": n for v, n in enumerate(dims)}, [
        ([f"v{v}" for v in scope], values) for scope, values in tables.items()
    ])  # fmt: skip
    sums = np.einsum("abcd,de,ae->abc", *tables.values(), optimize=True)
    found = best_of_sums(model, frozenset({0, 1, 2}), compiled=compiled)
    assert found is not None
    assert found[0] == pytest.approx(math.log10(sums.max()), rel=1e-12)
    assert tuple(found[1][:3]) == np.unravel_index(sums.argmax(), sums.shape)


def test_other_ways_are_refused_in_one_sentence() -> None:
    network = reduce_model(grid(6, 6, 3, "markov"), "partition", {})
    problem = problem_of(network, frozenset(range(4)))
    planner = Planner(problem, PlanOptions(decode=True))
    whole = planner.whole()
    alone = "the best of sums is swept as a whole, over all cells and without GPUs"
    with pytest.raises(ModelError, match=alone):
        planner.with_options(device=True).whole()
    with pytest.raises(ModelError, match=alone):
        rows_plan(Planner(replace(problem, rows=(9,) * len(problem.scopes))))
    with pytest.raises(ModelError, match=alone):
        planner.conditioned(whole, frozenset({0}))
    with pytest.raises(ModelError, match="beliefs are swept in one semiring"):
        replace(problem, targets=((0,),))
    small = planner.with_options(memory_bytes=1000)
    with pytest.raises(BudgetError, match="no boxes on disk as"):
        plan_spill(small, whole, 1e9)
    for fit in ("auto", "slice", "spill"):
        with pytest.raises(BudgetError, match="as some variables have to be eliminated last"):
            fitted(small, fit, 1 << 40, lambda: 1e9)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="allowed 1 kB"):
        fitted(small, "refuse", 0, lambda: 1e9)
