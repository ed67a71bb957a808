"""Trees for sweeps by rows: chosen by the rows that their joins are expected to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.rows_fit import rows_plan
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.plans.row_bounds import expected_work, states_left
from bucketflow.pipeline.trees.tree import Tree, bucket_tree
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.policies import InForce

DIMS, SCOPES = (1000, 1000, 1000, 1), ((0, 1), (1, 2), (2, 3))


def test_rows_of_joins_are_expected() -> None:
    tree = bucket_tree(DIMS, SCOPES, (1, 0, 2, 3))
    # of 5000 x 3000 pairs one of 1000 agrees in variable 1; then a loop over the states of 2
    assert expected_work(tree, (5000, 3000, 1000)) == pytest.approx(15_000 + 1000 / 50)
    # a function of few rows leaves few; what has as many rows as cells is a loop
    assert expected_work(tree, (1, 3000, 1000)) == pytest.approx(3 + 3)
    assert expected_work(tree, (10**6, 10**6, 1000)) == pytest.approx(10**9 / 50 + 1000 / 50)


def test_states_that_sparse_tables_leave() -> None:
    assert states_left((10, 10, 10, 1), ((0, 1), (1, 2), (3,)), (10, 100, 1)) == pytest.approx(
        [10**0.5, 10**0.5, 10, 1]
    )


def test_the_tree_of_the_fewest_rows_is_taken(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    # a cycle: tables 0 and 1 have few rows, so that the variable of both is the one to begin with
    dims, scopes = (100,) * 4, ((0, 1), (1, 2), (2, 3), (3, 0))
    problem = Problem(dims, scopes, MIN_PLUS, 8, rows=(100, 100, 10**4, 10**4))
    worse, better = (bucket_tree(dims, scopes, order) for order in ((3, 0, 1, 2), (1, 0, 2, 3)))
    assert problem.rows is not None
    assert expected_work(better, problem.rows) < expected_work(worse, problem.rows)
    asked: list[Sequence[int]] = []

    def searched(planner: Planner, **_: Any) -> Tree:
        asked.append(planner.problem.dims)
        return replace(worse if planner.problem.dims == dims else better, dims=planner.problem.dims)

    monkeypatch.setattr(Planner, "tree", searched)
    assert rows_plan(Planner(problem)).tree.children == worse.children
    assert asked == [dims]  # over few rows nothing else is tried
    in_force(BudgetPolicy, searched_rows=0.0)
    # nor for whoever ends soon
    assert rows_plan(Planner(problem), most_work=1e7).tree.children == worse.children
    assert asked == [dims, dims]
    found = rows_plan(Planner(problem))
    assert (found.tree.children, found.tree.dims) == (better.children, dims)
    assert rows_plan(Planner(problem), worse).tree.children == better.children
    # every search is one for other sizes: of two states, two are left
    asked.clear()
    pairs = replace(problem, dims=(2,) * 4, rows=(2, 2, 4, 4))
    rows_plan(Planner(pairs), replace(worse, dims=pairs.dims))
    assert len(set(asked)) == len(asked)
    assert pairs.dims not in asked
    for given in (PlanOptions(order="min-fill"), PlanOptions(tree="bucket"), PlanOptions(children=worse.children)):
        assert rows_plan(Planner(problem, given)).tree.children == worse.children
