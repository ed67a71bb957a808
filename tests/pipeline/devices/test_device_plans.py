"""Plans for devices: cut over several of them, kept within their memory, and chosen between slices and boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.cluster import gpus as cluster_gpu
from bucketflow.pipeline.answering.prepared import planner_of, prepare
from bucketflow.pipeline.answering.question import Question
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget import device_fit as device
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.device_fit import SLOTS, HostBudget, boxes_at_a_time, fitted_for_device, spread_seconds
from bucketflow.pipeline.machine.device import DeviceRates
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.orders.effort import LEAST_ON_DEVICE
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.plans import planner as planner_module
from bucketflow.pipeline.plans.plan import Plan, with_rates
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanningPolicy, PlanOptions, Problem
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.trees.costs import Rates, gpu_rates, tree_cost
from bucketflow.pipeline.trees.tree import bucket_tree
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.device_stand_in import StandIn
from tests.device_stand_in import device as stand_in
from tests.models import grid, named_model
from tests.policies import InForce

DATA = Path(__file__).parents[4] / "shared" / "data" / "uai"


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with stand_in(monkeypatch) as there:
        monkeypatch.setattr(cluster_gpu, "visible_gpus", lambda: ["0", "1", "2", "3"])
        yield there


def planned(model: bucketflow.Model, **options: Any) -> Plan:
    plan = bucketflow.plan(model, **options)
    assert plan is not None
    return plan


def complete_graph(variables: int, states: int) -> bucketflow.Model:
    """Every slice does its share and nothing twice."""
    pairs = list(combinations(range(variables), 2))
    functions = [Function(pair, np.ones((states, states), np.int64)) for pair in pairs]
    return named_model("cost", [states] * variables, functions)


@pytest.mark.parametrize(
    ("file", "query"),
    [
        ("uai2008_protein/pdb1hyp.uai.xz", "partition"),
        ("uai2014/linkage_14.uai.xz", "optimum"),
        ("uai2006_pe/BN_0.erg.gz", "optimum"),
    ],
)
@pytest.mark.skipif(not DATA.exists(), reason="public instances are not here")
def test_a_device_takes_no_dearer_tree_than_a_host(file: str, query: Any) -> None:
    """Searches by a device's rates end before they have found much: 26 times the cells for half again the seconds.

    What a longer search would save has to be worth it: a twentieth of what planning for a device may take.
    """
    worthless = LEAST_ON_DEVICE / 20
    model = bucketflow.load(DATA / file)
    there, here = planned(model, query=query, gpus=1), planned(model, query=query, memory="100GB")
    rates = gpu_rates(here.up[0].lowered.semiring)
    assert there.seconds <= 1.05 * with_rates(here, rates).seconds + worthless
    assert there.cells <= 4 * here.cells or there.seconds < with_rates(here, rates).seconds


def test_of_the_trees_for_a_device_only_the_one_that_runs_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are found by three kinds of rates, and compared before their steps are lowered."""
    model, made, trees = grid(8, 12, 6), [], []
    lowered, find = Planner.lowered, TreeSearch.trees
    monkeypatch.setattr(Planner, "lowered", lambda *args, **more: made.append(1) or lowered(*args, **more))
    monkeypatch.setattr(TreeSearch, "trees", lambda *args, **rest: trees.append(find(*args, **rest)) or trees[-1])
    whole = planned(model, gpus=1, gpu_memory="60GB")
    assert len(trees) == 3
    assert len(made) == 1
    rates = gpu_rates(whole.up[0].lowered.semiring)
    options = PlanOptions(decode=True, device=True)
    problem = prepare(Question(model, "optimum"), Resources(Options(gpus=1))).problem
    joined = [Planner(problem, options, rates).joined(found[0]) for found in trees]
    assert whole.seconds == pytest.approx(min(tree_cost(tree, rates, whole.itemsize).seconds for tree in joined))


def test_the_first_of_several_trees_is_planned_though_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is known not to fit before it is planned, the other only then."""
    problem = prepare(Question(grid(4, 4, 3), "optimum"), Resources(Options())).problem
    options, rates = PlanOptions(memory_bytes=1, device=True), gpu_rates(problem.semiring)
    large, small = (bucket_tree(problem.dims, problem.scopes, order) for order in (range(16), range(15, -1, -1)))
    monkeypatch.setattr(device, "least_bytes", lambda _, tree: 2 * (tree is large))
    monkeypatch.setattr(planner_module, "least_bytes", lambda _, tree: 2 * (tree is large))
    for seconds, order in ((0.8, (large, small)), (1.2, (small, large))):
        first, second = device.cheapest_first(Planner(problem, options, rates), [(1.0, small), (seconds, large)])
        assert isinstance(first, Plan)
        assert (first.tree, second.tree) == order


def test_no_further_tree_is_searched_for_a_short_run_of_many_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[object] = []
    find = TreeSearch.trees
    monkeypatch.setattr(TreeSearch, "trees", lambda *args, **rest: trees.append(1) or find(*args, **rest))
    monkeypatch.setattr(device, "FUNCTION_SECONDS", 1.0)
    planned(grid(8, 12, 6), gpus=1)
    assert len(trees) == 1


def test_one_huge_step_is_cut_over_all_devices(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    model = complete_graph(12, 4)
    assert planned(model, gpus=4).slices == 1
    in_force(BudgetPolicy, spread_seconds=0.0)
    in_force(PlanningPolicy, device_begin_seconds=0.0, device_join_seconds=0.0)
    rates = Rates(1e8, 1e8, 1e12, 1e-7)
    monkeypatch.setattr(Resources, "device_rates", lambda *_: DeviceRates(rates))
    alone, spread = planned(model, gpus=1), planned(model, gpus=4)
    assert alone.slices == 1
    assert 4 <= spread.slices <= 2 * BudgetPolicy.device_slices * 4
    assert spread.tree.children == alone.tree.children
    assert spread.slice_overhead == 1.0
    planner = Planner(
        prepare(Question(model, "optimum"), Resources(Options())).problem, PlanOptions(decode=True), rates
    )
    assert device.spread_seconds(planner, spread, 4) < 0.4 * device.spread_seconds(planner, alone, 4)
    assert spread.peak_bytes <= alone.peak_bytes


def test_independent_subtrees_are_left_whole(in_force: InForce) -> None:
    in_force(BudgetPolicy, spread_seconds=0.0)
    part = grid(4, 4, 3)
    functions = [replace(f, scope=tuple(v + 16 * i for v in f.scope)) for i in range(16) for f in part.functions]
    names = tuple(f"x{v}" for v in range(16 * 16))
    model = replace(part, names=names, dims=(3,) * 256, states=(None,) * 256, functions=tuple(functions))
    assert planned(model, gpus=4).slices == 1


@pytest.mark.parametrize("joined", [False, True])
def test_propagations_are_cut_as_they_are_done_first(
    joined: bool, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """One huge step into slices, subtrees that wait for nothing into parts, by the same predicted seconds."""
    monkeypatch.setattr(Resources, "distributed", True)  # threads of one process take no parts
    model = complete_graph(9, 4)
    if not joined:  # many of them, which share one variable
        parts = complete_graph(5, 4).functions
        functions = [replace(f, scope=tuple(v and v + 4 * i for v in f.scope)) for i in range(12) for f in parts]
        model = named_model("cost", [4] * 49, functions)
    in_force(BudgetPolicy, spread_seconds=0.0)
    in_force(PlanningPolicy, start_seconds=0.0, part_seconds=0.0, device_begin_seconds=0.0, sent_bytes=1 << 40)
    monkeypatch.setattr(device, "TASK_SECONDS", 0.0)
    plan = planned(model, query="max-marginals", gpus=4, gpu_memory="1GB")
    alone = planned(model, query="max-marginals", gpus=1, gpu_memory="1GB")
    assert (alone.slices, alone.parts) == (1, None)
    assert (plan.slices > 1) == joined
    prepared = prepare(Question(model, "max-marginals"), Resources(Options(gpus=4)))
    planner = planner_of(prepared, 1 << 30)
    assert device.propagation_seconds(planner, plan, 4, 0.0) < device.propagation_seconds(planner, alone, 1, 0.0)
    in_force(PlanningPolicy, device_begin_seconds=1e6)
    assert planned(model, query="max-marginals", gpus=4, gpu_memory="1GB").slices == 1


def test_several_boxes_fit_the_device_together() -> None:
    model = grid(7, 7, 4)
    for memory in (SLOTS * (1 << 20) + 60_000, SLOTS * (1 << 20) + 200_000):
        plan = planned(model, gpus=1, tree="bucket", fit="spill", gpu_memory=memory)
        assert plan.spill is not None
        assert plan.peak_bytes == SLOTS * plan.spill.peak_bytes <= memory
        assert boxes_at_a_time(plan, memory) == SLOTS
        assert boxes_at_a_time(plan, plan.spill.peak_bytes) == 1
        assert boxes_at_a_time(plan, 0) == 1


@pytest.mark.parametrize("link_rate", [1e3, 1e15])
def test_the_cheaper_way_is_taken(link_rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 14, 8)  # slices repeat work
    monkeypatch.setattr(Resources, "device_rates", lambda *_: DeviceRates(Rates(1e7, 1e7, 1e10, 1e-6), link_rate))
    whole = planned(model, gpus=1, tree="bucket")
    memory = 16_000_000
    assert whole.peak_bytes > memory
    prepared = prepare(Question(model, "optimum"), Resources(Options(gpus=1, tree="bucket", gpu_memory=memory)))
    assert prepared.prices is not None
    slices, spill = prepared.prices.slices, prepared.prices.spill
    assert isinstance(slices, Plan)
    assert isinstance(spill, Plan)
    assert prepared.plan is min(slices, spill, key=lambda plan: plan.seconds)
    assert (prepared.plan is spill) == (link_rate > 1e10)


@pytest.mark.parametrize(("workdir", "place"), [(None, "host memory"), ("x", "disk")])
def test_a_plan_says_where_its_tables_are(workdir: str | None, place: str) -> None:
    memory = SLOTS * (1 << 20) + 60_000
    plan = planned(grid(7, 7, 4), gpus=1, tree="bucket", fit="spill", gpu_memory=memory, memory="1GB", workdir=workdir)
    assert place in dict(plan.rows())


def test_a_disk_that_is_too_small_is_refused() -> None:
    model = grid(7, 7, 4)
    memory = SLOTS * (1 << 20) + 60_000
    with pytest.raises(bucketflow.BudgetError, match="of disk, allowed 10 B"):
        planned(model, gpus=1, tree="bucket", fit="spill", gpu_memory=memory, memory=3 * memory, disk=10, workdir="x")


def test_a_run_does_not_measure_the_device_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before memory is measured the pool gives back its blocks: 44 GB had to be mapped anew in 0.13 s."""
    model = grid(6, 6, 3)
    prepared = prepare(Question(model, "optimum"), Resources(Options(gpus=1)))
    assert prepared.plan is not None
    assert prepared.plan.device

    def measured() -> int:
        raise AssertionError("measured again")

    monkeypatch.setattr(cluster_gpu, "free_gpu_bytes", measured)
    found = answered(replace(prepared, resources=Resources(Options(gpus=1))), None, None, [])
    assert isinstance(found, Result)
    assert found.value == bucketflow.solve(model).value


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


def test_slices_that_repeat_much_are_searched_longer(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """The first slices are planned in a tenth of their time; half of their work is repeated."""
    monkeypatch.setattr(device, "LEAST_ON_DEVICE", 0.0)
    rng = np.random.default_rng(9)
    scopes = sorted({tuple(sorted(rng.choice(110, 2, replace=False).tolist())) for _ in range(300)})
    problem = Problem((2,) * 110, tuple(scopes), MIN_PLUS, itemsize=4)
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
