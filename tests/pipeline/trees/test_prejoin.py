"""Joins before large steps: fewer inputs, products, the same answers."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.trees.costs import Rates, sized_work
from bucketflow.pipeline.trees.rewrites import TreePolicy, with_joined_inputs
from bucketflow.pipeline.trees.tree import Sizer, Tree, build_tree
from tests.models import bayes_models, brute_log10_sum, brute_optimum, cost_models, markov_models
from tests.policies import InForce


@pytest.fixture
def eager(in_force: InForce) -> None:
    """Join in steps of any size."""
    in_force(TreePolicy, joined_step_cells=1)
    in_force(TreePolicy, cached_cells=1)
    in_force(TreePolicy, many_inputs=2)
    in_force(TreePolicy, join_share=2)


def joined(tree: Tree) -> Tree:
    return with_joined_inputs(tree, Sizer(tree.dims), Rates(), 4)


def all_at_once(dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]) -> Tree:
    """A tree of one step."""
    return build_tree(dims, scopes, {len(scopes): range(len(scopes))})


def test_many_small_inputs_become_few() -> None:
    windows = tuple(tuple(range(i, i + 17)) for i in range(12))
    tree = all_at_once((2,) * 28, (*windows, tuple(range(3, 28))))
    found = joined(tree)
    assert len(tree.children[-1]) == 13
    assert len(found.children[-1]) <= 4
    assert all(len(scope) <= 25 for scope in found.scopes)
    assert sorted(v for e in found.eliminated for v in e) == list(range(28))


def test_two_factors_become_a_product() -> None:
    left, depth, right = range(8), range(8, 17), range(17, 25)
    scopes = [(*side, *part) for side in (left, right) for part in (depth[:5], depth[4:])]
    outside = (*left, *right, 25)
    tree = build_tree((2,) * 26, (*scopes, outside), {99: [0, 1, 2, 3], 100: [99, 4]})
    found = joined(tree)
    masks, sizer = found.scope_masks, Sizer(found.dims)
    steps = zip(found.children, masks[found.n_leaves :], strict=True)
    assert [sized_work(sizer, [masks[c] for c in kids], out).matrix for kids, out in steps].count(True) == 1


def test_cached_inputs_and_factors_stay() -> None:
    pairs = tuple(combinations(range(7), 2))
    cached = all_at_once((2,) * 30, (*pairs, tuple(range(30))))
    assert joined(cached) is cached
    factors = build_tree(
        (2,) * 30, (*pairs, tuple(range(20)), tuple(range(4, 30)), (29,), (1,)), {99: range(23), 100: [99, 23, 24]}
    )
    assert joined(factors) is factors


@pytest.mark.usefixtures("eager")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=st.one_of(cost_models(), markov_models(), bayes_models()))
def test_answers_stay(model: Model) -> None:
    result = bucketflow.solve(model)
    expected = brute_optimum(model, {})
    assert (result.status == "infeasible") == (expected is None)
    if expected is not None and model.kind == "cost":
        assert result.value == expected
    if model.kind != "cost":
        total = brute_log10_sum(model, {})
        found = bucketflow.solve(model, "partition")
        assert (found.status == "infeasible") == (total is None)
        assert total is None or found.log10 == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.usefixtures("eager")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scopes=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True), min_size=1, max_size=12),
    cut=st.integers(0, 11),
)
def test_every_variable_goes_once(scopes: list[list[int]], cut: int) -> None:
    leaves = tuple(tuple(s) for s in scopes)
    kids = {100: [*range(min(cut, len(leaves)))], 101: [*range(min(cut, len(leaves)), len(leaves))]}
    kids = {node: inputs for node, inputs in kids.items() if inputs}
    tree = build_tree((3,) * 8, leaves, kids if len(kids) == 1 else {**kids, 102: [100, 101]})
    found = joined(tree)
    assert sorted(v for e in found.eliminated for v in e) == sorted(v for e in tree.eliminated for v in e)
    used = [c for inputs in found.children for c in inputs]
    assert len(used) == len(set(used)) == found.n_leaves + len(found.children) - len(found.roots)
