"""Tables of rows on a device give the bits that they give on the host."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.rows import device
from bucketflow.tasks.rows.joins import joined_reduced, semijoin
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.ordering import gathered, merged, reordered
from bucketflow.tasks.rows.relation import Dense, Relation, Table, from_dense, on_host, restricted, to_dense
from bucketflow.tasks.rows.row_backend import backend_of
from bucketflow.tasks.steps.semiring import SUM_PRODUCT, Semiring, min_plus, mod_sum_product
from tests.tasks.test_relations import SEMIRINGS, random_relation, random_values

pytestmark = pytest.mark.gpu
WIDE = [[1, 2, 3], [2, 5], [3, 1 << 20], [1 << 31, (1 << 40) + 1, 2]]


@pytest.fixture
def cupy() -> ModuleType:
    module: ModuleType = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not module.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    return module


def there(table: Any) -> Any:
    """Copy a table or an array to the device."""
    import cupy

    if isinstance(table, Relation):
        return Relation(table.keys, there(table.words), there(table.values))
    return Dense(table.keys, there(table.values)) if isinstance(table, Dense) else cupy.asarray(table)


def same(found: Relation, wanted: Relation, semiring: Semiring) -> None:
    """The device's relation is the host's, bit for bit; logarithms up to rounding."""
    here = on_host(found)
    assert found.words is not here.words
    assert (here.keys, here.words.dtype, here.values.dtype) == (wanted.keys, wanted.words.dtype, wanted.values.dtype)
    assert here.words.shape == wanted.words.shape
    assert here.words.tobytes() == wanted.words.tobytes()
    if semiring.name == "log_sum":
        assert here.values == pytest.approx(wanted.values, rel=1e-12)
    else:
        assert here.values.tobytes() == wanted.values.tobytes()


def random_tables(rng: np.random.Generator, semiring: Semiring, tables: int) -> list[Relation]:
    largest = WIDE[rng.integers(0, len(WIDE))]
    dims = {v: int(rng.choice(largest)) for v in range(6)}
    density = float(rng.choice([0.0, 0.05, 0.5, 1.0]))
    scopes = [rng.permutation(6)[: rng.integers(0, 5)].tolist() for _ in range(tables)]
    return [random_relation(rng, scope, dims, semiring, density) for scope in scopes]


@pytest.mark.parametrize("seed", range(30))
def test_joins_and_reductions(cupy: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    semiring = SEMIRINGS[seed % len(SEMIRINGS)]
    a, b, c = random_tables(rng, semiring, 3)
    same(semijoin(there(a), there(b)), semijoin(a, b), semiring)
    both = [*{v: 0 for table in (a, b) for v in table.keys.variables}]
    pair = joined_reduced([there(a), there(b)], both, semiring)
    same(pair, joined_reduced([a, b], both, semiring), semiring)
    variables = [*{v: 0 for table in (a, b, c) for v in table.keys.variables}]
    scope = rng.permutation(variables)[: rng.integers(0, len(variables) + 1)].tolist()
    inputs: list[Table] = [a, b, to_dense(c, semiring) if c.cells < 10_000 and seed % 2 else c]
    for budget in (1, 7, 1 << 20):
        found = joined_reduced([there(table) for table in inputs], scope, semiring, budget)
        same(found, joined_reduced(inputs, scope, semiring, budget), semiring)


@pytest.mark.parametrize("seed", range(30))
def test_orders_and_duplicates(cupy: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    semiring = SEMIRINGS[seed % len(SEMIRINGS)]
    (a,) = random_tables(rng, semiring, 1)
    variables = rng.permutation(a.keys.variables).tolist()
    same(reordered(there(a), variables), reordered(a, variables), semiring)
    scope = variables[: rng.integers(0, len(variables) + 1)]
    same(joined_reduced([there(a)], scope, semiring), joined_reduced([a], scope, semiring), semiring)
    pieces = [a.rows(np.flatnonzero(rng.random(len(a)) < 0.6)) for _ in range(3)]
    same(merged([there(piece) for piece in pieces], semiring), merged(pieces, semiring), semiring)
    words = np.concatenate([piece.words for piece in pieces])
    values = np.concatenate([piece.values for piece in pieces])
    mixed = rng.permutation(len(words))
    rows = words[mixed], values[mixed]
    same(gathered(a.keys, *map(there, rows), semiring), gathered(a.keys, *rows, semiring), semiring)
    here, far = backend_of(words), backend_of(there(words))
    assert far.starts(there(words)).get().tolist() == here.starts(words).tolist()
    order, wanted = far.order(there(rows[0])), here.order(rows[0])
    assert (order is None) == (wanted is None)
    assert order is None or order.get().tolist() == wanted.tolist()
    states = dict.fromkeys(variables[:2], 0)
    same(restricted(there(a), states), restricted(a, states), semiring)
    if a.cells < 10_000:
        table = to_dense(there(a), semiring)
        assert table.values.get().tobytes() == to_dense(a, semiring).values.tobytes()
        same(from_dense(table, semiring), a, semiring)


@pytest.mark.parametrize("rows", [1, 3071, 3073, 300_000])
@pytest.mark.parametrize(("low", "bits"), [(0, 1), (0, 8), (5, 13), (20, 41), (0, 63)])
@pytest.mark.parametrize("dtype", ["int16", "int32", "float64"])
def test_sorting_by_digits(cupy: ModuleType, rows: int, low: int, bits: int, dtype: str) -> None:
    rng = np.random.default_rng(rows)
    keys = rng.integers(0, 1 << bits, rows).astype(np.uint64) << np.uint64(low)
    keys |= rng.integers(0, 1 << low, rows).astype(np.uint64)
    payload = np.arange(rows).astype(dtype)
    mask = (1 << 63) - (1 << low)
    given = there(keys), there(payload)
    found = device._by_digits(*given, mask)
    order = np.argsort(keys & np.uint64(mask), kind="stable")
    for array, wanted in zip((*found, *given), (keys[order], payload[order], keys, payload), strict=True):
        assert array.get().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("scope", [[0, 1], [1, 0], [1], []])
@pytest.mark.parametrize("semiring", [min_plus("int32"), SUM_PRODUCT], ids=["least", "sum"])
def test_many_rows(cupy: ModuleType, semiring: Semiring, scope: list[int]) -> None:
    rng = np.random.default_rng(3)
    keys = Keys((0, 1, 2), (300, 700, 9))
    kept = np.flatnonzero(rng.random(math.prod(keys.dims)) < 0.3)
    values = np.full(math.prod(keys.dims), semiring.zero, semiring.dtype)
    values[kept] = rng.random(len(kept)) * 1000 + 1 if semiring.dtype == "float64" else rng.integers(1, 99, len(kept))
    a = from_dense(Dense(keys, values), semiring)
    other = Keys((1, 2, 3), (700, 9, 2))
    cells = np.array([*np.ndindex(*other.dims)]).T
    b = Relation(other, other.pack(cells), random_values(rng, semiring, cells.shape[1]))
    inputs: list[Table] = [a, b]
    for budget in (100_000, 1 << 24):
        found = joined_reduced([there(table) for table in inputs], scope, semiring, budget)
        same(found, joined_reduced(inputs, scope, semiring, budget), semiring)


@pytest.mark.parametrize("lengths", [[1] * 5000, [1024], [1025, 3, 1], [33] * 100, [64] * 50, [70_000, 2]])
@pytest.mark.parametrize("semiring", [min_plus("int16"), SUM_PRODUCT, mod_sum_product(2**31 - 1)], ids=lambda s: s.name)
def test_runs_of_all_lengths(cupy: ModuleType, semiring: Semiring, lengths: list[int]) -> None:
    rng = np.random.default_rng(len(lengths))
    words = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)[:, None]
    values = rng.random(len(words)) if semiring == SUM_PRODUCT else rng.integers(0, 4000, len(words))
    rows = words, values.astype(semiring.dtype)
    keys = Keys((0,), (5000,))
    same(gathered(keys, *map(there, rows), semiring), gathered(keys, *rows, semiring), semiring)


@pytest.mark.parametrize(
    "semiring",
    [min_plus("int16", 4), min_plus("int32"), mod_sum_product(97), SUM_PRODUCT],
    ids=["int16", "int32", "residues", "sums"],
)
@pytest.mark.parametrize("scope", [[0, 1], [0], [], [0, 1, 2]])
@pytest.mark.parametrize("dims", [(300, 40, 50), (3, 40, 1 << 12), (1 << 40, 1 << 20, 60)])
@pytest.mark.parametrize("factors", [0, 1, 2])
def test_products_are_summed_where_they_stand(
    cupy: ModuleType, semiring: Semiring, scope: list[int], dims: tuple[int, int, int], factors: int
) -> None:
    """Of one word and of two, with sums of zero, and runs that are too long for one launch."""
    rng = np.random.default_rng(len(scope))
    keys = Keys((0, 1, 2), dims)
    states = np.unique(np.stack([rng.integers(0, min(d, 300), 200_000) for d in dims]), axis=1)
    rows = Relation(keys, keys.pack(states), random_values(rng, semiring, states.shape[1]))
    inputs: list[Table] = [rows]
    for v in (2, 1)[:factors]:
        values = random_values(rng, semiring, min(dims[v], 1 << 12))
        values[rng.random(len(values)) < 0.2] = semiring.zero
        if len(values) == dims[v]:
            inputs.append(Dense(Keys((v,), (dims[v],)), values))
    for budget in (1 << 10, 1 << 24):
        found = joined_reduced([there(table) for table in inputs], scope, semiring, budget)
        same(found, joined_reduced(inputs, scope, semiring, budget), semiring)
