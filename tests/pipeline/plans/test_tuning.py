"""Learnt launches: known laws are recovered, nothing worse than the rules is kept, and what is kept is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BucketflowError, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine import cpu as rate_files
from bucketflow.pipeline.machine.learnt_rates import keep_launches, known_launches, use_launches
from bucketflow.pipeline.plans.prediction import ruled_step_seconds, step_seconds
from bucketflow.pipeline.queries.arithmetic import SEMIRINGS
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.tuning import launch_tuning, regressions
from bucketflow.pipeline.tuning.drawn_steps import STEP_FAMILIES, drawn_steps, sampled_steps
from bucketflow.pipeline.tuning.held_out import LaunchScore
from bucketflow.pipeline.tuning.launch_tuning import Tuning, judged, learnt_from
from bucketflow.pipeline.tuning.regressions import Regression
from bucketflow.pipeline.tuning.step_benches import CPU_LAUNCHES, measured_steps
from bucketflow.pipeline.tuning.whole_models import WholeModels, WholeRun, compared_runs, given_models, whole_networks
from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.learnt.learnt_launches import RULES, LaunchPolicy, launch_of, launches_from, learnt, put_in_force
from bucketflow.tasks.learnt.predictors import Predictor, predictor_from, stored_predictor
from bucketflow.tasks.learnt.step_features import FEATURES, features_of
from bucketflow.tasks.steps.lowering import SMALL_CELLS, Lowered, lowered_by
from bucketflow.tasks.steps.semiring import Semiring
from bucketflow.tasks.sweeps.sweep import THREADED_CELLS, useful_threads

Law = Callable[[Lowered, np.random.Generator], dict[str, float]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rates of this test alone, and learnt launches in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BUCKETFLOW_CACHE", raising=False)
    with LaunchPolicy.using(uses_stored=True):
        yield
    put_in_force("cpu", None)


@pytest.fixture(scope="module", autouse=True)
def fitted_once() -> Iterator[None]:
    """Fit each kind of regression once to the same measurements, which several tests judge."""
    known = dict[tuple[object, ...], Predictor]()

    def remembered(kind: Regression) -> Regression:
        def fit(rows: np.ndarray, values: np.ndarray, seed: int) -> Predictor:
            key = kind.name, rows.tobytes(), values.tobytes(), seed
            if key not in known:
                known[key] = kind.fit(rows, values, seed)
            return known[key]

        return replace(kind, fit=fit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_tuning, "REGRESSIONS", tuple(map(remembered, launch_tuning.REGRESSIONS)))
        yield


@pytest.fixture(scope="module")
def steps() -> list[Lowered]:
    sources = [drawn_steps(family, 14, 18, n, SEMIRINGS, 1 << 26) for n, family in enumerate(STEP_FAMILIES.values())]
    return [next(source).lowered for _ in range(9) for source in sources]


class Stopwatch:
    """A bench whose steps take what a law says, as shares of their price."""

    place = "cpu"
    launches = (RULES, "loops", "blocks")

    def __init__(self, law: Law, threads: bool) -> None:
        self.law, self.threads = law, threads
        self.rng = np.random.default_rng(0)

    @property
    def name(self) -> str:
        return rate_files.machine()

    def rates(self, semiring: Semiring) -> Rates:
        return Rates()

    def measured(self, lowered: Lowered) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        price = ruled_step_seconds(lowered, Rates(), lowered.semiring.itemsize)
        alone = float(lowered.cells)
        shares = self.law(lowered, self.rng)
        both = {"threads": (alone, alone / 2 + (1 << 15))} if self.threads else {}
        return {launch: price * share for launch, share in shares.items()}, both


def learnt_by(law: Law, steps: list[Lowered], threads: bool = True) -> Tuning:
    ticks = count()
    bench: Any = Stopwatch(law, threads)
    return learnt_from(bench, measured_steps(bench, iter(steps), len(steps), clock=lambda: float(next(ticks))))


def many_inputs(lowered: Lowered, rng: np.random.Generator) -> dict[str, float]:
    """Loops are three times faster for more than four inputs and slower else; all take twice the price."""
    loops = 0.7 if len(lowered.input_cells) > 4 else 4.0
    return {RULES: 2.0, "loops": loops, "blocks": 9.0}


def noise(lowered: Lowered, rng: np.random.Generator) -> dict[str, float]:
    """The price is right but for what nobody can know, and the rules are the best."""
    return {RULES: float(np.exp(rng.normal(0, 0.3))), "loops": 5.0, "blocks": 5.0}


@pytest.fixture(scope="module")
def sklearn() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@pytest.mark.usefixtures("sklearn")
def test_a_known_law_is_recovered_kept_and_used(steps: list[Lowered]) -> None:
    found = learnt_by(many_inputs, steps)
    rules, best = found.scores[0], next(each for each in found.scores if each.name == found.winner)
    assert rules.gain == rules.mean_gain == 1
    assert rules.miss_rate > 0.3
    assert best.miss_rate < 0.05
    assert best.mean_gain > 1.5
    assert best.of_best < 1.05
    assert best.residual_squares < 0.05 * rules.residual_squares
    assert found.stored
    assert found.chooses
    assert found.predicts
    assert found.launches == (RULES, "loops")
    assert found.least_cells == {"threads": 1 << 16}
    use_launches("cpu")
    model = learnt("cpu")
    assert model is not None
    right = [(launch_of("cpu", step) == "loops") == (len(step.input_cells) > 4) for step in steps]
    assert np.mean(right) > 0.95
    took = np.array([min(many_inputs(step, np.random.default_rng(0)).values()) for step in steps])
    told = [step_seconds(s, Rates(), s.semiring.itemsize) for s in steps]
    price = [ruled_step_seconds(s, Rates(), s.semiring.itemsize) for s in steps]
    assert np.median(np.abs(np.log(np.array(told) / np.array(price) / took))) < 0.1
    Small = type("Small", (), {"lowered": min(steps, key=lambda s: s.cells)})
    Large = type("Large", (), {"lowered": max(steps, key=lambda s: s.cells)})
    assert [useful_threads(each, 8) for each in (Small, Large)] == [1, 8]  # type: ignore[arg-type]
    assert Large.lowered.cells < THREADED_CELLS


@pytest.mark.usefixtures("sklearn")
def test_what_is_no_better_than_the_rules_is_not_kept(steps: list[Lowered]) -> None:
    kept = keep_launches(rate_files.machine(), {"steps": 1})
    found = learnt_by(noise, steps, threads=False)
    assert not found.stored
    assert not any([found.chooses, found.predicts, found.least_cells])
    assert found.text.startswith("the present rules are kept: ")
    assert json.loads(kept.read_text())["launches"] is None
    use_launches("cpu")
    assert learnt("cpu") is None
    assert {launch_of("cpu", step) for step in steps} == {RULES}


@pytest.mark.usefixtures("sklearn")
@pytest.mark.parametrize("gain", [0.9, 1.1])
def test_launches_are_chosen_only_where_whole_models_are_not_slower(
    steps: list[Lowered], gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law gains on steps; prediction stays in any case, of regressions that are fitted once."""
    fit, fits = launch_tuning.fitted_kinds, list[int]()
    monkeypatch.setattr(launch_tuning, "fitted_kinds", lambda table, seed: (fits.append(1), fit(table, seed))[1])
    ticks = count()
    bench: Any = Stopwatch(many_inputs, threads=True)
    measured = measured_steps(bench, iter(steps), len(steps), clock=lambda: float(next(ticks)))
    whole = WholeModels((WholeRun("m", "optimum", gain, 1.0),))
    found = judged(bench, measured, 0, lambda: whole)
    assert found.whole is whole
    assert fits == [1]
    assert found.stored
    assert found.predicts
    assert found.chooses == (gain > 1)
    assert bool(found.least_cells) == (gain > 1)
    assert ("whole models were slower" in found.text) == (gain < 1)
    use_launches("cpu")
    model = learnt("cpu")
    assert model is not None
    assert model.chooses == (gain > 1)


@pytest.mark.usefixtures("sklearn")
def test_whole_models_are_not_run_where_nothing_is_chosen(steps: list[Lowered]) -> None:
    ticks = count()
    bench: Any = Stopwatch(noise, threads=False)
    measured = measured_steps(bench, iter(steps), len(steps), clock=lambda: float(next(ticks)))
    assert judged(bench, measured, 0, lambda: pytest.fail("they were run")).whole.runs == ()


def test_whole_networks_are_the_largest_of_their_kind_for_both_queries() -> None:
    found = list(whole_networks("cpu", most_cells=1 << 17))
    assert [query for _, query in found] == ["optimum", "partition"] * (len(found) // 2)
    assert len(found) == 12
    for costs, potentials in zip(found[::2], found[1::2], strict=True):
        assert bucketflow.plan(costs[0], order_time=0.0).cells <= 1 << 17
        for one, other in zip(costs[0].functions, potentials[0].functions, strict=True):
            np.testing.assert_allclose(other.values, np.exp(-one.values / 100))


def test_whole_models_are_run_both_ways_in_turn() -> None:
    ways = []

    def seconds(model: bucketflow.Model, query: str) -> float:
        stored = LaunchPolicy.current().uses_stored
        ways.append(stored)
        return 2.0 if stored else 3.0 + len(ways)

    found = compared_runs(given_models(["grid", "satellite"]), "cpu", seconds)
    assert [(run.model, run.query, run.learnt) for run in found.runs] == [
        ("grid", "partition", 2.0),
        ("satellite", "optimum", 2.0),
    ]
    assert ways == [False, True] * 8
    assert found.runs[0].ruled == 3.0 + 3  # the least one after the first
    assert not found.worse
    real = compared_runs(given_models(["grid"]), "cpu")
    assert 0 < real.runs[0].learnt < 60


@pytest.mark.usefixtures("sklearn")
def test_models_that_cannot_be_run_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(BucketflowError, match=r"nothing\.uai: no such file"):
        bucketflow.tune(models=["nothing.uai"])
    with pytest.raises(bucketflow.BudgetError):
        bucketflow.tune(models=["fields"])


@pytest.mark.usefixtures("sklearn")
@pytest.mark.parametrize("kind", regressions.REGRESSIONS, ids=lambda kind: kind.name)
def test_stored_numbers_predict_what_was_fitted(kind: regressions.Regression) -> None:
    rng = np.random.default_rng(0)
    shape = rng.uniform(0, 20, (150, len(FEATURES)))
    rows = np.concatenate([shape, np.eye(3)[rng.integers(3, size=150)]], axis=1)
    values = np.where(rows[:, 0] > 10, 1.0, -1.0) + rows[:, -1] * (rows[:, 0] > 10)
    again: Predictor = predictor_from(json.loads(json.dumps(stored_predictor(made := kind.fit(rows, values, 0)))))
    np.testing.assert_allclose(again(rows), made(rows), rtol=1e-4, atol=1e-4)
    off = float(((again(rows) - values) ** 2).mean() / values.var())
    assert off < (0.6 if "lasso" in kind.name else 0.1)


@pytest.mark.usefixtures("sklearn")
def test_numbers_are_those_of_scikit_learn() -> None:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.svm import SVR

    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 20, (120, len(FEATURES) + 2))
    values = np.sin(rows[:, 0]) + rows[:, 1] / 10
    trees = GradientBoostingRegressor(
        n_estimators=120, max_depth=4, learning_rate=0.1, subsample=0.8, random_state=3
    ).fit(rows, values)
    np.testing.assert_allclose(regressions.boosted_trees(rows, values, 3)(rows), trees.predict(rows), rtol=1e-6)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    vectors = SVR(C=10.0, epsilon=0.08, gamma=0.5 / rows.shape[1]).fit(scaled, values)
    np.testing.assert_allclose(regressions.support_vectors(rows, values, 3)(rows), vectors.predict(scaled), rtol=1e-6)


def small_model(correction: float = float(np.log(2.0))) -> dict[str, Any]:
    """A model as it is kept: every step takes so many times its price."""
    columns = len(FEATURES) + 1
    keys = {f"{s.name} {s.dtype}": vars(Rates()) for s in SEMIRINGS}
    return {
        "features": list(FEATURES),
        "low": [0.0] * len(FEATURES),
        "high": [40.0] * len(FEATURES),
        "predictor": {
            **{"kind": "polynomial", "mean": [0.0] * columns, "scale": [1.0] * columns, "pairs": [[0, columns]]},
            **{"weights": [0.0], "base": correction},
        },
        **{"launches": [RULES], "chooses": False, "predicts": True, "rates": keys, "least_cells": {}},
        **{"residuals": [-0.5, 0.25], "regression": "by hand", "steps": 50},
    }


def test_plans_print_an_interval_and_what_predicts() -> None:
    model = bucketflow.load("grid")
    before = bucketflow.plan(model, query="partition")
    assert before.predicted_interval is None
    asked = ["plan", "grid", "--query", "partition"]
    assert "held out" not in CliRunner().invoke(main, asked).output
    keep_launches(rate_files.machine(), small_model())
    told = CliRunner().invoke(main, asked, catch_exceptions=False).output
    assert "the range of nine of ten held-out steps" in " ".join(told.split())
    assert "learnt from 50 steps by by hand" in " ".join(told.split())
    plan = json.loads(CliRunner().invoke(main, [*asked, "--json"]).output)["plan"]
    low, high = plan["seconds_interval"]
    assert low == pytest.approx(plan["seconds"] * np.exp(-0.5))
    assert high == pytest.approx(plan["seconds"] * np.exp(0.25))
    assert plan["launches"].startswith("learnt from 50 steps")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"device": "another"}, "learnt on another device"),
        ({"kernels": "0" * 16}, "learnt from other kernels"),
        ({"features": ["cells"]}, "holds no rates"),
        ({"predictor": {"kind": "pickle"}}, "holds no rates"),
        ({"residuals": [1.0, "x"]}, "holds no rates"),
        ({"low": [1.0, 2.0]}, "holds no rates"),
        ({"launches": ["loops"]}, "holds no rates"),
        ({"rates": 3}, "holds no rates"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_not_used_and_plan_says_so(changed: dict[str, Any], why: str) -> None:
    name = rate_files.machine()
    keep_launches(name, small_model())
    assert known_launches("cpu").model is not None
    rate_files.write(name, {"launches": {**rate_files.read(name)["launches"], **changed}})
    use_launches("cpu")
    assert learnt("cpu") is None
    told = " ".join(CliRunner().invoke(main, ["plan", "grid", "--query", "partition"]).output.split())
    assert why in told
    assert "`bucketflow tune` measures them again" in told


def test_a_model_is_chosen_by_only_where_it_gains_enough() -> None:
    step = next(drawn_steps(STEP_FAMILIES["3 and 4 states"], 14, 15, 0, SEMIRINGS, 1 << 26)).lowered
    columns, names = len(FEATURES) + 2, [RULES, "loops"]

    def with_gain(gain: float) -> str:
        predictor = {
            **{"kind": "polynomial", "mean": [0.0] * columns, "scale": [1.0] * columns},
            **{"pairs": [[columns - 1, columns]], "weights": [-gain], "base": 0.0},
        }
        put_in_force(
            "cpu", launches_from({**small_model(), "launches": names, "chooses": True, "predictor": predictor})
        )
        return launch_of("cpu", step)

    assert [with_gain(gain) for gain in (0.0, 0.09, 0.2)] == [RULES, RULES, "loops"]
    with LaunchPolicy.using(uses_stored=False):
        assert launch_of("cpu", step) == RULES


def test_beyond_what_was_measured_only_the_price_grows(steps: list[Lowered]) -> None:
    """A polynomial of log2 cells would be off by e^10 for steps of 2^30 cells."""
    columns = len(FEATURES) + 1
    predictor = {
        **{"kind": "polynomial", "mean": [0.0] * columns, "scale": [1.0] * columns, "pairs": [[0, columns]]},
        **{"weights": [1.0], "base": 0.0},
    }
    model = launches_from({**small_model(), "predictor": predictor, "high": [12.0] * len(FEATURES)})
    np.testing.assert_allclose(model.corrections(steps), 12.0)


def test_kernels_of_a_core_agree(steps: list[Lowered]) -> None:
    """And need no more memory than those of the rules."""
    found = set()
    rng = np.random.default_rng(0)
    whole = [lowered for lowered in steps if lowered.semiring.dtype == "int32"]
    for lowered in sorted(whole, key=lambda step: step.cells)[:12]:
        tables = [rng.integers(0, 50, cells).astype(lowered.semiring.dtype) for cells in lowered.input_cells]
        expected = run(lowered, tables, compiled=False)
        for launch in CPU_LAUNCHES:
            other = lowered_by(lowered, launch)
            assert other.workspace_bytes <= lowered.workspace_bytes
            if other is not lowered:
                found.add(launch)
                np.testing.assert_array_equal(run(other, tables), expected)
    assert "blocks" in found


def test_steps_of_examples_and_of_every_family_are_sampled() -> None:
    found = list(islice(sampled_steps(14, 16, 3, SEMIRINGS, 1 << 24), 30))
    assert all(step.cells > SMALL_CELLS for step in found)
    assert {step.semiring for step in found} == set(SEMIRINGS)
    assert len(set(found)) == len(found)
    assert all(np.isfinite(features_of(step)).all() and len(features_of(step)) == len(FEATURES) for step in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 2}, "gpus is 2; launches are learnt on one GPU"),
        ({"gpus": True}, "gpus is True"),
        ({"minutes": 0}, "minutes is 0; it must be a number of minutes"),
        ({"minutes": "3"}, "minutes is '3'"),
        ({"threads": 0}, "threads is 0; expected at least 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.tune(**options)


def test_without_scikit_learn_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regressions, "find_spec", lambda name: None)
    found = CliRunner().invoke(main, ["tune"])
    assert found.exit_code == 2
    assert "learning launches needs scikit-learn: pip install" in found.output


@pytest.mark.usefixtures("sklearn")
def test_few_steps_and_missing_gpus_are_refused(steps: list[Lowered], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="3 steps were measured, 40 are needed: give more minutes"):
        learnt_by(many_inputs, steps[:3])

    def none(count: int) -> int:
        from bucketflow.cluster.address import ClusterError

        raise ClusterError("there is no GPU")

    monkeypatch.setattr("bucketflow.cluster.gpus.count_gpus", none)
    with pytest.raises(BucketflowError, match="there is no GPU"):
        bucketflow.tune(gpus=1)


def test_the_command_prints_measures_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [LaunchScore(name, 12.5, 0.25, 0.5, 1.25, 1.125, 1.5) for name in ("today's rules", "boosted trees")]
    decided = "launches are chosen by boosted trees"
    whole = WholeModels((WholeRun("grid_9", "optimum", 0.5, 0.25),))
    flags = {
        "whole": whole,
        "stored": True,
        "chooses": True,
        "predicts": True,
        "interval": (0.75, 1.5),
        "least_cells": {},
    }
    facts = {"device": "here", "place": "cpu", "steps": 300, "held_out": 60, "launches": (RULES, "loops")}
    made = Tuning(scores=tuple(scores), winner="boosted trees", text=decided, path="rates.json", **flags, **facts)
    asked: list[dict[str, Any]] = []

    def tune(**options: Any) -> Tuning:
        asked.append(options)
        return made

    monkeypatch.setattr("bucketflow.pipeline.tuning.launch_tuning.tune", tune)
    shown = (
        CliRunner()
        .invoke(
            main,
            ["tune", "--gpus", "1", "--minutes", "0.5", "--model", "grid", "--model", "fields"],
            catch_exceptions=False,
        )
        .output
    )
    assert asked == [{"gpus": 1, "minutes": 0.5, "threads": None, "seed": 0, "models": ("grid", "fields")}]
    for text in (
        "whole models, seconds",
        "grid_9",
        "2.000",
        "RSS",
        "deviance²",
        "missed",
        "today's rules",
        "boosted trees (best)",
        decided,
        "0.75 to 1.50 times",
    ):
        assert text in shown
    figures = json.loads(CliRunner().invoke(main, ["tune", "--json"], catch_exceptions=False).output)
    assert figures["winner"] == made.winner
    assert figures["scores"][0] == scores[0].to_dict()
    assert figures["whole"] == whole.to_dict()
