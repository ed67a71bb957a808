"""What people are used to: files and texts in place of models and mappings, and the word that was meant."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
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
    with pytest.raises(bucketflow.FormatError, match="a readable file"):
        bucketflow.solve(RAIN, evidence="nothing.evid")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.solve(RAIN, evidence="wett=yes"), "evidence names 'wett', .*; did you mean 'wet'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"Rain": 1}), "evidence names 'Rain', .*; did you mean 'rain'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"wet": "yess"}), "its states are no, yes; did you mean 'yes'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"we": [1, 2]}), "did you mean 'wet'?"),
        (lambda: bucketflow.marginals(RAIN, query_vars=["rian"]), "'rian' is not a variable .*; did you mean 'rain'?"),
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
    [({"a": "l"}, "lacks 1 of 2 variables, 'b' too"), ({"a": "l", "b": 2}, "no state 2"), ({"c": 1}, "names 'c'")],
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
        (("marginals", "diagnosis", "--out", "a.csv", "--entropy", "Storm"), "no information measures"),
        (("evaluate", "diagnosis", "--assignment", "Storm=[1,2]"), "has likelihoods of 'Storm'"),
        (("evaluate", "diagnosis", "--assignment", "no.json"), "a readable file"),
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
    run("marginals", "diagnosis", "--evidence", "Storm=yes", "--query-vars", "Season", "--out", posteriors)
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
