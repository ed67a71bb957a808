"""Weighted mini-buckets: never below the partition function, near it where nothing is split."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostTable
from bucketflow.pipeline.minibuckets.joins import BucketPolicy, BucketTable, ordered
from bucketflow.pipeline.minibuckets.log_sums import log_sum_bounds
from bucketflow.pipeline.minibuckets.partition import Partition, Size, partition
from tests.device_stand_in import device
from tests.policies import InForce

SIZES = st.sampled_from([Size(cells=1), Size(cells=4), Size(cells=9), Size(variables=2), Size(variables=3), Size()])


def log_tables(seed: int, dims: list[int], n_tables: int, spread: float, zeros: float) -> list[CostTable]:
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(n_tables):
        scope = tuple(map(int, rng.permutation(len(dims))[: rng.integers(1, 4)]))
        logs = rng.uniform(-spread, spread / 4, [dims[v] for v in scope])
        tables.append(CostTable(scope, np.where(rng.random(logs.shape) < zeros, -np.inf, logs)))
    return tables


def split_tables(dims: list[int], tables: list[CostTable], size: Size) -> tuple[list[BucketTable], Partition]:
    split = partition(dims, [t.scope for t in tables], range(len(dims)), size)
    return [BucketTable(s, ordered(t, s)) for t, s in zip(tables, split.scopes, strict=False)], split


def log_sum(dims: list[int], tables: list[CostTable]) -> float:
    logs = [
        math.fsum(t.costs[tuple([states[v] for v in t.scope])] for t in tables) for states in product(*map(range, dims))
    ]
    top = max(logs)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(x - top) for x in logs))


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    st.integers(0, 9),
    st.sampled_from([0.0, 2.0, 800.0]),
    st.sampled_from([0.0, 0.3]),
    SIZES,
)
def test_bounds_enclose_the_sum(
    seed: int, dims: list[int], n_tables: int, spread: float, zeros: float, size: Size
) -> None:
    tables = log_tables(seed, dims, n_tables, spread, zeros)
    exact = log_sum(dims, tables)
    given_tables, split = split_tables(dims, tables, size)
    found = log_sum_bounds(given_tables, split)
    assert found is not None
    lower, upper = found
    # the oracle itself rounds
    near = 1e-13 * (1 + abs(exact)) if exact > -math.inf else 0.0
    assert lower - near <= exact <= upper + near
    if split.exact and exact > -math.inf:
        assert upper - lower < 1e-9 * (1 + spread * len(tables))


def test_larger_mini_buckets_bound_better() -> None:
    dims = [2] * 10
    tables = log_tables(3, dims, 30, 3.0, 0.0)
    uppers = []
    for cells in (2, 16, 1 << 10):
        found = log_sum_bounds(*split_tables(dims, tables, Size(cells=cells)))
        assert found is not None
        uppers.append(found[1])
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] == pytest.approx(log_sum(dims, tables), abs=1e-9)


def test_joins_of_the_engine_are_those_of_numpy(in_force: InForce) -> None:
    dims = [3, 2, 4, 3, 2, 3]
    given_tables, split = split_tables(dims, log_tables(1, dims, 12, 5.0, 0.2), Size(cells=36))
    quick = log_sum_bounds(given_tables, split)
    in_force(BucketPolicy, quick_sum_cells=0)
    assert log_sum_bounds(given_tables, split) == pytest.approx(quick, abs=1e-11)


def test_it_stops_between_buckets() -> None:
    assert log_sum_bounds(*split_tables([2, 2], log_tables(1, [2, 2], 3, 1.0, 0.0), Size()), stop=lambda: True) is None


def test_joins_on_a_device_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    dims = [3, 2, 4, 3, 2, 3]
    given_tables, split = split_tables(dims, log_tables(1, dims, 12, 5.0, 0.2), Size(cells=36))
    here = log_sum_bounds(given_tables, split)
    with device(monkeypatch):
        assert log_sum_bounds(given_tables, split, device_cells=12) == pytest.approx(here, abs=1e-11)
