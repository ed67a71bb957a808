"""An order that is asked for is that of the plan, one way and both ways; an unknown one is refused everywhere."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import bucketflow
from bucketflow import BudgetError, ModelError
from bucketflow.pipeline.orders import tried_orders
from bucketflow.pipeline.orders.effort import OrderPolicy
from bucketflow.pipeline.orders.tree_search import TreeName, TreeSearch
from bucketflow.pipeline.orders.tried_orders import OrderName, checked_rule, first_order
from bucketflow.pipeline.orders.two_way_search import tree_for_both_ways
from bucketflow.pipeline.trees.costs import two_way_seconds
from bucketflow.pipeline.trees.rewrites import split_stars
from bucketflow.pipeline.trees.tree import Tree, bucket_tree, junction_tree
from bucketflow.tasks.compiler.code_cache import impatient
from bucketflow.tasks.compiler.compile_limits import NotCompiledError
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
    expected = bucketflow.marginals(model, max_marginals=query == "max-marginals")
    for rule in RULES:
        found = bucketflow.marginals(model, max_marginals=query == "max-marginals", order=rule)
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
        lambda model: bucketflow.marginals(model, max_marginals=True, order="best"),
        lambda model: bucketflow.compile(grid(2, 2, 2, "markov"), order="best"),
    ],
)
def test_an_unknown_order_is_refused_by_everybody(ask: Any) -> None:
    with pytest.raises(ModelError, match=r"unknown order 'best'; known are auto, min-fill, .*"):
        ask(grid(3, 3, 2))
    with pytest.raises(ModelError, match="unknown order 'min_fill'"):
        checked_rule("min_fill")


def tangled(kind: str = "markov") -> bucketflow.Model:
    """A network on which the heuristics decide differently: random pairs of variables of 2 to 6 states."""
    rng = np.random.default_rng(3)
    sizes = [int(n) for n in rng.integers(2, 7, 40)]
    pairs = sorted({(int(v), int(u)) for v in range(1, 40) for u in rng.integers(max(0, v - 7), v, 2)})
    functions = [([f"x{v}", f"x{u}"], rng.integers(1, 9, (sizes[v], sizes[u]))) for v, u in pairs]
    values = [(scope, table if kind == "cost" else table / 9) for scope, table in functions]
    return bucketflow.Model.build(kind, {f"x{v}": n for v, n in enumerate(sizes)}, values)


@pytest.mark.parametrize("query", ["marginals", "max-marginals", "optimum"])
def test_each_heuristic_has_a_plan_of_its_own(query: Any) -> None:
    """Also where the search goes on after its first order, both ways and one way."""
    model = tangled("cost" if query == "optimum" else "markov")
    plans = {rule: bucketflow.plan(model, query, order=rule, tree="bucket", order_time=0.0) for rule in RULES}
    for rule, plan in plans.items():
        order = first_order(plan.dims, plan.tree.leaves, rule)
        assert plan.tree == bucket_tree(plan.dims, plan.tree.leaves, order), rule
    assert len({plan.tree.children for plan in plans.values()}) == len(RULES) - 1  # "auto" begins with min-fill
    refined = {rule: bucketflow.plan(model, query, order=rule).tree.children for rule in RULES}
    assert len(set(refined.values())) >= 4


def test_a_compiled_model_has_the_order_that_was_asked_for() -> None:
    trees = set()
    for rule in RULES:
        plan = bucketflow.compile(tangled(), order=rule, tree="bucket").plan
        assert plan.tree == bucket_tree(plan.dims, plan.tree.leaves, first_order(plan.dims, plan.tree.leaves, rule))
        trees.add(plan.tree.children)
    assert len(trees) == len(RULES) - 1


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("auto", "min-fill")])
def test_a_heuristic_that_is_not_compiled_in_time_is_refused_by_name(
    rule: OrderName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one had been taken, and nobody was told."""

    def late(*_: object, **__: object) -> None:
        raise NotCompiledError("greedy_order")

    monkeypatch.setattr(tried_orders, "search_order", late)
    with pytest.raises(BudgetError, match=f"the order '{rule}' needs loops that are not compiled"):
        both(rule)
    with pytest.raises(BudgetError, match="bucketflow warm compiles them ahead"):
        TreeSearch(DIMS, SCOPES, order=rule).cheapest()
    assert both("auto") == both("min-fill")


def wide_grid() -> TreeSearch:
    """A grid whose variables have 2 to 4 states: min-fill is blind to them, and tries one order."""
    n = 9
    dims = [2 + (3 * i + 5 * (i // n)) % 3 for i in range(n * n)]
    scopes = [(i, i + 1) for i in range(n * n) if (i + 1) % n] + [(i, i + n) for i in range(n * (n - 1))]
    return TreeSearch(dims, scopes, seed=1)


def swept(tree: Tree) -> int:
    return sum(tree.joined_cells)


@pytest.mark.parametrize("kind", get_args(TreeName))
def test_large_short_propagations_try_more_orders(kind: TreeName) -> None:
    """Whatever is predicted to be short, if the sweeps are large, and if the search need not be compiled first."""
    search = replace(wide_grid(), tree=kind)
    few = OrderPolicy.using(both_ways_tiny_cells=0, restart_least_seconds=inf, asked_cells=1 << 62)
    many = OrderPolicy.using(both_ways_tiny_cells=0, asked_cells=0, restart_least_seconds=0.0, pairs_share=1e3)
    with few:
        first = tree_for_both_ways(search)
    with many, impatient():
        better = tree_for_both_ways(search)
        again = tree_for_both_ways(search)
    assert better == again
    assert two_way_seconds(better, search.rates, 8) < two_way_seconds(first, search.rates, 8)
    if kind != "refined":  # others may sweep more cells, as products of matrices
        assert swept(better) < swept(first)


def test_an_order_that_was_given_is_kept_however_much_it_sweeps() -> None:
    search = wide_grid()
    order = tuple(range(len(search.dims)))[::-1]
    with OrderPolicy.using(both_ways_tiny_cells=0, asked_cells=0), impatient():
        for kind, build in ("bucket", bucket_tree), ("junction", junction_tree):
            found = tree_for_both_ways(replace(search, tree=kind, order=order))  # type: ignore[arg-type]
            assert found == build(search.dims, search.scopes, order)


@pytest.mark.parametrize(
    ("name", "cells", "largest"),
    [
        ("barley", 17_150_000, 7_257_600),
        ("diabetes", 9_830_000, 84_480),
        ("link", 25_100_000, 1 << 21),
        ("munin", 8_900_000, 448_000),
        ("munin3", 3_000_000, 156_800),
    ],
)
def test_junction_trees_of_large_networks_are_small(data: Path, name: str, cells: int, largest: int) -> None:
    """Cells of all cliques, and of the largest: 17.14, 9.82, 24.54, 8.82 and 2.98 million in a counted search.

    Impossible states are removed before. Bistaffa, Farinelli and Bombieri (2014) count all states: 17.1 million for
    barley, 9.8 for diabetes and 3.1 for munin3.
    """
    model = bucketflow.load(data / f"bn/{name}.bif.gz")
    with impatient():
        tree = bucketflow.plan(model, "marginals", tree="junction").tree
    assert swept(tree) <= cells
    assert max(tree.joined_cells) <= largest
