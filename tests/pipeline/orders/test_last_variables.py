"""Variables that go last: every search keeps to them, and none is better than the best order that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.budget.fit import fitted
from bucketflow.pipeline.budget.spill import plan_spill
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.orders.last_variables import trees_with_last
from bucketflow.pipeline.orders.tree_search import OrderName, TreeName, TreeSearch
from bucketflow.pipeline.orders.two_way_search import tree_for_both_ways
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.trees.tree import Tree, bucket_tree, elimination_order
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT

Scopes = tuple[tuple[int, ...], ...]
SLOW = Rates(1e3, 1e3, 1e3)  # so that searches of small networks go on


@st.composite
def networks(draw: Any, most: int = 6) -> tuple[tuple[int, ...], Scopes, frozenset[int]]:
    n = draw(st.integers(1, most))
    dims = tuple(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)))
    scope = st.lists(st.integers(0, n - 1), max_size=3, unique=True).map(tuple)
    scopes = tuple(draw(st.lists(scope, max_size=8)))
    return dims, scopes, frozenset(draw(st.sets(st.integers(0, n - 1), min_size=1)))


def least_clique(dims: Sequence[int], scopes: Scopes, last: frozenset[int]) -> int:
    """The cells of the largest bucket of the best order that keeps to the last variables, by looking at all."""
    first = [v for v in range(len(dims)) if v not in last]
    return min(
        largest_clique(bucket_tree(dims, scopes, (*before, *after)))
        for before in permutations(first)
        for after in permutations(sorted(last))
    )


def largest_clique(tree: Tree) -> int:
    return max(tree.joined_cells, default=1)


def check(tree: Tree, dims: Sequence[int], scopes: Scopes, last: frozenset[int]) -> None:
    """The tree is one of this network, eliminates every variable once, and the last ones after all others."""
    used = {v for scope in scopes for v in scope}
    assert (tree.dims, tree.leaves, tree.last) == (tuple(dims), scopes, last)
    order = elimination_order(tree)
    assert sorted(order) == list(range(len(dims)))
    assert set(order[len(dims) - len(last) :]) == last
    gone = [v for each in tree.eliminated for v in each]
    assert sorted(gone) == sorted(used)
    assert all(not tree.scopes[root] for root in tree.roots)
    for joined, each in zip(tree.joined, tree.eliminated, strict=True):
        assert joined <= last or not each & last
    parents = dict(enumerate(tree.parent))
    for node, each in enumerate(tree.eliminated, tree.n_leaves):
        above = parents[node]
        while each & last and above >= 0:
            assert tree.eliminated[above - tree.n_leaves] <= last
            above = parents[above]
    assert largest_clique(tree) >= least_clique(dims, scopes, last)


@settings(max_examples=60, deadline=None)
@given(networks(), st.sampled_from(get_args(TreeName)), st.sampled_from(get_args(OrderName)), st.booleans())
def test_every_search_keeps_to_the_last_variables(
    network: tuple[tuple[int, ...], Scopes, frozenset[int]], kind: TreeName, rule: OrderName, long: bool
) -> None:
    dims, scopes, last = network
    search = TreeSearch(dims, scopes, kind, rule, seconds=0.003 if long else None, rates=SLOW, longest=0.003)
    for tree in trees_with_last(search, last, TreeSearch.trees):
        check(tree, dims, scopes, last)
    (both,) = trees_with_last(search, last, lambda part: [tree_for_both_ways(part)])
    check(both, dims, scopes, last)


@settings(max_examples=60, deadline=None)
@given(networks(5), st.data())
def test_all_good_orders_are_found(network: tuple[tuple[int, ...], Scopes, frozenset[int]], data: Any) -> None:
    """The best order that keeps to them, given as it is, has a tree as narrow as its buckets."""
    dims, scopes, last = network
    order = tuple(data.draw(st.permutations(range(len(dims)))))
    search = TreeSearch(dims, scopes, "bucket", order)
    good = tuple(sorted(order, key=last.__contains__))
    (tree,) = trees_with_last(replace(search, order=good), last, TreeSearch.trees)
    check(tree, dims, scopes, last)
    assert largest_clique(tree) <= largest_clique(bucket_tree(dims, scopes, good))


@settings(max_examples=40, deadline=None)
@given(networks(), st.booleans(), st.booleans())
def test_plans_keep_to_them(network: tuple[tuple[int, ...], Scopes, frozenset[int]], decode: bool, both: bool) -> None:
    dims, scopes, last = network
    targets = tuple((v,) for v in sorted({v for scope in scopes for v in scope})) if both else None
    problem = Problem(dims, scopes, SUM_PRODUCT if both else MIN_PLUS, 8, targets=targets, last=last)
    planner = Planner(problem, PlanOptions(decode=decode and not both))
    for plan in planner.plans():
        check(plan.tree, dims, scopes, last)
    again = planner.with_options(children=planner.whole().tree.children).whole()
    check(again.tree, dims, scopes, last)
    # what is conditioned on is eliminated last of all
    for v in range(len(dims)):
        if v in last:
            assert planner.conditioned(again, frozenset({v})).slices == dims[v]
        else:
            with pytest.raises(BudgetError, match="eliminated before the last variables"):
                planner.conditioned(again, frozenset({v}))


def test_what_would_not_keep_to_them_is_refused_by_name() -> None:
    side = 8
    scopes = [(v, v + 1) for v in range(side**2) if (v + 1) % side] + [(v, v + side) for v in range(side**2 - side)]
    problem = Problem((4,) * side**2, tuple(scopes), MIN_PLUS, 8, last=frozenset(range(side)))
    whole = Planner(problem).whole()
    small = Planner(problem, PlanOptions(memory_bytes=whole.peak_bytes // 2))
    with pytest.raises(BudgetError, match="slices are impossible, because some variables must be eliminated last"):
        fitted(small, "slice", 0, lambda: 1e9)
    with pytest.raises(BudgetError, match="boxes on disk are impossible, because some variables must be"):
        plan_spill(small, whole, 1e9)
    with pytest.raises(BudgetError, match=r"boxes on disk are impossible, because some .*; leave"):
        plan_spill(Planner(problem), whole, 1e9)
    with pytest.raises(ValueError, match="is not rearranged"):
        small.search.refined(whole.tree)
    free = Planner(replace(problem, last=frozenset())).whole()
    assert largest_clique(whole.tree) >= largest_clique(free.tree)
    assert prod(whole.tree.dims[v] for v in range(side)) <= largest_clique(whole.tree)
