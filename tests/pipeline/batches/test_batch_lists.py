"""Batches: every question of a list is answered once, whatever happens in between; a row that fails is a row."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.cluster.connect import local_client
from bucketflow.pipeline.answering.answer_question import is_searched, strategy_before
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.batches import answering, pricing
from bucketflow.pipeline.batches.batch import packs
from bucketflow.pipeline.batches.deadline import seconds_until
from bucketflow.pipeline.batches.manifest import Row, read_manifest
from bucketflow.pipeline.batches.models import BatchPolicy, RecentValues
from bucketflow.pipeline.batches.pricing import Price, PricedRow
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.models.query import QUERIES, VALUES
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.storage.run_folder import BatchDir
from tests.device_stand_in import RealDevice, StandIn, device, real_device
from tests.models import grid


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two models, a broken one, and a list of questions."""
    bucketflow.save(grid(3, 3, 3, "markov"), tmp_path / "a.uai")
    bucketflow.save(grid(3, 3, 3), tmp_path / "b.wcsp")
    (tmp_path / "broken.uai").write_text("MARKOV\n2\n2 x\n")
    rows = [
        {"model": "a.uai", "query": "partition", "evidence": "x0=1"},
        {"model": "a.uai", "query": "marginals", "evidence": {"x0": 2, "x4": 0}},
        {"model": "?.*", "name": "best"},
        {"model": "b.wcsp", "query": "count"},
        {"model": "broken.uai"},
        {"model": "b.wcsp", "query": "partition"},
        {"model": "a.uai", "query": "partition", "evidence": "x0=1", "name": "the first again"},
        {"model": "nowhere*.uai"},
        {"model": "gone.uai"},
        {"model": "a.uai", "memory": "1kB"},
        {"model": "a.uai", "query": "median"},
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_evidence_and_models_longer_than_a_file_name(folder: Path) -> None:
    long = {"model": "a.uai", "query": "partition", "evidence": ", ".join(["x0=1"] * 100)}
    rows = [long, {**long, "evidence": "x0=1"}, {"model": 300 * "n" + ".uai"}]
    (folder / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bucketflow.batch(folder / "long.jsonl", folder / "out")
    found = answers(folder / "out")
    assert [row["status"] for row in found] == ["answered", "answered", "failed"]
    assert found[0]["answer"]["log10"] == pytest.approx(found[1]["answer"]["log10"])
    assert "file name too long" in found[2]["message"]


def table(out: Path) -> list[dict[str, str]]:
    with open(out / "summary.csv", newline="") as file:
        return list(csv.DictReader(file))


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_rows_are_answered_as_solve_answers_them(folder: Path) -> None:
    summary = bucketflow.batch(folder / "list.jsonl", folder / "out")
    a, b = bucketflow.load(folder / "a.uai"), bucketflow.load(folder / "b.wcsp")
    rows = answers(folder / "out")
    states = ["answered"] * 5 + ["failed", "failed", "answered", "failed", "failed", "refused", "failed"]
    assert [row["status"] for row in rows] == states
    found = [row.get("answer", {}) for row in rows]
    assert found[0]["log10"] == pytest.approx(bucketflow.solve(a, "partition", evidence={"x0": 1}).log10)
    expected = bucketflow.marginals(a, evidence={"x0": 2, "x4": 0})
    assert found[1]["marginals"]["x8"] == pytest.approx(list(expected["x8"]))
    assert found[2]["log10"] == pytest.approx(bucketflow.solve(a).log10)
    assert found[3]["value"] == bucketflow.solve(b).value
    assert found[4]["value"] == str(bucketflow.solve(b, "count").value)
    assert found[7] == found[0]
    assert [row["row"] for row in rows] == list(range(1, 13))
    assert "expected" in rows[5]["message"]
    assert "no partition function" in rows[6]["message"]
    assert (summary.answered, summary.failed, summary.refused, summary.exit_code) == (6, 5, 1, 5)
    assert [row["status"] for row in table(folder / "out")] == states
    assert json.loads((folder / "out" / "summary.json").read_text()) == summary.to_dict()


def test_a_second_run_asks_only_what_is_new_changed_or_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucketflow.batch(folder / "list.jsonl", folder / "out")
    asked: list[Row] = []
    first = answering.answer_row
    monkeypatch.setattr(answering, "answer_row", lambda a, *rest: asked.append(a.row) or first(a, *rest))

    summary = bucketflow.batch(folder / "list.jsonl", folder / "out")
    assert [row.model for row in asked] == []  # what cannot be read or planned is not asked
    assert summary.reused == 7
    bucketflow.save(grid(3, 3, 3, seed=1), folder / "b.wcsp")
    with open(folder / "list.jsonl", "a") as file:
        file.write(json.dumps({"model": "a.uai", "query": "partition", "evidence": "x0=2"}) + "\n")
    bucketflow.batch(folder / "list.jsonl", folder / "out")
    assert {(Path(row.model).name, row.query) for row in asked} == {
        *(("b.wcsp", "optimum"), ("b.wcsp", "count"), ("a.uai", "partition"))
    }
    assert answers(folder / "out")[3]["answer"]["value"] == bucketflow.solve(bucketflow.load(folder / "b.wcsp")).value


def test_what_was_refused_for_a_budget_is_asked_again_with_another(folder: Path) -> None:
    (folder / "list.csv").write_text("model\na.uai\n")
    assert bucketflow.batch(folder / "list.csv", folder / "out", memory="1kB").exit_code == 3
    assert bucketflow.batch(folder / "list.csv", folder / "out", memory="1kB").reused == 1
    assert bucketflow.batch(folder / "list.csv", folder / "out", memory="1GB").exit_code == 0


def test_a_batch_that_is_out_of_time_goes_on_later(folder: Path) -> None:
    stopped_early = bucketflow.batch(folder / "list.jsonl", folder / "out", max_time=0)
    assert stopped_early.exit_code == 4
    assert stopped_early.stopped
    assert bucketflow.batch(folder / "list.jsonl", folder / "out").answered == 6


@pytest.mark.parametrize(("max_time", "last"), [(3600.0, "b"), (None, "a")])
def test_what_would_not_end_in_time_is_asked_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch, max_time: float | None, last: str
) -> None:
    (folder / "list.csv").write_text("model\na.uai\nb.wcsp\n")
    price = pricing.own_price

    def endless(row: Row, *rest: Any) -> Price:
        found = price(row, *rest)
        return replace(found, seconds=1e9) if row.model.endswith("b.wcsp") else found

    monkeypatch.setattr(pricing, "own_price", endless)
    told: list[str] = []

    def tell(event: str, **facts: Any) -> None:
        if event == "row":
            told.append(facts["key"])

    bucketflow.batch(folder / "list.csv", folder / "out", max_time=max_time, tell=tell)
    names = {row["key"]: Path(row["model"]).stem for row in table(folder / "out")}
    assert names[told[-1]] == last


def test_times_of_day() -> None:
    now = datetime(2026, 3, 1, 12, 0, 0)
    assert seconds_until("12:30", now) == 1800
    assert seconds_until("11:00", now) == 23 * 3600
    with pytest.raises(bucketflow.ModelError, match="not a time of day"):
        seconds_until("25:00", now)


def test_only_one_batch_runs_in_a_folder(folder: Path) -> None:
    running = BatchDir(folder / "out")
    with pytest.raises(bucketflow.IncompatibleRunError, match="the batch is running"):
        bucketflow.batch(folder / "list.jsonl", folder / "out")
    running.close()
    with pytest.raises(bucketflow.IncompatibleRunError, match="not the folder of a batch"):
        bucketflow.batch(folder / "list.jsonl", folder)


def test_answers_that_were_cut_short_stand_for_nothing(folder: Path) -> None:
    (folder / "list.csv").write_text("model,query\na.uai,partition\na.uai,optimum\n")
    bucketflow.batch(folder / "list.csv", folder / "out")
    kept = folder / "out" / "answers.jsonl"
    kept.write_bytes(kept.read_bytes()[:-20])
    summary = bucketflow.batch(folder / "list.csv", folder / "out")
    assert (summary.reused, summary.answered) == (1, 2)


def test_workers_answer_as_one_process_does(folder: Path) -> None:
    alone = bucketflow.batch(folder / "list.jsonl", folder / "out")
    with local_client(2) as client:
        shared = bucketflow.batch(folder / "list.jsonl", folder / "shared", client=client)
    assert shared.to_dict() | {"seconds": 0, "out": ""} == alone.to_dict() | {"seconds": 0, "out": ""}
    for ours, theirs in zip(answers(folder / "out"), answers(folder / "shared"), strict=True):
        for name in ("value", "log10", "assignment", "marginals"):
            assert ours.get("answer", {}).get(name) == theirs.get("answer", {}).get(name)


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn | RealDevice]:
    with (device if request.param == "stand-in" else real_device)(monkeypatch) as there:
        yield there


@pytest.mark.parametrize("longest", [0.0, BatchPolicy().large_seconds])
def test_a_gpu_answers_as_the_cpu_does(
    folder: Path, longest: float, gpu: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small questions, and large ones that get a run directory; the stand-in sweeps one way only."""
    kinds = VALUES if isinstance(gpu, StandIn) else tuple(QUERIES)
    queries = [("a.uai", query) for query in kinds if query != "mmap"] + [
        ("b.wcsp", query) for query in ("optimum", "count")
    ]
    lines = [{"model": model, "query": query, "evidence": "x0=1"} for model, query in queries]
    (folder / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    alone = bucketflow.batch(folder / "list.jsonl", folder / "out")
    on_device: list[bool] = []
    prepared = pricing.prepare

    def seen(question: Any, resources: Any, *rest: Any) -> Any:
        found = prepared(question, resources, *rest)
        on_device.append(found.plan is not None and found.plan.device)
        return found

    monkeypatch.setattr(pricing, "prepare", seen)
    with BatchPolicy.using(large_seconds=longest):
        there = bucketflow.batch(folder / "list.jsonl", folder / "there", gpus=1)
        again = bucketflow.batch(folder / "list.jsonl", folder / "there", gpus=1)
    assert any(on_device)
    assert (there.answered, there.exit_code) == (alone.answered, 0) == (len(queries), 0)
    for ours, theirs in zip(answers(folder / "out"), answers(folder / "there"), strict=True):
        expected, found = ours["answer"], theirs["answer"]
        assert found.get("value") == expected.get("value")
        for name in ("log10", "log10_evidence"):
            if expected.get(name) is not None:
                assert found[name] == pytest.approx(expected[name], rel=1e-9)
    assert again.reused == len(queries)


def test_workers_and_gpus_are_not_asked_for_together(folder: Path) -> None:
    with pytest.raises(bucketflow.ModelError, match="leave out workers, or gpus"):
        bucketflow.batch(folder / "list.jsonl", folder / "out", gpus=1, workers=2)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("what", ["a folder", "a link"])
def test_answers_that_are_no_file_are_refused(folder: Path, what: str) -> None:
    (folder / "out").mkdir()
    if what == "a folder":
        (folder / "out" / "answers.jsonl").mkdir()
    else:
        (folder / "out" / "answers.jsonl").symlink_to(folder / "list.jsonl")
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"answers\.jsonl"):
        bucketflow.batch(folder / "list.jsonl", folder / "out")


def test_the_table_is_written_whole(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed", exc_type=ImportError)
    bucketflow.batch(folder / "list.jsonl", folder / "out")
    assert parquet.read_table(folder / "out" / "summary.parquet").num_rows == len(table(folder / "out"))
    assert not list((folder / "out").glob("*.partial"))


def test_the_command_line(folder: Path) -> None:
    command = [sys.executable, "-m", "bucketflow", "batch", str(folder / "list.jsonl"), "--out", str(folder / "out")]
    done = subprocess.run([*command, "--json", "--log", "json"], capture_output=True, text=True)
    assert done.returncode == 5
    assert json.loads(done.stdout)["answered"] == 6
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [e["event"] for e in events if e.get("event", "row") != "row"] == ["begin", "prices", "prices", "end"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert "(7 by an earlier run)" in again.stdout


@pytest.mark.parametrize("kind", ["csv", "jsonl", "yaml"])
def test_lists(folder: Path, kind: str) -> None:
    texts = {
        "csv": 'model,query,evidence,order-time,priority,name\na.uai,marginals,"x0=1,x1=0",0.5,3,one\nb.wcsp,,,,,\n',
        "jsonl": '{"model": "a.uai", "query": "marginals", "evidence": "x0=1,x1=0", "order-time": 0.5, "priority": 3, '
        '"name": "one"}\n\n{"model": "b.wcsp"}\n',
        "yaml": "- {model: a.uai, query: marginals, evidence: 'x0=1,x1=0', order_time: 0.5, priority: 3, name: one}\n"
        "- model: b.wcsp\n",
    }
    (folder / f"list.{kind}").write_text(texts[kind])
    one, two = read_manifest(folder / f"list.{kind}")
    assert one == Row(1, "one", str(folder / "a.uai"), "marginals", "x0=1,x1=0", None, 0.5, None, 3)
    assert two == Row(2, "2", str(folder / "b.wcsp"))


def test_a_folder_and_an_example_are_lists_too(folder: Path) -> None:
    assert [row.name for row in read_manifest(folder, "count")] == ["a.uai", "b.wcsp", "broken.uai"]
    (folder / "list.csv").write_text("model\nsatellite\n")
    assert Path(read_manifest(folder / "list.csv")[0].model) == example_path("satellite")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("list.csv", "model,colour\na.uai,red\n", "columns among"),
        ("list.csv", "query\ncount\n", "a column 'model'"),
        ("list.csv", "model\na.uai,b\n", "cells"),
        ("list.csv", "model,query, model\na.uai,count,b.uai\n", "expected different columns, found 'model' twice"),
        ("list.csv", f"model,evidence\na.uai,{'x' * 200_000}\n", "field larger than field limit"),
        ("list.jsonl", '{"model": \n', "a JSON object, found Expecting value at column "),
        ("list.jsonl", '{"model": ' + "9" * 5000 + "}\n", "a JSON object, found a number with too many digits"),
        ("list.jsonl", "3\n", "names with values"),
        ("list.jsonl", "null\n", "names with values, such as model and query, found null"),
        ("list.yaml", "model: a.uai\n", "a list of questions"),
        ("list.yaml", "[\n", "YAML"),
        ("list.yaml", "[" * 5000, "YAML|at most 32 levels"),
        ("list.yaml", "- [a.uai]\n", "names with values, such as model and query, found list"),
        ("list.jsonl", "[" * 100_000, "a JSON object, found brackets nested too deeply"),
        ("list.txt", "a.uai\n", "a list in .csv"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(bucketflow.FormatError, match=sentence):
        read_manifest(tmp_path / name)


def test_labels_that_yaml_takes_for_something_else(tmp_path: Path) -> None:
    """Truth values, dates, octal numbers and times of day are labels as they are written; whole numbers are indices."""
    labels = ["no", "yes", "2024-01-32", "010", "12:30", "true", "1.0", "7"]
    weights = np.arange(1.0, 9.0)
    variable = "variable a { type discrete [ 8 ] { " + ", ".join(f'"{label}"' for label in labels) + " }; }"
    table = ", ".join(map(str, weights / weights.sum()))
    (tmp_path / "a.bif").write_text(f"network a {{}}\n{variable}\nprobability ( a ) {{ table {table}; }}\n")
    asked = "".join(f"- {{model: a.bif, query: partition, evidence: {{a: {label}}}}}\n" for label in labels)
    (tmp_path / "list.yaml").write_text(asked)
    bucketflow.batch(tmp_path / "list.yaml", tmp_path / "out")
    found = [10 ** row["answer"]["log10"] for row in answers(tmp_path / "out")]
    assert found == pytest.approx(weights / weights.sum())


def test_evidence_is_a_text_or_states_by_name(tmp_path: Path) -> None:
    found = [[1], {"Storm": {"yes": 1}}, {"Storm": [[1]]}, {"Storm": [0.2, 0.8]}]
    rows = [{"model": "diagnosis", "query": "marginals", "evidence": evidence} for evidence in found]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out")
    assert [row["status"] for row in answers(tmp_path / "out")] == ["failed"] * 3 + ["answered"]


def test_a_name_that_no_file_can_have_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("model\n\0\ndiagnosis\n")
    found = bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    assert (found.answered, found.failed) == (1, 1)


def test_packs_are_of_one_model_and_the_longest_comes_first() -> None:
    def asked(number: int, model: str, seconds: float, kind: Any = "small") -> PricedRow:
        return PricedRow(Row(number, "", model), str(number), Price(kind, seconds))

    made = packs([*(asked(k, "ab"[k % 2], 0.05) for k in range(200)), asked(200, "c", float("inf"), "alone")], 2)
    assert [a.row.number for a in made[0]] == [200]
    assert all(len({a.row.model for a in pack}) == 1 for pack in made)
    assert sorted(a.row.number for pack in made for a in pack) == list(range(201))
    assert max(map(len, made)) < 20


def test_marginals_that_a_search_may_answer_share_a_circuit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No sweep is planned for their prices."""
    (tmp_path / "gates.cnf").write_text("p cnf 6 5\n1 2 -3 0\n-1 3 0\n-2 3 0\n3 4 -5 0\n-4 5 6 0\n")
    model = bucketflow.load(tmp_path / "gates.cnf")
    cases: list[Any] = [None, {model.names[0]: 1}, {model.names[2]: 0}, {model.names[0]: 1, model.names[2]: 0}]
    rows = [{"model": model, "query": "marginals", "evidence": case} for case in cases]
    monkeypatch.setattr(pricing, "is_searched", lambda *_: True)
    monkeypatch.setattr(pricing, "prepare", lambda *_: pytest.fail("a sweep was planned"))
    monkeypatch.setattr(answering, "solved", lambda *_: pytest.fail("a row was answered alone"))
    bucketflow.batch(rows, tmp_path / "out")
    lines = map(json.loads, (tmp_path / "out" / "results.jsonl").read_text().splitlines())
    found = [line["answer"] for line in sorted(lines, key=lambda line: int(line["row"]))]
    for case, answer in zip(cases, found, strict=True):
        alone = bucketflow.marginals(model, evidence=case)
        assert answer["status"] == alone.status
        if alone.status == "ok":
            assert answer["log10_evidence"] == pytest.approx(alone.log10_evidence)
            for name in model.names:
                assert answer["marginals"][name] == pytest.approx(list(alone[name]))


def test_only_sweeps_that_no_tree_makes_short_are_left_to_a_search(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [" ".join(map(str, (1 + rng.permutation(150)[:3]) * rng.choice([-1, 1], 3))) + " 0" for _ in range(400)]
    (tmp_path / "random.cnf").write_text("\n".join(["p cnf 150 400", *lines]))
    (tmp_path / "chain.cnf").write_text("p cnf 3 2\n1 2 0\n2 3 0\n")
    for name, searched in (("random", True), ("chain", False)):
        model = bucketflow.load(tmp_path / f"{name}.cnf")
        for query in ("count", "marginals"):
            assert is_searched(strategy_before(question_of(model, query), Options(), ProofOptions())) is searched


def test_what_is_kept_stays_within_its_limit() -> None:
    kept: RecentValues[str] = RecentValues(lambda: 10)
    made: list[str] = []
    for key in "abac":
        kept.get(key, lambda key=key: made.append(key) or key, lambda _: 5)
    assert made == ["a", "b", "c"]
    assert kept.get("b", lambda: made.append("again") or "b", lambda _: 5) == "b"
    assert made[-1] == "again"


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe"])
def test_what_has_no_end_is_no_model_of_a_row(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    row = read_manifest([{"model": str(tmp_path / path)}])[0]
    with pytest.raises(bucketflow.FormatError, match="this is a device or a pipe"):
        row.key()


def test_a_file_of_the_same_time_and_size_is_another_question(folder: Path) -> None:
    (folder / "a.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2 1 1\n")
    os.utime(folder / "a.uai", (1, 1))
    row = read_manifest([{"model": str(folder / "a.uai")}])[0]
    before = row.key()
    (folder / "a.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2 1 5\n")
    os.utime(folder / "a.uai", (1, 1))
    assert row.key() != before


def test_a_touched_file_is_another_question(folder: Path) -> None:
    row = Row(1, "", str(folder / "a.uai"))
    first = row.key()
    os.utime(folder / "a.uai", (1, 1))
    assert row.key() == first
    with open(folder / "a.uai", "a") as file:
        file.write("\n")
    assert row.key() != first
