"""Dense steps on a GPU: integers equal the CPU bit for bit, floats within rounding, every run the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.gpu.tiling import device_lowering as gpu_lowering
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.gpu.tiling.passes import BrickPass, ReorderPass, device_step_of
from bucketflow.tasks.gpu.tiling.reorders import reorder_tiles
from bucketflow.tasks.gpu.tiling.streams import Axis
from bucketflow.tasks.gpu.tiling.tiling_policy import TilingPolicy
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.semiring import (
    LOG_SUM,
    MIN_PLUS,
    SUM_PRODUCT,
    Semiring,
    min_plus,
    mod_sum_product,
)

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not cupy.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)

SEMIRINGS = [
    min_plus("int16", 4),
    min_plus("int32", 4),
    min_plus("int32", 2),
    min_plus("int64", 4),
    MIN_PLUS,
    SUM_PRODUCT,
    LOG_SUM,
    mod_sum_product(2**31 - 1),
]


def tables_for(step: Lowered, seed: int = 3) -> list[np.ndarray]:
    """Draw tables up to the infinity (costs), the modulus, or with some zeros."""
    rng = np.random.default_rng(seed)
    semiring = step.semiring
    if semiring.dtype == "float64":
        tables = [rng.random(cells) + 0.01 for cells in step.input_cells]
        for table in tables:
            table[rng.random(table.size) < 0.05] = semiring.zero
        return tables
    top = semiring.modulus or semiring.zero + 1
    return [rng.integers(0, top, cells).astype(semiring.dtype) for cells in step.input_cells]


def check(step: Lowered, seed: int = 3) -> None:
    """Compare two device runs, the second into a poisoned output, and the CPU."""
    tables = tables_for(step, seed)
    on_device: list[Any] = [cupy.asarray(t) for t in tables]
    once = run(step, on_device)
    poisoned = cupy.full(step.out_cells, 77, step.semiring.dtype)
    again = run(step, on_device, poisoned)
    np.testing.assert_array_equal(once.get(), again.get())
    expected = run(step, tables)
    if step.semiring.dtype == "float64":
        np.testing.assert_allclose(once.get(), expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(once.get(), expected)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), semiring=st.sampled_from(SEMIRINGS))
def test_random_steps(data: st.DataObject, semiring: Semiring) -> None:
    names = list(range(12))
    sizes = {v: data.draw(st.sampled_from([1, 2, 2, 2, 3, 4, 5, 16])) for v in names}
    while np.prod(list(sizes.values())) > 300_000:
        sizes[max(sizes, key=sizes.__getitem__)] = 1
    inputs = []
    for _ in range(data.draw(st.integers(1, 9))):
        order = data.draw(st.permutations(names))
        inputs.append(tuple(order[: data.draw(st.integers(0, 12))]))
    inputs[0] = tuple(data.draw(st.permutations(names)))
    output = tuple(data.draw(st.permutations(names))[: data.draw(st.integers(0, 12))])
    check(lower(inputs, output, sizes, semiring.dtype, semiring))


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize(
    ("inputs", "output", "sizes"),
    [
        ([(0,)], (), (10007,)),
        ([(0,)], (0,), (100003,)),
        ([(0,)], (), (1 << 20,)),
        ([(0, 1)], (0,), (5, 99991)),
        ([(0, 1)], (1,), (99991, 5)),
        ([(0, 1)], (1,), (4096, 33)),
        ([(0, 1), (0,)], (1, 0), (1700, 190)),
        ([(0, 1, 2), (1, 2)], (0, 2), (3000, 2, 128)),
        ([(0, 1, 2), (1, 2), (0, 1)], (0, 2), (3001, 3, 49)),
        ([(0, 1, 2), (1, 2), (0, 1), (2,)], (0, 2), (1000, 4, 44)),
        ([(0, 1, 2), (1, 2)], (0, 2), (1000, 7, 44)),
        ([(), ()], (), ()),
        ([(0, 1, 2)] * 9, (0, 2), (40, 5, 64)),
        ([(0, 1), (1, 2), (2,), (0,)] * 11, (0, 2), (40, 5, 64)),
    ],
    ids=str,
)
def test_shapes(
    semiring: Semiring, inputs: list[tuple[int, ...]], output: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    check(lower(inputs, output, dict(enumerate(sizes)), semiring.dtype, semiring))


def small_tables(rng: np.random.Generator, semiring: Semiring, most: int) -> Lowered:
    """Draw a step with many tables of few variables."""
    sizes = {v: int(rng.choice([2, 2, 2, 3, 4, 5, 7])) for v in range(16)}
    while np.prod(list(sizes.values())) > 200_000:
        sizes[max(sizes, key=sizes.__getitem__)] = 1
    scopes = [tuple(int(v) for v in rng.permutation(16)[: rng.integers(0, 6)]) for _ in range(rng.integers(5, most))]
    held = sorted({v for scope in scopes for v in scope})
    output = tuple(int(v) for v in rng.permutation(held)[: rng.integers(0, 6)])
    return lower(scopes, output, sizes, semiring.dtype, semiring)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), semiring=st.sampled_from(SEMIRINGS), most=st.sampled_from([12, 40, 150]))
def test_many_small_inputs(seed: int, semiring: Semiring, most: int) -> None:
    check(small_tables(np.random.default_rng(seed), semiring, most))


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("cells", [64, 512])
@pytest.mark.parametrize("blocks", [1, 3, 264])
def test_small_blocks_take_many_steps(semiring: Semiring, cells: int, blocks: int) -> None:
    """As in eliminations too deep for a test: a block walks through its states, blocks share those of an output."""
    device_step.cache_clear()
    gpu.prepare.cache_clear()
    rng = np.random.default_rng(cells + blocks)
    with TilingPolicy.using(
        bucket_most_cells=cells, bucket_least_cells=64, bucket_whole_states=16, bucket_blocks=blocks
    ):
        for _ in range(6):
            check(small_tables(rng, semiring, 30))
    device_step.cache_clear()
    gpu.prepare.cache_clear()


def check_bricks(step: Lowered) -> None:
    """Compare the launches of bricks with the CPU, on a step that is too small for them to pay.

    Once each block has a brick, and once a few blocks take all of them, one after another.
    """
    tables = tables_for(step)
    on_device = [cupy.asarray(t) for t in tables]
    expected = run(step, tables)
    for blocks in (TilingPolicy.current().brick_most_blocks, 3):
        with TilingPolicy.using(
            brick_least_cells=1,
            brick_least_output_cells=1,
            brick_compared_cells=1,
            brick_most_blocks=blocks,
        ):
            passes = gpu_lowering.device_step.__wrapped__(step)
        assert any(isinstance(each, BrickPass) for each in passes.passes)
        run_passes = gpu.DeviceRun(passes, step.semiring, step.out_cells)
        once = run_passes(on_device)
        poisoned = cupy.full(step.out_cells, 77, step.semiring.dtype)
        np.testing.assert_array_equal(once.get(), run_passes(on_device, poisoned).get())
        if step.semiring.dtype == "float64":
            np.testing.assert_allclose(once.get(), expected, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(once.get(), expected)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_some_inputs_come_first(semiring: Semiring, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {v: int(rng.choice([2, 3, 4, 16])) for v in range(9)}
    scopes = [tuple(int(v) for v in rng.permutation(9)[: rng.integers(3, 7)]) for _ in range(5)]
    held = sorted({v for scope in scopes for v in scope}.difference(scopes[0][:2]))
    step = lower(scopes, tuple(held), sizes, semiring.dtype, semiring)
    tables = tables_for(step)
    with TilingPolicy.using(inner_sum_least_cells=1, inner_sum_price=1e9, inner_sum_ratio=0, brick_least_cells=1):
        passes = gpu_lowering.device_step.__wrapped__(step)
    found = gpu.DeviceRun(passes, step.semiring, step.out_cells)([cupy.asarray(t) for t in tables]).get()
    expected = run(step, tables)
    if step.semiring.dtype == "float64":
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


# Axes of a step by number: sizes, the output, the inputs. Values that differ by rows, by columns, by both and by
# neither; with and without inner eliminated states; vectors of odd and even axes; partial sums; many small inputs.
BRICKS = [
    ((8, 4, 4, 4, 8, 4, 4), (0, 1, 2, 3, 4), [(0, 1, 2, 3, 4, 5, 6), (1, 3, 5), (0, 2, 6), (4, 5), (3, 4), (6,)]),
    ((8, 4, 4, 4, 8, 4, 4), (4, 3, 0, 2, 1), [(6, 0, 1, 5, 2, 3), (4, 2, 1, 3, 6), (0, 4, 5), (2, 5), (5, 6)]),
    ((3, 5, 3, 5, 3, 7, 2), (0, 1, 2, 3, 4), [(0, 1, 2, 3, 4, 5, 6), (2, 3, 5), (0, 1, 6), (4, 5)]),
    ((2,) * 18, tuple(range(12)), [tuple(range(3, 18)), (0, 1, 2, 5, 12, 14), (0, 3, 9, 13), (1, 17), (2, 16)]),
    ((2,) * 18, tuple(range(11, -1, -1)), [tuple(range(17, 1, -1)), (0, 1, 2, 5, 12, 14), (0, 3, 9, 13), (11, 17)]),
    ((8, 4, 32, 16, 16), (0, 1, 2), [(0, 2, 4, 3), (1, 2, 3, 4), (0, 1, 3)]),
    ((4,) * 9, (0, 1, 2, 3, 4, 5), [(0, 1, 2, 3, 4, 6, 7, 8), *[(i, j) for i in range(9) for j in range(i)]]),
    ((16, 48, 6, 12), (0, 1, 2), [(0, 1), (1, 2), (0, 2), (3, 0), (3, 1), (3, 2), ()]),
    ((3,) * 11, tuple(range(9)), [(0, 2, 4, 6, 8, 9, 10), (1, 3, 5, 7, 9, 10), (0, 1, 9)]),
    ((12, 36, 44, 5), (0, 1, 2), [(3, 1, 0, 2), (0, 3), (1, 3), (2, 3)]),
]


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize(("sizes", "output", "inputs"), BRICKS, ids=range(len(BRICKS)))
def test_bricks(
    semiring: Semiring, sizes: tuple[int, ...], output: tuple[int, ...], inputs: list[tuple[int, ...]]
) -> None:
    check_bricks(lower(inputs, output, dict(enumerate(sizes)), semiring.dtype, semiring))


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
def test_large_joins_in_bricks(semiring: Semiring) -> None:
    """As where a join has so many cells that no bucket takes it."""
    rng = np.random.default_rng(3)
    scopes = [tuple(int(v) for v in rng.choice(13, 10, replace=False)) for _ in range(40)]
    step = lower(scopes, tuple(range(1, 13)), dict.fromkeys(range(13), 2), semiring.dtype, semiring)
    with TilingPolicy.using(bucket_output_cells=1 << 6, streamed_join_cells=1 << 6, uses_buckets=False):
        check_bricks(step)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize(
    "shape",
    [(1, 16, 16, 600), (3, 19, 17, 33), (2, 130, 40, 520), (5, 31, 600, 20), (1, 44, 900, 44), (4, 27, 81, 27)],
)
@pytest.mark.parametrize("layout", ["bmk bkn bmn", "kbm nkb nbm", "mkb bkn mnb"])
def test_products_of_any_layout(semiring: Semiring, shape: tuple[int, ...], layout: str) -> None:
    sizes = dict(zip("bmkn", shape, strict=True))
    left, right, out = (tuple("bmkn".index(c) for c in part) for part in layout.split())
    step = lower([left, right, (2,), ()], out, {i: sizes["bmkn"[i]] for i in range(4)}, semiring.dtype, semiring)
    check(step)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("layout", ["mkb knb mnb", "kmb bkn bnm", "bmk nkb nmb"])
def test_products_whose_tables_are_copied_in_another_order(semiring: Semiring, layout: str) -> None:
    """Batches of two axes are innermost in some of the tables, one of them of an odd number of states."""
    sizes = dict(zip("bcmkn", (7, 22, 36, 20, 44), strict=True))
    left, right, out = ([v for c in part for v in ("bc" if c == "b" else c)] for part in layout.split())
    scopes = [tuple("bcmkn".index(v) for v in part) for part in (left, right, out)]
    step = lower(scopes[:2], scopes[2], {"bcmkn".index(v): n for v, n in sizes.items()}, semiring.dtype, semiring)
    policy = {"product_searched_cells": 0, "product_reorder_share": 1e9, "product_poor_ratio": 1e9}
    with TilingPolicy.using(**policy, product_reorder_ratio=0.5):
        made = device_step.__wrapped__(step)
    if step.product is not None:
        assert any(isinstance(each, ReorderPass) for each in made.passes)
    tables = tables_for(step)
    found = gpu.DeviceRun(made, semiring, step.out_cells)([cupy.asarray(t) for t in tables]).get()
    expected = run(step, tables)
    if step.semiring.dtype == "float64":
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int16", "int32", "float64"])
@pytest.mark.parametrize("far", [False, True])
def test_copies_in_another_order(dtype: str, far: bool) -> None:
    """Items of one cell to a vector of them, whole tiles and small ones; where distances are counted in 64 bits too."""
    rng, semiring = np.random.default_rng(5), min_plus(dtype, 4)
    for sizes in ((16, 44, 36, 22), (7, 8, 5, 3, 11, 9, 16), (2,) * 17, (44, 3), (64, 64, 8), (5, 22, 7, 22)):
        for _ in range(4):
            order = [int(v) for v in rng.permutation(len(sizes))]
            table = rng.integers(0, 1000, [sizes[v] for v in order]).astype(dtype)
            steps = [n // table.itemsize for n in table.strides]
            strides = {v: (steps[k],) for k, v in enumerate(order)}
            axes = [Axis(n, strides[v], int(np.prod(sizes[v + 1 :]))) for v, n in enumerate(sizes)]
            reorder = reorder_tiles(axes, table.itemsize)
            assert reorder is not None
            step = device_step_of(1, [ReorderPass((0,), -1, reorder)], [], [1.0])
            with DevicePolicy.using(far_cells=1 if far else DevicePolicy.current().far_cells):
                copy = gpu.DeviceRun(step, semiring, table.size)([cupy.asarray(table.reshape(-1))]).get()
            np.testing.assert_array_equal(copy.reshape(sizes), table.transpose(np.argsort(order)))


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("counts", [(3, 4, 10, 5), (2, 6, 8, 4), (0, 9, 7, 8), (1, 5, 6, 13)])
def test_products_of_binary_variables_in_any_order(semiring: Semiring, counts: tuple[int, ...]) -> None:
    """Lines of memory along batches, rows, columns or depth, with and without several batches of a block."""
    rng = np.random.default_rng(sum(counts))
    ends = np.cumsum(counts)
    batch, rows, columns, depth = (list(range(end - n, end)) for n, end in zip(counts, ends, strict=True))
    for _ in range(2):
        scopes = ([*batch, *rows, *depth], [*batch, *columns, *depth], [*batch, *rows, *columns])
        left, right, out = (tuple(int(v) for v in rng.permutation(scope)) for scope in scopes)
        check(lower([left, right], out, dict.fromkeys(range(int(ends[-1])), 2), semiring.dtype, semiring))


def test_states_that_are_far_apart() -> None:
    """As in tables of more than 2^32 cells."""
    gpu.prepare.cache_clear()
    with DevicePolicy.using(far_cells=0):
        check(lower([(0, 1, 2), (1, 2)], (0, 2), {0: 1000, 1: 7, 2: 44}, "int32", SEMIRINGS[1]))
    gpu.prepare.cache_clear()


def test_large_joins_are_made_in_steps() -> None:
    device_step.cache_clear()
    gpu.prepare.cache_clear()
    rng = np.random.default_rng(8)
    scopes = [tuple(int(v) for v in rng.choice(18, 6, replace=False)) for _ in range(60)]
    with TilingPolicy.using(flat_join_cells=1 << 8):
        for semiring in SEMIRINGS[:3]:
            check(lower(scopes, tuple(range(1, 18)), dict.fromkeys(range(18), 2), semiring.dtype, semiring))
    device_step.cache_clear()
    gpu.prepare.cache_clear()


def test_forty_binary_variables() -> None:
    sizes = dict.fromkeys(range(40), 2)
    scopes = [tuple(range(0, 20)), tuple(range(10, 30)), tuple(range(8, 20))]
    step = lower(scopes, (*range(0, 8), *range(24, 30)), sizes, "int32", SEMIRINGS[1])
    check(step)
    check(lower([tuple(range(20))[::-1]], tuple(range(0, 20, 2)), sizes, "int32", SEMIRINGS[1]))


def test_everything_infinite_stays_infinite() -> None:
    semiring = SEMIRINGS[2]
    step = lower([(0, 1, 2)] * 4, (0, 2), {0: 50, 1: 8, 2: 64}, "int32", semiring)
    got = run(step, [cupy.full(50 * 8 * 64, semiring.zero, np.int32)] * 4)
    np.testing.assert_array_equal(got.get(), semiring.zero)


def test_unaligned_and_host_tables_are_taken() -> None:
    step = lower([(0, 1), (1,)], (0,), {0: 64, 1: 8}, "int16", SEMIRINGS[0])
    tables = tables_for(step)
    shifted = cupy.concatenate([cupy.zeros(1, np.int16), cupy.asarray(tables[0])])[1:]
    np.testing.assert_array_equal(run(step, [shifted, tables[1]]).get(), run(step, tables))


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float64"])
def test_restrict(dtype: str) -> None:
    from bucketflow.tasks.sweeps.sweep import restrict

    sizes, axes = (3, 4, 1, 5, 2, 16), (4, 0, 1, 2, 5, 3)
    table = np.random.default_rng(0).integers(-9, 9, int(np.prod(sizes))).astype(dtype)
    for states in ({0: 2}, {3: 4, 1: 0}, dict.fromkeys(range(6), 0), {5: 15, 4: 1}, {2: 7}):
        expected = restrict(table, axes, sizes, states)
        np.testing.assert_array_equal(restrict(cupy.asarray(table), axes, sizes, states).get(), expected)


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float64"])
def test_slices_come_to_the_host_together(dtype: str) -> None:
    from bucketflow.tasks.gpu.gather import fetched, near, packed
    from bucketflow.tasks.steps.views import slice_of

    rng = np.random.default_rng(0)
    sizes = (3, 4, 1, 5, 2, 16)
    here, there = [], []
    for i in range(11):
        axes = tuple(int(v) for v in rng.permutation(6)[: i % 6 + 1])
        table = rng.integers(-9, 9, int(np.prod([sizes[v] for v in axes]))).astype(dtype)
        fixed = {v: int(rng.integers(sizes[v])) for v in axes if rng.random() < 0.4}
        here.append(slice_of(table, axes, sizes, fixed))
        there.append(slice_of(cupy.asarray(table), axes, sizes, fixed))
    for s, expected in zip(fetched(there), here, strict=True):
        np.testing.assert_array_equal(s.view(), expected.view())
    for s, expected in zip(there, here, strict=True):
        np.testing.assert_array_equal(packed(s).get(), expected.view().reshape(-1))
    tables = {i: s.table for i, s in enumerate(there)} | {99: cupy.zeros(1 << 22, dtype), 100: here[0].table}
    moved = near(tables)
    assert type(moved[99]) is cupy.ndarray
    assert moved[100] is here[0].table
    for i, s in enumerate(here):
        assert type(moved[i]) is np.ndarray
        np.testing.assert_array_equal(moved[i], s.table)
