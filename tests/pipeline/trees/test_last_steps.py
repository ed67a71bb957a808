"""Steps after those that leave few cells of many: the same answers, and little to look at when they are decoded."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.trees.rewrites import TreePolicy, with_last_steps
from bucketflow.pipeline.trees.tree import Sizer, Tree, build_tree
from bucketflow.tasks.sweeps import best_states
from tests.models import brute_optimum, cost_models

PAIRS = tuple(combinations(range(17), 2))


def split(dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]) -> Tree:
    """A tree of one step, with what is left for later."""
    return with_last_steps(build_tree(dims, scopes, {len(scopes): range(len(scopes))}), Sizer(dims))


def test_little_is_left_to_choose_at_a_root() -> None:
    tree = split((2,) * 17, (tuple(range(12)), *PAIRS))
    assert [len(gone) for gone in tree.eliminated] == [6, 11]
    assert tree.joined_cells[-1] == best_states.JOINT_STATES
    assert sorted(i for kids in tree.children for i in kids if i < tree.n_leaves) == list(range(tree.n_leaves))


def test_it_is_only_done_once() -> None:
    tree = split((2,) * 17, (tuple(range(12)), *PAIRS))
    assert with_last_steps(tree, Sizer(tree.dims)) is tree


@pytest.mark.parametrize(
    ("dims", "scopes"),
    [
        ((2,) * 15, tuple(combinations(range(15), 2))),  # few joint states
        ((2,) * 20, (tuple(range(12)), tuple(range(8, 20)))),  # no small inputs
        ((2,) * 17, (tuple(range(12)), *((v,) for v in range(12, 17)))),  # none within the largest
        ((3000, 30, 30), ((0, 1), (0, 2), (0,))),  # too many states
    ],
)
def test_other_steps_stay(dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]) -> None:
    assert len(split(dims, scopes).children) == 1


def test_a_root_is_not_swept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def swept(*given: object) -> None:
        raise AssertionError("a step was swept again")

    monkeypatch.setattr(best_states, "minimised", swept)
    random = np.random.default_rng(1)
    costs = {pair: random.integers(0, 9, (2, 2)) for pair in PAIRS}
    names = [f"x{v}" for v in range(17)]
    functions = [((names[u], names[v]), table) for (u, v), table in costs.items()]
    model = Model.build("cost", dict.fromkeys(names, 2), functions)
    result = bucketflow.solve(model, method="dense")
    states = np.indices((2,) * 17).reshape(17, -1)
    assert result.value == sum(costs[u, v][states[u], states[v]] for u, v in PAIRS).min()


@settings(max_examples=40)
@given(model=cost_models(), limit=st.sampled_from((2, 4, 16)))
def test_optima_are_the_same(model: Model, limit: int) -> None:
    with TreePolicy.using(later_joint_cells=limit + 1, later_rows=2, joint_states=limit):
        found = bucketflow.solve(model, method="dense")
    assert found.value == brute_optimum(model, {})
