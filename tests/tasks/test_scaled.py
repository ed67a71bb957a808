"""Natural values or logarithms: what a step's result says about what may have underflown on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bucketflow.tasks.steps.semiring import SUM_PRODUCT
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps.scaled import Scaled, SumProduct, measured

PENALTY = math.exp(-9.0)


def closing_step(n, message):
    """The last step over n binary variables with 90 soft constraints and a message whose entries are above 1."""
    rng = np.random.default_rng(0)
    pairs = [tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(90)]
    scopes = (*pairs, tuple(range(n)))
    step = make_step(len(scopes), tuple(range(len(scopes))), scopes, (), (2,) * n, SUM_PRODUCT)
    table = np.array([1.0, 1.0, 1.0, PENALTY])
    return step, [*[measured(table.copy()) for _ in pairs], message], pairs


@pytest.mark.parametrize("top", [0.0, 0.4, 300.0])
def test_many_soft_constraints_are_summed_on_natural_values_below_a_message_above_one(top, monkeypatch):
    n = 10
    message = Scaled(np.full(1 << n, math.exp(top)), 0.0, top, top)
    step, tables, pairs = closing_step(n, message)
    monkeypatch.setattr(SumProduct, "log_step", lambda *_: pytest.fail("on logarithms"))
    states = np.indices((2,) * n).reshape(n, -1)
    broken = sum(states[i] & states[j] for i, j in pairs)
    found = SumProduct((2,) * n, False).step(step, tables, threads=1)
    assert found.log_value() == pytest.approx(top + math.log(np.exp(-9.0 * broken).sum()), rel=1e-12)


def test_what_is_small_beside_a_large_factor_is_summed_on_logarithms():
    """Products of 70 factors underflow before the last one lifts them: natural values would lose them."""
    scopes = tuple([(0,)] * 71)
    step = make_step(71, tuple(range(71)), scopes, (), (2,), SUM_PRODUCT)
    lows = [Scaled(np.full(2, math.exp(-10.7)), 0.0, -10.7, -10.7) for _ in range(70)]
    found = SumProduct((2,), False).step(
        step, [*lows, Scaled(np.full(2, math.exp(600.0)), 0.0, 600.0, 600.0)], threads=1
    )
    assert found.log_value() == pytest.approx(600.0 - 749.0 + math.log(2.0), rel=1e-12)
