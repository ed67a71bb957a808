"""``bucketflow marginals`` as other programs use it, its files, and a cluster."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.connect import local_client
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.formats.case_files import case_writer, read_cases
from bucketflow.pipeline.models.model import Function
from tests.models import named_model


def run(*args: object, code: int = 0) -> str:
    """Run the command line in this process."""
    done = CliRunner().invoke(main, ["marginals", *map(str, args)])
    assert done.exit_code == code, done.output
    return done.output


def test_posteriors_as_json() -> None:
    found = json.loads(run("diagnosis", "--json", "--joint", "Storm,Season", "--variables", "Storm"))
    shown = {
        "model",
        "evidence",
        "query",
        "status",
        "log10_evidence",
        "marginals",
        "states",
        "joint",
        "plan",
        "tried",
        "seconds",
        "peak_rss_bytes",
    }
    assert set(found) == shown
    assert found["query"] == "marginals"
    assert [(turn["engine"], turn["ended"]) for turn in found["tried"]] == [("sweep", "answered")]
    assert found["states"] == {"Storm": ["no", "yes"], "Season": ["winter", "spring", "summer", "autumn"]}
    assert found["status"] == "ok"
    assert sum(found["marginals"]["Storm"]) == pytest.approx(1.0)
    (joint,) = found["joint"]
    assert joint["variables"] == ["Storm", "Season"]
    assert np.sum(joint["table"], axis=1) == pytest.approx(found["marginals"]["Storm"])
    assert set(found["seconds"]) - {"compile"} == {"read", "plan", "run"}
    observed = json.loads(run("diagnosis", "--json", "--evidence", "Storm=yes"))
    assert observed["marginals"]["Storm"] == [0.0, 1.0]
    assert 10 ** observed["log10_evidence"] == pytest.approx(found["marginals"]["Storm"][1])


def test_joints_are_shown() -> None:
    printed = run("diagnosis", "--joint", "Storm,Season", "--variables", "Storm")
    assert "Storm, Season\n  no, winter   0." in printed
    assert sum(line.startswith("  yes, ") for line in printed.splitlines()) == 4


def test_max_marginals_of_costs() -> None:
    best = bucketflow.solve(bucketflow.load(example_path("satellite")))
    found = json.loads(run("satellite", "--max-marginals", "--json"))
    assert found["value"] == best.value
    costs = [c for table in found["marginals"].values() for c in table if c is not None]
    assert min(costs) == max(costs) or min(costs) == best.value or max(costs) == best.value
    assert "max-marginals" in run("satellite", code=2)


def test_uai_files(tmp_path: Path) -> None:
    run("diagnosis", "--uai-out", tmp_path / "out")
    model = bucketflow.load(example_path("diagnosis"))
    kind, log10 = (tmp_path / "out.PR").read_text().split()
    assert (kind, float(log10)) == ("PR", pytest.approx(0.0, abs=1e-12))
    kind, count, *rest = (tmp_path / "out.MAR").read_text().split()
    assert (kind, int(count)) == ("MAR", len(model.dims))
    for size in model.dims:
        assert int(rest[0]) == size
        assert sum(map(float, rest[1 : size + 1])) == pytest.approx(1.0)
        rest = rest[size + 1 :]
    kind, count, *states = (tmp_path / "out.MPE").read_text().split()
    assert (kind, int(count), len(states)) == ("MPE", len(model.dims), len(model.dims))
    expected = bucketflow.solve(model).log10
    assert model.log10_value([int(s) for s in states]) == pytest.approx(expected)


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert "there is no folder" in run("diagnosis", "--uai-out", nowhere / "out", code=2)
    (tmp_path / "out.PR").mkdir()
    assert "cannot write" in run("diagnosis", "--uai-out", tmp_path / "out", code=2)
    (tmp_path / "cases.csv").write_text(CASES)
    outs = [nowhere / "out.csv"]
    if Path("/dev/full").exists():
        (tmp_path / "full.csv").symlink_to("/dev/full")
        outs.append(tmp_path / "full.csv")
    for out in outs:
        said = run("diagnosis", "--cases", tmp_path / "cases.csv", "--out", out, code=2)
        assert said.startswith(f"bucketflow: cannot write {out}: ")
        assert said.count("\n") == 1


def flat(model: bucketflow.Model, tables: dict[str, list[float]]) -> dict[str, float]:
    """Name numbers as the columns of a CSV file do."""
    return {f"{n}={model.label(v, s)}": p for v, n in enumerate(model.names) for s, p in enumerate(tables[n])}


CASES = "Storm,Season\nyes,winter\n,3\nno,\n,\n"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_cases_to_files(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "cases.csv").write_text(CASES)
    out = tmp_path / f"out.{suffix}"
    facts = json.loads(run("diagnosis", "--cases", tmp_path / "cases.csv", "--out", out, "--json"))
    assert (facts["cases"], facts["impossible"]) == (4, 0)
    model = bucketflow.load(example_path("diagnosis"))
    evidence: list[dict[str, Any]] = [{"Storm": "yes", "Season": "winter"}, {"Season": 3}, {"Storm": "no"}, {}]
    if suffix == "csv":
        rows = list(csv.DictReader(out.read_text().splitlines()))
    else:
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        rows = [
            {
                **line,
                **{
                    f"{n}={model.label(v, s)}": p
                    for v, n in enumerate(model.names)
                    for s, p in enumerate(line["marginals"][n])
                },
            }
            for line in lines
        ]
    for k, (row, case) in enumerate(zip(rows, evidence, strict=True)):
        found = bucketflow.marginals(model, evidence=case)
        assert (int(row["case"]), row["status"]) == (k, "ok")
        assert float(row["log10_evidence"]) == pytest.approx(found.log10_evidence, abs=1e-12)
        for v, name in enumerate(model.names):
            column = [float(row[f"{name}={model.label(v, s)}"]) for s in range(model.dims[v])]
            assert column == pytest.approx(found[name], abs=1e-12)


def test_impossible_cases_are_marked(tmp_path: Path) -> None:
    model = named_model("markov", [2, 2], [Function((0, 1), np.array([[1.0, 0.0], [1.0, 1.0]]))])
    bucketflow.save(model, tmp_path / "model.uai")
    (tmp_path / "cases.csv").write_text("x0,x1\n0,1\n0,0\n")
    run(tmp_path / "model.uai", "--cases", tmp_path / "cases.csv", "--out", tmp_path / "out.csv")
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[1] == ["0", "impossible", "", "0.0", "0.0", "0.0", "0.0"]
    assert rows[2][:2] == ["1", "ok"]
    assert "nan" not in (tmp_path / "out.csv").read_text().lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "header"), ("Storm,Nobody\n", "Nobody"), ("Storm\nperhaps\n", "perhaps"), ("Storm,Season\nyes\n", "2 cells")],
)
def test_bad_case_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cases.csv").write_text(text)
    assert message in run("diagnosis", "--cases", tmp_path / "cases.csv", "--out", tmp_path / "o.csv", code=2)


def test_usage(tmp_path: Path) -> None:
    assert "--cases needs --out" in run("diagnosis", "--cases", "x.csv", code=2)
    missing = run("diagnosis", "--cases", tmp_path / "none.csv", "--out", tmp_path / "o.csv", code=2)
    assert ": no such file" in missing
    assert "--variables only" in run("diagnosis", "--cases", "x.csv", "--out", "o.csv", "--max-marginals", code=2)
    (tmp_path / "cases.csv").write_text(CASES)
    assert ".jsonl" in run("diagnosis", "--cases", tmp_path / "cases.csv", "--out", "o.txt", code=2)


def test_cases_are_read_in_chunks(tmp_path: Path) -> None:
    model = bucketflow.load(example_path("diagnosis"))
    (tmp_path / "cases.csv").write_text("Storm\n" + "yes\n\n" * 5)
    chunks = list(read_cases(tmp_path / "cases.csv", model, chunk_rows=4))
    assert [chunk.count for chunk in chunks] == [4, 4, 2]
    assert np.concatenate([chunk.columns[model.index["Storm"]] for chunk in chunks]).tolist() == [1, -1] * 5


def test_cases_to_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed", exc_type=ImportError)
    model = bucketflow.load(example_path("diagnosis"))
    compiled = bucketflow.compile(model)
    storms = [1, None, 0, 1, None]
    season = np.ones((5, model.dims[model.index["Season"]]))
    season[0], season[3] = 0.0, np.arange(season.shape[1])
    blocks = [compiled.marginals_batch({"Storm": storms[a:b], "Season": season[a:b]}) for a, b in ((0, 3), (3, 5))]
    path = tmp_path / "out.parquet"
    with case_writer(path, model) as write:
        for block in blocks:
            write(block)
    table = parquet.read_table(path)
    assert table.column("case").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("status").to_pylist() == ["impossible", "ok", "ok", "ok", "ok"]
    assert table.column("log10_evidence").null_count == 1
    for v, name in enumerate(model.names):
        for state in range(model.dims[v]):
            column = table.column(f"{name}={model.label(v, state)}").to_numpy()
            assert np.array_equal(column, np.concatenate([block[name][:, state] for block in blocks]))


def test_frames() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    model = bucketflow.load(example_path("diagnosis"))
    found = bucketflow.marginals(model)
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    for name, rows in frame.groupby("variable", sort=False):
        assert rows["probability"].tolist() == found[name].tolist()
        assert rows["state"].tolist() == found.labels(name)


@pytest.mark.filterwarnings("ignore")
@CompiledPolicy.using(block_cells=1)
def test_a_cluster_gives_what_one_process_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    functions = [Function((i, (i + 1) % 9, (i + 4) % 9), rng.random((3, 3, 3))) for i in range(9)]
    model = named_model("markov", [3] * 9, functions)
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    cases = {"x2": rng.integers(-1, 3, 100), "x5": rng.integers(-1, 3, 100)}
    whole = bucketflow.marginals(model)
    assert whole.plan is not None
    memory = whole.plan.peak_bytes * 2 // 3
    with local_client(2) as client:
        compiled = bucketflow.compile(model)
        blocks = list(compiled.batches(cases, client=client))
        sliced = bucketflow.marginals(model, memory=memory, client=client)
    assert sliced.plan is not None
    assert sliced.plan.slices > 1
    serial = bucketflow.marginals(model, memory=memory)
    assert all(np.array_equal(sliced[name], serial[name]) for name in model.names)
    assert all(sliced[name] == pytest.approx(whole[name], rel=1e-12) for name in model.names)
    expected = list(compiled.batches(cases))
    assert len(blocks) == len(expected) > 2
    for block, other in zip(blocks, expected, strict=True):
        assert all(np.array_equal(block[name], other[name]) for name in model.names)
        assert math.isfinite(block.log10_evidence.sum())


def test_a_bad_file_of_cases_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.uai").write_text("MARKOV 2 2 2 1 2 0 1 4 1 2 3 4")
    (tmp_path / "cases.csv").write_text("x0\n" + "1\n" * 3 + "7\n")
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        (tmp_path / name).write_text("before")
        args = ["marginals", tmp_path / "a.uai", "--cases", tmp_path / "cases.csv", "--out", tmp_path / name]
        assert CliRunner().invoke(main, list(map(str, args))).exit_code == 2
        assert (tmp_path / name).read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_no_cases(tmp_path: Path) -> None:
    (tmp_path / "a.uai").write_text("MARKOV 2 2 3 1 2 0 1 6 1 2 3 4 5 6")
    compiled = bucketflow.compile(bucketflow.load(tmp_path / "a.uai"))
    for cases in ({}, [], {"x0": []}):
        assert compiled.marginals_batch(cases)["x1"].shape == (0, 3)
        assert list(compiled.marginals_batch(cases, ["x0"])) == ["x0"]
    (tmp_path / "cases.csv").write_text("x0\n")
    args = ["marginals", tmp_path / "a.uai", "--cases", tmp_path / "cases.csv", "--out", tmp_path / "out.csv"]
    assert CliRunner().invoke(main, list(map(str, args))).exit_code == 0
    assert (tmp_path / "out.csv").read_text().split(",")[:4] == ["case", "status", "log10_evidence", "x0=0"]


def test_frames_as_cases_and_series_as_evidence(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (tmp_path / "a.uai").write_text("MARKOV 2 2 3 1 2 0 1 6 1 2 3 4 5 6")
    model = bucketflow.load(tmp_path / "a.uai")
    compiled = bucketflow.compile(model)
    frame = pandas.DataFrame({"x0": [0, None, 1], "x1": pandas.array([None, 2, None], dtype="Int64")})
    expected = compiled.marginals_batch([{"x0": 0}, {"x1": 2}, {"x0": 1}])
    found = compiled.marginals_batch(frame)
    assert all(np.array_equal(found[name], expected[name]) for name in model.names)
    floats = compiled.marginals_batch({"x0": np.array([0.0, np.nan, 1.0]), "x1": [np.nan, 2.0, None]})
    assert all(np.array_equal(floats[name], expected[name]) for name in model.names)
    series = frame.iloc[1]
    assert bucketflow.solve(model, "partition", evidence=series).log10 == pytest.approx(expected.log10_evidence[1])
    assert bucketflow.marginals(model, evidence=series)["x0"] == pytest.approx(expected["x0"][1])
    compiled.set_evidence(series)
    assert compiled.marginals()["x0"] == pytest.approx(expected["x0"][1])
