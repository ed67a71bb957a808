"""The experiment with launches of messages: known laws are recovered, and no step is judged by a fit to itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.plans.prediction import step_seconds
from bucketflow.pipeline.queries.arithmetic import SEMIRINGS
from bucketflow.pipeline.reproduce import launch_regressions
from bucketflow.pipeline.reproduce.launch_regressions import (
    REGRESSIONS,
    RULES,
    Fit,
    MeasuredMessage,
    cross_validated,
    features_of,
    launch_table,
)
from bucketflow.pipeline.reproduce.message_launches import (
    CORE_LAUNCHES,
    MESSAGE_LAUNCHES,
    launch_figures,
    measure_launches,
    measured_messages,
    message_program,
    message_steps,
    on_core,
)
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.steps.lowering import Lowered
from bucketflow.tasks.steps.semiring import SUM_PRODUCT, Semiring
from tests.drawn_steps import STEP_FAMILIES, drawn_steps
from tests.tasks.message_interpreter import interpret


class Stopwatch:
    """A bench on which loops take half of the seconds for messages with three or more inputs, and twice for others."""

    launches = (RULES, "loops")

    def price(self, lowered: Lowered) -> float:
        return step_seconds(lowered, Rates(), lowered.semiring.itemsize)

    def measured(self, lowered: Lowered) -> dict[str, float]:
        seconds = lowered.cells * 1e-9
        return {RULES: seconds, "loops": seconds * (0.5 if len(lowered.input_cells) > 2 else 2.0)}


def some_steps(count: int, semirings: Sequence[Semiring] = (SUM_PRODUCT,)) -> list[Lowered]:
    sources = [drawn_steps(each, 11, 15, n, semirings, 1 << 24) for n, each in enumerate(STEP_FAMILIES.values())]
    return [next(source).lowered for _ in range(-(-count // len(sources))) for source in sources][:count]


@pytest.fixture(scope="module")
def measured() -> list[MeasuredMessage]:
    return measured_messages(Stopwatch(), some_steps(96), 60.0)


def test_a_known_law_is_recovered(measured: list[MeasuredMessage]) -> None:
    pytest.importorskip("sklearn")
    found = launch_figures(Stopwatch.launches, measured)
    (winner,) = found["chosen"]
    assert found["residual_squares"][winner] < found["residual_squares"][RULES]
    assert found["mean_gain"][winner] > 1.2
    assert found["mean_gain"][RULES] == 1.0
    assert found["miss_rate"][RULES] == np.mean([len(each.lowered.input_cells) > 2 for each in measured])
    assert set(found["small"]) == {RULES, "loops"}
    with pytest.raises(ModelError, match="5 messages were measured, 40 are needed: give a longer --time"):
        launch_figures(Stopwatch.launches, measured[:5])


def test_no_step_is_judged_by_a_fit_to_itself(measured: list[MeasuredMessage]) -> None:
    table = launch_table(measured, (RULES, "loops"))
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
        table = launch_table(list(kept.values()), (RULES, "loops"))
    scores = cross_validated(table, {"watched": fit}, 0)
    assert list(scores) == ["watched"]
    assert len(judged) == distinct
    assert scores["watched"].mean_gain == 1.0  # it predicts no gain, so the rules stay


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_every_regression_learns_a_threshold(kind: str) -> None:
    """Polynomials of degree two only roughly."""
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    shape = rng.uniform(0, 20, (150, len(features_of(some_steps(1)[0]))))
    rows = np.concatenate([shape, np.eye(3)[rng.integers(3, size=150)]], axis=1)
    values = np.where(rows[:, 0] > 10, 1.0, -1.0) + rows[:, -1] * (rows[:, 0] > 10)
    fit: Fit = REGRESSIONS[kind]
    off = float(((fit(rows, values, 0)(rows) - values) ** 2).mean() / values.var())
    assert off < (0.6 if "lasso" in kind else 0.1)


def test_without_scikit_learn_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_regressions, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="regressions of launches need scikit-learn: pip install"):
        measure_launches(["nothing.bif"], gpu=False, seconds=1.0)


def test_kernels_of_a_core_agree() -> None:
    found = set()
    rng = np.random.default_rng(0)
    steps = [each for each in some_steps(96, SEMIRINGS) if each.semiring.dtype == "int32"]
    for lowered in sorted(steps, key=lambda step: step.cells)[-12:]:
        tables = [rng.integers(0, 50, cells).astype(lowered.semiring.dtype) for cells in lowered.input_cells]
        expected = run(lowered, tables, compiled=False)
        for launch in CORE_LAUNCHES:
            other = on_core(lowered, launch)
            if other is not lowered:
                found.add(launch)
                np.testing.assert_array_equal(run(other, tables), expected)
    assert found == {"product", "loops", "blocks"}


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
