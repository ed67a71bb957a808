"""Layers of rows against plain Python on random tables: packed keys, order, least cost of equal keys, the cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.rows import layer_loops, layers
from bucketflow.tasks.rows.device_layers import DEVICE
from bucketflow.tasks.rows.device_layers import order_of_groups as device_order
from bucketflow.tasks.rows.keys import WORD_BITS, Keys
from bucketflow.tasks.rows.layers import (
    Layer,
    LayerTable,
    Rows,
    Space,
    first_rows,
    next_rows,
    order_of_groups,
    row_bytes,
)
from bucketflow.tasks.steps.policy import RowPolicy
from tests.policies import InForce


@dataclass(frozen=True)
class Table:
    scope: tuple[int, ...]
    costs: Any


def keys_of(variables: list[int], dims: list[int]) -> Keys:
    return Keys(tuple(variables), tuple(dims[v] for v in variables))


def random_states(rng: np.random.Generator, dims: list[int], most: int) -> np.ndarray:
    """Distinct columns of states in ascending order; few of the states, so that many agree in parts."""
    states = np.stack([rng.integers(0, min(d, 3), size=most) for d in dims]) if dims else np.zeros((0, 1), np.int64)
    return np.unique(states, axis=1) if dims else states


def random_table(rng: np.random.Generator, dims: list[int], last: tuple[int, ...]) -> Table:
    others = rng.choice(len(dims) - 1, size=min(len(dims) - 1, int(rng.integers(0, 4))), replace=False)
    scope = (*sorted(others.tolist()), *last)
    costs = rng.integers(0, 9, size=math.prod([dims[v] for v in scope])).astype(float)
    if last:
        costs[rng.random(costs.size) < 0.1] = np.inf
    return Table(scope, costs)


def random_layer(rng: np.random.Generator, dims: list[int]) -> Layer:
    x = len(dims) - 1
    stay = [v for v in range(x) if rng.random() < 0.8] + [x] * int(rng.random() < 0.7)
    added = [random_table(rng, dims, (x,)) for _ in range(rng.integers(0, 4))]
    subtracted = [random_table(rng, dims, ()) for _ in range(rng.integers(0, 3))]
    subtracted = [term for term in subtracted if term.scope]
    return Layer(keys_of(list(range(x)), dims), keys_of(stay, dims), x, dims[x], added, subtracted, 2.0)


def expected(rows: Rows, layer: Layer, upper: float, most: int) -> tuple[list[Any], float]:
    """What the definition says: (key's states, cost, origin) of each row, and the cut."""
    before = layer.keys.unpack(rows.keys)
    dims = {**dict(zip(layer.keys.variables, layer.keys.dims, strict=True)), layer.variable: layer.d}

    def entry(term: LayerTable, states: dict[int, int]) -> float:
        return float(term.costs.reshape([dims[v] for v in term.scope])[tuple(states[v] for v in term.scope)])

    best: dict[tuple[int, ...], tuple[float, int]] = {}
    for origin in range(len(rows) * layer.d):
        row, state = divmod(origin, layer.d)
        states = {v: int(column[row]) for v, column in zip(layer.keys.variables, before, strict=True)}
        states[layer.variable] = state
        cost = rows.costs[row] - layer.constant
        cost += sum(entry(t, states) for t in layer.added) - sum(entry(t, states) for t in layer.subtracted)
        key = tuple(states[v] for v in layer.next_keys.variables)
        if cost < upper and (key not in best or cost < best[key][0]):
            best[key] = (cost, origin)
    found = [(list(key), cost, origin) for key, (cost, origin) in sorted(best.items())]
    if len(found) <= most:
        return found, math.inf
    places = sorted(range(len(found)), key=lambda i: (found[i][1], i))
    return [found[i] for i in sorted(places[:most])], found[places[most]][1]


def check(rows: Rows, layer: Layer, upper: float, most: int, spare: int | None = None) -> None:
    for found in (
        next_rows(rows, layer, upper, most, Space(), spare),
        layers.next_rows_numpy(rows, layer, upper, most),
    ):
        check_result(rows, layer, upper, most, found)


@pytest.fixture
def small_shares(in_force: InForce) -> None:
    """Let threads share even a few rows."""
    in_force(RowPolicy, shared_rows=4)


def check_result(rows: Rows, layer: Layer, upper: float, most: int, found: Any) -> None:
    wanted, wanted_cut = expected(rows, layer, upper, most)
    result, origin, cut = found
    states = layer.next_keys.unpack(result.keys).T.tolist()
    assert [*zip(states, result.costs.tolist(), origin.tolist(), strict=True)] == wanted
    assert cut == wanted_cut


@pytest.mark.parametrize("seed", range(60))
def test_layers_are_what_their_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    largest = int(rng.choice([2, 3, 5, 40]))
    dims = rng.integers(1, largest + 1, size=rng.integers(1, 30)).tolist()
    layer = random_layer(rng, dims)
    states = random_states(rng, dims[:-1], int(rng.integers(1, 200)))
    rows = Rows(layer.keys.pack(states), rng.integers(0, 20, size=states.shape[1]).astype(float))
    upper, most = float(rng.choice([math.inf, 20, 10])), int(rng.choice([1, 5, 50, 10**6]))
    check(rows, layer, upper, most, 0 if seed % 2 else None)


@pytest.mark.parametrize("seed", range(30))
def test_layers_are_the_same_for_every_number_of_threads(seed: int, small_shares: None) -> None:
    rng = np.random.default_rng(seed)
    dims = rng.integers(1, 5, size=rng.integers(4, 20)).tolist()
    layer = random_layer(rng, dims)
    states = random_states(rng, dims[:-1], int(rng.integers(100, 3000)))
    rows = Rows(layer.keys.pack(states), rng.integers(0, 20, size=states.shape[1]).astype(float))
    upper, most = float(rng.choice([math.inf, 20, 10])), int(rng.choice([5, 500, 10**6]))
    alone = next_rows(rows, layer, upper, most, Space(), 5)
    for threads in (2, 3, 7):
        result, origin, cut = next_rows(rows, layer, upper, most, Space(), 5, threads)
        assert (result.keys == alone[0].keys).all()
        assert result.costs.tobytes() == alone[0].costs.tobytes()
        assert (origin == alone[1]).all()
        assert cut == alone[2]


@pytest.mark.parametrize("count", [62, 63, 64, 130])
def test_keys_of_many_words_sort_like_their_states(count: int) -> None:
    rng = np.random.default_rng(count)
    keys = keys_of(list(range(count)), [2] * count)
    states = random_states(rng, [2] * count, 300)
    packed = keys.pack(states)
    assert keys.n_words == -(-count // WORD_BITS)
    assert (keys.unpack(packed) == states).all()
    assert (np.lexsort(packed.T[::-1]) == np.arange(states.shape[1])).all()


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("leaving", [[0], [5], [8], [0, 4, 8], [*range(0, 68, 4)]])
def test_groups_come_in_stable_order_of_what_stays(words: int, leaving: list[int]) -> None:
    rng = np.random.default_rng(words)
    dims = [3] * (12, 36, 70)[words - 1]
    layer = Layer(
        keys_of(list(range(len(dims) - 1)), dims),
        keys_of([v for v in range(len(dims) - 1) if v not in leaving], dims), len(dims) - 1, 3, [], [],
    )  # fmt: skip
    states = random_states(rng, dims[:-1], 5000)
    states[:3] = np.sort(rng.integers(0, 2, size=(1, states.shape[1])))
    states = np.unique(states, axis=1)
    rows = Rows(layer.keys.pack(states), np.zeros(states.shape[1]))
    kept = layer.keys.mask([v for v in layer.keys.variables if v not in layer.next_keys.fields])
    assert (order_of_groups(rows, layer) == np.lexsort((rows.keys & kept).T[::-1])).all()


def test_groups_larger_than_a_block_are_one_group() -> None:
    rng = np.random.default_rng(0)
    dims = [5000, 3, 2]
    layer = Layer(keys_of([0, 1], dims), keys_of([1, 2], dims), 2, 2, [random_table(rng, dims, (2,))], [])
    states = np.stack([np.repeat(np.arange(5000), 3), np.tile(np.arange(3), 5000)])
    check(Rows(layer.keys.pack(states), rng.integers(9, 99, size=15000).astype(float)), layer, math.inf, 100)


def test_beams_need_room_for_little_more_than_they_keep() -> None:
    rng = np.random.default_rng(0)
    dims = [2] * 17
    layer = Layer(keys_of(list(range(16)), dims), keys_of(list(range(17)), dims), 16, 2, [], [])
    rows = Rows(np.arange(1 << 16, dtype=np.uint64).reshape(-1, 1), rng.permutation(1 << 16).astype(float))
    space = Space()
    result, _, cut = next_rows(rows, layer, math.inf, 1000, space, spare=250)
    assert cut == 500 == result.costs.max() + 1
    assert len(result) == 1000
    room = sum(array.nbytes for arrays in space._arrays for array in arrays)
    assert room < row_bytes(1) * (1250 + layer.least_room)


@pytest.mark.parametrize("count", [1, 2, 3, 50, 6000])
def test_costs_are_ranked_as_sorting_does(count: int) -> None:
    rng = np.random.default_rng(count)
    few, wide, skewed = rng.integers(-3, 3, count), rng.integers(0, 1 << 52, count), np.exp(36 * rng.random(count)) // 1
    far = np.where(rng.random(count) < 0.01, 2.0**52, 1.0)
    for costs in (few, wide, skewed, far, np.zeros(count)):
        costs = costs.astype(float)
        for rank in {0, count // 2, count - 1}:
            value = np.sort(costs)[rank]
            assert layer_loops.ranked(costs, rank) == (value, np.count_nonzero(costs < value))


def test_layers_without_rows_stay_empty() -> None:
    layer = Layer(keys_of([], [2]), keys_of([0], [2]), 0, 2, [], [])
    empty, _, _ = next_rows(first_rows(5), layer, 5.0, 10, Space())
    assert len(empty) == 0
    for again, origin, cut in (
        next_rows(empty, layer, 9.0, 10, Space()),
        layers.next_rows_numpy(empty, layer, 9.0, 10),
    ):
        assert (len(again), len(origin), cut) == (0, 0, math.inf)


@pytest.fixture
def cupy() -> ModuleType:
    module: ModuleType = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not module.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    return module


def check_device(rows: Rows, layer: Layer, upper: float, most: int, spare: int | None = None) -> int:
    """Compare a layer on the device with the host's, bit for bit; return how many rows it has."""
    wanted, wanted_origin, wanted_cut = next_rows(rows, layer, upper, most, Space(), spare)
    there = Rows(DEVICE.here(rows.keys), DEVICE.here(rows.costs))
    found, origin, cut = DEVICE.next_rows(there, layer, upper, most, DEVICE.space(), spare)
    assert cut == wanted_cut
    pairs = ((found.keys, wanted.keys), (found.costs, wanted.costs), (origin, wanted_origin))
    for array, expected_array in pairs:
        assert (array.dtype, array.shape) == (expected_array.dtype, expected_array.shape)
        assert array.get().tobytes() == expected_array.tobytes()
    return len(found)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(60))
def test_devices_give_the_same_bits(cupy: ModuleType, in_force: InForce, seed: int) -> None:
    rng = np.random.default_rng(seed)
    largest = int(rng.choice([2, 3, 5, 40]))
    dims = rng.integers(1, largest + 1, size=rng.integers(1, 100 if seed % 3 == 0 else 30)).tolist()
    layer = random_layer(rng, dims)
    states = random_states(rng, dims[:-1], int(rng.choice([1, 200, 30_000])))
    rows = Rows(layer.keys.pack(states), rng.integers(-5, 20, size=states.shape[1]).astype(float))
    upper, most = float(rng.choice([math.inf, 20, 10])), int(rng.choice([1, 50, 4000, 10**6]))
    if seed % 2:
        in_force(RowPolicy, device_spare_rows=1)
    check_device(rows, layer, upper, most, 0 if seed % 2 else None)


@pytest.mark.gpu
@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("every", [2, 7])
def test_devices_order_groups_alike(cupy: ModuleType, words: int, every: int) -> None:
    rng = np.random.default_rng(words)
    dims = [3] * (12 if words == 1 else 36)
    stay = [v for v in range(len(dims)) if v % every]
    layer = Layer(keys_of(list(range(len(dims) - 1)), dims), keys_of(stay, dims), len(dims) - 1, 3, [], [])
    states = random_states(rng, dims[:-1], 100_000)
    rows = Rows(layer.keys.pack(states), rng.integers(0, 9, size=states.shape[1]).astype(float))
    order = device_order(Rows(DEVICE.here(rows.keys), DEVICE.here(rows.costs)), layer)
    assert (order.get() == order_of_groups(rows, layer)).all()
    assert check_device(rows, layer, math.inf, 10**6) > 500


@pytest.mark.gpu
@pytest.mark.parametrize("stay", [[], [8], [2], [1, 3, 8], [0, 7]])
@pytest.mark.parametrize("lowest", [0, -500])
def test_devices_minimise_long_groups(cupy: ModuleType, stay: list[int], lowest: int) -> None:
    rng = np.random.default_rng(len(stay))
    dims = [5, 4, 6, 3, 7, 4, 5, 6, 9]
    tables = [random_table(rng, dims, (8,)) for _ in range(3)]
    layer = Layer(keys_of(list(range(8)), dims), keys_of(stay, dims), 8, 9, tables, [], 3.0)
    states = np.unique(np.stack([rng.integers(0, d, 50_000) for d in dims[:-1]]), axis=1)
    rows = Rows(layer.keys.pack(states), rng.integers(lowest, lowest + 1000, size=states.shape[1]).astype(float))
    for upper, most in ((math.inf, 10**6), (lowest + 30.0, 7), (float(lowest - 50), 7)):
        check_device(rows, layer, upper, most)


@pytest.mark.gpu
@pytest.mark.parametrize("leaves", [None, 0, 9, 21])
def test_devices_give_the_same_bits_of_a_million_rows(cupy: ModuleType, leaves: int | None) -> None:
    rng = np.random.default_rng(5)
    dims = [2] * 23
    stay = [v for v in range(23) if v != leaves]
    added, held = [random_table(rng, dims, (22,)) for _ in range(3)], [random_table(rng, dims, ())]
    held = [term for term in held if term.scope]
    layer = Layer(keys_of(list(range(22)), dims), keys_of(stay, dims), 22, 2, added, held, 1.0)
    keys = np.flatnonzero(rng.random(1 << 22) < 0.3).astype(np.uint64).reshape(-1, 1)
    rows = Rows(keys, rng.integers(0, 1000, len(keys)).astype(float))
    assert check_device(rows, layer, 900.0, 10**7) > 10**6
    assert check_device(rows, layer, math.inf, 10**5, 10**5) == 10**5


@pytest.mark.gpu
def test_devices_take_layers_without_rows(cupy: ModuleType) -> None:
    layer = Layer(keys_of([0, 1], [2, 2, 2]), keys_of([1, 2], [2, 2, 2]), 2, 2, [], [])
    assert check_device(Rows(np.zeros((0, 1), np.uint64), np.zeros(0)), layer, 9.0, 10) == 0
