"""Local search: never worse than given, the same by seed, and neighbourhoods solved exactly."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable, problem_of
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers.branch_and_bound import Search
from bucketflow.pipeline.proofs.provers.local_search import LocalSearch, improve
from bucketflow.pipeline.proofs.provers.neighbourhood_search import SearchedNeighbourhoods, is_wide
from bucketflow.tasks.search.annealing import anneal, costs_of_values, place_of, total
from bucketflow.tasks.search.neighbourhood_optima import buckets_for, resolve
from bucketflow.tasks.search.neighbourhoods import no_variables
from tests.pipeline.proofs.networks import brute_least, cost_networks


def pairs_of(n: int, d: int, seed: int, degree: float = 3.0) -> CostNetwork:
    """Random functions of two variables."""
    rng = np.random.default_rng(seed)
    scopes = [(x, y) for y in range(n) for x in range(y) if rng.random() < degree / n]
    return CostNetwork((d,) * n, tuple(CostTable(s, rng.integers(0, 99, (d, d)).astype(float)) for s in scopes))


@settings(deadline=None)
@given(cost_networks(), st.integers(0, 99), st.data())
def test_small_networks(network: CostNetwork, seed: int, data: st.DataObject) -> None:
    states = tuple(data.draw(st.integers(0, d - 1)) for d in network.dims)
    least, before = brute_least(network), network.total(states)
    found = improve(network, states, seed=seed, most_work=20_000)
    if found is None:
        assert least == math.inf
    else:
        assert network.total(found[1]) == found[0] <= before
        # all variables are in one neighbourhood
        assert found[0] == least


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(3, 4.0), (6, 8.0), (20, 5.0), (20, 12.0)]))
def test_neighbourhoods_are_solved_exactly(seed: int, limits: tuple[int, float]) -> None:
    network = pairs_of(9, 3, seed)
    flat = problem_of(network.dims, network.tables, 0.0).flat
    place, free = place_of(flat, (0,) * 9, seed), no_variables(flat)
    for _ in range(3):
        resolve(flat, place, free, buckets_for(9, 3, limits[1], 1 << 14), (*limits, float(1 << 14)), 1)
        chosen = free.order[: free.counters[0]]
        assert 1 <= len(set(chosen.tolist())) == len(chosen) <= limits[0]
        others = place.states.tolist()

        def with_free(values: tuple[int, ...], others: list[int] = others, chosen: list[int] = chosen) -> list[int]:
            states = list(others)
            for x, value in zip(chosen, values, strict=True):
                states[x] = value
            return states

        if len(chosen) <= 6:
            least = min(network.total(with_free(values)) for values in product(range(3), repeat=len(chosen)))
            assert total(flat, place) == least
        assert place.at.tolist() == place_of(flat, others, 0).at.tolist()


def test_costs_of_values_stay_right_while_annealing() -> None:
    rng = np.random.default_rng(5)
    scopes = [(0, 1), (1, 2, 3), (3, 0), (2,), (3, 4, 0)]
    dims = (3, 2, 4, 3, 1)
    tables = [CostTable(s, rng.integers(0, 50, [dims[v] for v in s]).astype(float)) for s in scopes]
    flat = problem_of(dims, tables, 0.0).flat
    place = place_of(flat, (0,) * 5, 1)
    values = costs_of_values(flat, place)
    anneal(flat, place, values, 30.0, 3.0, 20_000)
    assert values.tolist() == costs_of_values(flat, place_of(flat, place.states, 1)).tolist()
    assert place.at.tolist() == place_of(flat, place.states, 1).at.tolist()
    assert total(flat, place) == CostNetwork(dims, tuple(tables)).total(place.states.tolist())


def test_same_seed_same_assignments() -> None:
    network = pairs_of(60, 4, 2)
    runs = [improve(network, None, seed=7, most_work=20_000_000) for _ in range(2)]
    assert runs[0] == runs[1]
    again = LocalSearch(network, None, seed=7)
    totals = []
    while again.work < 20_000_000:
        again.step()
        again.rest()
        totals.append(again.best[0] if again.best else math.inf)
    assert totals == sorted(totals, reverse=True)
    assert again.best == runs[0]


@settings(deadline=None)
@given(cost_networks(), st.integers(0, 99))
def test_searched_neighbourhoods_of_small_networks(network: CostNetwork, seed: int) -> None:
    """All variables are free at once; what follows the optimum is nothing."""
    least = brute_least(network)
    states = next((s for s in product(*map(range, network.dims)) if network.total(s) < math.inf), None)
    if states is None:
        return
    searched, before = SearchedNeighbourhoods(network, states, seed=seed), network.total(states)
    for found in (before > least, False):
        assert searched.step() == found
        assert searched.total == network.total(searched.states) == least


def test_searched_neighbourhoods_do_not_depend_on_the_clock() -> None:
    network, runs = pairs_of(40, 12, 3, 5.0), []
    for _ in range(2):
        searched, totals = SearchedNeighbourhoods(network, (0,) * 40, seed=5), list[int]()
        while len(totals) < 60:
            searched.step()
            assert searched.total == network.total(searched.states)
            totals.append(searched.total)
        assert totals == sorted(totals, reverse=True)
        assert totals[0] > totals[-1]
        runs.append(totals)
    assert runs[0] == runs[1]


def test_searched_neighbourhoods_go_where_better_assignments_are() -> None:
    """Also into a network that is smaller, and not to worse ones."""
    network = pairs_of(30, 4, 1)
    searched = SearchedNeighbourhoods(network, (1,) * 30)
    better = improve(network, (1,) * 30, most_work=5_000_000)
    assert better is not None
    searched.offer(network, better[1])
    searched.offer(network, (1,) * 30)
    assert (searched.network, searched.total, searched.states) == (network, *better)
    smaller = network.smaller((1,), (), better[0] - 1, lambda _: better[1])
    searched.offer(smaller, (0,))
    assert (searched.network, searched.total) == (smaller, better[0] - 1)
    searched.run(lambda: False, lambda _: None)  # nothing is below: it ends


@ProverPolicy.using(neighbourhood_least_variables=60)
def test_searched_neighbourhoods_keep_to_their_memory() -> None:
    """Where everything is free, decisions need more room than a search begins with."""
    network = pairs_of(60, 10, 2, degree=6.0)
    begun = Search(network, range(60), None).nbytes
    held = {}
    for most in (math.inf, 1.0):
        searched = SearchedNeighbourhoods(network, (0,) * 60)
        searched.memory_bytes = most
        for _ in range(5):
            searched.step()
        assert searched.total == network.total(searched.states)
        held[most] = searched.nbytes
    assert held[1.0] == begun < held[math.inf]


def test_domains_that_are_wide() -> None:
    assert is_wide((40,) * 160)
    assert not is_wide((40,) * 60)
    assert not is_wide((2,) * 1000)


@pytest.mark.parametrize("seed", range(4))
def test_optima_of_cycles_of_cliques(seed: int) -> None:
    """Twelve cliques of four, one after the other: neighbourhoods of two or three at a time."""
    rng = np.random.default_rng(seed)
    inside = [(4 * k + i, 4 * k + j) for k in range(12) for j in range(4) for i in range(j)]
    between = [(4 * k + 3, (4 * k + 4) % 48) for k in range(12)]
    tables = [CostTable(s, rng.integers(0, 1000, (3, 3)).astype(float)) for s in inside + between]
    network = CostNetwork((3,) * 48, tuple(tables))
    found = improve(network, None, seed=seed, most_work=30_000_000)
    assert found is not None
    assert found[0] == network.total(found[1])
    assert found[0] == least_around(network)


def least_around(network: CostNetwork) -> float:
    """Optimum of the cycle of cliques, by the least sums from its first variable's state to its end."""
    best = math.inf
    for first in range(3):
        least = {first: 0.0}
        for k in range(12):
            own = [t for t in network.tables if all(4 * k <= v < 4 * k + 4 for v in t.scope)]
            after: dict[int, float] = {}
            link = next(t for t in network.tables if t.scope == (4 * k + 3, (4 * k + 4) % 48))
            for states in product(range(3), repeat=4):
                if states[0] in least:
                    cost = least[states[0]] + sum(t.costs[tuple(states[v - 4 * k] for v in t.scope)] for t in own)
                    for following in range(3):
                        reached = cost + link.costs[states[3], following]
                        after[following] = min(after.get(following, math.inf), reached)
            least = after
        best = min(best, least[first])
    return best


def test_forbidden_starts_become_allowed() -> None:
    """A long chain whose neighbours must count upwards, from states that all are wrong."""
    after = np.full((5, 5), np.inf)
    for a in range(5):
        after[a, (a + 1) % 5] = a
    network = CostNetwork((5,) * 200, tuple(CostTable(pair, after) for pair in pairwise(range(200))))
    found = improve(network, (0,) * 200, most_work=100_000_000)
    assert found is not None
    assert found[0] == network.total(found[1])


def test_little_memory_means_no_search() -> None:
    network = pairs_of(20, 3, 1)
    states = (0,) * 20
    assert improve(network, states, memory_bytes=1000) == (int(network.total(states)), states)
    small = improve(network, states, memory_bytes=200_000, most_work=1_000_000)
    assert small is not None
    assert small[0] <= network.total(states)


def test_a_search_that_raised_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that would not be compiled in time ends a turn; the next turn may have the time."""
    from bucketflow.tasks.compiler.compile_limits import NotCompiledError
    from bucketflow.tasks.search import annealing

    network = pairs_of(12, 3, 1)
    search = LocalSearch(network, None, seed=0)

    def uncompiled(*_: object) -> None:
        raise NotCompiledError("anneal")

    with monkeypatch.context() as patched:
        patched.setattr(annealing, "anneal", uncompiled)
        raised = 0
        while raised < 3:
            try:
                search.step()
            except NotCompiledError:
                raised += 1
    for _ in range(50):
        search.step()
    assert search.best is not None
    assert search.best[0] == network.total(search.best[1])
