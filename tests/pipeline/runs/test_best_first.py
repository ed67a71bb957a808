"""Slices of an optimum, best bound first: bounds hold, the answer is the one of all slices, few are run."""

from __future__ import annotations

import logging
import math
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork
from bucketflow.pipeline.errors import StoppedError
from bucketflow.pipeline.models.model import FORBIDDEN, Model
from bucketflow.pipeline.runs import best_first, slices
from bucketflow.pipeline.runs.best_first import SliceBounds, affordable, slice_bounds
from bucketflow.pipeline.runs.run import Run
from bucketflow.pipeline.runs.slices import SlicePolicy
from tests.pipeline.budget.test_budget import grid
from tests.pipeline.proofs.networks import cost_networks
from tests.policies import InForce


@given(network=cost_networks(), data=st.data(), cells=st.sampled_from([40, 400, 10**6]))
@settings(deadline=None, max_examples=60)
def test_no_total_of_a_slice_is_below_its_bound(network: CostNetwork, data: st.DataObject, cells: int) -> None:
    sliced = data.draw(st.lists(st.integers(0, len(network.dims) - 1), min_size=1, max_size=3, unique=True))
    split = affordable(network, sliced, 0, cells=cells, memory_bytes=1 << 24)
    if split is None:
        return
    found = slice_bounds(network, sliced, split)
    least = np.full([network.dims[v] for v in sliced], math.inf)
    for states in product(*map(range, network.dims)):
        place = tuple(states[v] for v in sliced)
        least[place] = min(least[place], network.total(states))
    assert (found.least <= least.reshape(-1)).all()
    assert found.known >= least.min()
    if split.exact and found.known < math.inf:
        assert found.least.min() == least.min()


@pytest.fixture
def thoughtful(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> list[dict[int, int]]:
    """Bounds are always looked for, with memory for them; the states of the slices that are run."""
    ran: list[dict[int, int]] = []
    swept = slices.swept_slices

    def noted(given: Any, chosen: list[dict[int, int]], *rest: Any) -> Any:
        ran.extend(chosen)
        return swept(given, chosen, *rest)

    monkeypatch.setattr(slices, "swept_slices", noted)
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    in_force(SlicePolicy, least_seconds=0.0, cell_seconds=1e-12, slice_bytes=-(1 << 16))
    return ran


def in_slices(model: Model, **options: Any) -> bucketflow.Result:
    free = bucketflow.plan(model)
    assert free is not None
    found = bucketflow.solve(model, method="dense", memory=free.peak_bytes // 5, fit="slice", tree="bucket", **options)
    assert found.plan is not None
    assert found.plan.slices > 4
    return found


def drawn(kind: Any, seed: int) -> Model:
    """A grid of random values; many are equal where the seed is odd."""
    rng, n = np.random.default_rng(seed), 6
    names = {f"x{r}{c}": 4 for r in range(n) for c in range(n)}
    pairs = [((r, c), (r + a, c + 1 - a)) for r in range(n) for c in range(n) for a in (0, 1)]
    scopes = [[f"x{r}{c}", f"x{s}{e}"] for (r, c), (s, e) in pairs if s < n and e < n]
    tables = [rng.integers(1, 4 if seed % 2 else 1000, (4, 4)) for _ in scopes]
    return Model.build(kind, names, [(scope, table) for scope, table in zip(scopes, tables, strict=True)])


@pytest.mark.parametrize("kind", ["cost", "markov"])
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_that_of_all_slices(
    kind: str, seed: int, thoughtful: list[dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = drawn(kind, seed)
    best = in_slices(model)
    few = len(thoughtful)
    monkeypatch.setattr(best_first, "bounds_of", lambda run: None)
    every = in_slices(model)
    assert (best.value, best.log10, best.assignment) == (every.value, every.log10, every.assignment)
    assert 2 * few < len(thoughtful) - few


def clique(kind: Any, seed: int) -> Model:
    """Six variables, each pair with a table that allows little."""
    rng, nothing = np.random.default_rng(seed), FORBIDDEN if kind == "cost" else 0.0
    names = {f"x{v}": 4 for v in range(6)}
    tables = [rng.integers(1, 9, (4, 4)) * (1 if kind == "cost" else 0.5) for _ in combinations(names, 2)]
    allowed = [np.where(rng.random((4, 4)) < 0.25, nothing, table) for table in tables]
    return Model.build(kind, names, [*zip(combinations(names, 2), allowed, strict=True)])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_slices_that_allow_nothing_hide_no_others(
    kind: str, thoughtful: list[dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-5)
    for seed in range(16):
        model = clique(kind, seed)
        found, wanted = in_slices(model), bucketflow.solve(model, method="dense")
        assert (found.status, found.value) == (wanted.status, wanted.value)
        assert found.log10 is wanted.log10 is None or found.log10 == pytest.approx(wanted.log10)


def test_bounds_are_counted_in_the_log_and_runs_resume(
    thoughtful: list[dict[int, int]], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(6, 6, 4)
    wanted = bucketflow.solve(model, method="dense")
    store, left = slices.store_group, [1]

    def interrupted(*args: Any) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return store(*args)

    monkeypatch.setattr(best_first, "bounds_of", lambda run: SliceBounds(np.zeros(run.plan.slices), math.inf))
    monkeypatch.setattr(slices, "store_group", interrupted)
    with pytest.raises(StoppedError):
        in_slices(model, workdir=tmp_path)
    assert len(thoughtful) > 0
    monkeypatch.setattr(slices, "store_group", store)
    with caplog.at_level(logging.INFO, logger=best_first.__name__):
        again = in_slices(model, workdir=tmp_path)
    assert again.value == wanted.value
    assert len(thoughtful) == len({tuple(states.items()) for states in thoughtful})
    assert "16 of 16 slices run, best bound first" in caplog.text


def test_what_does_not_pay_is_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, bounds_of = list[Any](), best_first.bounds_of

    def noted(run: Run[Any]) -> Any:
        seen.append(bounds_of(run))
        return seen[-1]

    monkeypatch.setattr(best_first, "bounds_of", noted)
    in_slices(grid(6, 6, 4))
    assert seen == [None]
