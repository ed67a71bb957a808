"""The experiment with launches of messages: known laws are recovered, and no step is judged by a fit to itself."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.reproduce.message_launches import (
    MESSAGE_LAUNCHES,
    launch_figures,
    message_program,
    message_steps,
)
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.tuning.drawn_steps import STEP_FAMILIES, drawn_steps
from bucketflow.pipeline.tuning.held_out import cross_validated, step_table
from bucketflow.pipeline.tuning.regressions import Regression
from bucketflow.pipeline.tuning.step_benches import MeasuredStep, measured_steps
from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.learnt.learnt_launches import RULES
from bucketflow.tasks.learnt.step_features import features_of
from bucketflow.tasks.steps.lowering import Lowered
from bucketflow.tasks.steps.semiring import SUM_PRODUCT
from tests.tasks.message_interpreter import interpret


class Stopwatch:
    """A bench on which loops take half of the seconds for messages with three or more inputs, and twice for others."""

    place = "cpu"
    launches = (RULES, "loops")
    name = "stopwatch"

    def rates(self, semiring: Any) -> Rates:
        return Rates()

    def measured(self, lowered: Lowered) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        seconds = lowered.cells * 1e-9
        return {RULES: seconds, "loops": seconds * (0.5 if len(lowered.input_cells) > 2 else 2.0)}, {}


def some_steps(count: int) -> list[Lowered]:
    sources = [drawn_steps(each, 11, 15, n, (SUM_PRODUCT,), 1 << 24) for n, each in enumerate(STEP_FAMILIES.values())]
    return [next(source).lowered for _ in range(-(-count // len(sources))) for source in sources][:count]


@pytest.fixture(scope="module")
def measured() -> list[MeasuredStep]:
    return measured_steps(Stopwatch(), iter(some_steps(96)), 60.0)  # type: ignore[arg-type]


def test_a_known_law_is_recovered(measured: list[MeasuredStep]) -> None:
    pytest.importorskip("sklearn")
    found = launch_figures(Stopwatch(), measured)  # type: ignore[arg-type]
    (winner,) = found["chosen"]
    assert found["residual_squares"][winner] < found["residual_squares"][RULES]
    assert found["mean_gain"][winner] > 1.2
    assert found["mean_gain"][RULES] == 1.0
    assert found["miss_rate"][RULES] == np.mean([len(each.lowered.input_cells) > 2 for each in measured])
    assert set(found["small"]) == {RULES, "loops"}
    with pytest.raises(ModelError, match="5 messages were measured, 40 are needed: give a longer --time"):
        launch_figures(Stopwatch(), measured[:5])  # type: ignore[arg-type]


def test_no_step_is_judged_by_a_fit_to_itself(measured: list[MeasuredStep]) -> None:
    table = step_table(measured, (RULES, "loops"))
    judged: list[tuple[float, ...]] = []

    def fit(rows: Any, values: Any, seed: int) -> Any:
        seen = {tuple(row) for row in rows.tolist()}

        def predict(rows: Any) -> Any:
            assert seen.isdisjoint(map(tuple, rows.tolist()))
            judged.extend(map(tuple, rows[::2].tolist()))
            return np.zeros(len(rows))

        return predict

    distinct = len({features_of(each.lowered) for each in measured})
    if distinct < len(measured):
        kept = {features_of(each.lowered): each for each in measured}
        table = step_table(list(kept.values()), (RULES, "loops"))
    scores = cross_validated(table, [Regression("watched", fit)], 0)
    assert list(scores) == ["watched"]
    assert len(judged) == distinct
    assert scores["watched"].mean_gain == 1.0  # it predicts no gain, so the rules stay


def test_messages_of_networks_go_both_ways(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = {f"v{k}": 40 for k in range(4)}
    tables = [([f"v{k}", f"v{k + 1}"], rng.uniform(0.1, 1, (40, 40))) for k in range(3)]
    bucketflow.save(Model.build("markov", names, tables), tmp_path / "chain.uai")
    found = message_steps([tmp_path / "chain.uai"])
    made = bucketflow.plan(tmp_path / "chain.uai", "marginals", tree="junction")
    large = {step.lowered for step in made.steps if step.lowered.cells >= 1 << 10}
    assert large
    assert set(found) == large


@pytest.mark.parametrize("launch", MESSAGE_LAUNCHES)
def test_every_launch_sends_the_same_message(launch: str) -> None:
    """The records of each launch, interpreted, give the result of the CPU's kernels."""
    for lowered in islice((each for each in some_steps(24) if each.cells < 1 << 13), 6):
        program, constants = message_program(lowered, 2, *MESSAGE_LAUNCHES[launch])
        records = program.records
        slab = np.full(records.slab_cells, np.nan)
        _, failed = interpret(records, constants, slab)
        assert not failed.any()
        sizes = lowered.input_cells
        tables = [constants[program.constants[k] : program.constants[k] + cells] for k, cells in enumerate(sizes)]
        expected = np.empty(lowered.out_cells)
        run(lowered, tables, expected)
        for copy in (len(sizes), len(sizes) + 1):
            at = records.slab_at[copy]
            assert slab[at : at + lowered.out_cells] == pytest.approx(expected, rel=1e-12)
