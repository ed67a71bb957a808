"""Rows are tried where samples promise that they win: what is expected, and where they are tried."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import Model
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, StrategyPolicy, TurnLengths
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.answering.running import propagate, run_of
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.runs.parts import sweep_parts
from bucketflow.pipeline.runs.row_samples import SamplingPolicy, sampled_work
from bucketflow.pipeline.runs.run import Run
from bucketflow.tasks.steps.policy import RowPolicy
from tests.pipeline.runs.sparse import dense_ring, ring
from tests.pipeline.runs.test_rows_memory import band_grid
from tests.policies import InForce
from tests.strategies import solve_by


@pytest.fixture(autouse=True)
def always_rows(in_force: InForce) -> None:
    """Even the smallest tables are joined."""
    in_force(RowPolicy, small_cells=0, cells_of_a_row=0, array_share=0.0)


def run_by_rows(model: Model, query: str = "optimum") -> Run[Any]:
    resources = Resources(Options(representation="rows", tree="bucket"))
    return replace(run_of(prepare(question_of(model, query), resources), SerialPool()), compiled=False)


MODELS = {
    "ring": lambda: ring(60, groups=4),
    "long ring": lambda: ring(24, groups=9),
    "grid": lambda: band_grid(4, 5, 9),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_expected_is_about_what_is_joined(name: str) -> None:
    """With whole tables, and with few rows of each; the same again, as what is drawn is seeded."""
    run = run_by_rows(MODELS[name]())
    sweep_parts(run)
    assert run.room is not None
    joined = run.room.joined
    assert joined > 10_000
    with SamplingPolicy.using(most_rows=1 << 30, most_joined=1 << 30):
        assert sampled_work(run) == pytest.approx(joined, rel=0.5)
    with SamplingPolicy.using(most_rows=300, most_joined=2_000):
        found = sampled_work(run)
        assert joined / 4 < found < 4 * joined
        assert sampled_work(run) == found


@pytest.mark.parametrize("name", MODELS)
def test_what_is_expected_of_both_ways_is_about_what_is_joined(name: str) -> None:
    """Messages are read by several steps back down."""
    run = run_by_rows(MODELS[name](), "max-marginals")
    propagate(run)
    assert run.room is not None
    with SamplingPolicy.using(most_rows=1 << 30, most_joined=1 << 30):
        assert sampled_work(run) == pytest.approx(run.room.joined, rel=0.5)


def test_more_than_anybody_waits_for_is_not_looked_for_further() -> None:
    run = run_by_rows(ring(60, groups=4))
    assert 100.0 < sampled_work(run, 100.0) <= sampled_work(run)


def rows_by(part: float, **lengths: Any) -> StrategyPolicy:
    """Rows are tried for a part of the sweep's predicted time, or for what samples promise."""
    turns = TurnLengths(part=part, most_turns=1, step_seconds=0.0, **lengths)
    return replace(POLICY, lengths={**POLICY.lengths, "rows": turns})


def test_a_trial_may_take_what_samples_promise() -> None:
    """A millionth of the time for all cells is too little, unless joins are expected to take less than they do."""
    model, options = dense_ring("markov"), dict[str, Any](tree="bucket")
    dense = bucketflow.solve(model, "partition", representation="dense", **options)
    promised = solve_by(rows_by(1e-6, priced_part=1e6), model, "partition", **options)
    assert promised.rows_work is not None
    assert promised.log10 == pytest.approx(dense.log10, rel=1e-12)
    short = solve_by(rows_by(1e-6), model, "partition", **options)
    assert (short.rows_work, short.tried[0].ended) == (None, "they took too long")
    vain = solve_by(rows_by(1e-6, priced_part=1e-6), model, "partition", **options)
    assert vain.rows_work is None
    assert "s are expected" in vain.tried[0].ended
    assert short.log10 == vain.log10 == pytest.approx(dense.log10, rel=1e-12)


def stored_plan(folder: Path) -> Any:
    return json.loads((folder / "plan.json").read_text())["plan"]


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_rows_are_tried_with_a_run_directory(query: Any, tmp_path: Path) -> None:
    """Their answer and their plan are kept, as those of a sweep are; without an answer the sweep's plan is."""
    model, options = dense_ring("markov" if query == "partition" else "cost"), dict[str, Any](tree="bucket")
    found = solve_by(rows_by(1.0), model, query, workdir=tmp_path / "rows", **options)
    assert found.rows_work is not None
    assert stored_plan(tmp_path / "rows")["rows"]
    again = bucketflow.solve(model, query, workdir=tmp_path / "rows", **options)
    assert (again.value, again.log10) == (found.value, found.log10)
    dense = solve_by(rows_by(1e-9), model, query, workdir=tmp_path / "dense", **options)
    assert (dense.rows_work, dense.value) == (None, found.value)
    assert not stored_plan(tmp_path / "dense").get("rows")


def test_rows_are_tried_before_workers_are_started() -> None:
    """In this process, which is said."""
    model = dense_ring("markov")
    found = solve_by(rows_by(1.0), model, "partition", tree="bucket", workers=2)
    assert found.rows_work is not None
    assert any("workers had no effect: this process joined" in note for note in found.notes)
    assert found.log10 == pytest.approx(bucketflow.solve(model, "partition", representation="dense").log10, rel=1e-12)


def test_large_functions_are_joined_in_a_run_directory(tmp_path: Path) -> None:
    model = ring(20, groups=4)
    found = bucketflow.solve(model, workdir=tmp_path / "run")
    assert found.rows_work is not None
    assert "functions have 2^" in found.rows_work.why
    again = bucketflow.solve(model, workdir=tmp_path / "run")
    assert (again.value, again.assignment) == (found.value, found.assignment)
