"""A URL is refused by one sentence wherever only a local path works, and makes no local folder of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.local_paths import local_path, url_scheme
from tests.models import grid

URL = "s3://bucket/run"
COMMANDS = {
    "model": ("solve", f"{URL}.uai"),
    "plan": ("plan", f"{URL}.uai"),
    "info": ("info", f"{URL}.uai"),
    "evidence": ("solve", "satellite", "--evidence", f"{URL}.evid"),
    "workdir": ("solve", "satellite", "--workdir", URL),
    "bound": ("bound", "satellite", "--workdir", URL),
    "marginals": ("marginals", "diagnosis", "--out", f"{URL}.json"),
    "marginals of cases": ("marginals", "diagnosis", "--cases", f"{URL}.csv", "--out", "answers.csv"),
    "files of UAI": ("marginals", "diagnosis", "--uai-out", URL),
    "samples": ("solve", "diagnosis", "--query", "sample", "--samples", "5", "--out", f"{URL}.csv"),
    "assignments": ("solve", "satellite", "--best", "2", "--out", f"{URL}.json"),
    "graph": ("plan", "satellite", "--graph", f"{URL}.svg"),
    "circuit": ("circuit", "diagnosis", "--out", f"{URL}.nnf"),
    "convert from": ("convert", f"{URL}.uai", "model.uai"),
    "convert to": ("convert", "diagnosis", f"{URL}.uai"),
    "draw": ("draw", "diagnosis", "--output", f"{URL}.svg"),
    "inspect": ("inspect", URL),
    "resume": ("resume", URL),
    "report": ("report", URL, "--out", "page.html"),
    "report to": ("report", "answer.json", "--out", f"{URL}.html"),
    "batch": ("batch", f"{URL}.csv", "--out", "answers"),
    "batch to": ("batch", "list.csv", "--out", URL),
    "agents": ("dpop", "meetings", "--agents", f"{URL}.yaml"),
    "jobs": ("jobs", URL),
    "watch": ("watch", URL),
    "result": ("result", URL),
    "cancel": ("cancel", URL),
    "log": ("log", URL),
    "settings": ("--config", f"{URL}.toml", "examples"),
}
CALLS: dict[str, Callable[[], Any]] = {
    "load": lambda: bucketflow.load(f"{URL}.uai"),
    "load a Path": lambda: bucketflow.load(Path(f"{URL}.uai")),
    "load_compiled": lambda: bucketflow.Compiled.load(f"{URL}.bucketflow"),
    "load_circuit": lambda: bucketflow.load_circuit(f"{URL}.npz"),
    "save": lambda: bucketflow.save(bucketflow.load("diagnosis"), f"{URL}.uai"),
    "solve": lambda: bucketflow.solve(grid(2, 2, 2, "cost"), workdir=URL),
    "solve in a Path": lambda: bucketflow.solve(grid(2, 2, 2, "cost"), workdir=Path(URL)),
    "marginals": lambda: bucketflow.marginals("diagnosis", workdir=URL),
    "resume": lambda: bucketflow.resume(URL),
    "jobs": lambda: bucketflow.jobs(URL),
    "batch": lambda: bucketflow.batch([{"model": "diagnosis"}], URL),
    "report": lambda: bucketflow.report(URL, "page.html"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a list of questions and an answer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("model\ndiagnosis\n")
    (tmp_path / "answer.json").write_text(bucketflow.solve("satellite").to_json())
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_refuse_a_url(here: Path, command: tuple[str, ...]) -> None:
    before = sorted(here.iterdir())
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "is a URL, and s3:// is not supported here" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_refuse_a_url(here: Path, call: Callable[[], Any]) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(bucketflow.ModelError, match="is a URL, and s3:// is not supported here"):
        call()
    assert sorted(here.iterdir()) == before


def test_a_row_of_a_batch_with_a_url_fails_alone(here: Path) -> None:
    (here / "list.csv").write_text(f"model\n{URL}.uai\ndiagnosis\n")
    summary = bucketflow.batch("list.csv", "answers")
    assert [summary.rows, summary.failed] == [2, 1]
    assert "s3:// is not supported here" in (here / "answers" / "results.jsonl").read_text()


@pytest.mark.parametrize("path", ["C:/run", "a:b", "./s3:/bucket", "runs/s3://b", "run", "://b", "x=1"])
def test_other_paths_are_local(path: str) -> None:
    assert url_scheme(path) is None
    assert local_path(path) == Path(path)
