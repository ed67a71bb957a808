"""Bounds by parts of the bucket tree, for whatever cuts, against brute force."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable, cost_network
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.orders.depth_first import bucket_parents
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers import subtree_agreement
from bucketflow.pipeline.proofs.provers.branch_and_bound import search_bytes
from bucketflow.pipeline.proofs.provers.subtree_agreement import cut_parts, parts_below
from bucketflow.pipeline.proofs.provers.subtrees import SubtreeBounds
from bucketflow.tasks.compiler.working_time import LOOK_SECONDS
from tests.pipeline.proofs.networks import brute_least, cost_networks

SEEDS = st.integers(0, 1 << 30)


@pytest.fixture(autouse=True)
def short_pieces() -> Iterator[None]:
    """Another part has its turn after a few decisions."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subtree_agreement, "LOOK_SECONDS", -1.0)
        yield


def cut_anywhere(network: CostNetwork, seed: int, upper: int | None) -> SubtreeBounds:
    """Some order, cut at some of its variables."""
    rng = random.Random(seed)
    order = rng.sample(range(len(network.dims)), len(network.dims))
    parts = parts_below(network, order, {v for v in order if rng.random() < 0.5})
    assert sorted(map(id, network.tables)) == sorted(id(table) for part in parts for table in part)
    return SubtreeBounds(network, order, parts, upper)


def holds(bounds: SubtreeBounds, least: float, upper: int | None) -> None:
    """Go on to the end; bounds told on the way, and the last one, are below the optimum or the cut-off."""
    told, seen, network = list[int](), list[float](), bounds.network
    outcome = bounds.run(
        on_bounds=lambda lower, total: told.append(lower), on_states=lambda states: seen.append(network.total(states))
    )
    assert told == sorted(told)
    assert bounds.hopeless or not outcome.feasible
    limit = math.inf if upper is None else upper
    assert all(least <= total < limit for total in seen)
    limit = min([limit, *seen])
    if seen and not outcome.feasible:
        assert limit == least
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


def halves(network: CostNetwork, upper: int | None) -> SubtreeBounds:
    """One half of the functions, and the other."""
    half = len(network.tables) // 2
    parts = [part for part in (network.tables[:half], network.tables[half:]) if part]
    return SubtreeBounds(network, range(len(network.dims)), parts, upper)


@settings(deadline=None)
@given(cost_networks(), SEEDS, st.one_of(st.none(), st.integers(-3, 40)))
def test_two_parts_agree_on_the_optimum(network: CostNetwork, seed: int, beside: int | None) -> None:
    """Or prove that nothing is below the cut-off; the sum of what they cost apart is a bound on the way."""
    least, told, seen = brute_least(network), list[int](), list[float]()
    upper = None if beside is None else int(least if least < math.inf else 7) + beside
    bounds = halves(network, upper)
    n_parts, apart = len(bounds._parts), [brute_least(CostNetwork(network.dims, part.tables)) for part in bounds._parts]
    outcome = bounds.run(
        on_bounds=lambda lower, total: told.append(lower), on_states=lambda states: seen.append(network.total(states))
    )
    if n_parts == 2:
        assert not outcome.feasible
        if least < (math.inf if upper is None else upper):
            assert seen[-1] == least == outcome.lower
            assert told[-1] <= least
            assert network.constant + sum(apart) in (least, *told)
        else:
            assert not seen


@settings(deadline=None)
@given(cost_networks(), SEEDS, st.integers(1, 3), st.integers(0, 3))
def test_bounds_go_on_where_they_stopped(network: CostNetwork, seed: int, pieces: int, beside: int) -> None:
    """A cut-off that falls meanwhile counts too."""
    least, known, seen = brute_least(network), None, list[float]()
    bounds = cut_anywhere(network, seed, None)
    before = bounds.lower
    for turn in range(1000):
        stop = chain([False] * pieces, repeat(True)).__next__
        outcome = bounds.run(stop, on_states=lambda states: seen.append(network.total(states)))
        if bounds.hopeless or not outcome.feasible:
            break
        assert before <= outcome.lower <= (least if known is None else min(least, known))
        before = outcome.lower
        if turn == 1 and least < math.inf:
            known = int(least) + beside
            bounds.learn(known)
    assert bounds.hopeless or not outcome.feasible
    if not outcome.feasible:
        assert least >= min([math.inf if known is None else known, *seen])
    assert all(total >= least for total in seen)


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
    with ProverPolicy.using(cut_least_variables=48):
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
def test_the_portfolio_proves_by_subtrees(seed: int) -> None:
    network = chained(seed, clusters=5)
    expected = Portfolio(network, None, "diagram", ProofLimits(1 << 30)).run()
    assert expected.proved
    assert expected.total is not None
    limits = ProofLimits(1 << 30, prune=False)
    portfolio = Portfolio(network, None, "subtrees", limits)
    found = portfolio.run()
    assert (found.proved, portfolio.incumbent.prover, found.total) == (True, "subtrees", expected.total)
    assert found.states is not None
    assert network.total(found.states) == portfolio.incumbent.lower == found.total
    bounded = Portfolio(network, found.lower, "subtrees", limits)
    assert not bounded.run().feasible
    assert (bounded.incumbent.prover, bounded.incumbent.lower) == ("subtrees", found.total)


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


@ProverPolicy.using(agreement_assignments=0)
def test_parts_that_share_too_much_are_given_up() -> None:
    """Where nothing was left out, their sum is the bound."""
    pair = np.array([[0.0, 3.0], [3.0, 1.0]])
    network = CostNetwork((2, 2), (CostTable((0, 1), pair), CostTable((1, 0), 5.0 - pair)))
    bounds = halves(network, None)
    outcome = bounds.run(on_states=lambda states: None)
    assert (outcome.feasible, bounds.hopeless) == (True, True)
    assert outcome.lower == 2


def test_frequencies_of_radio_links(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published optimum of CELAR scenario 6 is the sum of what parts cost that agree."""
    monkeypatch.setattr(subtree_agreement, "LOOK_SECONDS", LOOK_SECONDS)
    network, _ = cost_network(reduce_model(load(data / "wcsp/celar/scen06.wcsp.xz"), "optimum", {}))
    found = Portfolio(network, 3525, "subtrees", ProofLimits(1 << 30)).run()
    assert found.proved
    assert found.states is not None
    assert network.total(found.states) == found.lower == 3389
