"""Lists of questions as they come: aliases, odd texts, unknown queries, folders of models of all formats."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.batches.manifest import read_manifest
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.registry import FORMATS
from tests.models import grid
from tests.pipeline.formats.test_formats_fuzz import SAMPLES

COLUMNS = ("model", "query", "evidence", "memory", "order-time", "time", "name", "priority")


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def bomb(column: str, again: str) -> str:
    """Rows whose values name those before twice, forty times, and one that has the last in a column."""
    rows = ["- {model: diagnosis, name: &a0 [x, x]}"]
    rows += [f"- {{model: diagnosis, name: &a{k} {again.replace('*', f'*a{k - 1}')}}}" for k in range(1, 40)]
    last = "- {model: *a39}" if column == "model" else f"- {{model: diagnosis, {column}: *a39}}"
    return "\n".join([*rows, last])


@pytest.mark.parametrize("again", ["[*, *]", "{a: *, b: *}", "[{a: *, b: *}, *]"])
@pytest.mark.parametrize("column", COLUMNS)
def test_aliases_that_stand_for_too_much(column: str, again: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(bomb(column, again))
    with pytest.raises(bucketflow.FormatError, match=r"list.yaml:\d+: expected (aliases|at most 32 levels)"):
        read_manifest(tmp_path / "list.yaml")


def test_merges_that_stand_for_too_much(tmp_path: Path) -> None:
    rows = ["- &a0 {model: diagnosis}", *(f"- &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}" for k in range(1, 15))]
    (tmp_path / "list.yaml").write_text("\n".join(rows))
    with pytest.raises(bucketflow.FormatError, match="aliases that stand for at most 1,000,000 values in all"):
        read_manifest(tmp_path / "list.yaml")


def test_aliases_that_lists_are_written_with(tmp_path: Path) -> None:
    text = "- &all {model: diagnosis, query: partition, evidence: &seen {Storm: yes}}\n"
    (tmp_path / "list.yaml").write_text(text + "- {<<: *all, query: count}\n- {model: diagnosis, evidence: *seen}\n")
    rows = read_manifest(tmp_path / "list.yaml")
    assert [row.query for row in rows] == ["partition", "count", "optimum"]
    assert [row.evidence for row in rows] == [{"Storm": "yes"}] * 3


@pytest.mark.parametrize("column", [c for c in COLUMNS if c != "evidence"])
@pytest.mark.parametrize("value", [["x", "y"], {"x": "y"}])
def test_columns_hold_no_lists(column: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text(json.dumps({"model": "diagnosis", column: value}))
    (row,) = read_manifest(tmp_path / "list.jsonl")
    kind = "list" if isinstance(value, list) else "dictionary"
    assert row.problem.startswith(f"row 1, column {column!r}: ")
    assert f"found a {kind}" in row.problem


@pytest.mark.parametrize(
    ("column", "value", "phrase"),
    [
        ("query", "foo", "unknown query 'foo'; one of optimum, partition, count, mmap, marginals, max-marginals"),
        ("query", 3, "unknown query '3'"),
        ("memory", "much", "'much' is not a size"),
        ("time", "soon", "a number is expected, found 'soon'"),
        ("time", -1, "a number of seconds is expected, found -1"),
        ("time", 10**400, "a number is expected"),
        ("order-time", float("nan"), "a number is expected, found 'nan'"),
        ("order-time", True, "a number is expected, found 'True'"),
        ("priority", 1.5, "a whole number is expected, found 1.5"),
        ("priority", float("inf"), "a number is expected, found 'inf'"),
        ("priority", 1e300, "a whole number is expected, found 1e+300"),
        ("evidence", 3, "evidence must be a file, x=1,y=yes or states by name; found int"),
        ("evidence", {"Storm": {"a": 1}}, "evidence on 'Storm' is neither a state nor a list of likelihoods"),
        ("model", "nowhere*.uai", "no file fits 'nowhere*.uai'"),
        ("model", "a\0*", "no file fits"),
        ("model", "\ud800*", "no file fits"),
    ],
)
def test_what_is_wrong_with_a_row_names_row_and_column(column: str, value: Any, phrase: str, tmp_path: Path) -> None:
    rows = [{"model": "diagnosis"}, {"model": "diagnosis", "name": "second", column: value}]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out").failed == 1
    first, second = answers(tmp_path / "out")
    assert (first["status"], second["status"]) == ("answered", "failed")
    assert second["message"].startswith(f"row 2, column {column!r}: {phrase}")


def test_an_unknown_query_is_recorded_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("model,query\ndiagnosis,foo\n")
    bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    assert answers(tmp_path / "out")[0]["query"] == "foo"
    assert "diagnosis.bif,foo," in (tmp_path / "out" / "summary.csv").read_text()
    with pytest.raises(bucketflow.ModelError, match="unknown query 'foo'"):
        bucketflow.batch(tmp_path / "list.csv", tmp_path / "other", query="foo")
    assert not (tmp_path / "other").exists()


def test_lists_have_lines(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- model: diagnosis\n- model: diagnosis\n  colour: red\n")
    first, second = read_manifest(tmp_path / "list.yaml")
    assert first.problem == ""
    assert re.search(r"list.yaml:2: expected columns among .*, found 'colour'", second.problem)
    (tmp_path / "list.yaml").write_text(f"- model: diagnosis\n- {{model: diagnosis, priority: {'9' * 5000}}}\n")
    with pytest.raises(bucketflow.FormatError, match=r"list.yaml:2: expected a number of at most 4,300 digits"):
        read_manifest(tmp_path / "list.yaml")


@pytest.mark.parametrize("column", ["model", "query", "evidence", "memory", "name"])
@pytest.mark.parametrize("kind", ["jsonl", "yaml"])
def test_lone_surrogates_leave_a_summary(kind: str, column: str, tmp_path: Path) -> None:
    """JSON and YAML may hold half of a character, which no file can."""
    entry = {"model": "diagnosis", "query": "partition", column: "\ud800"}
    listed = json.dumps(entry) if kind == "jsonl" else f"- {json.dumps(entry)}"
    (tmp_path / f"list.{kind}").write_text(listed + "\n")
    for _ in range(2):
        done = CliRunner().invoke(main, ["batch", str(tmp_path / f"list.{kind}"), "--out", str(tmp_path / "out")])
        if kind == "yaml":  # the parser of YAML refuses it
            assert done.exit_code == 2
            assert "list.yaml:1: expected well-formed YAML" in done.stderr
            continue
        assert done.exit_code == (0 if column == "name" else 5), done.output
        assert "\\ud800" in (tmp_path / "out" / "summary.csv").read_text()
        assert answers(tmp_path / "out")[0]["status"] == ("answered" if column == "name" else "failed")


def test_lone_surrogates_in_evidence_by_name(tmp_path: Path) -> None:
    rows = [{"\ud800": "yes"}, {"Storm": "\udfff"}, {"Storm": ["\ud800"]}, {"Storm": 0}]
    lines = [json.dumps({"model": "diagnosis", "query": "partition", "evidence": row}) for row in rows]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out")
    assert [row["status"] for row in answers(tmp_path / "out")] == ["failed"] * 3 + ["answered"]


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    """A name of bytes that are no UTF-8, as file systems allow."""
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    bucketflow.save(grid(2, 2, 2), tmp_path / "a.wcsp")
    (tmp_path / "a.wcsp").rename(folder / os.fsdecode(b"a\xfe.wcsp"))
    (folder / os.fsdecode(b"a\xfd.txt")).touch()
    found = CliRunner().invoke(main, ["batch", str(folder), "--out", str(tmp_path / os.fsdecode(b"\xfc"))])
    assert found.exit_code == 0, found.output
    assert "1 rows: 1 answered" in found.output
    assert "a\\xfd.txt" in found.stderr or "a\\udcfd.txt" in found.stderr


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "more").mkdir(parents=True)
    for name, text in SAMPLES.items():
        (folder / name).write_text(text)
    (folder / "more" / "b.json").write_text(SAMPLES["a.cfn"])
    (folder / "more" / "b.yml").write_text(SAMPLES["a.yaml"])
    bucketflow.save(grid(2, 2, 2), folder / "more" / "c.wcsp.xz")
    bucketflow.save(grid(2, 2, 2), folder / "more" / "d.xml.gz")
    return folder


def test_a_folder_of_models_of_all_formats(models: Path, tmp_path: Path) -> None:
    (models / "README.md").write_text("models")
    (models / "questions.yaml").write_text("- {model: a.uai}\n")
    (models / "facts.json").write_text('{"rows": 3}')
    (models / "page.xml").write_text("<html/>")
    (models / "x.evid").write_text("0")
    (models / ".hidden").write_text("0")
    notes: list[str] = []
    rows = read_manifest(models, "count", None, notes.append)
    found = [row.name for row in rows]
    assert found == sorted(found)
    assert set(found) == {*SAMPLES, "more/b.json", "more/b.yml", "more/c.wcsp.xz", "more/d.xml.gz"}
    assert notes == [
        f"{models}: 5 files are not models, and were skipped: README.md, facts.json, page.xml, questions.yaml, x.evid"
    ]
    summary = bucketflow.batch(models, tmp_path / "out")
    assert (summary.answered, summary.notes) == (len(rows), tuple(notes))
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["notes"] == notes


def test_results_inside_of_the_folder_are_no_models(models: Path) -> None:
    for _ in range(2):
        summary = bucketflow.batch(models, models / "results")
        assert (summary.rows, summary.notes) == (len(SAMPLES) + 4, ())


def test_every_format_has_its_suffix() -> None:
    suffixes = {suffix.lower() for form in FORMATS for suffix in (*form.suffixes, *form.shared)}
    assert {Path(name).suffix for name in SAMPLES} <= suffixes


def test_damaged_files_of_shared_names_are_rows_that_fail(tmp_path: Path) -> None:
    (tmp_path / "a.yaml.gz").write_bytes(b"\x1f\x8b damaged")
    assert [row.name for row in read_manifest(tmp_path)] == ["a.yaml.gz"]


def test_variables_that_are_counted_alone_and_those_of_marginal_map(tmp_path: Path) -> None:
    clauses = [(1, 2), (-1, 3), (-2, -3, 4)]
    text = "".join(" ".join(map(str, clause)) + " 0\n" for clause in clauses)
    (tmp_path / "a.cnf").write_text(f"p cnf 4 3\n{text}")
    (tmp_path / "two.query").write_text("2 0 1\n")
    model = bucketflow.load("diagnosis")
    asked: list[dict[str, Any]] = [
        {"model": "a.cnf", "query": "count"},
        {"model": "a.cnf", "query": "count", "project": "x1,x2"},
        {"model": "a.cnf", "query": "count", "project": ["x1", "x2", "x4"], "evidence": "x4=0"},
        {"model": "a.cnf", "query": "count", "project": "two.query"},
        *[{"model": "diagnosis", "query": "mmap", "maximize": name} for name in model.names[:3]],
        {"model": "a.cnf", "query": "count", "project": "x9"},
        {"model": "a.cnf", "query": "mmap"},
        {"model": "a.cnf", "query": "count", "project": 3},
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    assert bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out").failed == 3
    found = answers(tmp_path / "out")

    def count(kept: tuple[int, ...], last: tuple[int, ...]) -> int:
        models = [
            states
            for states in itertools.product((0, 1), repeat=4)
            if states[3] in last and all(any(states[abs(x) - 1] == (x > 0) for x in clause) for clause in clauses)
        ]
        return len({tuple(states[v] for v in kept) for states in models})

    both = (0, 1)
    wanted = [count((0, 1, 2, 3), both), count((0, 1), both), count((0, 1, 3), (0,)), count((0, 1), both)]
    assert [row["answer"]["value"] for row in found[:4]] == [*map(str, wanted)]
    assert found[1]["project"] == "x1,x2"
    for row, name in zip(found[4:7], model.names, strict=False):
        best = bucketflow.solve(model, "mmap", maximize=name)
        assert row["answer"]["assignment"] == best.assignment
        assert row["answer"]["log10"] == pytest.approx(best.log10)
    told = [row["message"] for row in found[7:]]
    assert "'x9' is not a variable of the model" in told[0]
    assert "variables must be a file, x,y or a list of names; found int" in told[2]
    assert bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out").reused == 7
    (tmp_path / "two.query").write_text("1 0\n")
    assert bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out").reused == 6
    assert answers(tmp_path / "out")[3]["answer"]["value"] == str(count((0,), both))
