"""Records of propagations for a GPU, read back by an interpreter, against the kernels of the CPU."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from bucketflow.tasks.cpu.dense import contract
from bucketflow.tasks.gpu.messages.layout import HEAD_WORDS, INPUT_WORDS, Operation
from bucketflow.tasks.gpu.messages.records import COMPUTED, Constant, MessageRecords, least_exponents, records_of
from bucketflow.tasks.gpu.messages.tiles import HIGH_WORDS, LINE_CELLS, LOW_WORDS, THREADS, cells_of, message_tiles
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT
from bucketflow.tasks.sweeps.table_packs import packed
from tests.tasks.message_interpreter import interpret, offsets

Scopes = list[tuple[int, ...]]


def run(
    records: MessageRecords, tables: dict[int, np.ndarray], law: str = "sum_product"
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Interpret records on constant tables; returns the slab of the last case, its maxima and whether it failed."""
    constants = np.full(records.constant_cells, np.nan)
    for table, at in records.constant_at.items():
        constants[at : at + tables[table].size] = tables[table].reshape(-1)
    slabs = np.full(records.slab_cells * records.group, np.nan)
    tops, failed = interpret(records, constants, slabs, law)
    return slabs[-records.slab_cells :], tops[-1], bool(failed[-1])


def random_tables(scopes: Scopes, sizes: dict[int, int], seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    tables = {}
    for i, scope in enumerate(scopes):
        values = rng.random([sizes[v] for v in scope])
        tables[i] = np.where(rng.random(values.shape) < 0.1, 0.0, values)
        tables[i].reshape(-1)[rng.integers(values.size)] = 1.0
    return tables


def random_costs(scopes: Scopes, sizes: dict[int, int], seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [[sizes[v] for v in scope] for scope in scopes]
    costs = [rng.integers(0, 1 << 40, shape).astype(np.float64) for shape in shapes]
    return {i: np.where(rng.random(shapes[i]) < 0.1, np.inf, values) for i, values in enumerate(costs)}


def check(
    scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int], item_seconds: float | None, group: int = 1
) -> MessageRecords:
    tables = random_tables(scopes, sizes, len(scopes))
    axes = lower(scopes, output, sizes, "float64", SUM_PRODUCT).axes
    constants = {i: Constant(t.size, least_exponents(packed({0: t.reshape(-1)}))[0]) for i, t in tables.items()}
    records = records_of([Operation(99, tuple(range(len(scopes))), axes)], constants, {}, (), item_seconds, group)
    assert records.fixed_bytes == 8 * records.constant_cells + records.words.nbytes + records.items.nbytes
    slab, tops, failed = run(records, tables)
    expected = contract([t.reshape(-1) for t in tables.values()], scopes, output, sizes, SUM_PRODUCT)
    at = records.slab_at[99]
    assert slab[at : at + expected.size] == pytest.approx(expected, rel=1e-12)
    assert tops[0] == pytest.approx(expected.max(), rel=1e-12)
    assert not failed
    return records


def random_step(seed: int) -> tuple[Scopes, tuple[int, ...], dict[int, int]]:
    rng = np.random.default_rng(seed)
    sizes = {v: int(rng.integers(1, 9)) for v in range(6)}
    scopes = [tuple(rng.permutation(6)[: rng.integers(1, 5)].tolist()) for _ in range(rng.integers(1, 5))]
    union = sorted({v for scope in scopes for v in scope})
    output = tuple(v for v in rng.permutation(union).tolist() if rng.random() < 0.5)
    return scopes, output, sizes


AWKWARD: list[tuple[Scopes, tuple[int, ...], dict[int, int]]] = [
    ([(0,)], (), {0: 100_003}),
    ([(0, 1), (1,)], (0,), {0: 3, 1: 4099}),
    ([(0, 1), (1, 2)], (0, 2), {0: 40, 1: 2000, 2: 3}),
    ([(0, 1, 2), (2, 1)], (), {0: 40, 1: 50, 2: 60}),
    ([(1, 0, 2)], (2, 0), {0: 17, 1: 300, 2: 5}),
    ([(0, v) for v in range(1, 20)], (0,), {0: 3, **dict.fromkeys(range(1, 20), 1), 19: 7}),
    ([(0,)] * 40, (0,), {0: 200}),
    ([(0, 1), (0,)], (0, 1), {0: 9, 1: 1000}),
]


@pytest.mark.parametrize("item_seconds", [None, 1e-7, 2e-6, 1e-3])
@pytest.mark.parametrize("seed", range(12))
def test_random_steps(seed: int, item_seconds: float | None) -> None:
    check(*random_step(seed), item_seconds)


@pytest.mark.parametrize("item_seconds", [None, 5e-6])
@pytest.mark.parametrize(("scopes", "output", "sizes"), AWKWARD)
def test_shapes_that_need_care(
    scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int], item_seconds: float
) -> None:
    check(scopes, output, sizes, item_seconds)


@pytest.mark.parametrize(
    ("step", "item_seconds"),
    [*product(map(random_step, range(8)), [None, 1e-7, 5e-6]), *product(AWKWARD, [None, 5e-6])],
)
def test_least_sums(step: tuple[Scopes, tuple[int, ...], dict[int, int]], item_seconds: float | None) -> None:
    """Integers stay integers, also beside infinite entries."""
    scopes, output, sizes = step
    tables = random_costs(scopes, sizes, len(scopes))
    axes = lower(scopes, output, sizes, "float64", MIN_PLUS).axes
    constants = {i: Constant(t.size, 0) for i, t in tables.items()}
    records = records_of([Operation(99, tuple(range(len(scopes))), axes)], constants, {}, (), item_seconds)
    slab, _, failed = run(records, tables, "min_plus")
    expected = contract([t.reshape(-1) for t in tables.values()], scopes, output, sizes, MIN_PLUS)
    at = records.slab_at[99]
    assert np.array_equal(slab[at : at + expected.size], expected)
    assert not failed


@pytest.mark.parametrize(("scopes", "output", "sizes"), AWKWARD[1:])
def test_groups_of_cases(scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int]) -> None:
    check(scopes, output, sizes, 5e-6, 4)


def test_pieces_are_added_and_counted() -> None:
    records = check([(0, 1, 2), (1, 2)], (0,), {0: 6, 1: 512, 2: 512}, 1e-6)
    assert records.split_tiles > 0
    assert len(records.items) > 100


def test_a_sum_of_many_halves_of_a_table_is_scaled() -> None:
    """A chain whose products alone would leave the doubles stays near 1, and its scale adds up."""
    sizes, operations = {0: 2}, []
    axes = lower([(0,), (0,)], (0,), sizes, "float64", SUM_PRODUCT).axes
    for n in range(1, 300):
        operations.append(Operation(n, (n - 1, 300), axes))
    tables = {0: np.array([1.0, 1e-9]), 300: np.array([1.0, 1e-1])}
    small = {0: Constant(2, -30), 300: Constant(2, -4)}
    records = records_of(operations, small, {}, [299])
    slab, tops, failed = run(records, tables)
    assert records.levels == 299
    assert np.prod(tops) == pytest.approx(1.0)
    at = records.slab_at[299]
    assert slab[at + 1] == pytest.approx(1e-308, rel=1e-9)
    assert failed, "the last tables are not proved to be in range"
    assert not run(records_of(operations[:250], small, {}), tables)[2]


def test_division_by_multiplication_is_exact() -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 5, 7, 9, 11, 641, 4096, 65_537, 2**31 - 1):
        numbers = np.concatenate([rng.integers(0, 2**31, 2000), np.arange(20), [2**31 - 1, size, size - 1]])
        bits = (size - 1).bit_length()
        outer = [size, -((-1 << (31 + bits)) // size), bits - 1, 0]
        pair = np.array([[2, 1 << 31, 0, 1], outer], dtype=np.uint32)
        # what is left over after the fast axis counts the slow one
        got = offsets(pair, numbers.astype(np.int64))[:, 0]
        assert (got == numbers // size).all()


@pytest.mark.parametrize("inputs", [1, 2, 5, 30])
@pytest.mark.parametrize("size", [2, 64, 997, 4096])
def test_tiles_fit_a_block(inputs: int, size: int) -> None:
    sizes = {0: size, 1: 7, 2: 30, 3: size}
    scopes = [(0, 1, 2), *[(1, 3), (0, 2)] * inputs][:inputs]
    output = tuple(v for v in (2, 1) if any(v in scope for scope in scopes))
    tiles = message_tiles(lower(scopes, output, sizes, "float64", SUM_PRODUCT).axes, 3e-6)
    assert tiles.lanes_out * tiles.lanes_low <= THREADS
    assert cells_of(tiles.lows) * inputs <= LOW_WORDS
    assert tiles.piece_highs * inputs <= HIGH_WORDS
    assert tiles.piece_highs * tiles.pieces >= cells_of(tiles.highs) > tiles.piece_highs * (tiles.pieces - 1)
    assert tiles.tile % tiles.lanes_out == 0


def test_items_come_after_what_they_wait_for_and_long_chains_first() -> None:
    axes = lower([(0, 1), (1,)], (0,), {0: 50, 1: 50}, "float64", SUM_PRODUCT).axes
    constants = {0: Constant(2500, 0), 1: Constant(50, 0)}
    chain = [Operation(n, (0, n - 1 if n > 2 else 1), axes) for n in range(2, 6)]
    lonely = Operation(9, (0, 1), axes)
    records = records_of([lonely, *chain], constants, {}, item_seconds=1e-7)
    made: dict[int, int] = {}
    order = []
    for start, _, _, _ in records.items.tolist():
        inputs = records.words[start + HEAD_WORDS : start + HEAD_WORDS + 2 * INPUT_WORDS].reshape(-1, INPUT_WORDS)
        for kind, table, _, need, _ in inputs.tolist():
            assert kind != COMPUTED or made.get(table, 0) == need
        number = int(records.words[start + 13])
        made[number] = made.get(number, 0) + 1
        order.append(number)
    assert order.index(records.numbers[2]) < order.index(records.numbers[9])


def test_tables_lie_side_by_side_without_overlap() -> None:
    axes = lower([(0, 1), (1,)], (0,), {0: 50, 1: 50}, "float64", SUM_PRODUCT).axes
    operations = [Operation(2, (0, -1), axes), Operation(3, (0, 2), axes)]
    records = records_of(operations, {0: Constant(2500, 0)}, {-1: 50}, [3])
    assert records.slab_at[-1] == 0
    assert records.finding_cells == 50
    starts = sorted((at, 50) for at in records.slab_at.values())
    assert all(a + cells <= b for (a, cells), (b, _) in pairwise(starts))
    assert starts[-1][0] + 50 <= records.slab_cells
    assert records.case_bytes(10) == 8 * (records.slab_cells + 10) + 4 * (3 * 2 + 0 + 1)


def test_places_are_counted_in_lines() -> None:
    """All tables of a propagation may have more than 2^32 cells; one of them, at most 2^31."""
    axes = lower([(0, 1), (1,)], (0, 1), {0: 1 << 15, 1: 1 << 15}, "float64", SUM_PRODUCT).axes
    operations = [Operation(n + 1, (n, 0), axes) for n in range(1, 8)]
    records = records_of(operations, {0: Constant(1 << 15, 0), 1: Constant(1 << 30, 0)}, {-1: 5}, item_seconds=1.0)
    assert records.slab_cells > 1 << 32
    start = records.items[-1, 0]
    assert LINE_CELLS * int(records.words[start + 15]) == records.slab_at[8] > 1 << 32


def test_too_many_cells_are_refused() -> None:
    axes = lower([(0, 1)], (1, 0), {0: 1 << 17, 1: 1 << 16}, "float64", SUM_PRODUCT).axes
    with pytest.raises(ValueError, match="at most 2\\^31"):
        records_of([Operation(1, (0,), axes)], {0: Constant(16, 0)}, {})


def test_least_exponents_of_tables_small_and_large() -> None:
    rng = np.random.default_rng(5)
    tables = [rng.random(n) ** 40 * (rng.random(n) > 0.3) for n in (1, 5000, 3, 1024, 1025, *([2] * 1500))]
    tables += [np.zeros(4), np.zeros(3000), np.array([5e-324, 1.0]), np.array([-0.0, 0.5])]

    def least(table: np.ndarray) -> int:
        positive = table[table > 0.0]
        return math.frexp(positive.min())[1] - 1 if positive.size else 0

    nodes = [node for pack in packed(dict(enumerate(tables))) for node in pack.nodes]
    found = least_exponents(packed(dict(enumerate(tables))))
    assert dict(zip(nodes, found, strict=True)) == {k: least(table) for k, table in enumerate(tables)}
    assert least_exponents([]) == []
