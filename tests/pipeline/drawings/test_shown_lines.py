"""Answers are shown in full in pipes, shortened on terminals, and long lines are wrapped."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings.shown import MOST_LINES, aligned, first_lines
from bucketflow.pipeline.models.model import Model


def test_long_lines_wrap_under_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    words = " ".join(f"w{k}" for k in range(12))
    lines = aligned([("assignment", words), ("note", "short")]).splitlines()
    assert lines[0].startswith("assignment  w0 ")
    assert lines[1].startswith(" " * 12 + "w")
    assert max(map(len, lines)) <= 34
    assert " ".join(line[12:] for line in lines[:-1]) == words
    assert lines[-1] == "note        short"


def test_at_most_200_lines_are_shown() -> None:
    assert first_lines(map(str, range(MOST_LINES))).splitlines() == [str(k) for k in range(MOST_LINES)]
    assert len(first_lines(map(str, range(MOST_LINES + 1))).splitlines()) == MOST_LINES + 1


def test_a_pipe_gets_every_variable_of_an_optimum() -> None:
    printed = CliRunner().invoke(main, ["solve", "satellite"]).stdout
    found = json.loads(CliRunner().invoke(main, ["solve", "satellite", "--json"]).stdout)["assignment"]
    assert len(found) == 40
    words = {word.rstrip(",") for word in printed.split()}
    assert {f"{name}={state}" for name, state in found.items()} <= words
    assert max(map(len, printed.splitlines())) <= 100


def wide_model() -> Model:
    return Model.build("markov", {f"v{k}": 2 for k in range(150)}, [((f"v{k}",), [1, 3]) for k in range(150)])


def test_a_terminal_gets_the_first_lines_and_the_option_that_shows_all(tmp_path: object) -> None:
    path = f"{tmp_path}/wide.uai"
    bucketflow.save(wide_model(), path)
    piped = CliRunner().invoke(main, ["marginals", path]).stdout.splitlines()
    assert sum(line.startswith("  0") for line in piped) == 150
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "bucketflow", "marginals", path]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                shown += (more := os.read(master, 65536))
            except OSError:  # the other end is closed
                break
            if not more:
                break
    os.close(master)
    lines = shown.decode().splitlines()
    assert process.returncode == 0
    assert lines[:MOST_LINES] == piped[:MOST_LINES]
    assert lines[MOST_LINES:] == ["… shortened after 200 lines; --json, or a pipe such as `| less`, shows all"]


def test_python_and_notebooks_show_200_lines() -> None:
    found = bucketflow.marginals(wide_model())
    assert len(repr(found).splitlines()) == MOST_LINES + 1
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + 100
    assert "50 more variables; to_frame() gives all" in html
    assert found.plot().markup not in html
