"""A URL is refused by one sentence wherever it does not work, and makes no local folder of its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.local_paths import folder_path, local_path, url_scheme
from tests.models import grid

URL = "s3://bucket/run"
FOLDER = "ftp://host/run"
REFUSED = "is a URL, and s3:// is not supported here|has the unknown scheme ftp://; give one of s3://, gs://, az://"
COMMANDS = {
    "model": ("solve", f"{URL}.uai"),
    "plan": ("plan", f"{URL}.uai"),
    "info": ("info", f"{URL}.uai"),
    "evidence": ("solve", "satellite", "--evidence", f"{URL}.evid"),
    "workdir": ("solve", "satellite", "--workdir", FOLDER),
    "bound": ("bound", "satellite", "--workdir", FOLDER),
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
    "inspect": ("inspect", FOLDER),
    "resume": ("resume", FOLDER),
    "report": ("report", FOLDER, "--out", "page.html"),
    "report to": ("report", "answer.json", "--out", f"{URL}.html"),
    "batch": ("batch", f"{URL}.csv", "--out", "answers"),
    "batch to": ("batch", "list.csv", "--out", FOLDER),
    "agents": ("dpop", "meetings", "--agents", f"{URL}.yaml"),
    "jobs": ("jobs", FOLDER),
    "watch": ("watch", FOLDER),
    "result": ("result", FOLDER),
    "cancel": ("cancel", FOLDER),
    "log": ("log", FOLDER),
    "settings": ("--config", f"{URL}.toml", "examples"),
}
CALLS: dict[str, Callable[[], Any]] = {
    "load": lambda: bucketflow.load(f"{URL}.uai"),
    "load a Path": lambda: bucketflow.load(Path(f"{URL}.uai")),
    "load_compiled": lambda: bucketflow.Compiled.load(f"{URL}.bucketflow"),
    "load_circuit": lambda: bucketflow.load_circuit(f"{URL}.npz"),
    "save": lambda: bucketflow.save(bucketflow.load("diagnosis"), f"{URL}.uai"),
    "solve": lambda: bucketflow.solve(grid(2, 2, 2, "cost"), workdir=FOLDER),
    "marginals": lambda: bucketflow.marginals("diagnosis", workdir=FOLDER),
    "resume": lambda: bucketflow.resume(FOLDER),
    "jobs": lambda: bucketflow.jobs(FOLDER),
    "batch": lambda: bucketflow.batch([{"model": "diagnosis"}], FOLDER),
    "report": lambda: bucketflow.report(FOLDER, "page.html"),
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
    assert re.search(REFUSED, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_refuse_a_url(here: Path, call: Callable[[], Any]) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(bucketflow.ModelError, match=REFUSED):
        call()
    assert sorted(here.iterdir()) == before


def test_a_row_of_a_batch_with_a_url_fails_alone(here: Path) -> None:
    (here / "list.csv").write_text(f"model\n{URL}.uai\ndiagnosis\n")
    summary = bucketflow.batch("list.csv", "answers")
    assert [summary.rows, summary.failed] == [2, 1]
    assert "s3:// is not supported here" in (here / "answers" / "results.jsonl").read_text()


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("s3://", "does not name a folder"),
        ("s3://bucket", "does not name a folder"),
        ("s3:///run", "does not name a folder"),
        ("memory://run", "does not name a folder"),
        ("file://host/run", "names a host"),
        (Path("s3://bucket/run"), "give it as text"),
    ],
)
def test_folders_that_no_url_names_are_refused(here: Path, folder: str | Path, said: str) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(bucketflow.ModelError, match=said):
        bucketflow.solve(grid(2, 2, 2, "cost"), workdir=folder)
    assert sorted(here.iterdir()) == before


def test_a_folder_may_be_the_url_of_a_file_system(here: Path) -> None:
    folder = here / "my run"
    bucketflow.solve(grid(2, 2, 2, "cost"), workdir=f"file://{str(folder).replace(' ', '%20')}")
    assert (folder / "result.json").exists()


@pytest.mark.parametrize("path", ["C:/run", "a:b", "./s3:/bucket", "runs/s3://b", "run", "://b", "x=1"])
def test_other_paths_are_local(path: str) -> None:
    assert url_scheme(path) is None
    assert local_path(path) == folder_path(path) == Path(path)


def test_a_cache_in_an_object_store_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUCKETFLOW_CACHE", "s3://bucket/cache")
    sentence = "BUCKETFLOW_CACHE is the URL s3://bucket/cache; give the path of a local or mounted folder"
    with pytest.raises(bucketflow.ModelError, match=sentence):
        bucketflow.solve("grid")
    for command in ("warm", "solve grid"):
        found = CliRunner().invoke(main, command.split())
        assert (found.exit_code, found.stderr) == (2, f"bucketflow: {sentence}\n")
    assert not [*tmp_path.iterdir()]
