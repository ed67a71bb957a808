"""Mini-buckets: bound <= optimum <= decoded cost, exact where nothing is split, integers throughout."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import LARGEST, CostNetwork, CostTable
from bucketflow.pipeline.minibuckets import joins
from bucketflow.pipeline.minibuckets.joins import SHORT_STATES, BucketPolicy
from bucketflow.pipeline.minibuckets.least_costs import MiniBuckets, eliminate, greedy_states, shifts
from bucketflow.pipeline.minibuckets.partition import Partition, Size, partition
from bucketflow.tasks.gpu.arrays import is_device
from tests.device_stand_in import device
from tests.policies import InForce

HUGE = LARGEST // 64


def random_network(seed: int, dims: list[int], n_tables: int, values: list[float]) -> CostNetwork:
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(n_tables):
        scope = tuple(map(int, rng.permutation(len(dims))[: rng.integers(1, 4)]))
        tables.append(CostTable(scope, rng.choice(values, [dims[v] for v in scope])))
    return CostNetwork(tuple(dims), tuple(tables), int(rng.integers(-5, 5)))


@st.composite
def networks(draw: st.DrawFn) -> CostNetwork:
    """Ties, forbidden entries, costs from -3 to near the largest, variables without tables or of one state."""
    dims = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    values = draw(
        st.sampled_from(
            [
                [0.0, 1.0],
                [-3.0, 0.0, 2.0, 7.0],
                [0.0, 1.0, 5.0, math.inf],
                [0.0, 1.0, HUGE - 1.0, HUGE, math.inf],
            ]
        )
    )
    return random_network(draw(st.integers(0, 2**32 - 1)), dims, draw(st.integers(0, 9)), values)


def totals(network: CostNetwork) -> dict[tuple[int, ...], float]:
    return {states: network.total(states) for states in product(*map(range, network.dims))}


def split_of(network: CostNetwork, size: Size, order: tuple[int, ...] | None = None) -> Partition:
    order = order or tuple(range(len(network.dims)))
    return partition(network.dims, network.scopes, order, size)


def bounded(network: CostNetwork, size: Size, **options: Any) -> MiniBuckets:
    found = eliminate(network, split_of(network, size), **options)
    assert found is not None
    return found


SIZES = st.sampled_from([Size(cells=1), Size(cells=4), Size(cells=9), Size(variables=2), Size(variables=3), Size()])


@given(networks(), SIZES)
def test_bound_and_assignment_enclose_the_optimum(network: CostNetwork, size: Size) -> None:
    everything = totals(network)
    optimum = min(everything.values())
    found = bounded(network, size)
    if not found.feasible:
        assert optimum == math.inf
        return
    assert found.lower <= optimum
    assert everything[greedy_states(found, network.dims)] >= optimum
    if found.exact:
        assert found.lower == optimum == everything[greedy_states(found, network.dims)]


@given(networks())
def test_unlimited_buckets_are_exact(network: CostNetwork) -> None:
    found = bounded(network, Size())
    assert found.exact
    assert found.feasible == (min(totals(network).values()) < math.inf)


@given(networks(), SIZES, st.integers(-6, 40))
def test_a_cut_off_only_hides_what_it_cuts(network: CostNetwork, size: Size, upper: int) -> None:
    optimum = min(totals(network).values())
    found = bounded(network, size, upper=upper)
    assert not optimum < min(found.lower, upper)
    if not found.feasible:
        assert optimum >= upper
    assert not (found.exact and optimum < upper and found.lower != optimum)


def bound_along(found: MiniBuckets, states: tuple[int, ...], dims: tuple[int, ...]) -> list[float]:
    """Bounds on what is left while variables are assigned in the reverse of the order."""
    bound, along = float(found.lower), [float(found.lower)]

    def at(table: Any) -> float:
        index = 0
        for v in table.scope:
            index = index * dims[v] + states[v]
        return float(table.costs[index])

    for v in reversed(found.order):
        bound += sum(map(at, found.buckets[v]))
        if bound == math.inf:
            return [*along, math.inf]
        bound -= sum(map(at, found.messages[v])) + found.offsets[v]
        along.append(bound)
    return along


@given(networks(), SIZES, st.randoms())
@settings(max_examples=60)
def test_messages_bound_what_is_left_and_end_at_the_total(network: CostNetwork, size: Size, random: Any) -> None:
    found = bounded(network, size)
    if not found.feasible:
        return
    everything = totals(network)
    for states in random.sample(sorted(everything), min(8, len(everything))):
        along = bound_along(found, states, network.dims)
        assert along == sorted(along)
        assert along[-1] == everything[states]
    assert all(np.all(t.costs[np.isfinite(t.costs)] % 1 == 0) for ts in found.messages for t in ts)


def test_shifts_add_up_to_nothing() -> None:
    minima = [np.array([5.0, 0.0, math.inf, 9.0]), np.array([2.0, 1.0, 0.0, 9.0]), np.array([0.0, 0.0, 4.0, 9.0])]
    added = shifts(minima, 27.0)
    assert np.array_equal(sum(added), [0.0, 0.0, math.inf, math.inf])
    assert np.array_equal([m[:2] + a[:2] for m, a in zip(minima, added, strict=True)], [[3, 1], [2, 0], [2, 0]])


@pytest.mark.parametrize("axes", [(0,), (3,), (1, 2), (0, 2, 3), (0, 1, 2, 3)])
def test_least_costs_over_long_and_short_axes(axes: tuple[int, ...]) -> None:
    short = SHORT_STATES
    costs = np.random.default_rng(len(axes)).integers(0, 99, (2, short + 1, 3, short)).astype(float)
    costs[costs > 90] = np.inf
    least = joins.reduced(np.minimum, costs, axes, short)
    np.testing.assert_array_equal(least.reshape(-1), costs.min(axis=axes).reshape(-1))


def test_joins_of_the_engine_are_those_of_numpy(in_force: InForce) -> None:
    network = random_network(3, [3, 2, 4, 3, 2, 3, 4, 2], 14, [*map(float, range(20)), math.inf])
    quick = bounded(network, Size(cells=64))
    assert quick.feasible
    in_force(BucketPolicy, quick_cells=0)
    engine = bounded(network, Size(cells=64), compiled=False)
    assert engine.lower == quick.lower
    assert engine.offsets == quick.offsets
    for ours, theirs in zip(engine.messages, quick.messages, strict=True):
        assert all(np.array_equal(a.costs, b.costs) for a, b in zip(ours, theirs, strict=True))


def test_tables_need_not_be_kept() -> None:
    network = random_network(5, [3] * 8, 16, [0.0, 2.0, 9.0])
    kept, dropped = bounded(network, Size(cells=27)), bounded(network, Size(cells=27), keep=False)
    assert kept.lower == dropped.lower
    assert not any(dropped.buckets)
    assert not any(dropped.messages)
    split = split_of(network, Size(cells=27))
    assert split.live_bytes < split.kept_bytes


def test_it_stops_between_buckets() -> None:
    network = random_network(5, [3] * 8, 16, [0.0, 2.0, 9.0])
    assert eliminate(network, split_of(network, Size(cells=27)), stop=lambda: True) is None


def test_mini_buckets_are_no_larger_than_asked() -> None:
    network = random_network(8, [2, 3, 4, 2, 3, 4, 2, 3], 30, [0.0, 1.0])
    largest = max(table.costs.size for table in network.tables)
    for cells in (1, 12, 48, 200):
        split = split_of(network, Size(cells=cells))
        assert split.largest <= max(cells, largest)
        assert sorted(t for bucket in split.buckets for mini in bucket for t in mini.tables) == [
            t for t, scope in enumerate(split.scopes) if scope
        ]
    assert all(len(m.scope) <= 4 for b in split_of(network, Size(variables=4)).buckets for m in b)


def test_joins_on_a_device_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(3, [3, 2, 4, 3, 2, 3, 4, 2], 14, [*map(float, range(20)), math.inf])
    here = bounded(network, Size(cells=64))
    assert here.feasible
    with device(monkeypatch):
        there = bounded(network, Size(cells=64), device_cells=20)
        assert any(is_device(table.costs) for tables in there.messages for table in tables)
        assert not all(is_device(table.costs) for tables in there.messages for table in tables)
        assert greedy_states(there, network.dims) == greedy_states(here, network.dims)
    assert (there.lower, there.offsets) == (here.lower, here.offsets)
    for ours, theirs in zip(here.messages, there.messages, strict=True):
        assert all(np.array_equal(a.costs, np.asarray(b.costs)) for a, b in zip(ours, theirs, strict=True))
