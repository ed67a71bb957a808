"""Branch and bound with soft arc consistency."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.bounds import search
from bucketflow.pipeline.bounds.network import CostNetwork, CostTable, cost_network
from bucketflow.pipeline.bounds.search import solve_search
from bucketflow.pipeline.formats import load
from bucketflow.pipeline.models.preprocess import reduce_model
from tests.pipeline.bounds.networks import brute_least, cost_networks


@settings(deadline=None)
@given(cost_networks(), st.integers(-2, 2), st.booleans())
def test_optima(network: CostNetwork, beside: int, bounded: bool) -> None:
    least = brute_least(network)
    upper = int(least if least < math.inf else 7) + beside if bounded else None
    outcome = solve_search(network, range(len(network.dims)), upper, memory_bytes=1 << 30)
    assert outcome.proved
    if least < (math.inf if upper is None else upper):
        assert outcome.total == least == outcome.lower
        assert outcome.states is not None
        assert network.total(outcome.states) == least
    else:
        assert not outcome.feasible
        assert outcome.states is None


@pytest.fixture(scope="module")
def clique() -> CostNetwork:
    """Seven variables of twelve values, every pair with costs, two triples: many nodes and halved domains."""
    rng = np.random.default_rng(3)
    pairs = [(x, y) for x in range(7) for y in range(x)]
    tables = [CostTable(pair, rng.integers(0, 40, (12, 12)).astype(float)) for pair in pairs]
    wide = [CostTable(scope, rng.integers(0, 30, (12, 12, 12)).astype(float)) for scope in [(0, 3, 5), (6, 2, 1)]]
    return CostNetwork((12,) * 7, (*tables, *wide), 4)


def test_open_nodes_keep_the_bound(clique: CostNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solve_search(clique, range(7), None, memory_bytes=1 << 30)
    assert whole.proved
    assert whole.total is not None
    monkeypatch.setattr(search, "_NODES", 3)
    seen: list[tuple[int, int | None]] = []
    pieces = solve_search(clique, range(7), None, memory_bytes=1 << 30, on_bounds=lambda *b: seen.append(b))
    assert pieces.total == whole.total
    assert [lower for lower, _ in seen] == sorted(lower for lower, _ in seen)
    assert all(lower <= whole.total <= (total or math.inf) for lower, total in seen)
    assert len(seen) > 10
    beginning = solve_search(clique, range(7), None, memory_bytes=1 << 30, stop=iter([False] * 9 + [True]).__next__)
    assert not beginning.proved
    assert beginning.lower <= whole.total <= (beginning.total or math.inf)
    assert not solve_search(clique, range(7), whole.total, memory_bytes=1 << 30).feasible


def test_memory_ends_a_search_with_what_it_proved(clique: CostNetwork) -> None:
    outcome = solve_search(clique, range(7), None, memory_bytes=1)
    assert not outcome.proved
    assert outcome.lower <= min(clique.total(states) for states in product(range(2), repeat=7))


def test_failed_decisions_come_first(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(data / "wcsp/celar/CELAR6-SUB0.wcsp.xz")
    network, _ = cost_network(reduce_model(model, "optimum", {}))
    monkeypatch.setattr(search, "_NODES", 32)
    turns: list[int] = []
    outcome = solve_search(
        network,
        range(len(network.dims)),
        160,
        memory_bytes=1 << 30,
        on_bounds=lambda lower, total: turns.append(lower),
        stop=lambda: len(turns) > 20,
    )
    assert outcome.proved
    assert outcome.total == 159
