"""How far a job is: what is left at the rate since it was last started, whatever was done before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.jobs import heartbeat as pulses
from bucketflow.pipeline.jobs.heartbeat import Progress, Pulse
from bucketflow.storage.job_folder import JobDir
from tests.clusters import receipts
from tests.models import grid

STARTED = 1_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is; nobody is asked about the cluster."""
    now = [STARTED]
    monkeypatch.setattr(pulses.time, "time", lambda: now[0])
    monkeypatch.setattr(pulses, "cluster_usage", lambda client: (2, 0))
    return now


def seen(job: JobDir, started: float = STARTED) -> Progress:
    return Progress.of(job.read_pulse(), started)


def test_the_rate_is_that_since_the_start(tmp_path: Path, clock: list[float]) -> None:
    """A run that goes on finds much of its work done: that took it no time."""
    job = JobDir(tmp_path)
    (tmp_path / "job").mkdir()
    pulse = Pulse(job, None)
    clock[0] += 5.0  # planning
    pulse.progress(540, 1000)
    pulse.beat()
    assert seen(job).seconds_left is None
    clock[0] += 10.0
    pulse.progress(590, 1000)
    pulse.beat()
    assert (seen(job).share, seen(job).seconds) == (0.59, 15.0)
    assert seen(job).seconds_left == pytest.approx((1000 - 590) * 10.0 / 50)
    later = clock[0] + 100.0
    assert seen(job, later).seconds_left is None, "the pulse is that of an earlier start"
    assert seen(JobDir(tmp_path / "nowhere")).seconds_left is None


def test_a_run_from_nothing(tmp_path: Path, clock: list[float]) -> None:
    job = JobDir(tmp_path)
    (tmp_path / "job").mkdir()
    pulse = Pulse(job, None)
    for done in (0, 250):
        pulse.progress(done, 1000)
        clock[0] += 4.0
    pulse.beat()
    assert seen(job).seconds_left == pytest.approx(3 * 8.0)


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
