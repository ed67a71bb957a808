"""A sweep on a device beside the engines of the host: whoever is through first answers, and nothing is left behind."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import BudgetError, Model, Result
from bucketflow.pipeline.answering.engines import sweep_engine
from bucketflow.pipeline.answering.engines.engine_options import EnginePrice
from bucketflow.pipeline.answering.engines.request import QueryRequest
from bucketflow.pipeline.answering.engines.strategy_policy import StrategyPolicy, TurnLengths
from bucketflow.pipeline.answering.engines.sweep_engine import AVOIDED_START, SweepEngine
from bucketflow.pipeline.answering.optimum import Task
from bucketflow.pipeline.answering.question import Question, spare_bytes
from bucketflow.pipeline.answering.sums import DiagramSum
from bucketflow.pipeline.api import bound as bound_module
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.minibuckets.joins import BucketPolicy
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.pipeline.runs import device_slices
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.kernels import Kernel
from bucketflow.tasks.gpu.memory import LongStepError
from bucketflow.tasks.gpu.messages import propagation
from tests.device_stand_in import StandIn
from tests.device_stand_in import device as stand_in
from tests.interpreted_device import InterpretedMessages
from tests.models import grid
from tests.strategies import NEVER_QUICK, solve_by

# a turn of diagrams is ended by another engine, not by the clock
_SEARCHLESS = {**NEVER_QUICK.lengths, "search": TurnLengths(1.0, most_turns=0), "diagrams": TurnLengths(60.0)}
RACES = replace(
    NEVER_QUICK, device_start_seconds=0.0, race_from_seconds=0.0, race_most_seconds=inf, lengths=_SEARCHLESS
)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with stand_in(monkeypatch) as device:
        yield device


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread, and no folder of a plan that spilled."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "bucketflow-race"] == []
    assert [*tmp_path.iterdir()] == []


@pytest.fixture(scope="module")
def model() -> Model:
    return grid(5, 5, 3, "markov")


@pytest.fixture(scope="module")
def log10(model: Model) -> float:
    found = bucketflow.solve(model, "partition", method="dense").log10
    assert found is not None
    return found


class Gate:
    """Holds the device until the host has done something."""

    def __init__(self, there: StandIn) -> None:
        self.opened = threading.Event()
        there.on_step = self.wait

    def wait(self) -> None:
        """Wait until it is opened."""
        assert self.opened.wait(60)


def raced(model: Model, query: str = "partition", **options: Any) -> Result:
    return solve_by(RACES, model, query, gpus=1, **options)


def test_the_device_wins(model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def endless(self: Any, edges: float, stop: Any) -> None:
        while not stop():
            pass
        ended.append(edges)

    monkeypatch.setattr(DiagramSum, "run", endless)
    found = raced(model)
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert found.tried[-1].engine == "sweep"
    assert len(ended) == 1


def test_the_host_wins(model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(there)

    def first(self: Any, edges: float, stop: Any) -> Any:
        found = self.forced()
        gate.opened.set()
        return found

    monkeypatch.setattr(DiagramSum, "run", first)
    found = raced(model)
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert found.diagram is not None
    assert found.tried[-1].engine == "diagrams"


def test_what_is_left_waits_for_the_device(
    model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(there)

    def hopeless(self: Any, *limits: Any) -> None:
        self.failure, self.hopeless = "do not fit memory", True
        gate.opened.set()

    monkeypatch.setattr(DiagramSum, "run", hopeless)
    found = raced(model)
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert [(turn.engine, turn.ended) for turn in found.tried] == [
        ("diagrams", "they do not fit memory"),
        ("sweep", "answered"),
    ]


def test_both_fail(model: Model, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def hopeless(self: Any, *limits: Any) -> None:
        self.failure, self.hopeless = "do not fit memory", True

    def refused(*_: Any) -> None:
        raise BudgetError("the device has too little memory")

    monkeypatch.setattr(DiagramSum, "run", hopeless)
    monkeypatch.setattr(sweep_engine, "in_slices", refused)
    with pytest.raises(BudgetError, match="the device has too little memory"):
        raced(model)


def test_the_host_goes_on_where_the_device_fails(
    model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise BudgetError("the device has too little memory")

    monkeypatch.setattr(sweep_engine, "in_slices", refused)
    monkeypatch.setattr(DiagramSum, "run", lambda self, *_: self.forced())
    found = raced(model)
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert found.diagram is not None


def test_the_device_runs_out_of_memory(
    model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.largest_table_bytes, there.patience = 512, 1

    def waits(self: Any, edges: float, stop: Any) -> None:
        while not stop():
            pass

    monkeypatch.setattr(DiagramSum, "run", waits)
    found = raced(model)
    assert there.refused == 1
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert any("the device ran out of memory" in note for note in found.notes)


@pytest.mark.parametrize("query", ["partition", "optimum"])
def test_ctrl_c_ends_both(query: str, model: Model, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(there)

    def interrupted(*_: Any) -> None:
        gate.opened.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(DiagramSum, "run", interrupted)
    monkeypatch.setattr(Task, "run_portfolio", interrupted)
    with pytest.raises(KeyboardInterrupt):
        raced(model, query)


@pytest.mark.parametrize("winner", ["device", "host"])
def test_optima_are_raced(winner: str, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provers have this machine's cores then, and the device sweeps."""
    costs, gate, prove = grid(4, 4, 3), Gate(there), Task.run_portfolio

    def run(self: Any) -> None:
        assert self.known.limits.device_bytes is None
        if winner == "device":
            gate.opened.set()
            while not self.enough():
                pass
            return
        prove(self)
        gate.opened.set()

    monkeypatch.setattr(Task, "run_portfolio", run)
    found = raced(costs, "optimum")
    assert found.value == bucketflow.solve(costs).value
    assert found.tried[-1].engine == {"device": "sweep", "host": "bounds"}[winner]


def test_both_sides_share_the_memory(model: Model, there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    run = DiagramSum.run

    def looked(self: Any, *limits: Any) -> Any:
        seen.append((self.memory_bytes, spare_bytes(self.question, self.options)))
        return run(self, *limits)

    monkeypatch.setattr(DiagramSum, "run", looked)
    raced(model, memory="100MB")
    assert all(beside < alone for beside, alone in seen)
    assert seen


@pytest.fixture
def asleep(there: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A device that was not used so far, and the names of what started it."""
    from bucketflow.cluster import gpus

    started: list[str] = []
    monkeypatch.setattr(gpus, "is_asleep", lambda: True)
    monkeypatch.setattr(AVOIDED_START, "seconds", 0.0)
    for name in ("count_gpus", "free_gpu_bytes"):
        measured = getattr(gpus, name)
        monkeypatch.setattr(gpus, name, lambda *given, m=measured, n=name: (started.append(n), m(*given))[1])
    return started


@pytest.mark.parametrize("query", ["partition", "optimum", "marginals"])
@pytest.mark.parametrize("asked", [{}, {"order": "min-fill"}])
def test_what_is_over_sooner_starts_no_device(query: str, asked: dict[str, Any], asleep: list[str]) -> None:
    ask = (
        bucketflow.marginals
        if query == "marginals"
        else lambda *given, **options: bucketflow.solve(*given, query, **options)
    )
    small = grid(3, 3, 2, "markov")
    found, expected = ask(small, gpus=1, **asked), ask(small, **asked)
    assert asleep == []
    assert not found.plan.device
    assert any("gpus had no effect" in note and "starting a device" in note for note in found.notes)
    assert getattr(found, "log10", None) == getattr(expected, "log10", None)


def test_questions_that_avoid_a_start_add_up_to_one(
    asleep: list[str], model: Model, log10: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = replace(NEVER_QUICK, device_start_seconds=1e9, lengths=_SEARCHLESS)
    found = solve_by(policy, model, "partition", gpus=1, method="dense")
    assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert asleep == []
    assert AVOIDED_START.seconds > 0.0
    question, devices = Question(grid(14, 14, 6, "markov"), "partition"), []
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(AVOIDED_START, "seconds", seconds)
        price = SweepEngine(QueryRequest(question, Options(gpus=1), policy=policy)).estimate()
        assert isinstance(price, EnginePrice)
        devices.append(price.device)
    assert devices == ["host", "gpu"]


@pytest.fixture
def kernel_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each step's kernel takes until it is compiled, one number; and none was compiled before."""
    seconds = [0.0]
    monkeypatch.setattr(AVOIDED_START, "seconds", 0.0)
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    monkeypatch.setattr(gpu, "step_kernels", lambda lowered: [Kernel(str(lowered), "step", seconds[0])])
    return seconds


@pytest.mark.parametrize("query", ["partition", "optimum"])
def test_kernels_that_take_longer_than_the_cores_are_not_compiled(
    query: str, there: StandIn, kernel_seconds: list[float]
) -> None:
    model = grid(6, 6, 4, "markov" if query == "partition" else "cost")
    kernel_seconds[0] = 1e3
    found = bucketflow.solve(model, query, method="dense", gpus=1)
    assert not found.plan.device
    assert any("gpus had no effect" in note and "compiling the kernels" in note for note in found.notes)
    kernel_seconds[0] = 0.0
    assert bucketflow.solve(model, query, method="dense", gpus=1).plan.device


@pytest.mark.parametrize("seconds", [1e3, 0.0])
def test_kernels_of_propagations_are_priced(
    seconds: float, there: StandIn, kernel_seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [Kernel("messages", entry, seconds) for entry in ("propagate", "begin")]
    monkeypatch.setattr(propagation, "propagation_kernels", lambda *_: kernels)
    monkeypatch.setattr(device_slices, "DeviceMessages", InterpretedMessages)
    model = grid(4, 4, 3, "markov")
    found, expected = (bucketflow.marginals(model, gpus=gpus) for gpus in (1, None))
    assert found.plan.device == (seconds == 0.0)
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-12)


@pytest.mark.parametrize("here", [1e2, 1e4])
def test_kernels_are_compiled_where_the_cores_take_longer(
    here: float, model: Model, there: StandIn, kernel_seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_seconds[0] = 1e2
    monkeypatch.setattr(SweepEngine, "_searched_seconds", sweep_engine._SearchedSeconds(here, 1e-3, 1e-3, 1))
    found = bucketflow.solve(model, "partition", method="dense", gpus=1)
    assert found.plan.device == (here == 1e4)


@pytest.mark.parametrize("seconds", [1e3, 0.0])
def test_kernels_are_priced_before_a_device_starts(
    seconds: float, model: Model, asleep: list[str], kernel_seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_seconds[0] = seconds
    searched = sweep_engine._SearchedSeconds(here=50.0, there=1e-3, planning=1e-3, nbytes=1)
    monkeypatch.setattr(SweepEngine, "_searched_seconds", searched)
    policy = replace(NEVER_QUICK, saved_by_trees=1e-12, most_saved=1e30, lengths=_SEARCHLESS)
    found = solve_by(policy, model, "partition", gpus=1, method="dense")
    assert found.plan.device == (seconds == 0.0)
    assert (asleep == []) == (seconds > 0.0)


def test_sweeps_that_avoid_compiling_add_up_to_it(
    there: StandIn, kernel_seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the cores took as long as compiling, the kernels are compiled; other kernels are paid for again."""
    model = grid(6, 6, 4, "markov")
    kernel_seconds[0] = 1e3
    assert not bucketflow.solve(model, "partition", method="dense", gpus=1).plan.device
    assert AVOIDED_START.seconds > 0.0
    monkeypatch.setattr(AVOIDED_START, "seconds", 1e9)
    assert bucketflow.solve(model, "partition", method="dense", gpus=1).plan.device
    assert AVOIDED_START.seconds < 1e9
    monkeypatch.setattr(AVOIDED_START, "seconds", 0.0)
    assert not bucketflow.solve(model, "partition", method="dense", gpus=1).plan.device


@pytest.mark.parametrize("fits", [True, False])
def test_steps_that_no_launch_counts_run_on_the_cores(
    fits: bool, model: Model, log10: float, there: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> list[Kernel]:
        raise LongStepError("a step has more parts than a launch on a GPU counts (2^32); leave out --gpus")

    monkeypatch.setattr(gpu, "step_kernels", refused)
    if fits:
        found = bucketflow.solve(model, "partition", method="dense", gpus=1)
        assert found.log10 == pytest.approx(log10, rel=1e-12)
        assert any("more parts than a launch on a GPU counts" in note for note in found.notes)
        return
    planned = sweep_engine.prepare

    def too_large(question: Question, resources: Resources, **options: Any) -> Any:
        if resources.asked.gpus is None:
            raise BudgetError("the plan needs 1 TB, allowed 1 GB")
        return planned(question, resources, **options)

    monkeypatch.setattr(sweep_engine, "prepare", too_large)
    with pytest.raises(BudgetError, match=r"more parts than a launch .* leave out --gpus"):
        bucketflow.solve(model, "partition", method="dense", gpus=1)


@pytest.mark.parametrize(("z", "start"), [(2, 1.0), (20, 1.0), (20, 1e-9)])
def test_small_mini_buckets_start_no_device(
    z: int, start: float, asleep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mini-buckets of 20 variables might be large, but the buckets of this model have at most seven."""
    monkeypatch.setattr(bound_module, "StrategyPolicy", lambda: StrategyPolicy(device_start_seconds=start))
    model, sleeps = grid(6, 6, 4), start == 1.0
    with BucketPolicy.using(bucket_seconds=5e-5):  # the largest buckets are large enough for a device
        found, expected = bucketflow.bound(model, z=z, gpus=1), bucketflow.bound(model, z=z)
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert (asleep == []) == sleeps
    assert any("starting a device" in note for note in found.notes) == sleeps


def test_what_takes_longer_starts_the_device(model: Model, log10: float, asleep: list[str]) -> None:
    policy = replace(NEVER_QUICK, device_start_seconds=0.0, lengths=_SEARCHLESS)
    found = solve_by(policy, model, "partition", gpus=1, method="dense")
    assert asleep != []
    assert found.plan is not None
    assert found.plan.device
    assert found.log10 == pytest.approx(log10, rel=1e-12)


@pytest.mark.parametrize("glance", [1e3, 1e-9])
def test_bounds_glance_at_an_optimum_before_a_device_starts(glance: float, asleep: list[str]) -> None:
    """What they prove takes no device; what they do not is raced."""
    costs = grid(4, 4, 3)
    policy = replace(RACES, device_start_seconds=glance, share=inf, saved_by_trees=1e-12)
    found = solve_by(policy, costs, "optimum", gpus=1)
    assert found.value == bucketflow.solve(costs).value
    assert found.tried[0].engine == "bounds"
    assert (found.tried[0].ended == "answered") == (glance == 1e3)
    assert (asleep == []) == (glance == 1e3)


def test_a_run_directory_keeps_to_the_cores_that_it_was_planned_for(
    tmp_path_factory: pytest.TempPathFactory, model: Model, log10: float, asleep: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("run") / "run"
    for _ in range(2):
        found = bucketflow.solve(model, "partition", gpus=1, workdir=folder)
        assert found.log10 == pytest.approx(log10, rel=1e-12)
    assert asleep == []


@pytest.mark.parametrize("states", [2, 5])
def test_bounds_that_close_soon_start_no_device(states: int, asleep: list[str]) -> None:
    model = grid(3, 3, 2) if states == 2 else grid(12, 12, states)
    found = bucketflow.bound(model, time=0.2, gpus=1)
    assert found.lower is not None
    assert (asleep == []) == (states == 2)
    assert any("starting a device" in note for note in found.notes) == (states == 2)
    if states == 2:
        expected = bucketflow.bound(model)
        assert (found.lower, found.upper, found.status) == (expected.lower, expected.upper, "optimal")


@pytest.mark.parametrize("asked", [{}, {"z": 2}, {"memory": "4B"}])
def test_agents_whose_joins_are_small_start_no_device(asked: dict[str, Any], asleep: list[str]) -> None:
    model, small = grid(3, 3, 2), "memory" not in asked
    found, expected = bucketflow.dpop(model, gpus=1, **asked), bucketflow.dpop(model, **asked)
    assert (found.value, found.status) == (expected.value, expected.status)
    assert (asleep == []) == small  # how often messages are sent again is not known before
    assert any("starting a device" in note for note in found.notes) == small


@pytest.mark.parametrize("states", [2, 5])
def test_an_elimination_of_what_was_prepared_starts_no_device(states: int, asleep: list[str]) -> None:
    model = grid(3, 3, 2) if states == 2 else grid(12, 12, states)
    question, options = Question(model, "optimum"), Options(gpus=1)
    task = Task.of(question, options, ProofOptions(), time.perf_counter())
    found = task.elimination(task.costs, None)
    assert found is not None
    assert (asleep == [], found.prepared.plan.device) == (states == 2, states == 5)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e3])
def test_an_elimination_of_what_was_prepared_compiles_no_kernels_in_vain(
    seconds: float, there: StandIn, kernel_seconds: list[float]
) -> None:
    kernel_seconds[0] = seconds
    task = Task.of(Question(grid(12, 12, 3), "optimum"), Options(gpus=1), ProofOptions(), time.perf_counter())
    found = task.elimination(task.costs, None)
    assert found is not None
    assert found.prepared.plan.device == (seconds < 1.0)
