"""Clusters of variables: how they are chosen, and that what they prove holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.cost_networks.preparation import prepare
from bucketflow.pipeline.orders.depth_first import depth_first_order
from bucketflow.pipeline.proofs.limits import Outcome, ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers.clusters import (
    ClusterBounds,
    ClusterProver,
    EveryClusterBounds,
    clusters,
    is_mesh,
    separators,
    short_cycles,
    without_contained,
)
from bucketflow.pipeline.proofs.provers.row_layers import ROUNDS, RowSearch
from bucketflow.tasks.networks.clusters import separators_of
from bucketflow.tasks.networks.flat import flatten

from .fakes import compiled
from .networks import brute_least, cost_networks


def grid_scopes(rows: int, columns: int, *, torus: bool = False) -> list[tuple[int, int]]:
    scopes = []
    for r, c in product(range(rows), range(columns)):
        for down, right in ((1, 0), (0, 1)):
            if torus or (r + down < rows and c + right < columns):
                scopes.append((r * columns + c, (r + down) % rows * columns + (c + right) % columns))
    return scopes


def spins(rows: int, columns: int, seed: int, largest: int, *, torus: bool = True) -> CostNetwork:
    """A spin glass: neighbours want to agree or to differ, and each has a state that it prefers a little."""
    rng = np.random.default_rng(seed)
    tables = [CostTable((v,), rng.integers(0, largest // 4 + 1, 2).astype(np.float64)) for v in range(rows * columns)]
    for scope in grid_scopes(rows, columns, torus=torus):
        weight = float(rng.integers(-largest, largest + 1))
        tables.append(CostTable(scope, np.array([[0.0, weight], [weight, 0.0]]) + abs(weight)))
    return CostNetwork((2,) * (rows * columns), tuple(tables))


def run(bounds: ClusterBounds, steps: int | None = None) -> list[tuple[int, ...]]:
    """Run until it is done or hopeless, or after so many looks at the clock; return the assignments found."""
    found: list[tuple[int, ...]] = []
    looks = iter(range(10**6 if steps is None else steps))
    while not (bounds.done or bounds.hopeless):
        bounds.run(lambda: next(looks, None) is None, lambda lower, total: None, found.append)
        if next(looks, None) is None:
            break
    return found


def bounds_of(network: CostNetwork, upper: int | None = None) -> ClusterBounds:
    bounds = ClusterBounds(network, upper)
    bounds.memory_bytes = 1 << 28
    return bounds


def test_cycles_of_a_grid() -> None:
    cycles = short_cycles(12, grid_scopes(3, 4), 100)
    assert cycles is not None
    assert sorted(map(sorted, cycles)) == [[v, v + 1, v + 4, v + 5] for v in (0, 1, 2, 4, 5, 6)]
    assert short_cycles(12, grid_scopes(3, 4), 5) is None
    groups = clusters((2,) * 12, grid_scopes(3, 4), cycles, 512, grown=False)
    assert sorted(map(sorted, groups)) == [[0, 1, 2, 4, 5, 6, 8, 9, 10], [1, 2, 3, 5, 6, 7, 9, 10, 11]]
    assert [len(g) for g in clusters((2,) * 12, grid_scopes(3, 4), cycles, 1 << 12, grown=True)] == [12]
    assert max(len(g) for g in clusters((2,) * 12, grid_scopes(3, 4), cycles, 1 << 8, grown=True)) == 8


def test_triangles_within_a_function_are_none() -> None:
    assert short_cycles(4, [(0, 1, 2), (1, 2, 3)], 9) == []
    assert short_cycles(4, [(0, 1, 2), (1, 2, 3), (0, 3)], 9) == [frozenset((0, 1, 3)), frozenset((0, 2, 3))]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.frozensets(st.integers(0, 7), min_size=1, max_size=5), min_size=1, max_size=9))
def test_any_two_clusters_agree(groups: Sequence[frozenset[int]]) -> None:
    """Where a path of clusters goes from one to the other, each sharing a separator that has all they share."""
    kept = without_contained(groups)
    assert {v for group in groups for v in group} == {v for group in kept for v in group}
    assert not any(a < b for a, b in product(kept, kept))
    found = separators(kept)
    for one, other in combinations(kept, 2):
        share = one & other
        if not share:
            continue
        reached, before = {one}, 0
        while len(reached) > before:
            before = len(reached)
            wide = [s for s in found if share <= s]
            reached |= {g for g in kept for s in wide if s <= g and any(s <= r for r in reached)}
        assert other in reached


def test_entries_of_separators() -> None:
    flat = flatten(np.array([2, 3, 2]), np.zeros(7), np.arange(12.0), np.array([3]), np.array([2, 0, 1]))
    laid = separators_of(flat, [(0, 1), (2,)])
    table = np.arange(12).reshape(2, 2, 3)
    for side, scope, dims in ((0, (1, 2), (2, 3)), (1, (0,), (2,))):
        entry = laid.entry[laid.begin[side] : laid.begin[side] + 12].reshape(2, 2, 3)
        for cell in np.ndindex(table.shape):
            assert entry[cell] == np.ravel_multi_index([cell[axis] for axis in scope], dims)
    assert laid.first.tolist() == [0, 6, 8]
    assert laid.ends.tolist() == [[True, False], [False, True]]


def test_bounds_of_random_networks_hold() -> None:
    @settings(deadline=None, max_examples=80)
    @given(cost_networks(), st.integers(1, 6), st.one_of(st.none(), st.integers(-10, 30)))
    def check(network: CostNetwork, steps: int, upper: int | None) -> None:
        least = brute_least(network)
        bounds = bounds_of(network, upper)
        found = run(bounds, steps)
        assert bounds.lower <= (least if upper is None else max(least, upper))
        totals = [network.total(states) for states in found]
        assert totals == sorted(totals, reverse=True)
        assert all(least <= total for total in totals)
        if bounds.done and bounds.total is not None:
            assert bounds.total == least
        elif bounds.done:
            assert upper is None or least >= upper

    check()


@pytest.mark.parametrize("largest", [3, 1 << 44])
def test_costs_are_shifted_and_no_total_changes(largest: int) -> None:
    network = spins(3, 4, seed=5, largest=largest, torus=False)
    bounds = bounds_of(network)
    bounds._begin()
    sweeps = bounds._sweeps
    assert sweeps is not None
    sweeps.step(None)
    shifted = sweeps.shifted()
    rng = np.random.default_rng(1)
    for states in rng.integers(0, 2, (50, 12)).tolist():
        assert sweeps.constant + shifted.total(states) == network.total(states)
    assert all((table.costs >= 0).all() for table in shifted.tables)


def test_the_bound_of_a_frustrated_grid_is_its_optimum() -> None:
    """Of pairs alone it is far from that."""
    network = spins(3, 4, seed=3, largest=1 << 40)
    least = brute_least(network)
    assert prepare(network).lower < least
    bounds = bounds_of(network)
    found = run(bounds)
    assert bounds.done
    assert bounds.lower == bounds.total == least == network.total(found[-1])
    below = bounds_of(network, int(least))
    assert run(below) == []
    assert below.done
    assert below.lower == least
    assert below.sharpened is None


def test_rows_search_what_clusters_sharpened() -> None:
    network = spins(5, 5, seed=8, largest=1 << 40)
    bounds = bounds_of(network)
    run(bounds, 2)
    sharp = bounds.sharpened
    assert sharp is not None
    assert sharp.least > network.least
    plain, searched = (RowSearch(n, depth_first_order(n.dims, n.scopes), None, rounds=ROUNDS) for n in (network, sharp))
    for search in (plain, searched):
        search.memory_bytes = 1 << 28
        search.run(bool, lambda lower, total: None, lambda states: None)
    assert plain.done
    assert searched.total == plain.total
    assert searched.states is not None
    assert network.total(searched.states) == plain.total


@pytest.mark.parametrize("rank", [1, 40, 400])
@pytest.mark.parametrize("seed", range(3))
@ProverPolicy.using(cluster_gap_share=0.0)
def test_all_totals_below_a_cut_off_stay_where_every_one_is_wanted(seed: int, rank: int) -> None:
    network = spins(3, 4, seed=seed, largest=1 << 40)
    totals = {states: network.total(states) for states in product(range(2), repeat=12)}
    upper = int(sorted(totals.values())[rank]) + 1
    bounds = EveryClusterBounds(network, upper)
    bounds.memory_bytes = 1 << 28
    assert run(bounds) == []
    sharp = bounds.sharpened
    assert sharp is not None
    assert sharp.least > network.least
    for states, total in totals.items():
        assert sharp.total(states) == total if total < upper else sharp.total(states) >= upper


def test_small_costs_have_fractions_that_rows_do_not_take() -> None:
    bounds = bounds_of(spins(5, 5, seed=2, largest=1))
    run(bounds, 2)
    assert bounds.sharpened is None
    assert bounds.lower > spins(5, 5, seed=2, largest=1).least


def test_there_is_nothing_to_do_without_cycles_or_memory() -> None:
    path = CostNetwork((2,) * 4, tuple(CostTable((v, v + 1), np.eye(2)) for v in range(3)))
    scarce = ClusterBounds(spins(5, 5, seed=2, largest=9), None)
    scarce.memory_bytes = 1 << 10
    for bounds in (bounds_of(path), scarce):
        assert run(bounds) == []
        assert bounds.hopeless
        assert not bounds.done
        assert bounds.nbytes == 0


def test_what_closes_little_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterBounds, "offer", lambda *args: False)
    network = spins(5, 5, seed=8, largest=1 << 40)
    bounds = bounds_of(network, 1 << 60)
    run(bounds)
    assert bounds.hopeless
    assert bounds.lower > network.least
    assert bounds.sharpened is None


@ProverPolicy.using(glance_most_cells=-1)
def test_a_portfolio_begins_with_clusters_and_goes_on_with_what_they_sharpened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterBounds, "offer", lambda *args: False)
    network = spins(6, 6, seed=4, largest=1 << 40)
    search = Portfolio(network, None, "auto", ProofLimits(1 << 28), compiled())
    assert search.run().proved
    clusters = search.team.provers["clusters"]
    assert isinstance(clusters, ClusterProver)
    assert clusters.search is not None
    assert clusters.search.lower > network.least
    assert search.incumbent.total == network.total(search.incumbent.best or ())
    plain = RowSearch(network, depth_first_order(network.dims, network.scopes), None, rounds=ROUNDS)
    plain.memory_bytes = 1 << 28
    assert plain.run(bool, lambda lower, total: None, lambda states: None).total == search.incumbent.total


@given(cost_networks(), st.integers(-9, 30), st.booleans())
def test_rows_without_an_order_make_the_network_smaller_first(network: CostNetwork, cut: int, limited: bool) -> None:
    seen: list[tuple[int, ...]] = []
    rows = RowSearch(network, None, cut if limited else None, rounds=ROUNDS)
    rows.memory_bytes = 1 << 26
    outcome = rows.run(bool, lambda lower, total: None, seen.append)
    least = brute_least(network)
    assert rows.done
    if least >= (cut if limited else math.inf):
        assert outcome.total is None
        assert not outcome.feasible
    else:
        assert outcome.total == outcome.lower == least == network.total(outcome.states or ())
    assert all(network.total(states) >= least for states in seen)


def test_a_mesh_begins_with_clusters_before_any_search() -> None:
    network, begun = spins(8, 8, seed=4, largest=1 << 40), list[str]()
    search = Portfolio(network, None, "auto", ProofLimits(1 << 28, on_prover=begun.append), compiled()).run()
    assert is_mesh(network)
    assert begun[:2] == ["preparation", "clusters"]
    assert "search" not in begun
    assert search.proved
    assert search.total == network.total(search.states or ())
    plain = RowSearch(network, depth_first_order(network.dims, network.scopes), None, rounds=ROUNDS)
    plain.memory_bytes = 1 << 28
    assert plain.run(bool, lambda lower, total: None, lambda states: None).total == search.total


def test_a_mesh_where_clusters_are_of_no_use_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterBounds, "sharpened", property(lambda self: None))
    monkeypatch.setattr(ClusterBounds, "run", lambda self, *args: Outcome(self.lower))
    network, begun = spins(6, 6, seed=4, largest=1 << 40), list[str]()
    search = Portfolio(network, None, "auto", ProofLimits(1 << 28, on_prover=begun.append), compiled()).run()
    assert begun[:3] == ["preparation", "clusters", "search"]
    assert search.proved
    assert search.total == network.total(search.states or ())


def test_trees_and_cliques_are_no_meshes() -> None:
    assert not is_mesh(CostNetwork((2,) * 9, tuple(CostTable((v, v + 1), np.zeros((2, 2))) for v in range(8))))
    assert not is_mesh(CostNetwork((2,) * 9, tuple(CostTable(p, np.zeros((2, 2))) for p in combinations(range(9), 2))))


def test_larger_clusters_go_on_from_what_smaller_ones_shifted() -> None:
    network = spins(6, 6, seed=4, largest=1 << 40)
    lower = []
    bounds = bounds_of(network)
    while not (bounds.done or bounds.hopeless):
        bounds.run(bool, lambda bound, total: lower.append(bound), lambda states: None)
    assert lower == sorted(lower)
    assert not bounds.done or bounds.lower == bounds.total
    assert len(ProverPolicy.current().cluster_cells) > 1
    assert not math.isinf(bounds.lower)


@ProverPolicy.using(cluster_cells=(1 << 4, 1 << 12))
def test_what_had_no_memory_begins_anew_once_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was taken out of the costs before counts twice."""
    monkeypatch.setattr(ClusterBounds, "offer", lambda *args: False)
    network = spins(3, 4, seed=3, largest=1 << 40)
    bounds = bounds_of(network)
    bounds.run(bool, lambda lower, total: None, lambda states: None)
    assert network.least < (before := bounds.lower) < brute_least(network)
    bounds.memory_bytes = 0
    bounds.run(bool, lambda lower, total: None, lambda states: None)
    assert bounds.hopeless
    bounds.rest()
    bounds.memory_bytes = 1 << 28
    bounds.run(bool, lambda lower, total: None, lambda states: None)
    assert before < bounds.lower <= brute_least(network)


def test_clusters_that_forbid_everything_are_heard_before_they_are_swept() -> None:
    """Making them may take a whole turn; others then go on without their costs."""
    differ = np.diag([np.inf, np.inf])
    network = CostNetwork((2, 2, 2), tuple(CostTable(pair, differ) for pair in combinations(range(3), 2)))
    bounds = ClusterBounds(network, None)
    bounds.memory_bytes = 1 << 30
    outcome = bounds.run(lambda: True, lambda lower, total: None, lambda states: None)
    assert not outcome.feasible
    assert bounds.sharpened is None
    portfolio = Portfolio(network, None, "clusters", ProofLimits(1 << 30, prune=False))
    assert not portfolio.run().feasible
    assert portfolio.incumbent.prover == "clusters"


def test_nothing_above_the_cut_off_is_told() -> None:
    """Not all that clusters say of totals below it holds of the others."""
    agree = np.diag([10.0, 11.0])  # without a common divisor, by multiples of which bounds would be raised
    network = CostNetwork((2, 2, 2), tuple(CostTable(pair, agree) for pair in combinations(range(3), 2)))
    told = list[int]()
    limits = ProofLimits(1 << 30, prune=False, on_bounds=lambda lower, total: told.append(lower))
    outcome = Portfolio(network, 5, "clusters", limits).run()
    assert (outcome.feasible, outcome.lower) == (False, 5)
    assert max(told) <= 5
