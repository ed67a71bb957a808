"""How far a job is: what is left at the rate since it was last started, whatever was done before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.jobs import record as pulses
from bucketflow.pipeline.jobs.record import Progress, Pulse
from bucketflow.pipeline.results.remaining_time import SweptCells, SweptShare
from bucketflow.storage.run_folder import JobDir
from tests.clusters import receipts
from tests.models import grid

STARTED = 1_000.0


def seen(job: JobDir, started: float = STARTED) -> Progress:
    return Progress.of(job.read_pulse(), started)


class Run:
    """A run of 1,000 cells with a clock of its own, and what it told last."""

    def __init__(self, predicted: float) -> None:
        self.now, self.told = 0.0, list[SweptShare]()
        self.count = SweptCells(self.told.append, 1000, predicted, lambda: self.now)

    def left(self, cells: int, after: float) -> float:
        """Return the seconds that remain once more cells were swept, after some time."""
        self.now += after
        self.count(cells)
        assert self.told[-1].seconds_left is not None
        return self.told[-1].seconds_left


@pytest.mark.parametrize("predicted", [10.0, 100.0, 900.0])
def test_the_prediction_is_soon_replaced_by_the_rate(predicted: float) -> None:
    """The run sweeps 10 cells a second, whatever was predicted."""
    run = Run(predicted)
    assert run.left(0, 0.0) == pytest.approx(predicted)
    run.left(50, 30.0)  # workers start, and count their first cells
    wrong = [abs(run.left(50, 5.0) / (125 - run.now) - 1) for _ in range(18)]
    assert wrong == sorted(wrong, reverse=True)
    assert wrong[1] <= 0.8
    assert wrong[-1] <= 0.1


def test_the_rate_is_that_since_the_start() -> None:
    """A run that goes on finds much of its work done: that took it no time."""
    run = Run(100.0)
    assert run.left(540, 0.0) == pytest.approx(46.0)
    assert run.left(230, 23.0) == pytest.approx(23.0)


def test_cells_in_running_tasks_count_once() -> None:
    run = Run(100.0)
    for cells, done in ((0, 0), (300, 300), (200, 300), (700, 700)):
        run.count.underway(cells)
        run.count(0)
        assert run.told[-1].done == done
    run.count(400)
    assert run.told[-1].done == 700
    run.count(600)
    run.count.underway(5000)
    assert run.told[-1] == SweptShare(1000, 1000, 0.0)


def test_a_job_shows_what_its_driver_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [STARTED]
    monkeypatch.setattr(pulses.time, "time", lambda: now[0])
    monkeypatch.setattr(pulses, "cluster_usage", lambda client: (2, 0))
    job = JobDir(tmp_path)
    (tmp_path / "job").mkdir()
    pulse = Pulse(job, None)
    pulse.progress(SweptShare(590, 1000, 82.0))
    pulse.beat()
    assert seen(job).swept == SweptShare(590, 1000, 82.0)
    assert seen(job, now[0] + 100.0).swept.seconds_left is None, "the pulse is that of an earlier start"
    assert seen(JobDir(tmp_path / "nowhere")).swept == SweptShare()


def test_slices_report_first_what_is_done_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    model = grid(7, 7, 4)
    plan = bucketflow.plan(model, tree="bucket")
    assert plan is not None
    options: dict[str, Any] = {"tree": "bucket", "fit": "slice", "method": "dense", "workdir": tmp_path / "run"}
    options["memory"] = plan.peak_bytes // 3
    reported: list[tuple[int, int]] = []

    def stop(done: int, planned: int) -> None:
        reported.append((done, planned))
        if done > 0.6 * planned:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, bucketflow.StoppedError)):
        bucketflow.solve(model, progress=stop, **options)
    finished, again = receipts(tmp_path / "run"), []
    assert finished >= 2
    bucketflow.solve(model, progress=lambda done, planned: again.append(done), **options)
    assert reported[0][0] == 0
    groups = receipts(tmp_path / "run")
    assert again[0] == pytest.approx(finished * reported[0][1] / groups, rel=1e-3)
    assert again == sorted(again)
