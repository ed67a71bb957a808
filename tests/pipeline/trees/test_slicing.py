"""Slicing: targets are met, and the work is what recounting gives."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.pipeline.trees.costs import Rates, tree_cost
from bucketflow.pipeline.trees.cutsets import _Incidence, slice_count, slice_tree
from bucketflow.pipeline.trees.tree import Tree, bucket_tree

CELLS_ONLY = Rates(1.0, 1.0, 1e30, 0.0, 0.0)
LOOPS_ONLY = Rates(step_seconds=0.0)


def sliced_work(tree: Tree, sliced: Set[int], rates: Rates = LOOPS_ONLY) -> float:
    """Return log2 of the predicted seconds of all slices together."""
    return log2(tree_cost(tree, rates, sliced=sliced).seconds * slice_count(tree, sliced))


def grid_tree(side: int = 7, d: int = 3) -> Tree:
    """Eliminate a grid row by row."""
    n = side * side
    scopes = [(i, i + 1) for i in range(n) if (i + 1) % side] + [(i, i + side) for i in range(n - side)]
    return bucket_tree((d,) * n, scopes, range(n))


@given(st.data())
def test_target_is_reached(data):
    n = data.draw(st.integers(2, 8))
    dims = data.draw(st.lists(st.sampled_from((2, 3, 5)), min_size=n, max_size=n))
    scope = st.lists(st.integers(0, n - 1), min_size=1, max_size=4, unique=True).map(tuple)
    scopes = data.draw(st.lists(scope, min_size=1, max_size=8))
    tree = bucket_tree(dims, scopes, data.draw(st.permutations(range(n))))
    target = data.draw(st.integers(1, 200))
    sliced = slice_tree(tree, target, rounds=3)
    cost = tree_cost(tree, CELLS_ONLY, sliced=sliced)
    assert cost.largest_table_cells <= target
    total = cost.cells * slice_count(tree, sliced)
    assert sliced_work(tree, sliced, CELLS_ONLY) == pytest.approx(log2(total))
    assert total >= tree_cost(tree).cells
    # nothing sliced is superfluous
    assert all(tree_cost(tree, sliced=sliced - {v}).largest_table_cells > target for v in sliced)


def test_nothing_to_do():
    tree = grid_tree()
    assert slice_tree(tree, 3**8) == frozenset()


def greedy_choice(tree: Tree, sliced: Set[int]) -> int:
    """The next variable that makes the largest tables smaller."""
    fixed = replace(tree, dims=tuple(1 if v in sliced else d for v, d in enumerate(tree.dims)))
    largest = tree_cost(fixed).largest_table_cells
    incidence = _Incidence(fixed, Rates(), 8, log2(largest) - 1e-6)
    return int(incidence.variables[incidence.choose(frozenset())])


def test_variables_of_the_largest_tables_are_chosen_until_nothing_is_left():
    tree = grid_tree()
    sliced = set()
    while (largest := tree_cost(tree, sliced=sliced).largest_table_cells) > 1:
        v = greedy_choice(tree, sliced)
        assert any(v in scope and 3 ** len(scope - sliced) == largest for scope in tree.scopes)
        sliced.add(v)
    assert slice_tree(replace(tree, dims=(1,) * len(tree.dims)), 1) == frozenset()


def test_the_greedy_choice_is_the_cheapest_of_equals():
    tree = grid_tree()
    largest = max(tree.scopes, key=len)
    picked = greedy_choice(tree, frozenset())
    works = {v: sliced_work(tree, {v}, CELLS_ONLY) for v in largest}
    assert sliced_work(tree, {picked}, CELLS_ONLY) <= min(works.values()) + 0.2


def test_local_search_and_seed():
    tree = grid_tree()
    greedy, searched, again = (slice_tree(tree, 3**4, rounds=r, seed=2) for r in (0, 40, 40))
    assert searched == again
    assert sliced_work(tree, searched) <= sliced_work(tree, greedy)


def test_too_many_slices_end_the_choice(monkeypatch):
    """However many variables a hopeless budget would take: no more are chosen than make too many slices."""
    chosen = []
    choose = _Incidence.choose
    monkeypatch.setattr(_Incidence, "choose", lambda *args: chosen.append(1) or choose(*args))
    tree = grid_tree()
    assert slice_count(tree, slice_tree(tree, 1, most_slices=3**6)) > 3**6
    assert len(chosen) < 15
    assert slice_count(tree, slice_tree(tree, 3**4, most_slices=3**24)) <= 3**24
