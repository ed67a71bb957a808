"""An order that is asked for is that of the plan, one way and both ways; an unknown one is refused everywhere."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import bucketflow
from bucketflow import ModelError
from bucketflow.pipeline.orders.tree_search import OrderName, TreeName, TreeSearch, checked_rule, first_order
from bucketflow.pipeline.orders.two_way_search import tree_for_both_ways
from bucketflow.pipeline.trees.rewrites import split_stars
from bucketflow.pipeline.trees.tree import Tree, bucket_tree, junction_tree
from tests.models import grid

RULES = get_args(OrderName)
# From five variables on these heuristics decide differently: a hub of many states, and a long cycle.
DIMS, SCOPES = (9, 3, 3, 3, 3, 2, 2), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (4, 5), (5, 6), (6, 1)]


def both(order: Any, tree: TreeName = "refined") -> Tree:
    return tree_for_both_ways(TreeSearch(DIMS, SCOPES, tree=tree, order=order, seed=3))


@pytest.mark.parametrize("rule", RULES)
def test_a_heuristic_gives_the_tree_of_both_passes(rule: OrderName) -> None:
    first = first_order(DIMS, SCOPES, rule, 3)
    assert sorted(first) == list(range(len(DIMS)))
    assert both(rule) == split_stars(bucket_tree(DIMS, SCOPES, first))
    assert both(rule, "bucket") == bucket_tree(DIMS, SCOPES, first)
    assert both(rule, "junction") == junction_tree(DIMS, SCOPES, first)


def test_heuristics_differ() -> None:
    """Else the test above would show little."""
    assert len({first_order(DIMS, SCOPES, rule, 3) for rule in RULES}) >= 3
    assert len({both(rule, "bucket").children for rule in RULES}) >= 2


@pytest.mark.parametrize("rule", ["min-degree", "min-size"])
def test_no_other_heuristic_has_a_say_one_way(rule: OrderName) -> None:
    """Min-fill is better on this model, and is not what was asked for."""
    found = TreeSearch(DIMS, SCOPES, tree="bucket", order=rule, seconds=0.0, seed=3).cheapest()
    assert found == bucket_tree(DIMS, SCOPES, first_order(DIMS, SCOPES, rule, 3))


@pytest.mark.parametrize("query", ["marginals", "max-marginals"])
def test_marginals_are_the_same_by_every_order(query: str) -> None:
    model = grid(4, 4, 3, "markov")
    expected = bucketflow.marginals(model, maximum=query == "max-marginals")
    for rule in RULES:
        found = bucketflow.marginals(model, maximum=query == "max-marginals", order=rule)
        for name in expected:
            assert found[name] == pytest.approx(expected[name], rel=1e-9)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: bucketflow.solve(model, order="best"),
        lambda model: bucketflow.solve(model, order="best", method="search"),
        lambda model: bucketflow.solve(model, order="best", time=1),
        lambda model: bucketflow.bound(model, order="best"),
        lambda model: bucketflow.plan(model, order="best"),
        lambda model: bucketflow.marginals(model, maximum=True, order="best"),
        lambda model: bucketflow.compile(grid(2, 2, 2, "markov"), order="best"),
    ],
)
def test_an_unknown_order_is_refused_by_everybody(ask: Any) -> None:
    with pytest.raises(ModelError, match=r"unknown order 'best'; known are auto, min-fill, .*"):
        ask(grid(3, 3, 2))
    with pytest.raises(ModelError, match="unknown order 'min_fill'"):
        checked_rule("min_fill")
