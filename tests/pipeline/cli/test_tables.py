"""Tables on narrow terminals: words and figures are whole, and columns without room are named."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from bucketflow.pipeline.cli import show_run
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.jobs import job as finding
from bucketflow.pipeline.jobs.record import JobFacts

FACTS: dict[str, Any] = {
    **{"id": "sensors-large-12ab34", "model": "/models/sensors-large.uai.xz", "query": "max-marginals"},
    **{"state": "finished", "message": "", "folder": "/runs/a", "scheduler": "tcp://head:8786", "share": 0.59},
    **{"seconds_left": 7.1, "since": 1.0, "running_seconds": 750.0, "lower": None, "upper": None, "workers": 12},
    **{"peak_bytes": 1_234_567_890, "starts": 1},
}


class Job:
    """A job of which only the facts are asked."""

    def __init__(self, **facts: Any):
        self.facts = JobFacts(**{**FACTS, **facts})


JOBS = [
    Job(),
    Job(state="interrupted: resume", id="grid-9f8e7d", model="grid.wcsp"),
    Job(state="running", id="a-1", share=0.0, lower=1_234_567, upper=2_345_678),
]


def listed(monkeypatch: pytest.MonkeyPatch, columns: int) -> Result:
    monkeypatch.setattr(finding, "jobs", lambda *_, **__: JOBS)
    monkeypatch.setenv("COLUMNS", str(columns))
    return CliRunner().invoke(main, ["jobs", "."])


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
def test_no_word_of_the_list_of_jobs_is_broken(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    shown = listed(monkeypatch, columns).output
    assert max(map(len, shown.splitlines())) <= columns
    words = set(shown.split())
    assert {"sensors-large-12ab34", "grid-9f8e7d", "a-1", "finished", "interrupted:", "resume", "running"} <= words
    known = " ".join(f"{job.facts.id} {job.facts.model} {job.facts.query} {job.facts.done()}" for job in JOBS)
    told = (
        "jobs job model query state done for workers peak not shown on this narrow terminal: resume 12 min 30 s 1.23 GB"
    )
    pieces = {piece for word in f"{known} {told}".split() for piece in (word, word.rpartition("/")[2], f"{word},")}
    states = {"finished", "running", "interrupted:"}
    assert {word for word in words if word.strip("─")} - pieces - states == set()


def test_columns_without_room_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not shown on this narrow terminal: peak, workers" in listed(monkeypatch, 80).output
    wide = listed(monkeypatch, 200).output
    assert "not shown" not in wide
    assert "interrupted: resume" in wide
    assert "1.23 GB" in wide


def test_columns_with_room_are_as_wide_as_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    rows = [("ab cd", "10 kB"), ("efghi jk", "1 B")]
    made = show_run.fitted("a table", ("words", "size"), rows, spare=("size",), figures=("size",))
    assert [column.width for column in made.columns] == [8, 5]
    monkeypatch.setenv("COLUMNS", "18")
    assert [c.width for c in show_run.fitted("", ("words", "size"), rows, ("size",), ("size",)).columns] == [7, 5]
    monkeypatch.setenv("COLUMNS", "13")
    made = show_run.fitted("", ("words", "size"), rows, ("size",), ("size",))
    assert ([column.width for column in made.columns], made.caption) == ([8], "not shown on this narrow terminal: size")
