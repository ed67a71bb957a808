"""What people are used to: files and texts in place of models and mappings, and the word that was meant."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.model import FORBIDDEN
from bucketflow.pipeline.options import ProofOptions

RAIN = Model.build(
    "bayes",
    {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    [(("rain",), [0.8, 0.2]), (("rain", "wet"), [[0.9, 0.1], [0.2, 0.8]])],
)


def test_a_path_or_an_example_stands_for_its_model(tmp_path: Path) -> None:
    path = tmp_path / "pair.wcsp"
    bucketflow.save(Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])]), path)
    found = bucketflow.solve(path)
    assert (found.value, found.assignment) == (1, {"x0": 0, "x1": 1})
    assert bucketflow.solve(str(path), "count").value == 4
    assert [ranked.value for ranked in bucketflow.best(path, 2)] == [1, 2]
    assert bucketflow.bound(path).lower == 1
    assert len(bucketflow.sample(path, 3, temperature=1.0)) == 3
    assert bucketflow.EditableModel(path).solve().value == 1
    assert bucketflow.plan("diagnosis", "marginals").cells > 0
    loaded = bucketflow.load("diagnosis")
    assert bucketflow.marginals("diagnosis")["Storm"].tolist() == bucketflow.marginals(loaded)["Storm"].tolist()
    assert bucketflow.compile("diagnosis").model.names == loaded.names
    assert bucketflow.circuit("diagnosis").count() == bucketflow.circuit(loaded).count()


def test_slices_of_a_dynamic_network_may_be_paths(tmp_path: Path) -> None:
    given = {"x_0": 2, "x_1": 2}
    slices = Model.build("bayes", given, [(("x_0",), [0.5, 0.5]), (("x_0", "x_1"), [[0.9, 0.1], [0.2, 0.8]])])
    path = tmp_path / "slices.bif"
    bucketflow.save(slices, path)
    assert bucketflow.dynamic(path).names == bucketflow.dynamic(slices).names


@pytest.mark.parametrize("asked", ["no", "False", 2, None])
def test_a_truth_value_is_no_text(asked: Any) -> None:
    with pytest.raises(ModelError, match=r"prune is .*; it must be True or False"):
        bucketflow.solve("grid", prune=asked)
    assert ProofOptions(prune=np.False_).prune is False  # type: ignore[arg-type]


def test_reading_a_path_keeps_to_the_memory_that_is_given() -> None:
    with pytest.raises(bucketflow.BudgetError):
        bucketflow.solve("fields", memory="1kB")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("wet=yes", {"wet": "yes"}),
        ('rain=0, wet="yes"', {"rain": "no", "wet": "yes"}),
        ("wet=[0.25,0.5]", {"wet": [0.25, 0.5]}),
    ],
)
def test_evidence_as_a_text_is_that_of_its_names(text: str, same: dict[str, Any]) -> None:
    for query in ("optimum", "partition"):
        found, expected = (bucketflow.solve(RAIN, query, evidence=given) for given in (text, same))
        assert (found.log10, found.assignment) == (expected.log10, expected.assignment)
    posteriors, others = (bucketflow.marginals(RAIN, evidence=given) for given in (text, same))
    assert posteriors["rain"].tolist() == others["rain"].tolist()


def test_evidence_that_is_no_list_is_a_file_as_before(tmp_path: Path) -> None:
    path = tmp_path / "a=b.evid"
    path.write_text("1 1 1")
    assert bucketflow.marginals(RAIN, evidence=str(path))["wet"].tolist() == [0.0, 1.0]
    with pytest.raises(bucketflow.FormatError, match="nothing"):
        bucketflow.solve(RAIN, evidence="nothing.evid")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.solve(RAIN, evidence="wett=yes"), "evidence names 'wett', .*; did you mean 'wet'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"Rain": 1}), "evidence names 'Rain', .*; did you mean 'rain'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"wet": "yess"}), "its states are no, yes; did you mean 'yes'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"we": [1, 2]}), "did you mean 'wet'?"),
        (lambda: bucketflow.marginals(RAIN, variables=["rian"]), "'rian' is not a variable .*; did you mean 'rain'?"),
        (lambda: bucketflow.solve(RAIN, order=["rain", "wat"]), "the order names 'wat', .*; did you mean 'wet'?"),
        (lambda: bucketflow.compile(RAIN).marginals_batch({"wat": [1]}), "cases name 'wat', .*did you mean 'wet'?"),
        (lambda: bucketflow.sample(RAIN, 1)["wat"], "'wat' is not a variable .*; did you mean 'wet'?"),
        (lambda: bucketflow.solve("sattelite"), "sattelite: .*; did you mean 'satellite'?"),
        (lambda: Model.build("cost", {"abc": 2}, [(("abd",), [1, 2])]), "over 'abd', .*; did you mean 'abc'?"),
    ],
)
def test_the_word_that_was_meant_is_named(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(bucketflow.BucketflowError, match=message.replace("?", r"\?")):
        ask()


def test_a_word_that_is_like_none_gets_no_hint() -> None:
    with pytest.raises(ModelError) as refused:
        bucketflow.solve(RAIN, evidence={"temperature": 1})
    assert str(refused.value) == "evidence names 'temperature', which is not a variable of the model"


CAPPED = Model.build(
    "cost",
    {"a": ["l", "r"], "b": 2},
    [(("a", "b"), [[3, 1], [2, 5]]), (("b",), [0, 1]), (("a", "b"), [[0, 0], [FORBIDDEN, 0]])],
    top=5,
)


def run(*args: object) -> str:
    """Return what a command printed."""
    done = CliRunner().invoke(main, [*map(str, args)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_given_assignment_is_evaluated() -> None:
    for a, b in product("lr", range(2)):
        found = CAPPED.evaluate({"a": a, "b": b})
        assert (found.value, found.possible) == (CAPPED.cost([("lr").index(a), b]), a == "l")
    assert CAPPED.evaluate({"a": "r", "b": 0}).forbidden_by == (("a", "b"),)
    above = CAPPED.evaluate({"a": "r", "b": 1})
    assert (above.forbidden_by, above.top) == ((), 5)
    assert repr(above).splitlines() == ["status  forbidden", "top     its costs reach 5"]
    wet = RAIN.evaluate({"rain": "yes", "wet": 1})
    assert wet.log10 == pytest.approx(math.log10(0.2 * 0.8))
    never = Model.build("markov", {"a": 2}, [(("a",), [0.0, 1.0])]).evaluate({"a": 0})
    assert (never.possible, never.log10, never.to_dict()["log10"]) == (False, -math.inf, None)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ({"a": "l"}, "has no value for 1 of 2 variables, 'b' among them"),
        ({"a": "l", "b": 2}, "no state 2"),
        ({"c": 1}, "names 'c'"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused(assignment: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        CAPPED.evaluate(assignment)


def test_an_answer_in_a_file_is_evaluated_again(tmp_path: Path) -> None:
    out = tmp_path / "best.json"
    run("solve", "satellite", "--out", out)
    kept = json.loads(out.read_text())
    assert kept["model"]["source"].endswith("satellite.wcsp")
    assert (kept["model"]["variables"], kept["evidence"]) == (40, {})
    assert json.loads(run("evaluate", "satellite", "--assignment", out, "--json"))["value"] == kept["value"]
    table = tmp_path / "best.csv"
    run("solve", "satellite", "--out", table)
    rows = list(csv.reader(table.read_text().splitlines()))[1:]
    assert dict(rows) == {name: str(s) for name, s in kept["assignment"].items()}
    pairs = ",".join(f"{name}={state}" for name, state in kept["assignment"].items())
    assert f"value   {kept['value']}" in run("evaluate", "satellite", "--assignment", pairs)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("solve", "satellite", "--out", "a.txt"), "use .json, or .csv for its table"),
        (("marginals", "diagnosis", "--out", "a.txt"), "use .json, or .csv for its table"),
        (("marginals", "diagnosis", "--out", "a.csv", "--entropy", "Storm"), "not information measures"),
        (("evaluate", "diagnosis", "--assignment", "Storm=[1,2]"), "has likelihoods of 'Storm'"),
        (("evaluate", "diagnosis", "--assignment", "no.json"), "no.json: no such file"),
        (("evaluate", "diagnosis", "--assignment", "a=1", "--query", "count"), "goes only with --json and --memory"),
        (("evaluate", "diagnosis", "--assignment", "Strom=yes"), "did you mean 'Storm'?"),
    ],
)
def test_files_and_assignments_that_do_not_fit_end_in_a_sentence(args: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 2
    assert message in done.output


def test_best_assignments_and_posteriors_go_into_files(tmp_path: Path) -> None:
    many, posteriors = tmp_path / "best.csv", tmp_path / "posteriors.csv"
    run("solve", "satellite", "--best", 3, "--out", many)
    rows = list(csv.DictReader(many.read_text().splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert len(rows[0]) == 43
    run("marginals", "diagnosis", "--evidence", "Storm=yes", "--variables", "Season", "--out", posteriors)
    expected = bucketflow.marginals("diagnosis", evidence={"Storm": "yes"})
    found = list(csv.DictReader(posteriors.read_text().splitlines()))
    assert [row["state"] for row in found] == expected.labels("Season")
    assert [float(row["probability"]) for row in found] == pytest.approx(expected["Season"].tolist())


def test_answers_repeat_the_model_and_the_evidence() -> None:
    evidence: dict[str, Any] = {"rain": [0.5, 0.25], "wet": "yes"}
    same = {"name": "", "source": "", "kind": "bayes", "variables": 2}
    for found in (
        bucketflow.solve(RAIN, evidence=evidence),
        bucketflow.marginals(RAIN, evidence=evidence),
        bucketflow.bound(RAIN, evidence=evidence),
        bucketflow.sample(RAIN, 2, evidence=evidence),
        bucketflow.best(RAIN, 2, evidence={"wet": 1}),
    ):
        told = found.to_dict()
        assert told["model"] == same
        assert told["evidence"]["wet"] == "yes"
        assert told["evidence"].get("rain", [0.5, 0.25]) == [0.5, 0.25]
    assert bucketflow.solve("diagnosis").to_dict()["model"]["source"].endswith("diagnosis.bif")


def test_a_conditional_is_a_ratio_of_joints() -> None:
    found = bucketflow.conditional(RAIN, ["rain"], given=["wet"])
    joint = np.array([[0.72, 0.08], [0.04, 0.16]])
    np.testing.assert_allclose(found, (joint / joint.sum(axis=0)).T)
    np.testing.assert_allclose(bucketflow.conditional(RAIN, "rain", evidence="wet=no"), [0.72 / 0.76, 0.04 / 0.76])


def test_answers_are_data_frames(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    best = bucketflow.solve("satellite")
    assert dict(best.to_frame().itertuples(index=False)) == best.assignment
    cases = bucketflow.compile(RAIN).marginals_batch({"wet": ["yes", "no", None]})
    frame = cases.to_frame()
    assert list(frame.columns) == [("rain", "no"), ("rain", "yes"), ("wet", "no"), ("wet", "yes")]
    np.testing.assert_array_equal(frame["rain"].to_numpy(), cases["rain"])
    assert bucketflow.best(CAPPED, 5).to_frame()["value"].tolist() == [2, 3]
    assert bucketflow.bound("satellite").to_frame()["lower"].iloc[-1] <= best.value
    assert set(bucketflow.dpop(bucketflow.load_dcop("meetings")).to_frame()) == {"agent", "variable", "state"}
    (tmp_path / "list.csv").write_text("model\nsatellite\n")
    assert bucketflow.batch(tmp_path / "list.csv", tmp_path / "out").to_frame()["value"].tolist() == [best.value]
    proof = bucketflow.solve("fields", method="diagram").proof
    assert proof is not None
    assert proof.to_frame()["seconds"].is_monotonic_increasing


def test_costs_may_be_floats_and_stay_exact() -> None:
    tables = [[0.1, 2.25], [1e-7, math.inf]]
    model = Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), tables), (("a",), [0.2, 3])], top=9.5)
    assert (model.decimals, model.top) == (7, 95_000_000)
    found = bucketflow.solve(model)
    assert (str(found.value), found.assignment) == ("0.3000000", {"a": 0, "b": 0})
    assert str(model.evaluate({"a": 1, "b": 0}).value) == "3.0000001"
    assert not model.evaluate({"a": 1, "b": 1}).possible
    assert bucketflow.solve(model, "count").value == 3
    rows = Model.build("cost", {"a": 3}, [(("a",), [[0]], [0.5], 1.25)])
    assert [str(rows.evaluate({"a": s}).value) for s in range(3)] == ["0.50", "1.25", "1.25"]
    assert Model.build("cost", {"a": 2}, [(("a",), [1.0, 2.0])], top=3.0).decimals == 0


@pytest.mark.parametrize(
    ("costs", "message"),
    [([math.nan, 1], "not a number"), ([-math.inf, 1], "minus infinity"), ([1e-300, 1e10], "round them")],
)
def test_floats_that_are_no_costs_are_refused(costs: list[float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.build("cost", {"a": 2}, [(("a",), costs)])


@pytest.mark.parametrize("whole", [2**53 + 1, -(2**53) - 1, 2**58 + 1])
def test_whole_costs_stay_exact_beside_floats(whole: int) -> None:
    model = Model.build("cost", {"a": 2, "b": 2}, [("a", [whole, whole + 1]), ("b", [0.5, 1.5])])
    assert model.evaluate({"a": 0, "b": 0}).value == Decimal(whole) + Decimal("0.5")
    forbidden = Model.build("cost", {"a": 2, "b": 2}, [("a", [FORBIDDEN, 1]), ("b", [0.5, 1.5])])
    assert not forbidden.evaluate({"a": 0, "b": 0}).possible


def test_numbers_of_numpy_are_read_in_the_digits_that_are_printed() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        model = Model.build("cost", {"a": 2}, [("a", np.array([0.1, 0.3], dtype))], top=dtype(0.25))
        assert (str(bucketflow.solve(model).value), bucketflow.solve(model, "count").value) == ("0.10", 1)
    rows = Model.build("cost", {"a": 2}, [("a", [[0]], [1], 0.0)], top=Decimal(1))
    assert (rows.functions[0].default, rows.top, bucketflow.solve(rows, "count").value) == (0, 1, 1)


@pytest.mark.parametrize(
    ("variables", "functions", "message"),
    [
        ([("a", 2)], [], "variables are a mapping of names"),
        ({"a": 2}, 3, "function 0 is 3; expected names"),
        ({"a": 2}, ["a"], "function 0 is 'a'; expected names"),
        ({"a": 2}, [([["a"]], [0.5, 1])], "function 0 is .*; expected names"),
        ({"a": 2}, [("a", ["0.5", "1"]), ((), 0.5)], "function 0 has values of type"),
    ],
)
def test_what_makes_no_model_is_refused(variables: Any, functions: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.build("cost", variables, functions)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.plan(RAIN, ["optimum"]), "unknown query .'optimum'."),  # type: ignore[arg-type]
        (lambda: bucketflow.save(5, "x.uai"), "a Model is expected, found int"),  # type: ignore[arg-type]
        (
            lambda: bucketflow.compile(RAIN).marginals_batch({"wet": np.array(1)}),
            "one state for each case; found ndarray",
        ),
        (lambda: bucketflow.conditional(RAIN, 5), "5 are not names of variables"),  # type: ignore[arg-type]
        (lambda: bucketflow.compile(RAIN).entropy(5), "5 are not names of variables"),  # type: ignore[arg-type]
        (lambda: bucketflow.einsum(5, 5), "not 5"),  # type: ignore[arg-type]
        (lambda: bucketflow.solve(RAIN, progress="yes"), "progress is 'yes', which"),  # type: ignore[arg-type]
        (lambda: bucketflow.solve(RAIN, on_bounds=5), "on_bounds is 5, which"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_another_type_is_refused_in_a_sentence(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ask()


def test_a_top_is_a_number() -> None:
    for top, message in (("x", "top is 'x'"), (math.inf, "leave it out"), (np.float64("nan"), "leave it out")):
        with pytest.raises(ModelError, match=message):
            Model.build("cost", {"a": 2}, [("a", [0.5, 1])], top=top)  # type: ignore[arg-type]


def test_a_batch_may_be_a_list_or_a_data_frame(tmp_path: Path) -> None:
    model = bucketflow.load("diagnosis")
    rows = [
        {"model": model, "query": "partition", "evidence": {"Storm": np.int64(1)}},
        {"model": "satellite", "memory": None, "priority": np.int64(2)},
    ]
    summary = bucketflow.batch(rows, tmp_path / "list")
    assert (summary.rows, summary.answered) == (2, 2)
    lines = (tmp_path / "list" / "results.jsonl").read_text().splitlines()
    expected = bucketflow.solve(model, "partition", evidence={"Storm": 1})
    assert json.loads(lines[0])["answer"]["log10"] == expected.log10
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"model": ["satellite", "diagnosis"], "query": ["count", None]})
    assert bucketflow.batch(frame, tmp_path / "frame", query="marginals").answered == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (5, "not int"),
        ([{"model": RAIN}], "a model in memory"),
        ([{"file": "a"}], "columns among"),
        (["a"], "names with"),
    ],
)
def test_lists_that_are_no_batch_are_refused(rows: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(bucketflow.BucketflowError, match=message):
        bucketflow.batch(rows, tmp_path / "out")


def test_options_come_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    def asked(args: list[str], **variables: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, args, env=variables)
        return done.exit_code, done.output

    assert asked(["solve", "fields"], BUCKETFLOW_MEMORY="1kB")[0] == 3
    assert asked(["solve", "satellite", "--memory", "1GB"], BUCKETFLOW_MEMORY="1kB")[0] == 0
    assert json.loads(asked(["solve", "satellite", "--json"], BUCKETFLOW_SOLVE_QUERY="count")[1])["query"] == "count"
    code, output = asked(["solve", "grid", "--dashboard"], DASK_SCHEDULER_ADDRESS="nowhere:1")
    assert (code, "give workers; a running scheduler serves its own" in output) == (2, True)
    assert asked(["plan", "grid", "--gpus", "x"], BUCKETFLOW_WORKERS="2")[1].count("workers") == 0
    path = tmp_path / "options.toml"
    path.write_text('memory = "1GB"\norder-time = 0.5\n[solve]\nquery = "partition"\n')
    for found in (
        asked(["--config", str(path), "solve", "grid", "--json"]),
        asked(["solve", "grid", "--json"], BUCKETFLOW_CONFIG=str(path)),
    ):
        assert json.loads(found[1])["query"] == "partition"
    assert (
        json.loads(asked(["--config", str(path), "solve", "grid", "--query", "count", "--json"])[1])["query"] == "count"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [("memry = 1", "did you mean 'memory'?"), ("[slove]\nseed = 1", "did you mean 'solve'?"), ("=", "options in TOML")],
)
def test_a_file_of_options_that_is_wrong_ends_in_a_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    done = CliRunner().invoke(main, ["--config", str(path), "info", "satellite"])
    assert done.exit_code == 2
    assert message in done.output
