"""Marginals on the GPU workers of a cluster: batches and slices spread over them, the same numbers as on one."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from distributed import get_worker

import bucketflow
from bucketflow.cluster import gpus as module
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.compiled import device_cases
from bucketflow.pipeline.compiled import device_cases as gpu_marginals
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.machine import device as device_rates
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.cases import Cases
from bucketflow.pipeline.models.model import dense_function
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans import worker_parts
from bucketflow.pipeline.plans.plan import with_rates
from bucketflow.pipeline.plans.problem import PlanningPolicy
from bucketflow.pipeline.runs import device_slices
from bucketflow.pipeline.trees.costs import Rates
from tests.cluster.test_gpu_workers import FREE, cluster, pretended_device
from tests.device_stand_in import OutOfMemoryError, device
from tests.interpreted_device import InterpretedMessages
from tests.models import grid, named_model


class Watched(InterpretedMessages):
    """Counts the calls of every worker."""

    used: ClassVar[Counter[str]] = Counter()
    most_cases = 1 << 30

    def run(self, findings: np.ndarray) -> np.ndarray:
        self._note()
        return super().run(findings)

    def run_cases(self, cases: int, *arguments: Any) -> np.ndarray:
        if cases > self.most_cases:
            raise OutOfMemoryError
        self._note()
        return super().run_cases(cases, *arguments)

    def _note(self) -> None:
        try:
            Watched.used[get_worker().name] += 1
        except ValueError:
            Watched.used["client"] += 1


def no_rates() -> dict[Any, Any]:
    """What workers say that measured nothing."""
    return {}


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "device_of_worker", pretended_device)
    monkeypatch.setattr(device_rates, "known_device_rates", no_rates)
    for each in (gpu_marginals, device_cases, device_slices):
        monkeypatch.setattr(each, "DeviceMessages", Watched)
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(Watched, "used", Counter())
    with CompiledPolicy.using(device_block_seconds=0.0, device_reading_seconds=0.0):
        yield


def cases_of(model: bucketflow.Model, count: int) -> dict[str, np.ndarray]:
    """States, likelihoods, and one impossible case."""
    rng = np.random.default_rng(1)
    states = model.dims[0]
    weights = rng.random((count, states))
    weights[7] = 0.0
    return {"x0": rng.integers(-1, states, count), "x7": rng.integers(0, states, count), "x4": weights}


@pytest.mark.parametrize(("most_cases", "others"), [(1 << 30, []), (16, []), (1 << 30, ["cpu"])])
def test_batches_are_spread_and_stay_in_order(
    most_cases: int, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(3, 3, 3, "markov")
    cases = cases_of(model, 300)
    cpu = bucketflow.compile(model)
    cpu.add("x2", [0.5, 1.0, 3.0])
    expected = cpu.marginals_batch(cases)
    with cluster(*others, "gpu-a", "gpu-c", threads=3) as client:
        alone = bucketflow.compile(model, client=client, gpus=1)
        alone.add("x2", [0.5, 1.0, 3.0])
        one = alone.marginals_batch(cases)
        assert set(Watched.used) == {"gpu-c"}
        Watched.used.clear()
        monkeypatch.setattr(Watched, "most_cases", most_cases)
        compiled = bucketflow.compile(model, client=client, gpus="all")
        compiled.add("x2", [0.5, 1.0, 3.0])
        found = compiled.marginals_batch(cases)
        assert set(Watched.used) == {"gpu-a", "gpu-c"} or (others and set(Watched.used) < {"gpu-a", "gpu-c"})
        assert len(list(compiled.batches(cases))) == 7, "groups of 16 cases, three for a block"
        with CompiledPolicy.using(answer_bytes=1):
            assert len(list(compiled.batches(cases))) == 19, "answers of a group for a block"
        monkeypatch.setattr(Watched, "run", lambda *_: pytest.fail("this machine has no device"))
        single = compiled.marginals()
    assert not found.possible[7]
    assert np.array_equal(found.log10_evidence, one.log10_evidence)
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-11)
    for name, table in expected.items():
        assert np.array_equal(found[name], one[name]), "the same bits on two devices"
        assert found[name] == pytest.approx(table, rel=1e-9, abs=1e-13)
        assert single[name] == pytest.approx(cpu.marginals()[name], rel=1e-12)


@pytest.mark.parametrize("kind", ["markov", "cost"])
def test_slices_are_spread_and_resumable(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, max_marginals = grid(4, 4, 5, kind), kind == "cost"
    expected = bucketflow.marginals(model, max_marginals=max_marginals)
    with cluster("gpu-a", "gpu-c", threads=3) as client:
        asked: dict[str, Any] = {"client": client, "gpus": "all", "max_marginals": max_marginals}
        whole = bucketflow.marginals(model, **asked)
        assert whole.plan is not None
        assert sum(Watched.used.values()) == 1, "one propagation, on one device"
        assert Watched.used.keys() <= {"gpu-a", "gpu-c"}
        Watched.used.clear()
        asked["gpu_memory"] = whole.plan.peak_bytes // 3
        found = bucketflow.marginals(model, **asked)
        assert found.plan is not None
        assert found.plan.slices > 2
        assert Watched.used.keys() == {"gpu-a", "gpu-c"}
        one = bucketflow.marginals(model, **{**asked, "gpus": 1})
        again = bucketflow.marginals(model, workdir=tmp_path / "run", **asked)
        monkeypatch.setattr(Watched, "run", lambda *_: pytest.fail("a slice was swept again"))
        read = bucketflow.marginals(model, workdir=tmp_path / "run", **asked)
    for answer in (whole, found, one, again, read):
        assert answer.value == expected.value
        assert answer is whole or np.array_equal(answer["x0"], found["x0"]), "added up in the order of the slices"
        for name, table in expected.items():
            assert answer[name] == pytest.approx(table, rel=1e-9, abs=1e-13)


def branching(kind: str) -> bucketflow.Model:
    """Four grids that share a variable: subtrees that are as large as each other."""
    rng, functions = np.random.default_rng(4), []
    for arm in range(4):
        at = [[1 + 9 * arm + 3 * i + j for j in range(3)] for i in range(3)]
        pairs = [(at[i][j], at[i + 1][j]) for i in range(2) for j in range(3)]
        pairs += [(at[i][j], at[i][j + 1]) for i in range(3) for j in range(2)]
        for pair in [(0, at[0][0]), *pairs]:
            values = rng.integers(0, 50, (4, 4)) if kind == "cost" else rng.random((4, 4)) + 0.1
            functions.append(dense_function(list(pair), values))
    return named_model(kind, [4] * 37, functions)


@pytest.mark.parametrize("kind", ["markov", "cost"])
@pytest.mark.parametrize("names", [("gpu-a", "gpu-c"), ("gpu-a", "gpu-b", "gpu-c", "gpu-d")])
def test_subtrees_are_parts_on_devices_where_that_pays(
    kind: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, max_marginals = branching(kind), kind == "cost"
    expected = bucketflow.marginals(model, max_marginals=max_marginals)
    monkeypatch.setitem(FREE, "gpu-d", 1 << 34)
    monkeypatch.setattr(worker_parts, "CORES_OF_A_DEVICE", 1)
    busy: set[str] = set()
    with cluster(*names, threads=3) as client, device(monkeypatch, least_cells=1) as there:
        there.on_step = lambda: busy.add(get_worker().name)
        asked: dict[str, Any] = {"client": client, "gpus": "all", "max_marginals": max_marginals}
        with PlanningPolicy.using(start_seconds=1e6):
            one = bucketflow.marginals(model, **asked)
        assert one.plan is not None
        assert one.plan.parts is None
        assert sum(Watched.used.values()) == 1, "one launch on one device"
        assert not busy
        with PlanningPolicy.using(start_seconds=0.0, part_seconds=0.0, device_link_bytes_per_second=1e30):
            found = bucketflow.marginals(model, **asked)
        assert found.plan is not None
        assert found.plan.parts is not None
        assert found.plan.device
        assert found.plan.slices == 1
        assert sum(Watched.used.values()) == 1, "no launch of all at once"
        assert len(busy) > 1
    for answer in (one, found):
        assert answer.value == expected.value
        for name, table in expected.items():
            assert answer[name] == pytest.approx(table, rel=1e-12, abs=1e-15)


def test_gpus_of_this_machine_are_not_sent_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bucketflow.compile(branching("markov")).plan
    assert plan is not None
    monkeypatch.setattr(Resources, "gpu_count", 4)
    monkeypatch.setattr(worker_parts, "CORES_OF_A_DEVICE", 1)
    rates = Rates(step_seconds=1.0)
    plan = with_rates(replace(plan, device=True), rates)
    assert placement.divided(plan, Resources(Options(gpus=4)), rates, lambda: 1 << 40).parts is None
    monkeypatch.setattr(Resources, "distributed", True)
    assert placement.divided(plan, Resources(Options(gpus=4)), rates, lambda: 1 << 40).parts is not None


def test_what_takes_no_time_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(3, 3, 3, "markov")
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.2)
    with cluster("gpu-c") as client:
        found = bucketflow.marginals(model, client=client, gpus="all")
    assert not Watched.used
    assert found["x0"] == pytest.approx(bucketflow.marginals(model)["x0"], rel=1e-12)


def test_programs_travel_without_their_device() -> None:
    model = grid(3, 3, 3, "markov")
    with cluster("gpu-c") as client:
        compiled = bucketflow.compile(model, client=client, gpus="all")
        compiled.marginals_batch({"x0": np.arange(40) % 3})
    assert compiled.device is not None
    assert compiled.device._other is not None
    program = compiled.device._other[1]
    program.answered(Cases(1, {}), np.ones(program.program.records.finding_cells))
    assert program._devices
    assert not pickle.loads(pickle.dumps(program))._devices
