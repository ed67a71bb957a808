"""Tables of rows on several GPU workers: boxes of those on disk, and subtrees of those in memory, as on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import get_worker

import bucketflow
from bucketflow.cluster import gpus as module
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.tasks.rows.host import HostRows
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from tests.cluster.test_gpu_workers import FREE, cluster, pretended_device
from tests.device_stand_in import StandInRows, device
from tests.pipeline.runs.sparse import ring
from tests.policies import InForce


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> Iterator[None]:
    """Devices for which nothing is too small."""
    monkeypatch.setattr(module, "device_of_worker", pretended_device)
    monkeypatch.setitem(FREE, "gpu-d", 1 << 34)
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    in_force(BudgetPolicy, margin_bytes=0)
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0)
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50)
    with device(monkeypatch):
        yield


@pytest.mark.parametrize(
    ("names", "memory_first", "tasks"),
    [
        (("gpu-a", "gpu-c"), True, "auto"),
        (("gpu-a", "gpu-b", "gpu-c", "gpu-d"), False, "auto"),
        (("gpu-a", "gpu-c"), False, "steps"),
    ],
)
def test_boxes_of_rows_are_spread(
    names: tuple[str, ...], memory_first: bool, tasks: Any, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BoxPolicy, memory_first=memory_first, receipt_bytes=50)
    in_worker = StandInRows.called
    used: Counter[str] = Counter()

    def called(rows: StandInRows, *args: Any, **options: Any) -> Any:
        used[get_worker().name] += 1  # this process, which asks, may have no device: outside a worker this raises
        return in_worker(rows, *args, **options)

    monkeypatch.setattr(StandInRows, "called", called)
    model = ring(36 if memory_first else 54, "cost", groups=4)
    expected = bucketflow.solve(model, representation="rows")
    with cluster(*names, threads=3) as client:
        asked: dict[str, Any] = {"representation": "rows", "fit": "spill", "gpu_memory": 900_000, "client": client}
        found = bucketflow.solve(model, gpus="all", tasks=tasks, **asked)
    assert found.plan is not None
    assert (found.plan.way, found.plan.device) == ("disk", True)
    assert (found.status, found.value) == (expected.status, expected.value)
    assert found.assignment is not None
    assert len(used) > (0 if memory_first or tasks == "steps" else 1)
    assert set(used) <= set(names)
