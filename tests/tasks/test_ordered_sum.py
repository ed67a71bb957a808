"""Sums of floats have the same bits whatever the interpreter's built-in sum does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bucketflow.tasks.steps.number_limits import ordered_sum


@pytest.mark.parametrize("seed", range(20))
def test_floats_are_added_as_numpy_adds_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=50) * 10.0 ** rng.integers(-8, 9, 50)
    assert ordered_sum(values.tolist()) == np.bincount(np.zeros(50, int), values)[0] == values.cumsum()[-1]


def test_rounding_is_not_compensated() -> None:
    assert ordered_sum([1.0, 1e100, 1.0, -1e100]) == 0.0
    assert math.copysign(1.0, ordered_sum([-0.0])) == 1.0
    assert ordered_sum([]) == 0.0
    assert ordered_sum([math.inf, 1.0]) == math.inf
