"""Questions in other words are asked once; lists and answers as tables; bad lines are failed rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bucketflow

ROWS: list[dict[str, Any]] = [
    {"model": "diagnosis", "query": "partition", "evidence": {"Season": "winter", "Storm": 0}},
    {"model": "diagnosis", "query": "marginals", "evidence": {"Storm": [0.2, 0.8]}},
    {"model": "diagnosis", "query": "optimum", "memory": "100MB"},
]
TEXTS = (
    'model,query,evidence,memory\ndiagnosis,partition,"Storm=no, Season=winter",\n'
    'diagnosis,marginals,"Storm=[0.2,0.8]",\ndiagnosis,optimum,,100000000\n'
)


def read_results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_the_same_questions_in_another_list_are_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "list.csv").write_text(TEXTS)
    assert bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out").reused == 0
    before = [row["answer"] for row in read_results(tmp_path / "out")]
    asked = list[int]()

    def tell(event: str, **facts: Any) -> None:
        if event == "row":
            asked.append(facts["row"])

    assert bucketflow.batch(tmp_path / "list.csv", tmp_path / "out", tell=tell).reused == 3
    assert asked == []
    assert [row["answer"] for row in read_results(tmp_path / "out")] == before
    (tmp_path / "list.csv").write_text(TEXTS.replace("Storm=no", "Storm=yes"))
    assert bucketflow.batch(tmp_path / "list.csv", tmp_path / "out").reused == 2


def test_the_same_question_twice_in_a_list_is_asked_once(tmp_path: Path) -> None:
    rows = [ROWS[0], {**ROWS[0], "evidence": "Season=winter,Storm=no"}, {**ROWS[0], "evidence": "Season=winter"}]
    assert bucketflow.batch(rows, tmp_path / "out").answered == 3
    first, second, third = read_results(tmp_path / "out")
    assert first["answer"] == second["answer"]
    assert third["answer"]["log10"] > first["answer"]["log10"]


def test_names_are_checked_before_anything_is_answered(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"model": "diagnosis", "query": "partition"} for _ in range(4)]
    rows[1]["evidence"] = "Strom=no"
    rows[2]["evidence"] = {"Storm": "maybe"}
    events = list[tuple[str, int | None, str | None]]()

    def tell(event: str, **facts: Any) -> None:
        if event == "row":
            events.append((facts["status"], facts["row"], facts.get("message")))

    found = bucketflow.batch(rows, tmp_path / "out", tell=tell)
    assert (found.failed, found.exit_code) == (2, 5)
    assert [event[:2] for event in events[:2]] == [("failed", 2), ("failed", 3)]
    assert "did you mean 'Storm'?" in str(events[0][2])
    assert {event[0] for event in events[2:]} == {"answered"}


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_bad_line_is_a_failed_row(tmp_path: Path, kind: str) -> None:
    lines = {
        "jsonl": '{"model": "diagnosis", "query": "partition"}\n{"model": \n{"modell": "x"}\n[1]\n',
        "csv": "model,query\ndiagnosis,partition\nx,count,y,z\n,count\nx,nonsense\n",
    }
    path = tmp_path / f"list.{kind}"
    path.write_text(lines[kind])
    found = bucketflow.batch(path, tmp_path / "out")
    assert (found.answered, found.failed, found.exit_code) == (1, 3, 5)
    messages = [row.get("message", "") for row in read_results(tmp_path / "out")]
    assert f"list.{kind}:{2 if kind == 'jsonl' else 3}: expected" in messages[1]
    assert [row["row"] for row in read_results(tmp_path / "out")] == [1, 2, 3, 4]


def test_unknown_columns_of_a_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("model,colour\ndiagnosis,red\n")
    with pytest.raises(bucketflow.FormatError, match=r"list.csv:1: expected columns among .*, found 'colour'"):
        bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_lists_are_tables(tmp_path: Path, suffix: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed", exc_type=ImportError)
    from pyarrow import feather, parquet

    rows = [{**row, "evidence": row.get("evidence") if k != 1 else None} for k, row in enumerate(ROWS)]
    table, path = pyarrow.Table.from_pylist(rows), tmp_path / f"list.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path)
    assert bucketflow.batch(path, tmp_path / "out").answered == 3
    bucketflow.batch(rows, tmp_path / "plain")
    first, second = read_results(tmp_path / "out"), read_results(tmp_path / "plain")
    assert [row["answer"].get("log10") for row in first] == [row["answer"].get("log10") for row in second]
    path.write_bytes(b"no table")
    with pytest.raises(bucketflow.FormatError, match="this is not a table in Parquet or Arrow"):
        bucketflow.batch(path, tmp_path / "other")


def test_answers_are_tables_in_long_form(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed", exc_type=ImportError)
    bucketflow.batch(ROWS, tmp_path / "out")
    marginals = parquet.read_table(tmp_path / "out" / "marginals.parquet").to_pylist()
    found = bucketflow.marginals("diagnosis", evidence=ROWS[1]["evidence"]).to_dict()
    expected = [
        (variable, state, value)
        for variable, values in found["marginals"].items()
        for state, value in zip(found["states"][variable], values, strict=True)
    ]
    assert [(line["variable"], line["state"]) for line in marginals] == [each[:2] for each in expected]
    assert [line["value"] for line in marginals] == pytest.approx([each[2] for each in expected])
    assert {(line["row"], line["query"]) for line in marginals} == {(2, "marginals")}
    assigned = parquet.read_table(tmp_path / "out" / "assignments.parquet").to_pylist()
    best = bucketflow.solve("diagnosis").to_dict()["assignment"]
    assert {line["variable"]: line["state"] for line in assigned} == {v: str(state) for v, state in best.items()}
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(tmp_path / "out" / "marginals.parquet")
    assert frame.groupby("variable")["value"].sum().to_numpy() == pytest.approx(1)
