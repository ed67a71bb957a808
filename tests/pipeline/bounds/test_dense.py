"""Dense elimination of networks of integer costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.pipeline.bounds.dense import plan_dense, solve_dense
from bucketflow.pipeline.bounds.network import CostNetwork, CostTable
from tests.pipeline.bounds.networks import brute_least, cost_networks


@given(cost_networks(), st.integers(-2, 2), st.booleans())
def test_dense_optima(network: CostNetwork, beside: int, bounded: bool) -> None:
    least = brute_least(network)
    upper = int(least if least < math.inf else 7) + beside if bounded else None
    dense = plan_dense(network, upper, memory_bytes=1 << 30)
    assert dense is not None
    outcome = solve_dense(network, upper, dense)
    if least < (math.inf if upper is None else upper):
        assert outcome.proved
        assert outcome.total == least == outcome.lower
        assert outcome.states is not None
        assert network.total(outcome.states) == least
    else:
        assert not outcome.feasible
        assert outcome.states is None


@pytest.fixture(scope="module")
def grid() -> CostNetwork:
    rng = np.random.default_rng(5)
    pairs = [(v, v + 1) for v in range(48) if v % 7 < 6] + [(v, v + 7) for v in range(42)]
    tables = [CostTable(pair, rng.integers(0, 100, (3, 3)).astype(float)) for pair in pairs]
    return CostNetwork((3,) * 49, tuple(tables), -3)


def test_slices_have_the_same_optimum(grid: CostNetwork) -> None:
    whole = plan_dense(grid, None, memory_bytes=1 << 30)
    sliced = plan_dense(grid, None, memory_bytes=28_000)
    assert whole is not None
    assert sliced is not None
    assert whole.plan.slices == 1 < sliced.plan.slices
    one, other = solve_dense(grid, None, whole), solve_dense(grid, None, sliced)
    assert one.total == other.total
    assert one.proved
    assert other.proved
    stopped = solve_dense(grid, None, sliced, stop=iter([False, True]).__next__)
    assert stopped.lower <= one.total <= stopped.total
    assert not stopped.proved
    assert solve_dense(grid, one.total, whole).feasible is False


def test_no_plan_fits(grid: CostNetwork) -> None:
    assert plan_dense(grid, None, memory_bytes=1000) is None
