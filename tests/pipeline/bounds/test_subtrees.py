"""Bounds by parts of the bucket tree, for whatever cuts, against brute force."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.bounds.chain import Chain
from bucketflow.pipeline.bounds.limits import Limits
from bucketflow.pipeline.bounds.network import CostNetwork, CostTable, cost_network
from bucketflow.pipeline.bounds.order import bucket_parents
from bucketflow.pipeline.bounds.prepare import prepare
from bucketflow.pipeline.bounds.search import search_bytes
from bucketflow.pipeline.bounds.subtrees import cuts, subtree_bounds
from bucketflow.pipeline.bounds.subtrees.cuts import cut_parts, parts_below
from bucketflow.pipeline.bounds.subtrees.subtree_bounds import SubtreeBounds
from bucketflow.pipeline.formats import load
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from tests.pipeline.bounds.networks import brute_least, cost_networks

SEEDS = st.integers(0, 1 << 30)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another part has its turn after a few decisions."""
    monkeypatch.setattr(subtree_bounds, "_SECONDS", -1.0)


def cut_anywhere(network: CostNetwork, seed: int, upper: int | None) -> SubtreeBounds:
    """Some order, cut at some of its variables."""
    rng = random.Random(seed)
    order = rng.sample(range(len(network.dims)), len(network.dims))
    parts = parts_below(network, order, {v for v in order if rng.random() < 0.5})
    assert sorted(map(id, network.tables)) == sorted(id(table) for part in parts for table in part)
    return SubtreeBounds(network, order, parts, upper)


def holds(bounds: SubtreeBounds, least: float, upper: int | None) -> None:
    """Go on to the end; bounds told on the way, and the last one, are below the optimum or the cut-off."""
    told = list[int]()
    outcome = bounds.run(on_bounds=told.append)
    assert told == sorted(told)
    assert bounds.hopeless or not outcome.feasible
    limit = math.inf if upper is None else upper
    assert all(lower <= min(least, limit) for lower in told)
    if outcome.feasible:
        assert outcome.lower <= min(least, limit)
    else:
        assert least >= limit


@settings(deadline=None)
@given(cost_networks(), SEEDS, st.one_of(st.none(), st.integers(-3, 3)))
def test_no_total_is_below_the_bound_of_any_cut(network: CostNetwork, seed: int, beside: int | None) -> None:
    least = brute_least(network)
    upper = None if beside is None else int(least if least < math.inf else 7) + beside
    holds(cut_anywhere(network, seed, upper), least, upper)


@settings(deadline=None)
@given(cost_networks(largest=1 << 49), SEEDS)
def test_bounds_of_huge_costs(network: CostNetwork, seed: int) -> None:
    holds(cut_anywhere(network, seed, None), brute_least(network), None)


@settings(deadline=None)
@given(cost_networks(), st.integers(0, 3))
def test_one_part_has_the_optimum(network: CostNetwork, beside: int) -> None:
    """Or proves that nothing is below a cut-off."""
    least, order = brute_least(network), range(len(network.dims))
    outcome = SubtreeBounds(network, order, [network.tables], None).run()
    assert (outcome.lower == least) if least < math.inf else not outcome.feasible
    if least < math.inf:
        below = SubtreeBounds(network, order, [network.tables], int(least) - beside).run()
        assert not below.feasible
        assert below.lower == least - beside


@settings(deadline=None)
@given(cost_networks(), SEEDS)
def test_apart_they_add_up(network: CostNetwork, seed: int) -> None:
    """Parts are optimised, and their sum is the bound; none is merged with the whole."""
    order = range(len(network.dims))
    half = len(network.tables) // 2
    parts = [part for part in (network.tables[:half], network.tables[half:]) if part]
    outcome = SubtreeBounds(network, order, parts, None).run()
    apart = [brute_least(CostNetwork(network.dims, part)) for part in parts]
    if max(apart) < math.inf:
        assert outcome.lower == network.constant + sum(apart)
    else:
        assert not outcome.feasible


@settings(deadline=None)
@given(cost_networks(), SEEDS, st.integers(1, 3), st.integers(0, 3))
def test_bounds_go_on_where_they_stopped(network: CostNetwork, seed: int, pieces: int, beside: int) -> None:
    """A cut-off that falls meanwhile counts too."""
    least, known = brute_least(network), None
    bounds = cut_anywhere(network, seed, None)
    before = bounds.lower
    for turn in range(1000):
        outcome = bounds.run(iter([False] * pieces + [True]).__next__)
        if bounds.hopeless or not outcome.feasible:
            break
        assert before <= outcome.lower <= (least if known is None else min(least, known))
        before = outcome.lower
        if turn == 1 and least < math.inf:
            known = int(least) + beside
            bounds.learn(known)
    assert bounds.hopeless or not outcome.feasible
    if not outcome.feasible:
        assert least >= (math.inf if known is None else known)


def chained(seed: int, clusters: int = 4, size: int = 12, shared: int = 3) -> CostNetwork:
    """Random functions of pairs within clusters, each of which shares few variables with the next."""
    rng = np.random.default_rng(seed)
    step = size - shared
    n = clusters * step + shared
    tables = []
    for first in range(0, n - shared, step):
        for x in range(first, first + size):
            for y in range(x + 1, first + size):
                costs = rng.integers(0, 30, (3, 3)).astype(float)
                costs[rng.random((3, 3)) < 0.05] = np.inf
                tables.append(CostTable((x, y), costs))
    return CostNetwork((3,) * n, tuple(tables), 2)


def test_narrow_separators_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    network = chained(0, clusters=5)
    assert len(network.dims) == 48
    order = tuple(range(48))
    parts = cut_parts(network, order)
    assert 2 <= len(parts) <= 4
    variables = [{v for table in part for v in table.scope} for part in parts]
    assert all(len(one & other) <= 3 for one in variables for other in variables if one is not other)
    assert all(len(own) >= 12 for own in variables)
    monkeypatch.setattr(cuts, "_FEW", 48)
    assert cut_parts(network, order) == [network.tables]


def test_wide_separators_do_not_cut() -> None:
    network = chained(0, clusters=1, size=45, shared=1)
    assert cut_parts(network, range(len(network.dims))) == [network.tables]


def test_parts_are_subtrees() -> None:
    """What is cut off has a function in common with nothing else but over its separator."""
    network = chained(1, clusters=5)
    order = tuple(range(48))
    _, contexts = bucket_parents(48, network.scopes, order)
    below, above = parts_below(network, order, {17})[::-1]
    if 0 not in {v for table in below for v in table.scope}:
        below, above = above, below
    shared = {v for table in below for v in table.scope} & {v for table in above for v in table.scope}
    assert shared == contexts[17]


@pytest.mark.parametrize("seed", range(3))
def test_the_chain_bounds_by_subtrees(seed: int) -> None:
    network = chained(seed, clusters=5)
    expected = Chain(network, None, "diagram", Limits(1 << 30))
    expected.run()
    assert expected.done
    assert expected.total is not None
    chain = Chain(network, None, "subtrees", Limits(1 << 30, prune=False))
    chain.run()
    assert network.least < chain.lower <= expected.total
    assert not chain.done
    proved = Chain(network, chain.lower, "subtrees", Limits(1 << 30, prune=False))
    proved.run()
    assert proved.done
    assert (proved.best, proved.way) == (None, "subtrees")


def test_too_little_memory_is_refused() -> None:
    network = chained(0, clusters=5)
    parts = cut_parts(network, range(48))
    bounds = SubtreeBounds(network, range(48), parts, None)
    bounds.memory_bytes = search_bytes(CostNetwork(network.dims, parts[0])) // 2
    assert bounds.nbytes == 8 * network.cells
    outcome = bounds.run()
    assert bounds.hopeless
    assert outcome.feasible
    assert bounds.nbytes == 0
    assert outcome.lower == network.least


def test_frequencies_of_radio_links(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is below the published optimum of CELAR scenario 6; parts that disagree become one."""
    monkeypatch.setattr(subtree_bounds, "_SECONDS", 0.05)
    network, _ = cost_network(reduce_model(load(data / "wcsp/celar/scen06.wcsp.xz"), "optimum", {}))
    chain = Chain(prepare(network, None).network, 3389, "subtrees", Limits(1 << 30))
    chain.run()
    assert chain.done
    assert (chain.best, chain.outcome().lower) == (None, 3389)
