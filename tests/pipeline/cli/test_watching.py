"""Ctrl-C where a command only waits for a job: the job goes on, and the command says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bucketflow.pipeline.api import progress
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.jobs import job
from bucketflow.pipeline.jobs.record import Progress
from bucketflow.pipeline.results.remaining_time import SweptShare


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
    assert line.startswith(f"bucketflow: job grid-12ab34 is {state} and continues; ")
    assert "bucketflow watch /runs/grid shows it, bucketflow cancel /runs/grid stops it" in line


def test_a_job_that_has_ended_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "find_job", lambda *_: Job("finished"))
    done = CliRunner().invoke(main, ["watch", "x"])
    assert (done.exit_code, done.stderr) == (130, "bucketflow: stopped\n")


class RunningJob(Job):
    """A job that is a quarter done, then finished."""

    def __init__(self) -> None:
        super().__init__("running")
        self.record.message = ""
        self.progress = Progress(SweptShare(25, 100))

    @property
    def facts(self) -> Any:
        done = self.progress.swept.text()
        return SimpleNamespace(id=self.record.id, state=self.record.state, done=lambda: done)

    def wait(self, *_: Any, seen: Any, **__: Any) -> Any:
        seen(self)
        seen(self)
        self.record.state, self.progress = "finished", Progress(SweptShare(100, 100))
        seen(self)
        return self.record


def test_watching_elsewhere_than_on_a_terminal_prints_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "find_job", lambda *_: RunningJob())
    done = CliRunner().invoke(main, ["watch", "x"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["grid-12ab34 running 25%", "grid-12ab34 finished 100%"]


def test_watching_on_a_terminal_draws_the_bar_of_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Any]()

    @contextmanager
    def lines(hidden: bool) -> Iterator[Any]:
        assert not hidden
        yield drawn.append

    monkeypatch.setattr(progress, "progress_lines", lines)
    monkeypatch.setattr(progress, "is_drawn", lambda hidden: True)
    monkeypatch.setattr(job, "find_job", lambda *_: RunningJob())
    done = CliRunner().invoke(main, ["watch", "x"])
    assert [event for event in drawn if isinstance(event, SweptShare)] == [SweptShare(25, 100), SweptShare(25, 100)]
    assert done.stdout == "grid-12ab34 finished 100%\n"
