"""Planning is bounded by counted work: few plans for short runs, refusals before anything is lowered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline import plans
from bucketflow.pipeline.budget import fit, sliced_plans
from bucketflow.pipeline.budget.fit import fitted
from bucketflow.pipeline.errors import BudgetError, format_bytes, format_count
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.orders import min_fill
from bucketflow.pipeline.orders.effort import (
    FUNCTION_SECONDS,
    LEAST,
    LEAST_SEARCH,
    SHARE,
    OrderPolicy,
    PlanningBudget,
    SearchRounds,
)
from bucketflow.pipeline.orders.tree_search import TreeName, TreeSearch
from bucketflow.pipeline.orders.two_way_search import tree_for_both_ways
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner, forget_plans
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.trees.costs import Rates, tree_cost, two_way_seconds
from bucketflow.pipeline.trees.tree import Tree, bucket_tree
from bucketflow.tasks.compiler.code_cache import impatient
from bucketflow.tasks.steps.semiring import SUM_PRODUCT
from tests.policies import InForce

DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(plans.__file__).resolve().parents[3] / "shared" / "data"))
RATES = Rates()


def grid(rows: int, columns: int, states: int) -> Problem:
    """All marginals of a grid."""
    across = [(v, v + 1) for v in range(rows * columns) if v % rows < rows - 1]
    along = [(v, v + rows) for v in range(rows * (columns - 1))]
    dims = (states,) * (rows * columns)
    return Problem(dims, (*across, *along), SUM_PRODUCT, 8, 0, tuple((v,) for v in range(len(dims))))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are made on the way to one."""
    made: list[Plan] = []
    original = Planner.lowered

    def lowered(*args: Any, **more: Any) -> Plan | None:
        if plan := original(*args, **more):
            made.append(plan)
        return plan

    monkeypatch.setattr(Planner, "lowered", lowered)
    forget_plans()
    return made


def test_an_account_allows_a_share_of_the_run_or_a_little():
    effort = PlanningBudget()
    effort.spend(0.1)
    assert effort.left(0.0) == pytest.approx(LEAST - 0.1)
    assert effort.left(100.0) == pytest.approx(100 * SHARE - 0.1)
    with effort.set_aside(0.5):
        assert effort.left(0.0) == pytest.approx((LEAST - 0.1) / 2)
        assert effort.left(100.0) == pytest.approx((100 * SHARE - 0.1) / 2)
    assert effort.left(0.0) == pytest.approx(LEAST - 0.1)
    assert PlanningBudget(asked=2.0, spent=0.1).allows(2.0, 0.0)
    assert not PlanningBudget(spent=inf).allows(0.0, 1e9)


def rounds_of(rounds: SearchRounds, runs: Sequence[float]) -> list[float]:
    """Return the seconds of the rounds of a search, given the predicted run of its best tree after each round."""
    found: list[float] = []
    for run in runs:
        found.append(rounds.next_seconds(sum(found), run))
    return found


def test_a_search_ends_when_its_best_tree_runs_soon() -> None:
    """The first tree would run for an hour, the next one for a tenth of a second."""
    assert rounds_of(SearchRounds(LEAST_SEARCH, 8.0), [3600.0, 0.1]) == [LEAST_SEARCH, 0.0]
    # the first round runs for short runs too
    assert rounds_of(SearchRounds(LEAST_SEARCH, 8.0), [1e-3, 1e-3]) == [LEAST_SEARCH, 0.0]


def test_rounds_double_up_to_a_share_of_the_run() -> None:
    found = rounds_of(SearchRounds(LEAST_SEARCH, 8.0), [10.0 * 0.95**i for i in range(9)])
    assert found[:3] == [LEAST_SEARCH, 2 * LEAST_SEARCH, 4 * LEAST_SEARCH]
    assert found[-1] == 0.0
    assert 0.5 < sum(found) <= SHARE * 10.0


def test_a_round_that_is_not_expected_to_gain_its_time_is_not_searched() -> None:
    """No round gains anything: the last round takes at most the gain that chance may have hidden."""
    run, several = 8.0, [8.0] * 9
    found = rounds_of(SearchRounds(LEAST_SEARCH, 8.0), several)
    assert 0.0 < sum(found) < 0.5 * SHARE * run
    # rounds that gain a tenth each are followed by another round
    assert sum(rounds_of(SearchRounds(LEAST_SEARCH, 8.0), [run * 0.9**i for i in range(9)])) > sum(found)


def test_a_requested_time_is_used_whatever_the_run() -> None:
    assert sum(rounds_of(SearchRounds(1.0, 1.0), [1e-3] * 9)) == pytest.approx(1.0)
    # requested trees are searched for at least this time, and for a fraction of a longer run
    assert sum(rounds_of(SearchRounds(0.5, 8.0), [1e-3] * 9)) == pytest.approx(0.5)
    assert sum(rounds_of(SearchRounds(0.5, 8.0), [60.0] * 9)) > 1.0


@pytest.mark.skipif(not DATA.exists(), reason="the benchmark instances are not here")
@pytest.mark.parametrize("both", [False, True])
def test_short_runs_are_planned_for_one_round(both: bool) -> None:
    """The first round finds a tree that is several times faster. The run is then short, so no second round follows."""
    network = reduce_model(load(DATA / "uai" / "uai2008_linkage" / "pedigree20.erg.gz"), "partition", {})
    search = TreeSearch(network.dims, network.scopes)
    find = tree_for_both_ways if both else TreeSearch.cheapest
    price = two_way_seconds if both else lambda tree, *_: tree_cost(tree).seconds
    first = bucket_tree(network.dims, network.scopes, search.first_order)
    with impatient():
        found, again = (find(search, effort := PlanningBudget()) for _ in range(2))
    assert found == again
    assert price(found, RATES, 8) < 0.5 * price(first, RATES, 8)
    assert effort.spent - 2 * FUNCTION_SECONDS * len(network.scopes) < 1.6 * LEAST_SEARCH


@pytest.mark.parametrize("kind", ["bucket", "junction"])
def test_requested_trees_of_long_propagations_are_searched_longer(kind: TreeName) -> None:
    """The time grows with the cells at first, and is a share of a long propagation."""
    problem = replace(grid(6, 9, 3), targets=None)
    spent = []
    for speed in (1e9, 1e5):
        search = TreeSearch(problem.dims, problem.scopes, tree=kind, rates=Rates(speed, speed, speed))
        with impatient(), OrderPolicy.using(asked_cells=0):
            tree_for_both_ways(search, effort := PlanningBudget())
        spent.append(effort.spent)
    assert spent[1] > 2 * spent[0]


def test_short_propagations_are_fitted_with_few_plans(planned: list[Plan]) -> None:
    problem = grid(8, 40, 3)
    whole = Planner(problem, PlanOptions(), RATES).whole()
    planned.clear()
    options = PlanOptions(memory_bytes=whole.peak_bytes // 4)
    found = fitted(Planner(problem, options, RATES), "auto", 1 << 62, lambda: 5e8).chosen
    assert found.peak_bytes <= options.memory_bytes
    assert found.seconds <= 1.1 * whole.seconds
    assert len(planned) <= 3


@pytest.mark.parametrize("targets", [None, ((0,), (1,))])
def test_hopeless_networks_are_refused_before_a_step_is_lowered(
    targets: tuple[tuple[int, ...], ...] | None, planned: list[Plan]
) -> None:
    problem = Problem((99,) * 60, tuple(combinations(range(60), 2)), SUM_PRODUCT, 8, 0, targets)
    with pytest.raises(BudgetError, match=r"allowed 1\.00 GB|allowed 1 GB"):
        fitted(Planner(problem, PlanOptions(memory_bytes=10**9), RATES), "auto", 1 << 62, lambda: 5e8)
    assert planned == []


def test_numbers_that_no_float_holds_are_written() -> None:
    assert format_count(4 << 20) == "4.19e+06"
    assert format_count(10**400) == "2^1328"
    assert format_bytes(10**400).endswith(" PB")


def test_a_long_search_asks_once_whether_it_is_worth_it(in_force: InForce) -> None:
    problem = replace(grid(8, 12, 3), targets=None)
    asked = []
    in_force(OrderPolicy, doubtful_seconds=0.04)

    def check(tree: object) -> None:
        asked.append(tree)
        raise BudgetError("hopeless")

    slow = Rates(1e5, 1e5, 1e5)
    for _ in range(2):
        with pytest.raises(BudgetError, match="hopeless"):
            TreeSearch(problem.dims, problem.scopes, rates=slow).trees(check=check)
    assert len(asked) == 2
    assert asked[0] == asked[1]
    TreeSearch(problem.dims, problem.scopes, seconds=0.1, rates=slow).trees(check=check)
    assert len(asked) == 2


def test_a_search_for_both_ways_takes_a_share_of_both_sweeps() -> None:
    problem = replace(grid(8, 12, 3), targets=None)
    search = TreeSearch(problem.dims, problem.scopes, rates=Rates(2e5, 2e5, 2e6))
    spent = []
    for find in (TreeSearch.cheapest, tree_for_both_ways):
        find(search, effort := PlanningBudget())
        spent.append(effort.spent)
    assert spent[1] > 2 * spent[0]


def test_what_more_memory_would_only_bring_within_weeks_is_hopeless() -> None:
    problem = replace(grid(8, 12, 3), targets=None)
    tree = TreeSearch(problem.dims, problem.scopes, seconds=0.0).trees()[0]
    fast, slow = Rates(1e9, 1e9, 1e9), Rates(1e-2, 1e-2, 1e-2)
    # in slices it fits four times as much
    options = PlanOptions(memory_bytes=least_sliced(problem, tree) - 1)
    fit.refuse_hopeless(tree, Planner(problem, options, fast), "slice", None)
    with pytest.raises(BudgetError, match="slicing would take"):
        fit.refuse_hopeless(tree, Planner(problem, options, slow), "slice", None)
    # what fits is searched for however long it takes
    planner = Planner(problem, replace(options, memory_bytes=4 * options.memory_bytes), slow)
    fit.refuse_hopeless(tree, planner, "slice", None)


def test_boxes_that_do_not_fit_more_memory_are_not_tried_in_less() -> None:
    problem = replace(grid(8, 12, 3), targets=None)
    tree = TreeSearch(problem.dims, problem.scopes, seconds=0.0).trees()[0]
    asked: list[int] = []

    def spilled(planner: Planner, whole: Plan) -> Plan:
        asked.append(planner.memory_bytes)
        raise BudgetError("no box fits")

    options = PlanOptions(memory_bytes=1000)
    with pytest.raises(BudgetError, match="allowed 1 kB; slicing"):
        fit.refuse_hopeless(tree, Planner(problem, options, RATES), "auto", spilled)
    assert asked == [4000]


def least_sliced(problem: Problem, tree: Tree) -> int:
    """The memory, to a factor of two, in which no slices of a tree fit."""
    memory = 1 << 20
    with suppress(BudgetError):
        while True:
            planner = Planner(problem, PlanOptions(memory_bytes=memory), RATES, PlanningBudget(spent=inf))
            sliced_plans.sliced_plan(planner, [planner.of(tree)])
            memory //= 2
    return memory + 1


@pytest.mark.skipif(not DATA.exists(), reason="the benchmark instances are not here")
def test_short_propagations_keep_no_more_messages_than_they_need() -> None:
    network = reduce_model(load(DATA / "bn" / "link.bif.gz"), "partition", {})
    targets = tuple((v,) for v in range(len(network.dims)))
    plan = Planner(Problem(network.dims, network.scopes, SUM_PRODUCT, 8, 0, targets), PlanOptions(), RATES).whole()
    assert plan.peak_bytes < 30e6


def test_the_first_order_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an optimum is swept is asked of the order that the search then begins with."""
    graphs = []

    class Counted(min_fill.FillGraph):
        def __init__(self, dims: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
            graphs.append(dims)
            super().__init__(dims, scopes)

    monkeypatch.setattr(min_fill, "FillGraph", Counted)
    min_fill.remembered_min_fill.cache_clear()
    bucketflow.solve(bucketflow.load("satellite"))
    assert len(graphs) == 1
