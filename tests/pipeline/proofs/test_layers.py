"""Bounded rows against brute force: any cut-off, any width, any memory; bounds hold whatever was cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.minibuckets.least_costs import MiniBuckets, eliminate
from bucketflow.pipeline.minibuckets.partition import Size, partition
from bucketflow.pipeline.orders.depth_first import depth_first_order
from bucketflow.pipeline.proofs.limits import OnBounds, Outcome
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers.layered_search import LayeredSearch, Stop, Trail, layers
from bucketflow.pipeline.proofs.provers.row_layers import ROUNDS, LayerRound, RowSearch
from bucketflow.tasks.rows.layers import HOST, Space, first_rows, next_rows
from bucketflow.tasks.steps.policy import RowPolicy
from tests.policies import InForce

from .networks import brute_least, cost_networks

MEMORY = 1 << 26
CUTS = st.one_of(st.none(), st.integers(-3, 3))


def buckets(network: CostNetwork, cells: int, upper: int | None = None) -> MiniBuckets:
    order = tuple(range(len(network.dims)))
    found = eliminate(network, partition(network.dims, network.scopes, order, Size(cells=cells)), upper=upper)
    assert found is not None
    return found


def cut_off(network: CostNetwork, above: int | None) -> int | None:
    """A cut-off so much above the optimum."""
    least = brute_least(network)
    return None if above is None or math.isinf(least) else int(least) + above


def solve_rows(
    network: CostNetwork,
    found: MiniBuckets,
    upper: int | None = None,
    *,
    memory_bytes: int,
    width: int | None = None,
    stop: Stop = bool,
) -> Outcome:
    """Search layer by layer, on the host."""
    return LayeredSearch(network, found, upper, memory_bytes=memory_bytes, width=width, side=HOST).run(stop)


def prove_by_rows(
    network: CostNetwork,
    order: Sequence[int],
    upper: int | None = None,
    *,
    memory_bytes: int,
    rounds: Sequence[LayerRound] = ROUNDS,
    stop: Stop = bool,
    on_bounds: OnBounds = lambda lower, total: None,
    **given: int,
) -> Outcome:
    """Search round by round."""
    search = RowSearch(network, order, upper, rounds=rounds, **given)
    search.memory_bytes = memory_bytes
    return search.run(stop, on_bounds, lambda states: None)


def grid(side: int, seed: int, d: int = 2) -> CostNetwork:
    rng = np.random.default_rng(seed)
    cells = [(i * side + j, i, j) for i in range(side) for j in range(side)]
    edges = [(v, v + 1) for v, _, j in cells if j + 1 < side] + [(v, v + side) for v, i, _ in cells if i + 1 < side]
    tables = [CostTable(edge, rng.integers(0, 100, size=(d, d)).astype(float)) for edge in edges]
    return CostNetwork((d,) * (side * side), tuple(tables), 3)


@given(network=cost_networks(), above=CUTS, cells=st.sampled_from([1, 9, 10**6]))
@settings(max_examples=80)
def test_the_optimum_is_found_if_it_is_below_the_cut_off(network: CostNetwork, above: int | None, cells: int) -> None:
    least, upper = brute_least(network), cut_off(network, above)
    outcome = solve_rows(network, buckets(network, cells, upper), upper, memory_bytes=MEMORY)
    assert outcome.proved
    assert outcome.feasible == (least < (math.inf if upper is None else upper))
    if outcome.feasible:
        assert outcome.states is not None
        assert outcome.total == outcome.lower == network.total(outcome.states) == least


@given(network=cost_networks(), above=CUTS, width=st.integers(1, 5), memory_bytes=st.sampled_from([0, 1 << 20]))
@settings(max_examples=80)
def test_beams_bound_the_optimum_from_both_sides(
    network: CostNetwork, above: int | None, width: int, memory_bytes: int
) -> None:
    least, upper = brute_least(network), cut_off(network, above)
    outcome = solve_rows(network, buckets(network, 4, upper), upper, memory_bytes=memory_bytes, width=width)
    assert outcome.lower <= min(least, math.inf if upper is None else upper)
    if outcome.total is not None:
        assert outcome.states is not None
        assert least <= outcome.total == network.total(outcome.states)
    elif not outcome.feasible:
        assert upper is None or least >= upper


@given(network=cost_networks(), above=CUTS)
@settings(max_examples=40)
def test_growing_rounds_prove_what_they_find(network: CostNetwork, above: int | None) -> None:
    least, upper = brute_least(network), cut_off(network, above)
    order, told = depth_first_order(network.dims, network.scopes, seconds=0.01), []
    outcome = prove_by_rows(
        *(network, order, upper),
        memory_bytes=MEMORY,
        rounds=[LayerRound(2, 1), LayerRound(4, 2), LayerRound(1 << 20, 1 << 20)],
        on_bounds=lambda lower, total: told.append((lower, total)),
    )
    assert outcome.proved
    assert outcome.feasible == (least < (math.inf if upper is None else upper))
    assert outcome.total == (least if outcome.feasible else None)
    assert told == sorted(told, key=lambda bounds: bounds[0])
    assert all(lower <= least for lower, _ in told)  # one above the cut-off is one of the least cost still


def test_bounds_are_the_totals_where_no_bucket_is_split() -> None:
    network = grid(5, 0)
    found = buckets(network, 1 << 20)
    rows, space = first_rows(found.lower), Space()
    assert found.exact
    for layer in layers(network, found):
        rows, _, _ = next_rows(rows, layer, math.inf, 1 << 20, space)
        assert rows.costs.min() == found.lower
    assert solve_rows(network, found, memory_bytes=MEMORY, width=1).total == found.lower


def test_small_memory_cuts_layers_and_says_so() -> None:
    network = grid(7, 1, d=4)
    found = buckets(network, 16)
    small = solve_rows(network, found, memory_bytes=1 << 19)
    exact = solve_rows(network, buckets(network, 1 << 18), memory_bytes=MEMORY)
    assert exact.proved
    assert not small.proved
    assert found.lower <= small.lower <= exact.lower <= small.total


@pytest.mark.parametrize("after", [0, 3, 30])
def test_stopped_searches_keep_what_they_proved(after: int) -> None:
    network, asked = grid(6, 2), count()
    found = buckets(network, 1 << 4)
    outcome = solve_rows(network, found, memory_bytes=MEMORY, stop=lambda: next(asked) >= after)
    assert outcome.total is None
    assert outcome.feasible
    assert found.lower <= outcome.lower <= solve_rows(network, found, memory_bytes=MEMORY).lower


def test_mini_buckets_that_do_not_fit_are_not_made() -> None:
    network = grid(7, 1, d=4)
    search = RowSearch(network, range(49), None, rounds=[LayerRound(1 << 12, 10)])
    search.memory_bytes = 1 << 12
    outcome = search.run(bool, lambda lower, total: None, lambda states: None)
    assert search.hopeless
    assert not outcome.proved
    assert search.nbytes == 0


def test_threads_change_nothing(in_force: InForce) -> None:
    in_force(RowPolicy, shared_rows=4, plain_cells=-1)
    network, rounds = grid(6, 3, d=3), [LayerRound(1 << 8, 50), LayerRound(1 << 10, 1 << 12)]
    alone, shared = (prove_by_rows(network, range(36), memory_bytes=MEMORY, rounds=rounds, threads=n) for n in (1, 3))
    assert shared == alone
    assert alone.total is not None


def test_stopped_rounds_keep_the_best_assignment() -> None:
    network, told = grid(7, 1, d=4), []
    outcome = prove_by_rows(
        *(network, range(49)),
        memory_bytes=MEMORY,
        rounds=[LayerRound(4, 1)] * 9,
        stop=lambda: bool(told),
        on_bounds=lambda *bounds: told.append(bounds),
    )
    assert told == [(outcome.lower, outcome.total)]
    assert outcome.states is not None
    assert outcome.lower < outcome.total == network.total(outcome.states)


@ProverPolicy.using(trail_least_bytes=100)
def test_trails_forget_what_nothing_comes_from() -> None:
    rng, trail, plain = np.random.default_rng(0), Trail(), []
    n = 1
    for variable in range(60):
        origin = np.sort(rng.integers(0, n * 3, size=50)).astype(np.uint32)
        trail.add(variable, 3, origin)
        plain.append(origin)
        n = 50
    assert trail.n_bytes < sum(origin.nbytes for origin in plain) // 2
    for row in range(50):
        wanted, at = [], row
        for variable in reversed(range(60)):
            at, state = divmod(int(plain[variable][at]), 3)
            wanted.append((variable, state))
        assert [*trail.back(row)] == wanted


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_rounds_on_a_device_find_what_those_of_the_host_find(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    network = grid(7, seed, d=3)
    order, rounds = (
        depth_first_order(network.dims, network.scopes),
        [LayerRound(30, 20), LayerRound(300, 500), LayerRound(300, 10**6)],
    )
    expected = prove_by_rows(network, order, memory_bytes=MEMORY, rounds=rounds)
    with ProverPolicy.using(device_least_rows=1, device_least_join_cells=1):
        found = prove_by_rows(network, order, memory_bytes=MEMORY, device_bytes=lambda: 1 << 30, rounds=rounds)
    assert expected.proved
    assert found == expected


@ProverPolicy.using(device_least_rows=1)
def test_mini_buckets_may_take_more_of_a_device_than_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    network, small, large = grid(5, 1), LayerRound(8, 1), LayerRound(64, 1)
    order = tuple(range(len(network.dims)))
    splits = [partition(network.dims, network.scopes, order, Size(cells=each.cells)) for each in (small, large)]
    memory = int(splits[1].kept_bytes / 0.6)
    assert splits[0].kept_bytes < memory // 2
    monkeypatch.setattr("bucketflow.pipeline.proofs.provers.row_layers.LayeredSearch", lambda *_, **__: None)
    for device_bytes, expected in ((lambda: memory, splits[1]), (None, splits[0])):
        search = RowSearch(network, order, None, device_bytes=device_bytes, rounds=[small, large])
        search.memory_bytes = memory
        for each in (small, large):
            search._layered(each)
        assert search._split is not None
        assert search._split.buckets == expected.buckets


@pytest.mark.parametrize(
    "rounds", [[LayerRound(16, 10**6)], [LayerRound(4, 20), LayerRound(64, 200), LayerRound(256, 10**6)]]
)
def test_rows_go_on_where_they_were_stopped(rounds: list[LayerRound]) -> None:
    network = grid(5, 1)
    order = tuple(range(len(network.dims)))
    expected = prove_by_rows(network, order, memory_bytes=MEMORY, rounds=rounds)
    search = RowSearch(network, order, None, rounds=rounds)
    search.memory_bytes, lowers = MEMORY, [network.least]
    for _ in range(200):
        # enough for all mini-buckets, but not for all layers after them
        asked = iter(range(len(order) + 3))
        outcome = search.run(lambda asked=asked: next(asked, None) is None, lambda *bounds: None, lambda states: None)  # type: ignore[misc]
        lowers.append(outcome.lower)
        if outcome.proved:
            break
    assert outcome == expected
    assert lowers == sorted(lowers)
    assert lowers[-1] == expected.total
    assert len(lowers) >= 3


def test_rows_hear_of_better_totals_between_two_turns() -> None:
    network = grid(4, 2)
    least = int(brute_least(network))
    search = RowSearch(network, tuple(range(16)), None, rounds=[LayerRound(4, 10**6)])
    search.memory_bytes = MEMORY
    asked = iter(range(20))
    assert not search.run(lambda: next(asked, None) is None, lambda *bounds: None, lambda states: None).proved
    assert search.nbytes > 0
    search.learn(least)
    ended = search.run(bool, lambda *bounds: None, lambda states: None)
    assert (ended.feasible, ended.lower, ended.proved) == (False, least, True)
