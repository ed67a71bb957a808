"""Slices and boxes on several devices of this process: the answers of one device, work for each, no process started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.cluster import pool as device_threads
from bucketflow.cluster.pool import DeviceThreads, Node, present_device
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.answering.placement import devices_of
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.machine.device import DeviceRates
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans import worker_parts
from bucketflow.pipeline.plans.problem import PlanningPolicy
from bucketflow.pipeline.runs import device_slices
from bucketflow.pipeline.runs.slices import SlicePolicy
from bucketflow.pipeline.trees.costs import Rates
from tests.device_stand_in import StandIn, device, imagine_devices
from tests.models import grid
from tests.policies import InForce

QUESTIONS = [("optimum", "cost"), ("optimum", "markov"), ("count", "forbids"), ("partition", "markov")]


@pytest.fixture(params=[2, 3])
def there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> Any:
    """Devices whose start and sharing cost nothing; no process is started for them."""
    in_force(PlanningPolicy, device_begin_seconds=0.0, device_join_seconds=0.0, device_group_seconds=0.0)
    in_force(PlanningPolicy, device_step_seconds=0.0, device_slice_seconds=0.0, device_least_gain=0.0)
    in_force(BudgetPolicy, spread_seconds=0.0, margin_bytes=0)
    slow = DeviceRates(Rates(1e6, 1e6, 1e12, 1e-7))
    monkeypatch.setattr(Resources, "device_rates", lambda *_: slow)
    monkeypatch.setattr(placement, "DaskPools", None)
    monkeypatch.setattr(device_threads, "_BEGUN", {0})
    with device(monkeypatch, cards=request.param) as stand_in:
        yield stand_in


@pytest.fixture
def used(there: StandIn) -> Counter[int]:
    """How many steps each device ran; the first device waits for a second one."""
    found: Counter[int] = Counter()
    several = Event()

    def on_step() -> None:
        found[present_device()] += 1
        if len(found) > 1:
            several.set()
        several.wait(20)

    there.on_step = on_step
    return found


def assert_same(found: Any, expected: Any) -> None:
    """Compare answers: integers bit for bit."""
    assert found.status == expected.status
    if expected.value is None:
        assert found.log10 == pytest.approx(expected.log10, rel=1e-12)
    else:
        assert found.value == pytest.approx(expected.value, rel=1e-12, abs=0)


@pytest.mark.parametrize(("query", "kind"), QUESTIONS)
def test_slices_are_divided_among_devices(there: StandIn, used: Counter[int], query: str, kind: str) -> None:
    model = grid(3, 3, 4, kind)
    expected = bucketflow.solve(model, query)
    found = bucketflow.solve(model, query, gpus=there.cards, method="dense")
    assert found.plan is not None
    assert found.plan.slices > 1
    assert len(used) > 1
    assert_same(found, expected)
    assert found.dask is not None
    assert found.dask.tasks == 0
    assert f"{there.cards} GPUs" in found.dask.text


def test_slices_with_the_least_bounds_first_are_divided_too(
    there: StandIn, used: Counter[int], in_force: InForce
) -> None:
    in_force(SlicePolicy, least_seconds=0.0, bounds_part=1e-9, device_cell_seconds=1e-9)
    model = grid(3, 3, 4, "cost")
    found = bucketflow.solve(model, gpus=there.cards, method="dense")
    assert found.plan is not None
    assert found.plan.slices > 1
    assert len(used) > 1
    assert found.value == bucketflow.solve(model).value


@pytest.mark.parametrize("max_marginals", [False, True])
def test_propagations_in_slices_are_divided(
    there: StandIn, max_marginals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_parts, "CORES_OF_A_DEVICE", 1e-3)
    cards = set[int]()
    monkeypatch.setattr(device_slices, "checked_device", lambda *_: FakeMessages(cards))
    model = grid(4, 4, 4, "cost" if max_marginals else "markov")
    expected = bucketflow.marginals(model, max_marginals=max_marginals)
    found = bucketflow.marginals(model, max_marginals=max_marginals, gpus=there.cards, fit="slice", gpu_memory=28_666)
    assert found.plan is not None
    assert found.plan.slices >= there.cards
    assert len(cards) > 1
    for name in model.names:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-13)


class FakeMessages:
    """A device that proves no slice, so that the CPU sweeps each."""

    def __init__(self, cards: set[int]) -> None:
        cards.add(present_device())
        for _ in range(2000):  # until a second device has taken a group
            if len(cards) > 1:
                break
            time.sleep(0.01)

    def replace_constants(self, _: Any) -> None:
        """Nothing to replace."""

    def run(self, _: Any) -> np.ndarray:
        """Return that products may have left the range of doubles."""
        return np.ones(1)


@pytest.mark.parametrize("folder", [False, True])
def test_boxes_are_divided_among_devices(there: StandIn, used: Counter[int], folder: bool, tmp_path: Path) -> None:
    model = grid(4, 5, 4, "cost")
    options = {"workdir": tmp_path / "run"} if folder else {}
    found = bucketflow.solve(
        model, gpus=there.cards, tree="bucket", fit="spill", method="dense", gpu_memory=30_700, **options
    )
    assert found.plan is not None
    assert found.plan.spill is not None
    assert len(used) > 1
    assert found.value == bucketflow.solve(model).value


def test_a_run_directory_of_slices_goes_on_with_fewer_devices(there: StandIn, tmp_path: Path) -> None:
    model = grid(3, 3, 4, "markov")
    options = {"workdir": tmp_path, "method": "dense"}
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt

    there.on_step = stop
    with pytest.raises(bucketflow.StoppedError):
        bucketflow.solve(model, "partition", gpus=there.cards, **options)
    there.on_step = tuple
    found = bucketflow.solve(model, "partition", gpus=1, **options)
    assert found.log10 == pytest.approx(bucketflow.solve(model, "partition").log10, rel=1e-12)


def test_more_devices_are_used_only_if_they_gain_time(there: StandIn) -> None:
    model = grid(3, 3, 4)
    plan = bucketflow.plan(model, gpus=there.cards)
    assert plan is not None
    resources = Resources(Options(gpus=there.cards))

    def devices(seconds: float, **policy: float) -> int:
        scaled = replace(plan, cost=replace(plan.cost, seconds=seconds / plan.slices), variant_from=0)
        with PlanningPolicy.using(device_step_seconds=0.0, device_least_gain=0.0, **policy):
            assert scaled.sweep_seconds == pytest.approx(seconds)
            return devices_of(scaled, resources)

    assert devices(1.0, device_begin_seconds=0.0, device_join_seconds=0.0) == there.cards
    assert devices(1.0, device_begin_seconds=2.0, device_join_seconds=0.0) == 1
    assert devices(1.0, device_begin_seconds=0.0, device_join_seconds=2.0) == 1
    device_threads._BEGUN.update(range(there.cards))
    assert devices(1.0, device_begin_seconds=2.0, device_join_seconds=0.0) == there.cards


def test_a_slow_device_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    imagine_devices(monkeypatch)
    pool, free, begun = DeviceThreads(2, 1), Event(), list[int]()

    def call(number: int) -> int:
        begun.append(number)
        if number == 0:
            assert free.wait(60)
        if number == 20:
            free.set()
        return number

    assert list(pool.stream(call, ((number,) for number in range(30)))) == list(range(30))


def test_results_that_wait_for_an_earlier_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    imagine_devices(monkeypatch)
    pool, asked = DeviceThreads(2, 1), list[int]()

    def calls() -> Iterator[tuple[int]]:
        for number in range(1000):
            asked.append(number)
            yield (number,)

    stream = pool.stream(lambda number: number, calls())
    assert next(stream) == 0
    assert len(asked) <= 2 * device_threads._WAITING + 1
    assert list(stream) == list(range(1, 1000))


def test_the_end_does_not_wait_for_a_device_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, free = DeviceThreads(2, 1), Event()
    monkeypatch.setattr(DeviceThreads, "begin", lambda _, place: place == 0 or free.wait(60))
    assert list(pool.stream(lambda number: number, ((number,) for number in range(5)))) == list(range(5))
    free.set()


def test_tasks_go_where_what_they_read_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    places: dict[int, int] = {}
    here: set[int] = set()

    def task(key: int) -> int:
        here.add(present_device())
        return key

    def near(key: int) -> int | None:
        places[key] = key % 2
        return key % 2

    imagine_devices(monkeypatch)
    pool = DeviceThreads(2, 1)
    nodes = {key: Node({key - 2} if key > 1 else set(), lambda key: (task, key), near=near) for key in range(20)}
    found = dict(pool.run_graph(nodes))
    assert found == {key: key for key in range(20)}
    assert here == {0, 1}
    assert places.keys() == nodes.keys()


def test_devices_are_started_beside_other_work(there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda, "Device", None)  # that fails
        for thread in device_threads.begin_beside(there.cards):
            thread.join()
    assert device_threads.begun_devices() == 1
    for thread in device_threads.begin_beside(there.cards):
        thread.join()
    assert device_threads.begun_devices() == there.cards
    assert device_threads.begin_beside(there.cards) == []
