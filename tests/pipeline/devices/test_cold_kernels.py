"""Uncompiled kernels: the cores do work that they end before compiling ends, and the device does longer work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.agents.dpop import _why_cores
from bucketflow.pipeline.agents.solving import AgentOptions, plan_dcop
from bucketflow.pipeline.answering.engines.strategy_policy import StrategyPolicy
from bucketflow.pipeline.assignments import kept_sweep
from bucketflow.pipeline.compiled import device_cases
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.minibuckets.joins import BucketPolicy, least_device_cells
from bucketflow.pipeline.models.dcop import with_agents
from bucketflow.pipeline.models.query import Fit
from bucketflow.pipeline.options import Options
from bucketflow.tasks.gpu import cold_kernels, kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.cold_kernels import AVOIDED_START, AvoidedStart, cores_end_first
from bucketflow.tasks.gpu.kernels import Kernel
from bucketflow.tasks.gpu.messages import propagation
from bucketflow.tasks.rows import device_algebra
from bucketflow.tasks.rows.device_algebra import DeviceChoice
from bucketflow.tasks.steps.policy import RowPolicy, SweepPolicy
from bucketflow.tasks.steps.semiring import LOG_SUM, MIN_PLUS
from bucketflow.tasks.sweeps import conditional_draws
from tests.device_stand_in import StandIn, device
from tests.interpreted_device import InterpretedMessages
from tests.models import grid
from tests.pipeline.runs.sparse import ring
from tests.policies import InForce

COLD = "because this takes less time than compiling the kernels of a device"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with device(monkeypatch) as stand_in:
        yield stand_in


@pytest.fixture
def seconds(there: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each kernel takes until it is compiled, one number; and none was compiled before."""
    found = [0.0]
    monkeypatch.setattr(AVOIDED_START, "seconds", 0.0)
    monkeypatch.setattr(kernels, "is_marked", lambda _: False)
    monkeypatch.setattr(gpu, "step_kernels", lambda lowered: [Kernel(str(lowered), "step", found[0])])
    return found


def ran_there(stand_in: StandIn) -> list[int]:
    """Count the steps that run on the device from now on."""
    steps: list[int] = []
    stand_in.on_step = lambda: steps.append(1)
    return steps


def test_the_cores_are_chosen_only_if_kernels_are_missing(seconds: list[float]) -> None:
    free, slow = Kernel("free", "step", 0.0), Kernel("slow", "step", 2.0)
    assert not cores_end_first([free], cores=0.0)
    assert cores_end_first([free], cores=0.5, start=1.0)
    assert cores_end_first([free, slow], cores=1.0)
    assert not cores_end_first([free, slow], cores=3.0)
    assert cores_end_first([slow], cores=3.0, device=1.5)


def test_seconds_on_the_cores_count_towards_compiling_once(seconds: list[float]) -> None:
    slow = Kernel("slow", "step", 2.0)
    AVOIDED_START.seconds = 1.5
    assert not cores_end_first([slow], cores=1.0)
    assert AVOIDED_START.seconds == 0.0
    assert cores_end_first([slow], cores=1.0)
    with AVOIDED_START.counted(here=False):
        pass
    assert AVOIDED_START.seconds == 0.0
    with AVOIDED_START.counted():
        pass
    assert AVOIDED_START.seconds > 0.0


def test_each_second_on_the_cores_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks may contain blocks, threads may compute concurrently, and a failed attempt took its time too."""
    account, clock = AvoidedStart(), [0.0]
    monkeypatch.setattr(cold_kernels.time, "perf_counter", lambda: clock[0])
    with account.counted():
        clock[0] = 3.0
        with account.counted():
            clock[0] = 4.0
        clock[0] = 5.0
    assert account.seconds == 5.0
    clock[0] = 10.0
    first, second = account.counted(), account.counted()  # of two threads
    first.__enter__()
    clock[0] = 12.0
    second.__enter__()
    clock[0] = 13.0
    first.__exit__(None, None, None)
    clock[0] = 16.0
    second.__exit__(None, None, None)
    assert account.seconds == 11.0
    with suppress(ValueError), account.counted():
        clock[0] = 17.0
        raise ValueError
    assert account.seconds == 12.0
    with account.counted(here=False):
        clock[0] = 20.0
    assert account.seconds == 12.0


def test_no_more_kernels_are_looked_at_than_the_decision_needs(seconds: list[float]) -> None:
    """Finding the kernels of a step takes longer than a small step itself."""
    looked_at: list[int] = []

    def many() -> Iterator[Kernel]:
        for number in range(100):
            looked_at.append(number)
            yield Kernel(str(number), "step", 1.0)

    assert cores_end_first(many(), cores=0.5)
    assert len(looked_at) == 1
    assert cold_kernels.compile_seconds(many()) > 1.0
    assert len(looked_at) == 101


@pytest.mark.parametrize("query", ["optimum", "partition"])
@pytest.mark.parametrize("disk", [False, True])
def test_small_mini_buckets_do_not_compile(
    query: str,
    disk: bool,
    there: StandIn,
    seconds: list[float],
    tmp_path_factory: pytest.TempPathFactory,
    in_force: InForce,
) -> None:
    model = grid(6, 6, 4, "cost" if query == "optimum" else "markov")
    asked = {"memory": "1MB"} if disk else {}
    expected = bucketflow.bound(model, query, z=7)

    def found() -> bucketflow.Bounds:
        folder = {"workdir": tmp_path_factory.mktemp("run") / "run"} if disk else {}
        return bucketflow.bound(model, query, z=7, gpus=1, **asked, **folder)

    steps = ran_there(there)
    in_force(BucketPolicy, bucket_seconds=5e-5)  # joins of some thousand cells are large
    for each, cold in ((0.0, False), (1e3, True), (1e-9, False)):
        seconds[0] = each
        steps.clear()
        bounds = found()
        assert bounds.lower == pytest.approx(expected.lower, rel=1e-12)
        assert bounds.upper == pytest.approx(expected.upper, rel=1e-12)
        assert (steps == []) == cold
        assert any(COLD in note for note in bounds.notes) == cold
    assert AVOIDED_START.seconds > 0.0
    AVOIDED_START.seconds = math.inf
    seconds[0] = 1e3
    assert not any(COLD in note for note in found().notes)


@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_small_joins_of_mini_buckets_stay_on_the_cores(query: str, there: StandIn, seconds: list[float]) -> None:
    """The kernels are compiled, but copying tables and reading messages takes longer than joining 16,384 cells."""
    model = grid(6, 6, 4, "cost" if query == "optimum" else "markov")
    steps = ran_there(there)
    found = bucketflow.bound(model, query, z=7, gpus=1)
    assert found.lower == pytest.approx(bucketflow.bound(model, query, z=7).lower, rel=1e-12)
    assert steps == []
    assert least_device_cells(LOG_SUM) < least_device_cells(MIN_PLUS)


@pytest.mark.parametrize("z", [None, 4])
def test_agents_whose_joins_are_small_do_not_compile(z: int | None, there: StandIn, seconds: list[float]) -> None:
    model = grid(6, 6, 4)
    expected = bucketflow.dpop(model, z=z)
    steps = ran_there(there)
    for each, cold in ((0.0, False), (1e3, True), (1e-9, False)):
        seconds[0] = each
        steps.clear()
        found = bucketflow.dpop(model, z=z, gpus=1)
        assert (found.value, found.bound, found.status) == (expected.value, expected.bound, expected.status)
        assert (steps == []) == cold
        assert any("compiling the kernels" in note for note in found.notes) == cold
    assert AVOIDED_START.seconds > 0.0


def test_agents_that_are_tasks_of_devices_use_them(there: StandIn, seconds: list[float]) -> None:
    """Each GPU has a separate process, whose kernels this process does not know."""
    seconds[0] = 1e3
    resources = Resources(Options(gpus=1, tasks="steps"))
    planned = plan_dcop(with_agents(grid(6, 6, 4)), AgentOptions(), math.inf)
    assert _why_cores(planned, resources) == ""
    assert _why_cores(planned, Resources(Options(gpus=1))) == "compiling the kernels of a device"


@pytest.mark.parametrize("fit", ["auto", "slice"])
def test_tables_of_samples_are_swept_on_the_cores_unless_a_fit_is_given(
    fit: Fit, there: StandIn, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_sweep, "StrategyPolicy", lambda: StrategyPolicy(device_start_seconds=0.0))
    model = grid(6, 6, 4, "markov")
    steps = ran_there(there)
    for each, cold in ((0.0, False), (1e3, fit == "auto"), (1e-9, False)):
        seconds[0] = each
        steps.clear()
        found = bucketflow.sample(model, 20, seed=1, gpus=1, fit=fit)
        assert (steps == []) == cold
        assert any("compiling its kernels" in note for note in found.notes) == cold


def test_few_draws_do_not_compile(there: StandIn, seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(4, 4, 3, "markov")
    expected = bucketflow.sample(model, 500, seed=1).states
    walk_kernels = conditional_draws.walk_kernels
    with SweepPolicy.using(least_walk_seconds=0.0, walked_draws_there=100, rows_a_draw=1 << 40):
        for each, cold in ((0.0, False), (1e3, True), (1e-9, False)):
            kernel = Kernel("walk", "walk", each)
            monkeypatch.setattr(
                conditional_draws, "walk_kernels", lambda dtype, one=kernel: [*walk_kernels(dtype), one]
            )
            found = bucketflow.sample(model, 500, seed=1, gpus=1)
            assert (found.states == expected).all()
            assert any(COLD in note for note in found.notes) == cold
    assert AVOIDED_START.seconds > 0.0


@pytest.fixture
def messages(there: StandIn, seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of questions that the stand-in of a propagation answers."""
    answered: list[str] = []

    class Messages(InterpretedMessages):
        def run(self, *given: Any) -> np.ndarray:
            answered.append("single")
            return super().run(*given)

        def run_cases(self, *given: Any) -> np.ndarray:
            answered.append("cases")
            return super().run_cases(*given)

    def kernels_of_cases(_: str, group: int = 1) -> list[Kernel]:
        return [Kernel(f"messages {group > 1}", "propagate", seconds[0])]

    monkeypatch.setattr(device_cases, "DeviceMessages", Messages)
    monkeypatch.setattr(propagation, "propagation_kernels", kernels_of_cases)
    return answered


def test_small_compiled_models_do_not_compile_kernels(messages: list[str], seconds: list[float]) -> None:
    model = grid(3, 3, 2, "markov")
    expected = bucketflow.compile(model)
    for each, cold in ((0.0, False), (1e3, True), (1e-9, False)):
        seconds[0] = each
        messages.clear()
        compiled = bucketflow.compile(model, gpus=1)
        for finding in (0, 1):
            for one in (compiled, expected):
                one.add("x0", finding)
            found = compiled.marginals()
            assert found["x5"] == pytest.approx(expected.marginals()["x5"], rel=1e-12)
            assert any(COLD in note for note in found.notes) == cold
        assert messages == ([] if cold else ["single"] * 2)


def test_few_cases_do_not_compile_kernels(messages: list[str], seconds: list[float]) -> None:
    model, cases = grid(3, 3, 2, "markov"), {"x1": np.array([0, 1, -1, 1, 0])}
    expected = bucketflow.compile(model).marginals_batch(cases)
    for each, cold in ((0.0, False), (1e3, True), (1e-12, False)):
        seconds[0] = each
        messages.clear()
        found = bucketflow.compile(model, gpus=1).marginals_batch(cases)
        assert found["x5"] == pytest.approx(expected["x5"], rel=1e-12)
        assert set(messages) == (set() if cold else {"cases"})
    assert AVOIDED_START.seconds > 0.0


def test_questions_to_a_compiled_model_add_up_to_compiling(messages: list[str], seconds: list[float]) -> None:
    compiled = bucketflow.compile(grid(3, 3, 2, "markov"), gpus=1)
    seconds[0] = 1e3
    compiled.marginals()
    assert messages == []
    AVOIDED_START.seconds = 2e3
    compiled.add("x0", 1)
    compiled.marginals()
    assert messages == ["single"]


def test_a_compiled_model_that_only_the_device_holds_uses_it(
    messages: list[str], seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = bucketflow.compile(grid(3, 3, 2, "markov"), gpus=1)
    seconds[0] = 1e3
    monkeypatch.setattr(device_cases, "default_memory_bytes", lambda: 10)
    compiled.marginals()
    assert messages == ["single"]


@pytest.fixture
def joined(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The joins of sparse tables that run on the device."""
    found: list[str] = []
    there = DeviceChoice.joined_there

    def joined_there(self: DeviceChoice, *given: Any) -> Any:
        found.append("join")
        return there(self, *given)

    monkeypatch.setattr(DeviceChoice, "joined_there", joined_there)
    monkeypatch.setattr(DeviceChoice, "kernels", lambda _, step: [Kernel(str(step.lowered), "step", seconds[0])])
    monkeypatch.setattr(device_algebra, "join_kernels", lambda words, _: [Kernel(f"join {words}", "find", seconds[0])])
    return found


@pytest.mark.parametrize(("compiling", "cold"), [(0.0, False), (1e9, True), (1e-9, False)])
def test_few_rows_are_joined_on_the_cores(
    compiling: float, cold: bool, there: StandIn, joined: list[str], seconds: list[float], in_force: InForce
) -> None:
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0)
    seconds[0] = compiling
    model = ring(20)
    expected = bucketflow.solve(model, "optimum", representation="rows")
    found = bucketflow.solve(model, "optimum", representation="rows", gpus=1)
    assert (found.status, found.value) == (expected.status, expected.value)
    assert (joined == []) == cold
    assert (AVOIDED_START.seconds > 0.0) == cold


def test_a_large_join_goes_to_the_device_at_once(
    there: StandIn, joined: list[str], seconds: list[float], in_force: InForce
) -> None:
    """The rows of its inputs are few, and its own rows are many."""
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0, rows_per_second=1.0)
    model, counts = ring(20), list[int]()
    expected = bucketflow.solve(model, "optimum", representation="rows")
    for seconds[0] in (0.0, 1000.0):
        joined.clear()
        found = bucketflow.solve(model, "optimum", representation="rows", gpus=1)
        assert found.value == expected.value
        counts.append(len(joined))
    warm, cold = counts
    assert 0 < cold < warm


@pytest.mark.parametrize(("compiling", "cold"), [(0.0, False), (1e9, True), (1e-12, False)])
def test_loops_of_sparse_tables_run_on_the_cores(
    compiling: float, cold: bool, there: StandIn, joined: list[str], seconds: list[float], in_force: InForce
) -> None:
    in_force(RowPolicy, device_rows=1 << 40, small_cells=0)
    seconds[0] = compiling
    model = grid(4, 4, 4)
    steps = ran_there(there)
    found = bucketflow.solve(model, "optimum", representation="rows", gpus=1)
    assert found.value == bucketflow.solve(model, "optimum").value
    assert (steps == []) == cold
