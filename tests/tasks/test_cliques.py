"""Reduction and scattering: the classical operations of junction trees on stored cliques."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.sweeps.cliques import reduction, scattering

SIZES = {0: 2, 1: 3, 2: 4, 3: 5}


def table(axes: tuple[int, ...], seed: int, zeros: float = 0.0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    values = rng.random([SIZES[v] for v in axes])
    return np.where(rng.random(values.shape) < zeros, 0.0, values)


@given(order=st.permutations([0, 1, 2]), keep=st.lists(st.sampled_from([0, 1, 2]), unique=True))
def test_reduction_is_a_sum(order: list[int], keep: list[int]) -> None:
    values = table(tuple(order), 1)
    found = reduction(values.reshape(-1), tuple(order), tuple(keep), SIZES)
    expected = np.einsum(values, order, keep)
    assert found == pytest.approx(expected.reshape(-1), rel=1e-14)


@given(seed=st.integers(0, 99), separator=st.permutations([0, 2]))
def test_scattering_leaves_the_new_separator(seed: int, separator: list[int]) -> None:
    """A clique that scatters a new separator has that separator as its marginal, and excludes what it did."""
    axes, s = (2, 0, 1), tuple(separator)
    clique = table(axes, seed, zeros=0.3)
    old = reduction(clique.reshape(-1), axes, s, SIZES)
    new = np.where(old == 0.0, 0.0, table(s, seed + 1).reshape(-1))
    found = scattering(clique.reshape(-1), axes, s, SIZES, old, new)
    assert np.isfinite(found).all()
    assert reduction(found, axes, s, SIZES) == pytest.approx(new, rel=1e-12, abs=1e-15)
    assert np.array_equal(found == 0.0, (clique.reshape(-1) == 0.0))


def test_zero_over_zero_is_zero() -> None:
    clique = np.array([[1.0, 2.0], [0.0, 0.0]]).reshape(-1)
    found = scattering(clique, (0, 4), (0,), {0: 2, 4: 2}, np.array([3.0, 0.0]), np.array([6.0, 0.0]))
    assert found.tolist() == [2.0, 4.0, 0.0, 0.0]


def test_two_cliques_agree_after_two_messages() -> None:
    """Collect and distribute by hand (Jensen, Lauritzen and Olesen 1990): both cliques hold the true marginals."""
    left, right = table((0, 1), 5), table((1, 2), 6)
    one = np.ones(SIZES[1])
    up = reduction(right.reshape(-1), (1, 2), (1,), SIZES)
    root = scattering(left.reshape(-1), (0, 1), (1,), SIZES, one, up)
    down = reduction(root, (0, 1), (1,), SIZES)
    leaf = scattering(right.reshape(-1), (1, 2), (1,), SIZES, up, down)
    joint = np.einsum("ab,bc->abc", left, right)
    assert root == pytest.approx(joint.sum(2).reshape(-1))
    assert leaf == pytest.approx(joint.sum(0).reshape(-1))
