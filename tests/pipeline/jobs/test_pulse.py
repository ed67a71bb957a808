"""How far a job is: what a driver says that goes on where another one, which is gone, ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.jobs import record
from bucketflow.pipeline.jobs.record import Pulse
from bucketflow.pipeline.results.remaining_time import ClosingBounds, SweptShare
from bucketflow.pipeline.runs.slices import SlicePolicy
from bucketflow.storage.run_folder import JobDir
from tests.models import grid
from tests.pipeline.runs.sparse import ring
from tests.policies import InForce


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDir:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(record, "cluster_usage", lambda client: (2, 1000))
    made = JobDir(tmp_path / "run")
    made.write({"id": "some"})
    return made


def test_another_driver_begins_with_what_was_said_last(job: JobDir) -> None:
    first = Pulse(job, None)
    first.beat()
    assert (job.read_pulse()["done"], job.read_pulse()["bounds"]) == (0, None)
    first.progress(SweptShare(59, 100))
    first.progress(ClosingBounds(3, 9, "rows"))
    first.beat()
    second = Pulse(job, None)
    second.beat()
    assert (job.read_pulse()["done"], job.read_pulse()["planned"]) == (59, 100)
    assert job.read_pulse()["bounds"] == [3, 9, "rows"]
    second.progress(SweptShare(61, 100))
    second.beat()
    assert job.read_pulse()["done"] == 61


class Stopped:
    """Stops a run once it has reported so many times, and remembers what share was done by then."""

    def __init__(self, after: int) -> None:
        self.after, self.shares = after, list[float]()

    def __call__(self, done: int, planned: int) -> None:
        self.shares.append(done / planned)
        if len(self.shares) == self.after:
            raise KeyboardInterrupt


def resumed_share(folder: Path, stopped: Stopped, ask: Any) -> float:
    """Return the first share that a run reports which goes on where another one was stopped."""
    with pytest.raises(bucketflow.StoppedError):
        ask(workdir=folder, progress=stopped)
    again = Stopped(0)
    ask(workdir=folder, progress=again)
    assert again.shares == sorted(again.shares)
    assert again.shares[-1] == 1.0
    return again.shares[0]


@pytest.mark.parametrize("thoughtful", [False, True], ids=["in order", "best first"])
def test_slices_that_are_done_count_at_once(
    thoughtful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    if thoughtful:
        in_force(SlicePolicy, least_seconds=0.0, cell_seconds=1e-6, slice_bytes=-(1 << 16))
    model = grid(7, 7, 4)
    whole = bucketflow.plan(model)
    assert whole is not None
    asked: dict[str, Any] = {"fit": "slice", "memory": whole.peak_bytes // 3, "method": "dense"}
    found = bucketflow.solve(model, **asked)
    assert found.plan is not None
    every = Stopped(0)
    bucketflow.solve(model, **asked, progress=every)
    stopped = Stopped(len(every.shares) - 2)
    first = resumed_share(tmp_path / "run", stopped, lambda **more: bucketflow.solve(model, **asked, **more))
    assert first >= stopped.shares[-1] - 1.1 / found.plan.slices > 0


def test_boxes_that_are_done_count_at_once(tmp_path: Path) -> None:
    model = grid(7, 7, 4)
    whole = bucketflow.plan(model, tree="bucket")
    assert whole is not None
    asked: dict[str, Any] = {
        "tree": "bucket",
        "fit": "spill",
        "memory": BudgetPolicy.margin_bytes + whole.peak_bytes // 3,
    }
    stopped = Stopped(9)
    first = resumed_share(tmp_path / "run", stopped, lambda **more: bucketflow.solve(model, **asked, **more))
    assert first >= stopped.shares[-1] > 0


def test_steps_by_rows_that_are_done_count_at_once(tmp_path: Path, in_force: InForce) -> None:
    in_force(BudgetPolicy, margin_bytes=0)
    model = ring(60, groups=4)
    asked: dict[str, Any] = {"representation": "rows", "fit": "spill", "memory": 600_000}
    found = bucketflow.solve(model, **asked)
    assert found.plan is not None
    stopped = Stopped(len(found.plan.steps))
    first = resumed_share(tmp_path / "run", stopped, lambda **more: bucketflow.solve(model, **asked, **more))
    assert first > 0.1
