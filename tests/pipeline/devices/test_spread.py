"""Tables spread over the memory of several devices: the same answers, within each one's budget, on a stand-in."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

import bucketflow
from bucketflow.cluster.device_threads import DeviceThreads, present_device
from bucketflow.cluster.pool import Node
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.device_fit import SLOTS, HostBudget, fitted_for_device, spread_seconds
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.plans.stages import Spill
from bucketflow.pipeline.trees.costs import gpu_rates
from bucketflow.tasks.boxes.card_store import CardTables
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.device_stand_in import StandIn, device, imagine_devices
from tests.models import grid
from tests.policies import InForce

SMALL: dict[str, Any] = {
    "margin_bytes": 1 << 8,
    "chunk_bytes": (1 << 10, 1 << 12),
    "box_shares": (6,),
    "stored_runs": (),
}


def budget_of(model: Model, query: str) -> int:
    """The memory of a device half of which is for boxes, three at a time, that hold a third of what the plan needs."""
    plan = bucketflow.plan(model, query, gpus=1, tree="bucket")
    assert plan is not None
    return 2 * SLOTS * (model.nbytes + plan.peak_bytes // 2)


def spread_spill(result: bucketflow.Result) -> Spill:
    """The boxes of a plan whose tables are spread."""
    assert result.plan is not None
    spill = result.plan.spill
    assert spill is not None
    assert spill.cards
    return spill


def agree(found: bucketflow.Result, free: bucketflow.Result) -> None:
    assert (found.status, found.value) == (free.status, free.value)
    if free.log10 is not None:
        assert found.log10 == pytest.approx(free.log10, rel=1e-12)


@pytest.mark.parametrize(
    ("query", "kind", "cards"),
    [
        ("optimum", "cost", 2),
        ("optimum", "cost", 8),
        ("optimum", "markov", 4),
        ("partition", "markov", 2),
        ("count", "forbids", 4),
    ],
)
def test_tables_over_several_cards_give_the_same_answer(
    query: str, kind: str, cards: int, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, **SMALL)
    model = grid(4, 6, 5, kind)
    free = bucketflow.solve(model, query)
    with device(monkeypatch, cards=cards, peers=cards != 4) as there:
        budget = budget_of(model, query)
        found = bucketflow.solve(model, query, gpus=cards, tree="bucket", fit="spread", gpu_memory=budget)
    spill = spread_spill(found)
    assert spill.cards == cards
    assert spill.link_bytes > 0
    agree(found, free)
    assert sum(peak > 0 for peak in there.peaks) > 1
    assert max(there.peaks) <= budget


@pytest.mark.parametrize("cards", [2, 4, 8])
@pytest.mark.parametrize("share", [1.25, 1.5, 3])
@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov")])
def test_boxes_that_have_most_of_a_card_stay_within_it(
    query: str, kind: str, share: float, cards: int, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, **{**SMALL, "box_shares": (share,)})
    model = grid(4, 6, 5, kind)
    free = bucketflow.solve(model, query)
    with device(monkeypatch, cards=cards) as there:
        budget = budget_of(model, query)
        found = bucketflow.solve(model, query, gpus=cards, tree="bucket", fit="spread", gpu_memory=budget)
    assert found.plan is not None
    assert spread_spill(found).card_boxes == 1
    assert found.plan.peak_bytes <= budget
    agree(found, free)
    assert max(there.peaks) <= budget


@pytest.mark.parametrize("cards", [4, 8])
@pytest.mark.parametrize(
    ("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov"), ("count", "forbids")]
)
def test_cards_reduce_parts_of_what_a_step_eliminates_where_no_box_of_its_output_fits(
    query: str, kind: str, cards: int, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, **{**SMALL, "chunk_bytes": (1 << 8, 1 << 10)})
    model = grid(4, 5, 3, kind)
    free = bucketflow.solve(model, query)
    with device(monkeypatch, cards=cards) as there:
        plan = bucketflow.plan(model, query, gpus=1, tree="refined")
        assert plan is not None
        budget = 2 * SLOTS * (model.nbytes + plan.peak_bytes // 2 + SMALL["margin_bytes"])
        found = bucketflow.solve(model, query, gpus=cards, tree="refined", fit="spread", gpu_memory=budget)
    assert any(table.shared for table in spread_spill(found).tables.values())
    agree(found, free)
    assert sum(peak > 0 for peak in there.peaks) > 1
    assert max(there.peaks) <= budget


def test_peers_and_the_host_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(BudgetPolicy, **SMALL)
    model, found = grid(4, 6, 5, "markov"), []
    for peers in (True, False):
        with monkeypatch.context() as patch, device(patch, cards=2, peers=peers):
            options: dict[str, Any] = {"gpus": 2, "tree": "bucket", "gpu_memory": budget_of(model, "partition")}
            found.append(bucketflow.solve(model, "partition", fit="spread", **options))
    assert found[0].log10 == found[1].log10
    assert [any("do not reach each other" in note for note in each.notes) for each in found] == [False, True]


def test_tables_are_spread_where_that_is_faster_than_slices(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(
        BudgetPolicy,
        margin_bytes=0,
        chunk_bytes=(1 << 10, 1 << 20),
        stored_trials=8,
        box_shares=(2, 6),
        spread_seconds=0.0,
    )
    for name in ("BOX_SECONDS", "CHUNK_SECONDS"):
        monkeypatch.setattr(f"bucketflow.pipeline.budget.spill.{name}", 0.0)
    scopes = [(v, v + d) for v in range(169) for d in (1, 13) if v + d < 169 and (d == 13 or v % 13 < 12)]
    problem = Problem((2,) * 169, tuple(scopes), MIN_PLUS, itemsize=4)
    rates = replace(gpu_rates(MIN_PLUS), step_seconds=0.0)
    options = PlanOptions(memory_bytes=30_000, decode=False, device=True, order="min-fill", tree="bucket")
    planner = Planner(problem, options, rates)
    two, around = (HostBudget(0, False, 0, lambda: 1e9, cards=cards) for cards in (2, 8))
    with pytest.raises(bucketflow.BudgetError, match="of 2 devices, which have"):
        fitted_for_device(planner, "spread", two, 2)
    assert fitted_for_device(planner, "auto", two, 2).chosen.way == "slices"
    sliced = fitted_for_device(planner, "slice", around, 8).chosen
    spread = fitted_for_device(planner, "spread", around, 8).chosen
    chosen = fitted_for_device(planner, "auto", around, 8).chosen
    assert sliced.slice_overhead >= 1.5
    assert spread.seconds < spread_seconds(planner, sliced, 8)
    assert spread.peak_bytes <= planner.memory_bytes
    assert spread.spill is not None
    assert chosen.spill == spread.spill
    in_force(BudgetPolicy, spread_seconds=0.5)  # what is done at once stays in slices
    assert fitted_for_device(planner, "auto", around, 8).chosen.way == "slices"
    assert "8 cards" in dict(spread.rows())


def test_a_fault_on_a_card_ends_cleanly(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(BudgetPolicy, **SMALL)
    model = grid(4, 6, 5)

    def broken(there: StandIn) -> None:
        raise ValueError("the card fell off the bus")

    with device(monkeypatch, cards=2) as there:
        options: dict[str, Any] = {"gpus": 2, "tree": "bucket", "gpu_memory": budget_of(model, "optimum")}
        with monkeypatch.context() as patch:
            patch.setattr(CardTables, "load", lambda *_, **__: broken(there))
            with pytest.raises(ValueError, match="fell off the bus"):
                bucketflow.solve(model, fit="spread", **options)
        gc.collect()
        assert there.held == [0, 0]
        assert bucketflow.solve(model, fit="spread", **options).value == bucketflow.solve(model).value


@pytest.mark.parametrize(
    ("cards", "options", "why"),
    [
        (1, {"gpus": 1}, "several GPUs of this machine, and 1 is used"),
        (1, {}, "several GPUs of this machine, and none is used"),
        (2, {"gpus": 2, "workdir": "run"}, "a run directory keeps its tables in files"),
    ],
)
def test_spreading_is_refused_in_a_sentence(
    cards: int, options: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with device(monkeypatch, cards=cards), pytest.raises(bucketflow.ModelError, match=why):
        bucketflow.plan(grid(4, 4, 3), fit="spread", **options)


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


def test_slices_of_several_devices_sweep_what_they_share_once() -> None:
    scopes = [(v, v + d) for v in range(169) for d in (1, 13) if v + d < 169 and (d == 13 or v % 13 < 12)]
    problem = Problem((2,) * 169, tuple(scopes), MIN_PLUS, itemsize=4)
    options = PlanOptions(memory_bytes=30_000, decode=False, device=True, order="min-fill", tree="bucket")
    planner = Planner(problem, options, replace(gpu_rates(MIN_PLUS), step_seconds=0.0))
    plan = fitted_for_device(planner, "slice", HostBudget(0, False, 0, lambda: 1e9)).chosen
    assert plan.slices > 1
    assert plan.shared_seconds > 0
    assert spread_seconds(planner, plan, 1) == pytest.approx(plan.seconds)
    each = plan.cost.seconds - plan.shared_seconds
    assert spread_seconds(planner, plan, 2) == pytest.approx(plan.shared_seconds + plan.slices / 2 * each)


def test_slices_that_repeat_much_are_searched_longer(in_force: InForce) -> None:
    scopes = [(v, v + d) for v in range(576) for d in (1, 24) if v + d < 576 and (d == 24 or v % 24 < 23)]
    problem = Problem((2,) * 576, tuple(scopes), MIN_PLUS, itemsize=4)
    options = PlanOptions(memory_bytes=1 << 23, decode=False, device=True)
    around, plans = HostBudget(0, False, 0, lambda: 1e9), []
    for share in (0.0, 0.3):
        in_force(BudgetPolicy, repeated_search=share, repeated_search_least=0.01)
        planner = Planner(problem, options, gpu_rates(MIN_PLUS))
        plans.append(fitted_for_device(planner, "slice", around).chosen)
    short, long = plans
    assert short.slices > 1
    assert long.seconds < 0.8 * short.seconds
    assert max(plan.peak_bytes for plan in plans) <= options.memory_bytes
