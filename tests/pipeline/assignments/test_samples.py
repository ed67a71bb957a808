"""Independent draws: against exact distributions by chi-square tests with fixed seeds, and what they refuse."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bucketflow
from bucketflow import BudgetError, Model, ModelError, Samples, sample
from bucketflow.cluster.pool import ThreadPool
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.assignments.draw_sources import KeptSums
from bucketflow.pipeline.assignments.drawing import Drawing
from bucketflow.pipeline.assignments.kept_sweep import opened_sweep, prepare_kept
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.options import Options
from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.sweeps.conditional_draws import draw_step, inverse, uniform_numbers
from bucketflow.tasks.sweeps.scaled import measured
from tests.device_stand_in import device as stand_in
from tests.exact import Weights, costs
from tests.memory import traced
from tests.models import bayes_models, cost_models, grid, markov_models
from tests.policies import InForce

Array = NDArray[Any]
DRAWS = 2000
# Of a normal variable: one test in a million fails by chance, and seeds are fixed.
FAR = 4.9
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def deviation(counts: Array, expected: Array) -> float:
    """How far counts are from what is expected, as a normal variable: chi-square by Wilson and Hilferty (1931).

    Cells of fewer than five expected draws are one; infinite where something impossible was drawn.
    """
    if counts[expected == 0].any():
        return math.inf
    rare = expected < 5
    pairs = [*zip(counts[~rare], expected[~rare], strict=True), (counts[rare].sum(), expected[rare].sum())]
    pairs = [(c, e) for c, e in pairs if e > 0]
    freedom = len(pairs) - 1
    if freedom < 1:
        return 0.0
    chi_square = sum((c - e) ** 2 / max(e, 1.0) for c, e in pairs)
    spread = 2 / (9 * freedom)
    return float(((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def joint_deviation(states: Array, weights: Mapping[tuple[int, ...], float], dims: tuple[int, ...]) -> float:
    """How far draws are from a distribution of all assignments."""
    total = sum(weights.values())
    expected, counts = np.zeros(math.prod(dims)), np.zeros(math.prod(dims))
    for assignment, weight in weights.items():
        expected[np.ravel_multi_index(assignment, dims)] = len(states) * (weight / total)
    np.add.at(counts, np.ravel_multi_index(tuple(states.T), dims), 1)
    return deviation(counts, expected)


def boltzmann(model: Model, evidence: Mapping[str, int], temperature: float) -> dict[tuple[int, ...], float]:
    """What each allowed assignment weighs."""
    found = costs(model, evidence)
    least = min(found.values(), default=0)
    return {states: math.exp(-(cost - least) / temperature) for states, cost in found.items()}


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans(), st.integers(0, 1000))
@SLOW
def test_networks_are_drawn_from_their_distribution(model: Model, hard: bool, soft: bool, seed: int) -> None:
    findings: dict[str, Any] = {"x0": 0} if hard else {}
    if soft and len(model.names) > 1:
        findings["x1"] = [0.25 * (k + 1) for k in range(model.dims[1])]
    weights = Weights(model, findings).weights
    if not weights:
        with pytest.raises(ModelError, match="nothing to draw from"):
            sample(model, 3, evidence=findings, seed=seed)
        return
    found = sample(model, DRAWS, evidence=findings, seed=seed)
    assert found.states.shape == (DRAWS, len(model.names))
    scaled = {states: weight / max(weights.values()) for states, weight in weights.items()}
    assert joint_deviation(found.states, scaled, model.dims) < FAR


@given(cost_models(), st.sampled_from([0.5, 3.0, math.inf]), st.booleans(), st.integers(0, 1000))
@SLOW
def test_cost_networks_are_drawn_at_a_temperature(model: Model, temperature: float, hard: bool, seed: int) -> None:
    evidence = {"x0": 0} if hard else {}
    weights = boltzmann(model, evidence, temperature)
    if not weights:
        with pytest.raises((ModelError, BudgetError), match=r"nothing to draw from|stay below top"):
            sample(model, 3, evidence=evidence, temperature=temperature, seed=seed)
        return
    with SweepPolicy.using(tries_a_draw=100_000):
        found = sample(model, DRAWS // 4, evidence=evidence, temperature=temperature, seed=seed)
    assert joint_deviation(found.states, weights, model.dims) < FAR


@given(markov_models(), st.sampled_from([0, 2]), st.integers(1, 8), st.integers(1, 40))
@SLOW
def test_every_way_to_draw_a_step_is_exact(model: Model, rows: int, few: int, cells: int) -> None:
    weights = Weights(model, {}).weights
    if weights:
        with SweepPolicy.using(rows_a_draw=rows, joint_states=few, drawn_cells=cells):
            found = sample(model, DRAWS, seed=1)
        scaled = {states: weight / max(weights.values()) for states, weight in weights.items()}
        assert joint_deviation(found.states, scaled, model.dims) < FAR


def test_the_test_catches_a_sampler_that_draws_variables_apart() -> None:
    model = Model.build("markov", {"a": 2, "b": 2}, [(("a", "b"), [[2, 1], [1, 2]])])
    marginals = bucketflow.marginals(model)
    rng = np.random.default_rng(0)
    apart = np.stack([rng.choice(2, DRAWS, p=marginals[name]) for name in model.names], axis=1)
    weights = {(a, b): 2.0 if a == b else 1.0 for a in range(2) for b in range(2)}
    assert joint_deviation(apart, weights, model.dims) > FAR
    assert joint_deviation(sample(model, DRAWS).states, weights, model.dims) < FAR


def test_marginals_of_a_large_network_with_evidence() -> None:
    model = bucketflow.load("diagnosis")
    evidence = {"Flow": "none", "Storm": [0.3, 0.9]}
    found, exact = sample(model, 20_000, evidence=evidence, seed=5), bucketflow.marginals(model, evidence=evidence)
    for name in model.names:
        counts = np.bincount(found[name], minlength=len(exact[name])).astype(float)
        assert deviation(counts, exact[name] * len(found)) < FAR, name
    pair = "PanelPower", "Controller"
    joint = bucketflow.marginals(model, evidence=evidence, joint=[pair]).joint[pair]
    counts = np.zeros(joint.shape)
    np.add.at(counts, (found[pair[0]], found[pair[1]]), 1)
    assert deviation(counts.reshape(-1), joint.reshape(-1) * len(found)) < FAR


def test_slices_are_drawn_by_their_sums() -> None:
    model, draws = grid(7, 7, 4, "markov"), 1000
    whole, tight = (sample(model, draws, seed=2, memory=memory) for memory in ("100MB", "1.6MB"))
    assert whole.plan is not None
    assert tight.plan is not None
    assert whole.plan.slices == 1 < tight.plan.slices
    exact = bucketflow.marginals(model)
    for found in (whole, tight):
        for name in model.names:
            counts = np.bincount(found[name], minlength=4).astype(float)
            assert deviation(counts, exact[name] * draws) < FAR, name
    assert np.array_equal(sample(model, draws, seed=2, memory="1.6MB").states, tight.states)


def test_slices_in_threads_give_the_same_draws() -> None:
    model = grid(6, 6, 3, "markov")
    question = question_of(model, "partition")
    network, found = question.reduced[0], []
    prepared = prepare_kept(question, network, KeptSums(network), Options(memory=70_000, fit="slice"))
    with opened_sweep(prepared) as sweep:
        for pool in (sweep.run.pool, ThreadPool(3)):
            moved = replace(sweep, run=replace(sweep.run, pool=pool))
            drawing = Drawing(moved, network, seed=1, cells=1 << 12)
            found.append([drawing.more(60), drawing.more(40)])
        assert sweep.run.plan.slices > 1
        whole = Drawing(sweep, network, seed=1, cells=1 << 12).more(100)
    for v, states in whole.items():
        for parts in found:
            assert np.array_equal(np.concatenate([part[v] for part in parts]), states)


@pytest.mark.parametrize("kind", ["markov", "steep"])
def test_workers_threads_and_rows_change_no_draw(kind: str) -> None:
    """A plan draws the same bits, wherever it is swept; slices and boxes choose what they fix first."""
    model = grid(5, 5, 3, kind)
    tight: dict[str, Any] = {"memory": "135kB"}

    def drawn(**asked: Any) -> Samples:
        with BudgetPolicy.using(margin_bytes=0), SweepPolicy.using(drawn_cells=1 << 8):
            return sample(model, 300, seed=7, **asked)

    moves: list[dict[str, Any]] = [{"threads": 1}, {"threads": 2}]
    if kind == "steep":  # tables with scales take the same road to workers as tables without
        moves.append({"workers": 2})
    for asked, more in (
        ({}, [*moves, {"representation": "rows"}, {"representation": "rows", "threads": 2}]),
        ({**tight, "fit": "slice"}, [*moves, {"workers": 3}] if kind == "markov" else moves),
        ({**tight, "fit": "spill"}, moves),
    ):
        first = drawn(**asked)
        assert first.plan is not None
        assert (first.plan.slices > 1) == (asked.get("fit") == "slice")
        assert (first.plan.spill is not None) == (asked.get("fit") == "spill")
        for moved in more:
            assert np.array_equal(drawn(**asked, **moved).states, first.states), (asked, moved)


def test_draws_do_not_depend_on_batches_or_on_how_many_follow() -> None:
    for model, more in ((bucketflow.load("diagnosis"), {}), (grid(4, 4, 3), {"temperature": 9.0})):
        first = sample(model, 1000, seed=7, **more).states
        with SweepPolicy.using(batch_draws=13, walked_draws=100):
            assert np.array_equal(sample(model, 1000, seed=7, **more).states, first)
        assert np.array_equal(sample(model, 500, seed=7, **more).states, first[:500])
        assert not np.array_equal(sample(model, 1000, seed=8, **more).states, first)


def test_numbers_are_those_of_their_places() -> None:
    whole = uniform_numbers(3, 8, 0, 100)
    for start, stop in ((0, 1), (1, 2), (7, 50), (96, 100)):
        assert np.array_equal(uniform_numbers(3, 8, start, stop), whole[start:stop])
    assert not np.array_equal(uniform_numbers(3, 9, 0, 100), whole)


def test_states_of_no_weight_are_never_drawn() -> None:
    weights = np.array([[0.0, 1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 1e-300, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0, 0.0]])
    numbers = np.array([0.0, 0.3, 0.5, np.nextafter(1.0, 0.0)])
    for row, own in enumerate(weights):
        found = inverse(np.cumsum(weights, axis=1), np.full(4, row), numbers)
        assert (own[found] > 0).all()
    binary = np.cumsum([[0.0, 1.0], [1.0, 0.0]], axis=1)
    assert [inverse(binary, np.full(4, row), numbers).tolist() for row in (0, 1)] == [[1] * 4, [0] * 4]


def test_clauses_are_drawn_uniformly(tmp_path: Path) -> None:
    path = tmp_path / "small.cnf"
    path.write_text("p cnf 5 4\n1 2 0\n-1 3 0\n-2 -3 4 0\n-4 5 0\n")
    model = bucketflow.load(path)
    found = sample(model, DRAWS, seed=1)
    possible = dict.fromkeys(Weights(model, {}).weights, 1.0)
    assert len(possible) == bucketflow.solve(model, "count").value
    assert joint_deviation(found.states, possible, model.dims) < FAR


def test_totals_that_reach_top_are_thrown_away() -> None:
    model = Model.build("cost", {"a": 4, "b": 4}, [("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])], top=4)
    found = sample(model, DRAWS, temperature=math.inf)
    assert found.tried > len(found) == DRAWS
    assert joint_deviation(found.states, boltzmann(model, {}, math.inf), model.dims) < FAR


@pytest.mark.parametrize("temperature", [math.inf, 2.0])
def test_rare_assignments_below_top_are_drawn_from_a_colder_distribution(temperature: float) -> None:
    """One of 50,000 is below top; draws that are thrown away are few all the same, and those kept are as asked."""
    names = [f"v{i}" for i in range(20)]
    model = Model.build("cost", dict.fromkeys(names, 2), [((n,), [0, 1]) for n in names], top=2)
    found = sample(model, DRAWS, temperature=temperature)
    assert len(found) == DRAWS
    assert found.tried < 10 * DRAWS
    assert found.states.sum(axis=1).max() <= 1
    counts = np.array([(found.states.sum(axis=1) == 0).sum(), *found.states.sum(axis=0)])
    weights = np.array([1.0] + [math.exp(-1 / temperature)] * 20)
    assert deviation(counts, DRAWS * weights / weights.sum()) < FAR


def test_a_sampler_without_luck_gives_up() -> None:
    names = [f"v{i}" for i in range(20)]
    model = Model.build("cost", dict.fromkeys(names, 2), [((n,), [0, 1]) for n in names], top=2)
    with SweepPolicy.using(enough_kept=0.0), pytest.raises(BudgetError, match="stay below top 2"):
        sample(model, 10, temperature=math.inf)


@given(cost_models(), st.integers(0, 40), st.sampled_from([math.inf, 3.0]))
@SLOW
def test_a_bound_leaves_what_is_at_least_as_good(model: Model, bound: int, temperature: float) -> None:
    exact = boltzmann(model, {}, temperature)
    kept = {states: weight for states, weight in exact.items() if (model.cost(states) or 0) <= bound}
    if not kept:
        with pytest.raises(ModelError, match=f"no assignment is possible within the bound {bound} "):
            sample(model, 10, temperature=temperature, upper_bound=bound)
        return
    found = sample(model, 2000, temperature=temperature, upper_bound=bound, seed=3)
    assert {tuple(row) for row in found.states.tolist()} <= {*kept}
    assert joint_deviation(found.states, kept, model.dims) < FAR


def test_bounds_are_exact_where_floats_hold_no_such_costs() -> None:
    """Of pairs that cost 2**56 + 2 or one more, which is the same float."""
    names, unit = [f"v{i}" for i in range(12)], 2**55 + 1
    pair = (("v0", "v1"), np.array([[0, 0], [0, 1]]))
    model = Model.build("cost", dict.fromkeys(names, 2), [*[((n,), np.array([0, unit])) for n in names], pair])
    states = sample(model, 10_000, temperature=math.inf, upper_bound=2 * unit).states
    assert states.sum(axis=1).max() == 2
    assert not (states[:, 0] & states[:, 1]).any()


@pytest.mark.parametrize("temperature", [5e-324, 3e-20])
def test_at_the_lowest_temperatures_optima_are_drawn_alike(temperature: float) -> None:
    """Weights overflow, or are so large that rounding would tell optima from each other."""
    names, height = "abcd", np.random.default_rng(0).integers(0, 1000, (4, 3))
    pairs = [((names[k], names[k + 1]), 1000 + height[k][:, None] - height[k + 1]) for k in range(3)]
    ends = [(("a",), 1000 - height[0]), (("d",), height[3]), (("b",), [0, 0, 1])]
    found = sample(Model.build("cost", dict.fromkeys(names, 3), [*pairs, *ends]), DRAWS, temperature=temperature)
    optima = dict.fromkeys(product(range(3), range(2), range(3), range(3)), 1.0)
    assert joint_deviation(found.states, optima, (3,) * 4) < FAR


def test_bounds_are_in_the_units_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gain.cfn"
    path.write_text(
        '{"problem": {"name": "g", "mustbe": ">0.0"}, "variables": {"a": 3, "b": 3},'
        ' "functions": {"f": {"scope": ["a"], "costs": [0.5, 1.5, 2.5]},'
        ' "g": {"scope": ["b"], "costs": [0.1, 0.2, 0.4]}}}'
    )
    model = bucketflow.load(path)
    found = sample(model, 500, temperature=math.inf, upper_bound="1.9")
    worths = {str(model.evaluate(dict(zip(model.names, row, strict=True))).value) for row in found.states.tolist()}
    assert worths == {"1.9", "2.6", "2.7", "2.9"}
    assert found.to_dict()["upper_bound"] == "1.9"
    assert found.model.top == model.top


@pytest.mark.parametrize(
    ("kind", "asked", "why"),
    [
        ("cost", {}, "need a temperature"),
        ("cost", {"temperature": 0}, "must be a number above 0"),
        ("cost", {"temperature": math.nan}, "must be a number above 0"),
        ("markov", {"temperature": 1.0}, "for cost networks"),
        ("markov", {"workdir": "x"}, "'workdir' does not apply"),
        ("cost", {"temperature": 1.0, "evidence": {"x0": [1, 0.5]}}, "no likelihoods"),
        ("markov", {"evidence": {"x0": 7}}, "no state 7"),
    ],
)
def test_what_does_not_apply_is_refused(kind: str, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        sample(grid(2, 2, 2, kind), 3, **asked)


def test_budgets_are_refused_with_both_numbers() -> None:
    with pytest.raises(BudgetError, match=r"100,000 samples of 16 variables take 16 MB, allowed 1 MB"):
        sample(grid(4, 4, 2, "markov"), 100_000, memory="1MB")
    with pytest.raises(BudgetError, match=r"needs .* allowed"):
        sample(grid(7, 7, 6, "markov"), 1, memory=200_000, fit="refuse")


def test_no_draws_and_negative_numbers() -> None:
    model = grid(2, 2, 2, "markov")
    assert sample(model, 0).states.shape == (0, 4)
    with pytest.raises(ModelError, match="n is -1"):
        sample(model, -1)


def test_samples_by_names() -> None:
    model = bucketflow.load("diagnosis")
    found = sample(model, 4, evidence={"Storm": "yes"})
    assert [row["Storm"] for row in found.assignments()] == ["yes"] * 4
    with pytest.raises(ModelError, match="not a variable"):
        found["storm"]
    pandas = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["Storm"].tolist() == ["yes"] * 4


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["solve", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_writes_files(tmp_path: Path) -> None:
    expected: Samples = sample(bucketflow.load("diagnosis"), 20, evidence={"Storm": "yes"}, seed=4)
    common = "diagnosis", "--query", "sample", "--samples", "20", "--seed", "4", "--evidence", "Storm=yes"
    code, out, _ = run(*common, "--out", str(tmp_path / "a.csv"), "--json")
    assert code == 0
    assert {"query": "sample", "samples": 20, "seed": 4}.items() <= json.loads(out).items()
    with (tmp_path / "a.csv").open() as file:
        assert [*csv.DictReader(file)] == expected.assignments()
    code, out, _ = run(*common, "--out", str(tmp_path / "a.jsonl"))
    assert (code, out.splitlines()[0].split()[:2]) == (0, ["samples", "20"])
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected.assignments()


@pytest.mark.parametrize("name", ["diagnosis", "grid"])
def test_the_command_writes_parquet(name: str, tmp_path: Path, in_force: InForce) -> None:
    """Labels as a dictionary and indices as numbers, in several row groups."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed", exc_type=ImportError)
    in_force(FormatPolicy, row_group=8)
    path = tmp_path / "a.parquet"
    assert run(name, "--query", "sample", "--samples", "20", "--seed", "4", "--out", str(path))[0] == 0
    assert parquet.ParquetFile(path).num_row_groups == 3
    assert parquet.read_table(path).to_pylist() == sample(bucketflow.load(name), 20, seed=4).assignments()


def test_parquet_without_pyarrow_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketflow.pipeline.models.frames.find_spec", lambda name: None)
    path = tmp_path / "a.parquet"
    code, _, said = run("diagnosis", "--query", "sample", "--samples", "20", "--out", str(path))
    assert code == 2
    assert "writing .parquet needs pyarrow (pip install" in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["diagnosis", "--samples", "3"], "goes with --query sample only"),
        (["diagnosis", "--query", "sample", "--samples", "3"], "needs --samples and --out"),
        (["diagnosis", "--query", "sample", "--samples", "3", "--out", "a.txt"], "use .csv, .jsonl or .parquet"),
        (
            ["diagnosis", "--query", "sample", "--samples", "3", "--out", "a.csv", "--no-prune"],
            "--no-prune is for a single optimum or sum, not for samples",
        ),
        (
            ["diagnosis", "--query", "sample", "--samples", "3", "--out", "a.csv", "--gap", "1"],
            "--gap is for a single optimum",
        ),
        (["satellite", "--query", "sample", "--samples", "3", "--out", "a.csv"], "need a temperature"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, said = run(*arguments)
    assert code == 2
    assert why in said
    assert not [*tmp_path.iterdir()]


def test_draws_of_a_large_domain_take_the_memory_of_its_weights() -> None:
    weights = np.arange(20_000.0)
    peak, drawn = traced(lambda: bucketflow.sample(Model.build("markov", {"a": 20_000}, [("a", weights)]), 8192), 2e7)
    assert peak < 2e7
    assert drawn.states.mean() == pytest.approx(weights @ weights / weights.sum(), rel=0.02)


@pytest.mark.parametrize("device", [False, True])
def test_draws_that_are_written_as_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: bool) -> None:
    """More of them than fit the memory; they are those that an answer holds."""
    model, asked = grid(4, 4, 3, "markov"), {"gpus": 1} if device else {}
    with contextlib.ExitStack() as stack:
        if device:
            stack.enter_context(stand_in(monkeypatch))
        stack.enter_context(SweepPolicy.using(walked_draws=100, least_walk_seconds=0.0))
        held = sample(model, 1003, seed=3)
        found = sample(model, 1003, seed=3, out=tmp_path / "draws.csv", **asked)
        assert (len(found), found.count, found.tried) == (0, 1003, 1003)
        assert found.to_dict()["samples"] == 1003
        assert not [note for note in found.notes if "draws were made by the CPU" in note]
        rows = [*csv.reader((tmp_path / "draws.csv").read_text().splitlines())]
        assert rows[0] == list(model.names)
        assert np.array(rows[1:], int).tolist() == held.states.tolist()
    if not device:
        with pytest.raises(BudgetError, match="samples of 16 variables"):
            sample(model, 10**7, memory="100MB")
        assert sample(model, 70_000, memory="48MB", out=tmp_path / "many.jsonl").count == 70_000
        impossible = Model.build("markov", {"a": 2}, [("a", [0.0, 0.0])])
        with pytest.raises(ModelError, match="nothing to draw from"):
            sample(impossible, 5, out=tmp_path / "none.csv")
        assert not (tmp_path / "none.csv").exists()
        with pytest.raises(ModelError, match="cannot write samples"):
            sample(model, 5, out=tmp_path / "draws.txt")


def test_few_draws_of_many_joint_states_are_the_first_of_many_draws() -> None:
    """Few draws read the rows of their own states; many draws share a table of all rows."""
    rng, first, left = np.random.default_rng(0), range(6), range(6, 18)
    scopes = [(*first[:3], *left), (*first[3:], *left)]
    read = [(measured(rng.random(2 ** len(scope)), 0.0), scope) for scope in scopes]
    above = {v: rng.integers(0, 2, 1000).astype(np.int32) for v in first}

    def drawn(draws: int) -> list[list[int]]:
        states = {v: found[:draws] for v, found in above.items()}
        draw_step(read, [2] * 18, states, lambda v, start, stop: uniform_numbers(1, v, start, stop), draws, 1 << 20)
        return [states[v][:10].tolist() for v in left]

    assert drawn(10) == drawn(1000)
