"""Operations on tables of rows against plain Python over dictionaries of states, in every semiring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.rows import joins
from bucketflow.tasks.rows.algebra import Representation
from bucketflow.tasks.rows.joins import joined_reduced, semijoin
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.memory_account import MemoryAccount
from bucketflow.tasks.rows.ordering import (
    TooManyRowsError,
    gathered,
    merged,
    order_holds,
    reordered,
)
from bucketflow.tasks.rows.relation import Dense, Relation, _digits, from_dense, restricted, to_dense
from bucketflow.tasks.rows.row_backend import backend_of
from bucketflow.tasks.steps.policy import RowPolicy
from bucketflow.tasks.steps.semiring import LOG_SUM, MIN_PLUS, SUM_PRODUCT, Semiring, min_plus, mod_sum_product


@pytest.fixture(scope="module", params=["numpy", "compiled", "blocks"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """NumPy; compiled loops for one row already; these with blocks of few rows."""
    compiled = {} if request.param == "numpy" else {"warm_rows": 0, "cold_rows": 0}
    blocks = {"block_rows": 4} if request.param == "blocks" else {}
    with RowPolicy.using(**compiled, **blocks):
        yield request.param


SEMIRINGS = [
    *(min_plus(dtype, 2) for dtype in ("int16", "int64")),  # of three: every dtype is compiled anew
    *(MIN_PLUS, SUM_PRODUCT, LOG_SUM, mod_sum_product(13)),
]
Rows = dict[tuple[int, ...], float]


def times(semiring: Semiring, a: float, b: float) -> float:
    if semiring.name == "mod_sum_product":
        return a * b % semiring.modulus
    if semiring.name == "sum_product":
        return a * b
    return min(a + b, semiring.zero) if semiring.saturates else a + b


def plus(semiring: Semiring, values: Iterable[float]) -> float:
    if semiring.name == "min_plus":
        return min(values)
    if semiring.name == "log_sum":
        return math.log(math.fsum(map(math.exp, values)))
    return sum(values) % semiring.modulus if semiring.modulus else sum(values)


def rows_of(relation: Relation, semiring: Semiring) -> Rows:
    """The entries by their states; what a relation promises is checked."""
    assert relation.words.shape == (len(relation.values), relation.keys.n_words)
    assert (relation.words.dtype, relation.values.dtype) == (np.uint64, semiring.dtype)
    states = [tuple(row) for row in relation.keys.unpack(relation.words).T.tolist()]
    assert states == sorted(set(states))
    assert not (relation.values == semiring.zero).any()
    return dict(zip(states, relation.values.tolist(), strict=True))


def grouped(semiring: Semiring, rows: Iterable[tuple[tuple[int, ...], float]]) -> Rows:
    groups: dict[tuple[int, ...], list[float]] = {}
    for states, value in rows:
        groups.setdefault(states, []).append(value)
    sums = {states: plus(semiring, values) for states, values in groups.items()}
    return {states: value for states, value in sums.items() if value != semiring.zero}


def multiplied(semiring: Semiring, a: Relation, b: Relation) -> tuple[tuple[int, ...], Rows]:
    """Variables and entries of a join."""
    common = [v for v in a.keys.variables if v in b.keys.variables]
    own = [v for v in b.keys.variables if v not in common]
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]] = {}
    for states, value in rows_of(b, semiring).items():
        at = dict(zip(b.keys.variables, states, strict=True))
        groups.setdefault(tuple(at[v] for v in common), []).append((tuple(at[v] for v in own), value))
    found = {}
    for states, value in rows_of(a, semiring).items():
        at = dict(zip(a.keys.variables, states, strict=True))
        for more, factor in groups.get(tuple(at[v] for v in common), []):
            found[states + more] = times(semiring, value, factor)
    return (*a.keys.variables, *own), {states: value for states, value in found.items() if value != semiring.zero}


def projected(semiring: Semiring, variables: Sequence[int], rows: Rows, scope: Sequence[int]) -> Rows:
    places = [variables.index(v) for v in scope]
    return grouped(semiring, [(tuple(states[p] for p in places), value) for states, value in rows.items()])


def alike(found: Rows, wanted: Rows, semiring: Semiring) -> None:
    assert found.keys() == wanted.keys()
    # sums and products of small numbers are exact
    assert found == (pytest.approx(wanted) if semiring.name == "log_sum" else wanted)


def random_values(rng: np.random.Generator, semiring: Semiring, rows: int) -> np.ndarray:
    """Entries that are not zero; with integer costs, some sums reach the infinity."""
    values = rng.integers(1, 13, rows).astype(semiring.dtype)
    if semiring.saturates:
        values[rng.random(rows) < 0.1] = semiring.zero - 3
    return values


def random_relation(
    rng: np.random.Generator, variables: Sequence[int], dims: Mapping[int, int], semiring: Semiring, density: float
) -> Relation:
    """Some of the combinations of the first, second and last state of every variable."""
    keys = Keys(tuple(variables), tuple(dims[v] for v in variables))
    tuples = [*product(*(sorted({0, min(1, d - 1), d - 1}) for d in keys.dims))]
    cells = np.array(tuples, np.int64).reshape(len(tuples), len(variables)).T
    kept = cells[:, rng.random(cells.shape[1]) < density]
    return Relation(keys, keys.pack(kept), random_values(rng, semiring, kept.shape[1]))


Case = tuple[Semiring, np.random.Generator, dict[int, int], list[Relation]]


@st.composite
def cases(draw: st.DrawFn, tables: int = 2) -> Case:
    """Relations over some of six variables in any order, keys of one to four words."""
    semiring = draw(st.sampled_from(SEMIRINGS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.sampled_from([[1, 2, 3], [2, 5], [3, 1 << 20], [1 << 31, (1 << 40) + 1, 2]]))
    dims = {v: int(rng.choice(largest)) for v in range(6)}
    density = draw(st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]))
    scopes = [rng.permutation(6)[: rng.integers(0, 5)].tolist() for _ in range(tables)]
    return semiring, rng, dims, [random_relation(rng, scope, dims, semiring, density) for scope in scopes]


@settings(max_examples=50)
@given(cases())
def test_joins(case: Case) -> None:
    semiring, _, _, (a, b) = case
    variables, wanted = multiplied(semiring, a, b)
    alike(rows_of(joined_reduced([a, b], variables, semiring), semiring), wanted, semiring)
    # no product of these is zero
    ones, sizes = [Relation(t.keys, t.words, np.ones(len(t), np.int32)) for t in (a, b)], list[int]()
    joined_reduced(ones, (), min_plus("int32"), on_join=sizes.append)
    assert sum(sizes) == len(multiplied(min_plus("int32"), *ones)[1])


@settings(max_examples=50)
@given(cases())
def test_semijoins(case: Case) -> None:
    semiring, _, _, (a, b) = case
    common = [v for v in a.keys.variables if v in b.keys.variables]
    there = [b.keys.variables.index(v) for v in common]
    those = {tuple(s[i] for i in there) for s in rows_of(b, semiring)}
    here = [a.keys.variables.index(v) for v in common]
    wanted = {s: value for s, value in rows_of(a, semiring).items() if tuple(s[i] for i in here) in those}
    assert rows_of(semijoin(a, b), semiring) == wanted


@settings(max_examples=50)
@given(cases(1))
def test_reductions_and_orders(case: Case) -> None:
    semiring, rng, _, (a,) = case
    variables = rng.permutation(a.keys.variables).tolist()
    rows = rows_of(a, semiring)
    turned = reordered(a, variables)
    alike(rows_of(turned, semiring), projected(semiring, a.keys.variables, rows, variables), semiring)
    if order_holds(a.keys, turned.keys):
        assert (turned.values == a.values).all()
    scope = variables[: rng.integers(0, len(variables) + 1)]
    found = joined_reduced([a], scope, semiring)
    assert found.keys.variables == tuple(scope)
    alike(rows_of(found, semiring), projected(semiring, a.keys.variables, rows, scope), semiring)


@settings(max_examples=50)
@given(cases(3), st.integers(1, 50), st.lists(st.booleans(), min_size=3, max_size=3))
def test_joins_that_are_reduced_as_they_are_made(case: Case, budget: int, dense: list[bool]) -> None:
    semiring, rng, _, tables = case
    variables, rows = tables[0].keys.variables, rows_of(tables[0], semiring)
    product = tables[0]
    for table in tables[1:]:
        variables, rows = multiplied(semiring, product, table)
        product = joined_reduced([product, table], variables, semiring)
    scope = rng.permutation(variables)[: rng.integers(0, len(variables) + 1)].tolist()
    inputs = [
        to_dense(table, semiring) if there and table.cells < 10_000 else table
        for table, there in zip(tables, dense, strict=True)
    ]
    if not any(isinstance(table, Relation) for table in inputs):
        with pytest.raises(ValueError, match="needs rows"):
            joined_reduced(inputs, scope, semiring)
        return
    found = joined_reduced(inputs, scope, semiring, budget)
    assert found.keys.variables == tuple(scope)
    wanted = projected(semiring, variables, rows, scope)
    alike(rows_of(found, semiring), wanted, semiring)
    if semiring.modulus:  # residues may add up to zero, so that parts have more rows
        return
    assert len(joined_reduced(inputs, scope, semiring, budget, most_rows=len(wanted))) == len(wanted)
    if len(wanted) > 1:
        with pytest.raises(TooManyRowsError):
            joined_reduced(inputs, scope, semiring, budget, most_rows=len(wanted) - 1)


@settings(max_examples=50)
@given(cases(1), st.integers(1, 4))
def test_merges_and_duplicates(case: Case, parts: int) -> None:
    semiring, rng, _, (a,) = case
    pieces = [a.rows(np.flatnonzero(rng.random(len(a)) < 0.6)) for _ in range(parts)]
    every = [pair for piece in pieces for pair in rows_of(piece, semiring).items()]
    alike(rows_of(merged(pieces, semiring), semiring), grouped(semiring, every), semiring)
    words = np.concatenate([piece.words for piece in pieces])
    values = np.concatenate([piece.values for piece in pieces])
    mixed = rng.permutation(len(words))
    found = gathered(a.keys, words[mixed], values[mixed], semiring)
    alike(rows_of(found, semiring), grouped(semiring, every), semiring)
    order = backend_of(words).order(words[mixed])
    wanted = np.lexsort(words[mixed].T[::-1])
    assert (np.arange(len(words)) if order is None else order).tolist() == wanted.tolist()


@settings(max_examples=50)
@given(cases(1))
def test_dense_and_back(case: Case) -> None:
    semiring, _, _, (a,) = case
    if a.cells < 10_000:
        table = to_dense(a, semiring)
        assert table.values.dtype == semiring.dtype
        cells = table.values.reshape(a.keys.dims)
        rows = rows_of(a, semiring)
        assert all(cells[s] == rows.get(s, semiring.zero) for s in np.ndindex(*a.keys.dims))
        assert rows_of(from_dense(table, semiring), semiring) == rows


@settings(max_examples=50)
@given(cases(1))
def test_restrictions(case: Case) -> None:
    semiring, rng, dims, (a,) = case
    states = {v: int(rng.choice([0, dims[v] - 1])) for v in range(6) if rng.random() < 0.4}
    variables = a.keys.variables
    wanted = {
        tuple(0 if v in states else x for v, x in zip(variables, s, strict=True)): value
        for s, value in rows_of(a, semiring).items()
        if all(states.get(v, x) == x for v, x in zip(variables, s, strict=True))
    }
    found = restricted(a, states)
    assert found.keys.dims == tuple(1 if v in states else d for v, d in zip(variables, a.keys.dims, strict=True))
    assert rows_of(found, semiring) == wanted


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_runs_of_equal_keys(words: int, rows: int) -> None:
    rng = np.random.default_rng(words)
    keys = np.sort(rng.integers(0, 20, rows).astype(np.uint64))[:, None].repeat(words, axis=1)
    wanted = [i for i in range(rows) if i == 0 or keys[i, 0] != keys[i - 1, 0]]
    assert backend_of(keys).starts(keys).tolist() == wanted


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: f"{s.name}-{s.dtype}")
def test_sums_of_long_runs(semiring: Semiring) -> None:
    rng = np.random.default_rng(1)
    keys = Keys((0, 1), (7, 3000))
    kept = np.flatnonzero(rng.random(21_000) < 0.7)
    table = Dense(keys, np.full(21_000, semiring.zero, semiring.dtype))
    table.values[kept] = random_values(rng, semiring, len(kept))
    a = from_dense(table, semiring)
    for scope in ([0], [1], []):
        wanted = projected(semiring, (0, 1), rows_of(a, semiring), scope)
        alike(rows_of(joined_reduced([a], scope, semiring), semiring), wanted, semiring)


def test_sums_take_a_fixed_order() -> None:
    """Sums of floats that are not exact depend on the order alone, which is fixed."""
    values = np.random.default_rng(0).random(5000)
    keys = Keys((0,), (5000,))
    a = Relation(keys, np.arange(5000, dtype=np.uint64)[:, None], values)

    while len(values) > 1:
        values = np.array([left_to_right(values[i : i + 32]) for i in range(0, len(values), 32)])
    assert joined_reduced([a], [], SUM_PRODUCT).values.tolist() == values.tolist()


def left_to_right(values: np.ndarray) -> float:
    """The sum of few numbers; that of Python is compensated in some versions."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


@pytest.mark.parametrize(("dims", "passes"), [((2,) * 9, 1), ((3, 2, 4), 1), ((2, 3, 2, 3), 3), ((1, 5, 1), 2)])
def test_keys_of_dense_tables_take_neighbours_without_gaps_together(dims: tuple[int, ...], passes: int) -> None:
    keys = Keys(tuple(range(len(dims))), dims)
    cells = np.arange(math.prod(dims))
    table = Dense(keys, np.ones(len(cells)))
    digits = _digits(table)
    assert len(digits) == passes
    assert (from_dense(table, SUM_PRODUCT).words == keys.pack(np.array(np.unravel_index(cells, dims)))).all()


def test_rows_that_only_meet_arrays_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    semiring = min_plus("int64", 2)
    rng = np.random.default_rng(0)
    dims = {0: 5, 1: 4, 2: 3, 3: 6}
    a, b = random_relation(rng, [0, 1, 2, 3], dims, semiring, 0.4), random_relation(rng, [1, 3], dims, semiring, 1.0)
    inputs = [a, to_dense(b, semiring)]
    wanted = reordered(joined_reduced(inputs, [0, 1, 3], semiring), [3, 1, 0])
    monkeypatch.setattr(joins, "reordered", None)
    found = joined_reduced(inputs, [3, 1, 0], semiring)
    assert found.words.tolist() == wanted.words.tolist()
    assert found.values.tolist() == wanted.values.tolist()


@pytest.mark.parametrize(("rows", "left"), [(1 << 10, 3), (1 << 18, 2)])
def test_the_more_rows_a_join_has_the_larger_arrays_are_multiplied_before_it(rows: int, left: int) -> None:
    """A join reads each of its inputs for each row; their product has few cells beside many rows."""
    sizes = (4,) * 10
    choice = Representation(SUM_PRODUCT, sizes, MemoryAccount(1 << 30))
    relation = Relation(choice.keys(range(10)), np.arange(rows, dtype=np.uint64).reshape(-1, 1), np.ones(rows))
    arrays = [Dense(choice.keys(range(k, k + 6)), np.full(1 << 12, 2.0 + k)) for k in (0, 1)]
    found = choice.fewer([relation, *arrays])
    assert len(found) == left
    if left == 2:
        assert isinstance(found[1], Dense)
        np.testing.assert_array_equal(found[1].values, np.full(1 << 14, 6.0))
