"""Ctrl-C where a command only waits for a job: the job goes on, and the command says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.jobs import job


class Job:
    """A job that is waited for until somebody presses Ctrl-C."""

    folder = Path("/runs/grid")

    def __init__(self, state: str):
        self.record = SimpleNamespace(id="grid-12ab34", state=state)

    def wait(self, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    finished = wait


@pytest.mark.parametrize("command", [["watch", "x"], ["result", "x", "--wait"]])
@pytest.mark.parametrize("state", ["waiting", "running"])
def test_who_leaves_hears_that_the_job_goes_on(monkeypatch: pytest.MonkeyPatch, command: list[str], state: str) -> None:
    monkeypatch.setattr(job, "find_job", lambda *_: Job(state))
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 130
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"bucketflow: job grid-12ab34 is {state} and goes on; ")
    assert "bucketflow watch /runs/grid shows it, bucketflow cancel /runs/grid stops it" in line


def test_a_job_that_has_ended_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "find_job", lambda *_: Job("finished"))
    done = CliRunner().invoke(main, ["watch", "x"])
    assert (done.exit_code, done.stderr) == (130, "bucketflow: stopped\n")
