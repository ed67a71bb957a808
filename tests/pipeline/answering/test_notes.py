"""What a model's file says that answers do not show is in every answer, and printed once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bucketflow
from bucketflow.pipeline.answering.question import fingerprint
from bucketflow.pipeline.cli.main import main
from bucketflow.storage.run_folder import stored_result

NOTE = "answers ignore the random noise of 1 variable"
NOISY = """
domains: {d: {values: [0, 1]}}
variables:
  a: {domain: d, noise_level: 0.5}
  b: {domain: d}
constraints: {c: {type: intention, function: a + b}}
agents: [one, two]
"""


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    path = tmp_path / "noisy.yaml"
    path.write_text(NOISY)
    return path


def noted_model(kind: Any = "markov") -> bucketflow.Model:
    values = [[1, 2], [3, 1]] if kind != "bayes" else [[0.25, 0.75], [0.5, 0.5]]
    functions: list[Any] = [(("a", "b"), values)]
    if kind == "bayes":
        functions.append((("a",), [0.5, 0.5]))
    return replace(bucketflow.Model.build(kind, {"a": 2, "b": 2}, functions), notes=("first", "second"))


def told(*words: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
@pytest.mark.parametrize("method", ["auto", "dense", "diagram", "search"])
def test_answers_have_the_notes(query: str, method: Any, tmp_path: Path) -> None:
    model = noted_model()
    for folder in (None, tmp_path / "run", tmp_path / "run"):  # the third finds the answer of the second
        found = bucketflow.solve(model, query, method=method, workdir=folder)
        assert found.to_dict()["notes"] == ["first", "second"]
    kept = stored_result(tmp_path / "run")
    assert kept is not None
    assert kept["notes"] == ["first", "second"]


def test_notes_of_the_way_come_behind(tmp_path: Path) -> None:
    model = replace(noted_model("cost"), notes=("first",))
    found = bucketflow.solve(model, upper_bound=0)
    assert found.status == "infeasible"
    assert found.notes == ("first", "no assignment is as good as 0, the bound that was given")
    assert bucketflow.solve(model, time=0).notes == ("first",)


def test_marginals_bounds_and_agents_have_the_notes(tmp_path: Path) -> None:
    model = noted_model("bayes")
    for max_marginals in (False, True):
        found = bucketflow.marginals(model, max_marginals=max_marginals)
        assert found.to_dict()["notes"] == ["first", "second"]
        assert {"note: first", "note: second"} < set(repr(found).splitlines())
    assert bucketflow.marginals(model, representation="rows").notes == ("first", "second")
    for query in ("optimum", "partition"):
        bounds = bucketflow.bound(model, query)
        assert bounds.to_dict()["notes"] == ["first", "second"]
        assert "note" in repr(bounds)
    agreed = bucketflow.dpop(noted_model("cost"))
    assert agreed.to_dict()["notes"] == ["first", "second"]


def test_compiled_models_have_the_notes(tmp_path: Path) -> None:
    compiled = bucketflow.compile(noted_model("bayes"))
    compiled.save(tmp_path / "model.npz")
    for one in (compiled, type(compiled).load(tmp_path / "model.npz")):
        assert one.marginals().notes == ("first", "second")
        cases = one.marginals_batch({"a": [0, 1]})
        assert cases.notes == ("first", "second")
        assert repr(cases).endswith("note: first\nnote: second")


def test_impossible_evidence_has_the_notes() -> None:
    model = bucketflow.Model.build("bayes", {"a": 2}, [(("a",), [0, 1])])
    found = bucketflow.marginals(replace(model, notes=("first",)), evidence={"a": 0})
    assert (found.status, found.notes) == ("infeasible", ("first",))
    assert repr(found).endswith("note: first")


def test_notes_are_no_part_of_a_model() -> None:
    model = noted_model()
    assert fingerprint(model) == fingerprint(replace(model, notes=()))
    assert model.with_functions({}).notes == model.notes


@pytest.mark.parametrize(
    "command", ["solve", "solve --query count", "bound", "plan", "info", "marginals --max-marginals", "solve --time 0"]
)
def test_commands_print_notes_once(noisy: Path, command: str) -> None:
    name, *options = command.split()
    plain, as_json = told(name, noisy, *options), told(name, noisy, *options, "--json")
    for shown in (plain, as_json):
        assert shown.stderr.count(NOTE) == 1
        assert f"bucketflow: note: {NOTE}\n" in shown.stderr
    assert NOTE not in plain.stdout
    assert json.loads(as_json.stdout)["notes"] == [NOTE]


def test_agents_and_runs_print_notes_once(noisy: Path, tmp_path: Path) -> None:
    plain, as_json = told("dpop", noisy), told("dpop", noisy, "--json")
    assert (plain.stderr.count(NOTE), plain.stdout.count(NOTE), as_json.stderr.count(NOTE)) == (1, 0, 1)
    told("solve", noisy, "--workdir", tmp_path / "run")
    again = told("resume", tmp_path / "run")
    assert (again.exit_code, again.stderr.count(NOTE), again.stdout.count(NOTE)) == (0, 1, 0)


def test_a_batch_prints_each_note_of_a_model_once(noisy: Path, tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text("".join(json.dumps({"model": str(noisy), "query": q}) + "\n" for q in QUERIES))
    done = told("batch", tmp_path / "list.jsonl", "--out", tmp_path / "out")
    assert done.stderr == f"bucketflow: note: {noisy}: {NOTE}\n"
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [row["answer"]["notes"] for row in rows] == [[NOTE]] * len(QUERIES)
    logged = told("batch", tmp_path / "list.jsonl", "--out", tmp_path / "logged", "--log", "json")
    events = [json.loads(line) for line in logged.stderr.splitlines()]
    assert [event["notes"] for event in events if event.get("event") == "row"] == [[NOTE]] * len(QUERIES)


QUERIES = ("optimum", "count", "max-marginals")
