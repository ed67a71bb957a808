"""Batches whose folder is in an object store."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.storage.object_store import ObjectPath
from tests.models import grid
from tests.object_server import Bucket, needs_server

pytestmark = needs_server


def test_a_batch_answers_each_row_once_and_is_reported(bucket: Bucket, tmp_path: Path) -> None:
    models = [grid(3, 3, states) for states in (2, 3)]
    for number, model in enumerate(models):
        bucketflow.save(model, tmp_path / f"{number}.wcsp")
    (tmp_path / "list.csv").write_text("model,query\n0.wcsp,optimum\n1.wcsp,optimum\n0.wcsp,count\nnone.wcsp,optimum\n")
    out = f"{bucket.url}answers"
    summaries = []
    for _ in range(2):
        done = CliRunner().invoke(main, ["batch", str(tmp_path / "list.csv"), "--out", out, "--json"])
        assert done.exit_code == 5, done.stderr  # a row failed
        summaries.append(json.loads((ObjectPath.of_url(out) / "summary.json").read_text()))
    assert [(each["answered"], each["failed"], each["reused"]) for each in summaries] == [(3, 1, 0), (3, 1, 3)]
    rows = list(csv.DictReader((ObjectPath.of_url(out) / "summary.csv").read_text().splitlines()))
    wanted = [str(bucketflow.solve(model).value) for model in models]
    assert [row["value"] for row in rows][:2] == wanted
    done = CliRunner().invoke(main, ["report", out, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.stderr
    assert "0.wcsp" in (tmp_path / "page.html").read_text()


def test_a_large_question_of_a_batch_has_its_run_directory_there(
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bucketflow.pipeline.batches.models import BatchPolicy

    model = grid(5, 5, 4)
    bucketflow.save(model, tmp_path / "grid.wcsp")
    with BatchPolicy.using(large_seconds=0.0):
        summary = bucketflow.batch([{"model": tmp_path / "grid.wcsp", "memory": "300kB"}], f"{bucket.url}answers")
    assert summary.answered == 1
    assert any(method == "PUT" and "/answers/runs/" in target for method, target in bucket.requests)
    assert not [*(ObjectPath.of_url(f"{bucket.url}answers") / "runs").glob("*/*")]
