"""Draws by a device are those of the host: on a stand-in of its kernels, and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model, ModelError, sample
from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.sweeps import conditional_draws
from tests import device_stand_in
from tests.device_stand_in import device, real_device
from tests.models import bayes_models, grid, markov_models

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GPU = pytest.mark.gpu
HERE = "draws were made by the CPU"


@contextmanager
def drawn_there(**policy: Any) -> Iterator[None]:
    """Let a device make draws however few they are, a few at a time; both sides from tables of each step."""
    with SweepPolicy.using(**{"least_walk_seconds": 0.0, "walked_draws_there": 100, "rows_a_draw": 1 << 40, **policy}):
        yield


def same_draws(model: Model, n: int, **asked: Any) -> bucketflow.Samples:
    """Draw on both sides, compare, and return what the device drew."""
    try:
        here = sample(model, n, **asked)
    except ModelError:
        with pytest.raises(ModelError):
            sample(model, n, gpus=1, **asked)
        pytest.skip("nothing to draw from")
    there = sample(model, n, gpus=1, **asked)
    assert not [note for note in there.notes if HERE in note]
    np.testing.assert_array_equal(here.states, there.states)
    assert here.states.dtype == there.states.dtype
    assert there.tried == n
    return there


def checked(model: Model, hard: bool, soft: bool, n: int, seed: int) -> None:
    findings: dict[str, Any] = {"x0": 0} if hard else {}
    if soft and len(model.names) > 1:
        findings["x1"] = [0.25 * (k + 1) for k in range(model.dims[1])]
    with drawn_there():
        try:
            sample(model, 1, evidence=findings)
        except ModelError:
            return
        same_draws(model, n, evidence=findings, seed=seed)


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans(), st.integers(1, 333), st.integers(0, 9))
@SLOW
def test_a_device_draws_what_the_host_draws(model: Model, hard: bool, soft: bool, n: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch, device(patch):
        checked(model, hard, soft, n, seed)


@GPU
@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans(), st.integers(1, 333), st.integers(0, 9))
@SLOW
def test_a_gpu_draws_what_the_host_draws(model: Model, hard: bool, soft: bool, n: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch, real_device(patch):
        checked(model, hard, soft, n, seed)


@GPU
def test_a_gpu_draws_large_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    with real_device(monkeypatch), drawn_there(walked_draws_there=1 << 12):
        same_draws(grid(7, 7, 4, "markov"), 10_001, seed=1 << 40)
        same_draws(bucketflow.load("satellite"), 5000, temperature=float("inf"))
        wide = Model.build("markov", {"a": 40_000, "b": 2}, [(("a", "b"), np.arange(80_000.0).reshape(40_000, 2))])
        same_draws(wide, 5000)


def test_states_that_take_four_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Model.build("markov", {"a": 40_000, "b": 2}, [(("a", "b"), np.arange(80_000.0).reshape(40_000, 2))])
    with device(monkeypatch), drawn_there():
        assert same_draws(wide, 150).states.dtype == np.int32


def test_what_the_host_draws_though_a_device_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(7, 7, 4, "markov")

    def why(n: int = 500, **asked: Any) -> str:
        (note,) = [note for note in sample(model, n, gpus=1, **asked).notes if HERE in note]
        return note

    with device(monkeypatch) as there:
        assert "because this takes less time than starting" in why(10)
        with drawn_there(rows_a_draw=2):  # 500 draws read few rows of the largest tables
            assert "making the tables for a device" in why()
            assert not [note for note in sample(model, 20_000, gpus=1).notes if HERE in note]
        with drawn_there():
            assert "because tables are in slices" in why(memory="1.6MB")
        with drawn_there(drawn_cells_there=1000):
            assert "because the tables of the draws fit neither" in why()
        there.total_bytes = 1 << 21
        with drawn_there():
            assert "fit neither" in why()


@pytest.mark.parametrize("values", [(0.0, 1e-300, 1e-150, 1e150, 1e300), (0.0, 5e-324, 1e-308, 1.0)])
def test_no_row_of_weight_0_is_drawn_from(values: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk there would take no state of the row: what is drawn above has a weight below, however small."""
    real, rows_drawn = conditional_draws.inverse, [0]

    def checked(cumulative: np.ndarray, rows: np.ndarray, numbers: np.ndarray) -> Any:
        totals = cumulative[:, -1][rows]
        assert np.all((totals > 0) & np.isfinite(totals))
        rows_drawn[0] += len(rows)
        return real(cumulative, rows, numbers)

    for module in (conditional_draws, device_stand_in):
        monkeypatch.setattr(module, "inverse", checked)
    with device(monkeypatch), drawn_there():
        for seed in range(60):
            rng = np.random.default_rng(seed)
            dims = {f"v{i}": int(size) for i, size in enumerate(rng.integers(1, 5, 6))}
            scopes = [rng.permutation([*dims])[: 1 + seed % 3].tolist() for _ in range(1 + seed % 7)]
            functions = [(scope, rng.choice(values, [dims[v] for v in scope])) for scope in scopes]
            model = Model.build("markov", dims, functions)
            try:
                here = sample(model, 40, seed=seed)
            except ModelError:
                continue
            np.testing.assert_array_equal(here.states, sample(model, 40, seed=seed, gpus=1).states)
            assert all(model.log10_value(row.tolist()) > -np.inf for row in here.states)
    assert rows_drawn[0] > 1000
