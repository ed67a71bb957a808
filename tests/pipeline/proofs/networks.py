"""Random networks of integer costs, and their optima by brute force."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.proofs.limits import Outcome


@st.composite
def cost_networks(draw: st.DrawFn, largest: int = 9) -> CostNetwork:
    """Networks with ties, forbidden entries, negative costs, and several functions over the same variables."""
    dims = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=7)))
    variable = st.integers(0, len(dims) - 1)
    tables = []
    for scope in draw(st.lists(st.lists(variable, min_size=1, max_size=3, unique=True), min_size=1, max_size=9)):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        shape = [dims[v] for v in scope]
        costs = rng.integers(draw(st.sampled_from([-3, 0])), largest, size=shape).astype(np.float64)
        costs[rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.6]))] = np.inf
        tables.append(CostTable(tuple(scope), costs))
    return CostNetwork(dims, tuple(tables), draw(st.integers(-5, 5)))


@st.composite
def coarse_networks(draw: st.DrawFn) -> CostNetwork:
    """Networks whose costs differ by multiples of a number, above other numbers."""
    network, step = draw(cost_networks()), draw(st.sampled_from([2, 7, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = [CostTable(t.scope, step * t.costs + rng.integers(-9, 9)) for t in network.tables]
    return CostNetwork(network.dims, tuple(tables), network.constant)


def brute_least(network: CostNetwork) -> float:
    """Least total of all assignments; inf if all are forbidden."""
    return min((network.total(states) for states in product(*map(range, network.dims))), default=math.inf)


def assert_proved(outcome: Outcome, network: CostNetwork, least: float, upper: int | None) -> None:
    """Check that a search below ``upper`` ended with the least total, or that nothing is below."""
    assert outcome.proved
    if least < (math.inf if upper is None else upper):
        assert outcome.total == least == outcome.lower
        assert outcome.states is not None
        assert network.total(outcome.states) == least
    else:
        assert not outcome.feasible
        assert outcome.states is None
