"""Every command logs as text or as lines of JSON, and writes metrics to a file."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.metrics import Metrics

LIST = "model,query,evidence\ndiagnosis,partition,\ndiagnosis,partition,Strom=no\n"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_command_has_the_options() -> None:
    context = click.Context(main, **main.context_settings)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        names = [param.name for param in command.params]
        assert names.count("log") == names.count("log_level") == names.count("metrics") == 1, name


def test_errors_and_the_end_are_lines_of_json() -> None:
    found = run("solve", "absent.wcsp", "--log", "json")
    error, end = lines(found.stderr)
    assert found.exit_code == 2
    assert error.keys() == {"time", "level", "logger", "message", "run"}
    assert (error["level"], error["logger"]) == ("error", "bucketflow")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", str(error["time"]))
    assert str(error["message"]).startswith("absent.wcsp: ")
    assert (end["command"], end["exit_code"], end["run"]) == ("solve", 2, error["run"])
    assert isinstance(end["seconds"], float)
    assert not logging.getLogger("bucketflow").handlers


@pytest.mark.parametrize("order", [0, 1])
def test_the_level_leaves_out_what_is_below(order: int) -> None:
    words = [("--log", "json"), ("--log-level", "error")]
    found = run("solve", "satellite", *words[order], *words[1 - order])
    assert (found.exit_code, found.stderr) == (0, "")
    assert len(lines(run("solve", "satellite", "--log", "json").stderr)) >= 1


def test_text_is_logged_beside_messages() -> None:
    found = run("info", "satellite", "--log-level", "info")
    assert re.search(r"INFO bucketflow.command: the command info ended\n$", found.stderr)
    assert run("solve", "absent.wcsp").stderr == run("solve", "absent.wcsp", "--log", "text").stderr


def test_rows_of_a_batch_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(LIST)
    metrics = tmp_path / "batch.prom"
    words = ("batch", str(tmp_path / "list.csv"), "--out", str(tmp_path / "out"), "--metrics", str(metrics))
    found = run(*words, "--log", "json")
    assert found.exit_code == 5
    rows = {event["row"]: event for event in lines(found.stderr) if event.get("event") == "row"}
    assert (rows[1]["level"], rows[1]["status"]) == ("info", "answered")
    assert (rows[2]["level"], rows[2]["status"], rows[2]["exit_code"]) == ("warning", "failed", 2)
    assert isinstance(rows[1]["wall_seconds"], float)
    assert len({line["run"] for line in lines(found.stderr)}) == 1
    text = metrics.read_text()
    assert 'bucketflow_batch_rows_total{status="answered"} 1\n' in text
    assert 'bucketflow_batch_rows_total{status="failed"} 1\n' in text
    assert 'bucketflow_command_exit_code{command="batch"} 5\n' in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) .+|[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \S+', line), line


def test_metrics_without_a_folder_are_refused(tmp_path: Path) -> None:
    found = run("solve", "satellite", "--metrics", str(tmp_path / "absent" / "a.prom"))
    assert found.exit_code == 2
    assert "no such folder" in found.stderr
    found = run("solve", "satellite", "--metrics", str(tmp_path))
    assert found.exit_code == 2
    assert found.stderr.endswith(f"bucketflow: cannot write {tmp_path}: this is a folder; give the path of a file\n")


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.count("a_total", "A.", path='a"b\\c\nd')
    metrics.count("a_total", "A.", path='a"b\\c\nd')
    assert r'a_total{path="a\"b\\c\nd"} 2' in metrics.text()


def test_workers_log_too(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(LIST.replace("Strom", "Storm"))
    command = [sys.executable, "-m", "bucketflow", "batch", str(tmp_path / "list.csv"), "--out", str(tmp_path / "out")]
    more = ["--workers", "1", "--log", "json", "--log-level", "debug"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
    found = [line for line in lines(done.stderr) if line["logger"] == "bucketflow.pipeline.batches.answering"]
    assert sorted(str(line["row"]) for line in found) == ["1", "2"]
    assert len({line["run"] for line in lines(done.stderr)}) == 1
