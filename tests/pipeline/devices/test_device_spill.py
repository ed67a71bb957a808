"""Tables larger than a device: the same answers in boxes, from host memory and from disk, and when memory runs out.

All run on a stand-in for the device everywhere, and on a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.answering import running
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import Question
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.device_fit import SLOTS, HostBudget
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.tasks.boxes.device_stores import HostTables
from tests.device_stand_in import RealDevice, StandIn, device, real_device
from tests.models import entries, grid, named_model
from tests.pipeline.runs.test_marginal_runs import same
from tests.policies import InForce


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn | RealDevice]:
    with (device if request.param == "stand-in" else real_device)(monkeypatch) as there:
        yield there


def small(model: bucketflow.Model, query: str, share: int) -> int:
    """A device that holds a part of what the plan needs, for several boxes at a time."""
    plan = bucketflow.plan(model, query, gpus=1, tree="bucket")
    assert plan is not None
    return SLOTS * (plan.peak_bytes // share + (1 << 20))


def too_small(_: HostBudget, plan: Plan) -> bool:
    """A host whose memory does not hold the tables."""
    return False


CASES = [
    ("optimum", "cost"),
    ("optimum", "markov"),
    ("partition", "markov"),
    ("partition", "steep"),
    ("count", "forbids"),
]


@cache
def on_a_cpu(query: str, kind: str) -> bucketflow.Result:
    """The answer of a grid from tables in memory."""
    return bucketflow.solve(grid(6, 6, 3, kind), query)


@pytest.mark.parametrize("where", ["host", "disk", "workdir"])
@pytest.mark.parametrize(("query", "kind"), CASES)
def test_boxes_on_a_device_give_the_same_answer(
    query: str, kind: str, where: str, place: StandIn | RealDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "disk":
        monkeypatch.setattr(HostBudget, "holds", too_small)
    model = grid(6, 6, 3, kind)
    free = on_a_cpu(query, kind)
    for share in (2, 4):
        options: dict[str, Any] = {
            "gpus": 1,
            "tree": "bucket",
            "fit": "spill",
            "gpu_memory": small(model, query, share),
        }
        if where == "workdir":
            options["workdir"] = tmp_path / str(share)
        spilled = bucketflow.solve(model, query, **options)
        assert spilled.plan is not None
        assert spilled.plan.spill is not None
        assert spilled.plan.peak_bytes <= options["gpu_memory"]
        assert (spilled.status, spilled.value) == (free.status, free.value)
        assert (spilled.log10 is None) == (free.log10 is None)
        if free.log10 is not None:
            assert spilled.log10 == pytest.approx(free.log10, rel=1e-12)
        assert not spilled.notes


def test_tables_stay_in_host_memory_where_it_suffices(
    place: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used: list[Any] = []
    original = HostTables.close
    monkeypatch.setattr(HostTables, "close", lambda s: (used.append(s.memory), original(s)))
    model = grid(6, 6, 3)
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill", "gpu_memory": small(model, "optimum", 4)}
    bucketflow.solve(model, **options)
    assert len(used) == 1
    assert used[0].held_bytes == 0
    bucketflow.solve(model, **options, workdir=tmp_path)
    assert len(used) == 1
    monkeypatch.setattr(HostBudget, "holds", too_small)
    bucketflow.solve(model, **options)
    assert len(used) == 1


def test_a_run_directory_of_a_device_is_resumed_on_a_cpu(place: StandIn | RealDevice, tmp_path: Path) -> None:
    model = grid(6, 6, 3)
    run = tmp_path / "run"
    options: dict[str, Any] = {
        "gpus": 1,
        "tree": "bucket",
        "fit": "spill",
        "gpu_memory": small(model, "optimum", 4),
        "workdir": run,
    }
    first = bucketflow.solve(model, **options)
    for path in sorted((run / "tables").glob("msg_*/c.*"))[:3]:
        path.unlink()
    again = bucketflow.solve(model, workdir=run)
    assert again.value == first.value
    assert again.plan is not None
    assert first.plan is not None
    assert again.plan.tasks == first.plan.tasks


@pytest.mark.parametrize("where", ["host", "disk"])
@pytest.mark.parametrize(("query", "kind"), CASES)
def test_boxes_that_do_not_fit_are_done_in_parts(
    query: str, kind: str, where: str, place: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, stored_runs=())  # all large tables are stored, so that they have variables left to fix
    model = grid(6, 6, 3, kind)
    free = on_a_cpu(query, kind)
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill", "gpu_memory": small(model, query, 2)}
    if where == "disk":
        monkeypatch.setattr(HostBudget, "holds", too_small)
    prepared = prepare(Question(model, query), Resources(Options(**options)))
    assert prepared.plan is not None
    assert prepared.plan.spill is not None
    inside = prepared.plan.spill.stages
    largest = max(s.lowered.out_cells for stage in inside[:-1] for s in stage.steps) * prepared.plan.itemsize
    place.largest_table_bytes = largest // 2
    cut = bucketflow.solve(model, query, **options)
    assert place.refused > 0
    assert cut.notes
    assert (cut.status, cut.value) == (free.status, free.value)
    if free.log10 is not None:
        assert cut.log10 == pytest.approx(free.log10, rel=1e-12)


def propagation(kind: str) -> tuple[bucketflow.Model, dict[str, Any]]:
    """A model and what is asked of it."""
    model = grid(6, 6, 3, "steep" if kind == "max" else kind)
    return model, {"joint": ("x3", "x20"), "evidence": {"x8": 2}, "max_marginals": kind in ("cost", "max")}


@cache
def propagated(kind: str, tree: str) -> bucketflow.Marginals:
    """Its answer from tables in memory."""
    model, asked = propagation(kind)
    return bucketflow.marginals(model, **asked, tree=tree)


PROPAGATIONS = ["markov", "steep", "cost", "max"]


@pytest.mark.parametrize("where", ["host", "disk", "workdir"])
@pytest.mark.parametrize("kind", PROPAGATIONS)
def test_propagations_whose_tables_leave_the_device(
    kind: str,
    where: str,
    place: StandIn | RealDevice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_force: InForce,
) -> None:
    if where == "disk":
        monkeypatch.setattr(HostBudget, "holds", too_small)
    in_force(BudgetPolicy, stored_runs=())
    model, asked = propagation(kind)
    free = propagated(kind, "bucket")
    assert free.plan is not None
    for share in (1, 2):
        options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill"}
        options["gpu_memory"] = SLOTS * (free.plan.peak_bytes // share + (1 << 20) + (1 << 13))
        if where == "workdir":
            options["workdir"] = tmp_path / str(share)
        found = bucketflow.marginals(model, **asked, **options)
        assert found.plan is not None
        assert found.plan.spill is not None
        assert found.plan.device
        assert found.plan.spill.resident == (where == "host")
        assert len(found.plan.spill.stages) > 3
        assert found.plan.peak_bytes <= options["gpu_memory"]
        same(found, free, rel=1e-11)
        assert not found.notes


@pytest.mark.parametrize("where", ["host", "disk"])
@pytest.mark.parametrize("kind", PROPAGATIONS)
def test_boxes_of_propagations_that_do_not_fit_are_done_in_parts(
    kind: str, where: str, place: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Messages that lack the variable of the parts are sums over them, as are beliefs."""
    if where == "disk":
        monkeypatch.setattr(HostBudget, "holds", too_small)
    in_force(BudgetPolicy, stored_runs=())
    model, asked = propagation(kind)
    free = propagated(kind, "refined")
    assert free.plan is not None
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill", "gpu_memory": SLOTS * (1 << 24)}
    for share in (2, 9):
        place.largest_table_bytes = max(s.lowered.out_cells for s in free.plan.steps) * free.plan.itemsize // share
        place.refused = 0
        cut = bucketflow.marginals(model, **asked, **options)
        assert place.refused > 0
        assert "they were split" in cut.notes[0]
        same(cut, free, rel=1e-11)


def test_propagations_leave_the_device_where_even_slices_do_not_fit(
    place: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, most_slices=1, margin_bytes=0)
    model, asked = propagation("markov")
    free = bucketflow.marginals(model, **asked)
    assert free.plan is not None
    found = bucketflow.marginals(model, **asked, gpus=1, gpu_memory=free.plan.peak_bytes)
    assert found.plan is not None
    assert found.plan.spill is not None
    same(found, free, rel=1e-11)
    with pytest.raises(bucketflow.BudgetError, match="allowed 1 kB; slicing would take"):
        bucketflow.marginals(model, **asked, gpus=1, gpu_memory=1000)


def test_a_run_directory_of_a_propagation_is_resumed_on_either_side(
    place: StandIn | RealDevice, tmp_path: Path, in_force: InForce
) -> None:
    in_force(BudgetPolicy, stored_runs=())
    model, asked = propagation("markov")
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill", "gpu_memory": SLOTS * (1 << 21)}
    first = bucketflow.marginals(model, **asked, **options, workdir=tmp_path / "run")
    for gpus in (1, None):
        beliefs = sorted((tmp_path / "run" / "tables").glob("beliefs_*/c.*"))
        for path in beliefs[::2]:
            path.unlink()
        again = bucketflow.marginals(model, **asked, gpus=gpus, workdir=tmp_path / "run")
        assert again.plan is not None
        assert again.plan.device == (gpus is not None)
        same(again, first, rel=1e-11)


@pytest.mark.parametrize("where", ["host", "workdir"])
@pytest.mark.parametrize(("query", "kind"), CASES)
def test_the_last_stage_is_done_in_parts_too(
    query: str, kind: str, where: str, place: StandIn | RealDevice, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    pairs = [*combinations(range(12), 2), (12, 13)]  # two components: parts of one leave the root of the other alone
    functions = [Function(pair, entries(rng, (2, 2), kind)) for pair in pairs]
    is_cost = kind in ("cost", "forbids")
    model = named_model("cost" if is_cost else "markov", [2] * 14, functions, 10**6 if is_cost else None)
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "order": model.names, "fit": "spill"}
    free = bucketflow.solve(model, query)
    plan = bucketflow.plan(model, query, **options)
    assert plan is not None
    options["gpu_memory"] = SLOTS * plan.peak_bytes
    if where == "workdir":
        options["workdir"] = tmp_path / "run"
    place.largest_table_bytes = max(s.lowered.out_cells for s in plan.steps) * plan.itemsize // 3
    cut = bucketflow.solve(model, query, **options)
    assert place.refused > 0
    assert "they were split" in cut.notes[0]
    assert cut.plan is not None
    assert cut.plan.spill is not None
    assert len(cut.plan.spill.stages) == 1
    assert (cut.status, cut.value) == (free.status, free.value)
    if free.log10 is not None:
        assert cut.log10 == pytest.approx(free.log10, rel=1e-12)
    if where == "workdir":
        assert bucketflow.solve(model, query, workdir=options["workdir"]).value == free.value


def test_a_run_directory_says_that_too_many_parts_would_be_needed(place: StandIn | RealDevice, tmp_path: Path) -> None:
    model = grid(6, 6, 3)
    options: dict[str, Any] = {"gpus": 1, "tree": "bucket", "fit": "spill", "gpu_memory": small(model, "optimum", 2)}
    place.largest_table_bytes = 16
    with pytest.raises(bucketflow.StoppedError, match=r"ran out of memory \(.*\); continue without it"):
        bucketflow.solve(model, **options, workdir=tmp_path / "run")
    assert bucketflow.solve(model, workdir=tmp_path / "run").value == bucketflow.solve(model).value


def test_slices_are_planned_again_when_memory_runs_out(place: StandIn | RealDevice) -> None:
    model = grid(7, 7, 4)
    free = bucketflow.solve(model)
    # On a fast device the steps of the first plan are fewer than memory asks for; without slices none needs less.
    options: dict[str, Any] = {"gpus": 1, "order": "min-fill", "fit": "slice", "gpu_memory": 300_000}
    plan = bucketflow.plan(model, **options)
    assert plan is not None
    assert plan.slices == 1
    place.largest_table_bytes = max(s.lowered.out_cells for s in plan.steps) * plan.itemsize // 2
    place.patience = 1
    got = bucketflow.solve(model, **options)
    assert got.value == free.value
    assert got.plan is not None
    assert got.plan.slices > 1
    assert "planned again" in got.notes[0]
    assert "notes" in got.to_dict()


def test_memory_errors_of_the_host_are_not_tried_again(
    place: StandIn | RealDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise MemoryError("the host")

    monkeypatch.setitem(running._ANSWERS, "optimum", full)
    with pytest.raises(MemoryError, match="the host"):
        bucketflow.solve(grid(4, 4, 2), gpus=1)


@pytest.mark.gpu
@pytest.mark.parametrize("budget", [25_000_000, 50_000_000])
def test_device_memory_stays_within_the_budget(budget: int, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    pairs = list(combinations(range(25), 2))
    rng = np.random.default_rng(1)
    model = named_model("cost", [2] * 25, [Function(pair, rng.integers(0, 4, (2, 2))) for pair in pairs])
    in_force(BudgetPolicy, stored_runs=())
    with real_device(monkeypatch) as there:
        options: dict[str, Any] = {"tree": "bucket", "order": model.names}
        whole = bucketflow.solve(model, gpus=1, **options)
        before = there.held_bytes()
        boxed = bucketflow.solve(model, gpus=1, **options, fit="spill", gpu_memory=budget)
        held = there.held_bytes()
    assert boxed.value == whole.value
    assert boxed.plan is not None
    assert boxed.plan.spill is not None
    assert boxed.plan.spill.tasks > SLOTS
    assert held <= budget < before
