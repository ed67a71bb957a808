"""A table that is a multiple of its old values counts as unchanged, and no step that reads it runs again."""

from __future__ import annotations

import numpy as np
import pytest

from bucketflow.tasks.incremental.kept_tables import SAME, same_ratios
from bucketflow.tasks.sweeps.scaled import Scaled


def same(old: list[float] | np.ndarray, new: list[float] | np.ndarray) -> bool:
    return same_ratios(Scaled(np.array(old, float), 0.0, 0.0, 0.0), Scaled(np.array(new, float), 0.0, 0.0, 0.0))


@pytest.mark.parametrize("cells", [1, 2, 3, 50])
@pytest.mark.parametrize("factor", [1.0, 3.7, 1e-290, 1e290])
def test_multiples_of_a_table_are_the_same_whatever_their_rounding(cells: int, factor: float) -> None:
    rng = np.random.default_rng(cells)
    old = rng.random(cells) + 0.01
    assert same(old, old * factor)
    assert same(old, old * factor * (1 + rng.uniform(-SAME / 4, SAME / 4, cells)))


@pytest.mark.parametrize("place", [0, 25, -1])
@pytest.mark.parametrize("change", [1e-12, 0.5, -1.0])
def test_one_other_entry_makes_another_table(place: int, change: float) -> None:
    old = np.random.default_rng(0).random(50) + 0.01
    new = old.copy()
    new[place] *= 1 + change
    assert not same(old, new)
    if change > -1.0:
        assert not same(new, old)


def test_zeros_are_the_same_as_zeros_only() -> None:
    assert same([0.0, 0.0], [0.0, 0.0])
    assert same([0.0, 2.0, 0.0], [0.0, 1.0, 0.0])
    assert not same([1.0, 2.0], [0.0, 0.0])
    assert not same([0.0, 0.0], [1.0, 2.0])
    assert not same([1.0, 2.0, 3.0], [0.0, 4.0, 0.0])
    assert not same([0.0, 2.0, 1.0], [1.0, 2.0, 1.0])
    assert same([5e-324, 1.0, 5e-324], [5e-324, 1.0, 5e-324])
