"""Compiled kernels: equal to NumPy and independent of threads, on shapes that reach every path."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.row_order import SUMMED_CELLS
from bucketflow.tasks.steps.semiring import SUM_PRODUCT, Semiring, min_plus, mod_sum_product

INT32 = min_plus("int32", 3)
SEMIRINGS = [INT32, min_plus("int16", 2), SUM_PRODUCT, mod_sum_product(2**31 - 1)]


def tables_for(step: Lowered, seed: int = 3) -> list[np.ndarray]:
    """Draw tables up to the infinity (costs) or the modulus."""
    rng = np.random.default_rng(seed)
    top = step.semiring.modulus or (step.semiring.zero + 1 if step.semiring.saturates else 3)
    return [rng.integers(0, top, cells).astype(step.semiring.dtype) for cells in step.input_cells]


def check(step: Lowered, seed: int = 3) -> None:
    """Compare compiled runs with one and four threads, and NumPy."""
    tables = tables_for(step, seed)
    one, four = run(step, tables), run(step, tables, threads=4)
    np.testing.assert_array_equal(one, four)
    reference = run(step, tables, compiled=False)
    if step.semiring is SUM_PRODUCT:
        np.testing.assert_allclose(one, reference, rtol=1e-12)
    else:
        np.testing.assert_array_equal(one, reference)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), semiring=st.sampled_from(SEMIRINGS[:3]))
def test_random_large_steps(data: st.DataObject, semiring: Semiring) -> None:
    """Up to six inputs over twelve variables in any order, two hundred thousand cells."""
    names = list(range(12))
    sizes = {v: data.draw(st.sampled_from([1, 2, 2, 2, 3, 4, 5])) for v in names}
    while np.prod(list(sizes.values())) > 200_000:
        sizes[max(sizes, key=sizes.__getitem__)] = 1
    count = data.draw(st.integers(1, 6))
    inputs = []
    for _ in range(count):
        order = data.draw(st.permutations(names))
        inputs.append(tuple(order[: data.draw(st.integers(0, 12))]))
    inputs[0] = tuple(data.draw(st.permutations(names)))
    kept = data.draw(st.permutations(names))
    output = tuple(kept[: data.draw(st.integers(0, 12))])
    check(lower(inputs, output, sizes, semiring.dtype, semiring))


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("shape", [(1, 8, 16, 600), (3, 9, 17, 33), (2, 130, 40, 520), (5, 31, 600, 20)])
@pytest.mark.parametrize("layout", ["bmk bkn bmn", "kbm nkb nbm", "mkb bkn mnb"])
def test_products_of_any_layout(semiring: Semiring, shape: tuple[int, ...], layout: str) -> None:
    sizes = dict(zip("bmkn", shape, strict=True))
    left, right, out = (tuple("bmkn".index(c) for c in part) for part in layout.split())
    step = lower([left, right, (2,), ()], out, {i: sizes["bmkn"[i]] for i in range(4)}, semiring.dtype, semiring)
    assert step.regime == "matrix"
    check(step)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("row", [9, 64, 65, 300])
@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 20])
def test_streams_of_many_inputs(semiring: Semiring, row: int, inputs: int) -> None:
    """Rows shorter and longer than vectors; most inputs share one scope, the last lack the row."""
    scopes = [(0, 1, 2)] * ((inputs + 1) // 2) + [(0, 1)] * (inputs // 2)
    step = lower(scopes, (0, 2), {0: 60, 1: 17, 2: row}, semiring.dtype, semiring)
    assert step.regime == "streaming"
    check(step)


@pytest.mark.parametrize("modulus", [2, 3, 5, 257, 65537, 2**31 - 19, 2**31 - 1])
@pytest.mark.parametrize("inputs", [1, 2, 3, 6])
def test_residues_of_small_and_large_primes_at_their_ends(modulus: int, inputs: int) -> None:
    """Products at either side of multiples of the prime, which a rounded quotient may miss, and long sums."""
    semiring, rng = mod_sum_product(modulus), np.random.default_rng(inputs)
    ends = [v for k in (0, 1, modulus // 2, modulus) for v in range(k - 2, k + 3) if 0 <= v < modulus]
    step = lower([(0, 1, 2)] * inputs, (0, 2), {0: 8, 1: 600, 2: 37}, semiring.dtype, semiring)
    tables = [rng.choice(np.array(ends), cells) for cells in step.input_cells]
    want = np.ones((8, 600, 37), object)
    for table in tables:
        want = want * table.reshape(want.shape).astype(object) % modulus
    got = run(step, tables)
    assert got.tolist() == (want.sum(axis=1) % modulus).reshape(-1).tolist()


def test_long_eliminations_are_summed_block_by_block() -> None:
    step = lower([(0, 1, 2), (1,)], (2,), {0: 40, 1: 50, 2: 64}, "float64", SUM_PRODUCT)
    assert step.loops is not None
    assert step.loops.depth_high
    check(step)


def test_large_inputs_are_not_gathered_for_every_cell() -> None:
    """Two tables of 64^3 cells that share 64^2, small ones between: gathering took ten times as long."""
    left = (1, 3, 0, 2, 11, 9, 7, 5, 14, 12, 15, 13)
    right = (14, 12, 15, 13, 7, 5, 4, 6, 8, 10, 11, 9)
    sizes = dict(enumerate((2, 2, 4, 4) * 4))
    above, below, first, second = (1, 3, 0, 2, 8, 10), (1, 3, 0, 2, 4, 6), (9, 8), (5, 4)
    steps = ([first, second, above], below), ([first, second, below], above), ([first, above, below], second)
    for functions, output in steps:
        step = lower([left, *functions, right], output, sizes, "float64", SUM_PRODUCT)
        assert step.loops is not None
        assert all(operand.role != "gather" for operand in step.loops.operands)
        copies = sum(merge.axes.cells for merge in step.loops.merges if len(merge.inputs) == 1)
        assert copies <= 3 * 64**3
        check(lower([left, *functions, right], output, {**sizes, 3: 1, 7: 2, 11: 2, 15: 1}, "float64", SUM_PRODUCT))


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, INT32], ids=str)
def test_small_outputs_are_turned_where_the_largest_input_would_be_read_across(semiring: Semiring) -> None:
    """The output's last axis takes a cache line of the input a cell, and all are gone before the next one is read."""
    sizes = {0: 128, 1: 160, 2: 8}
    step = lower([(0, 1, 2), (1, 2), (2,)], (2, 0), sizes, semiring.dtype, semiring)
    assert step.loops is not None
    assert step.loops.turn is not None
    assert step.loops.operands[-1].role != "gather"
    check(step)
    tables = tables_for(step)
    full, matrix, last = tables[0].reshape(128, 160, 8), tables[1].reshape(160, 8), tables[2]
    if semiring is SUM_PRODUCT:
        expected = (full * matrix * last).sum(1)
    else:
        expected = np.minimum(full.astype(np.int64) + matrix + last, semiring.zero).min(1)
    np.testing.assert_array_equal(run(step, tables), expected.T.reshape(-1))
    straight = lower([(0, 1, 2), (1, 2)], (0, 2), sizes, semiring.dtype, semiring)
    assert straight.loops is not None
    assert straight.loops.turn is None


def test_a_long_eliminated_axis_is_cut_to_be_summed_later() -> None:
    """The largest input ends in so many eliminated cells that no row of them all was kept: it was gathered."""
    step = lower([(0, 1, 2), (2, 0)], (1, 0), {0: 16, 1: 64, 2: 1024}, INT32.dtype, INT32)
    assert step.loops is not None
    assert 8 <= step.loops.summed <= SUMMED_CELLS
    assert all(operand.role == "row" for operand in step.loops.operands)
    check(step)
    large, small = (t.astype(np.int64) for t in tables_for(step))
    totals = large.reshape(16, 64, 1024) + small.reshape(1024, 16).T[:, None]
    np.testing.assert_array_equal(run(step, tables_for(step)), np.minimum(totals, INT32.zero).min(2).T.reshape(-1))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_steps_of_tiny_inputs_have_loops(kept: int) -> None:
    """All pairs of 16 binary variables, next to none of which is left: NumPy read every input for every cell."""
    pairs = list(combinations(range(16), 2))
    step = lower(pairs, tuple(range(kept)), dict.fromkeys(range(16), 2), "float64", SUM_PRODUCT)
    assert step.loops is not None
    assert len(step.loops.operands) < 16
    assert step.merged is not None
    check(step)


def test_everything_infinite_stays_infinite() -> None:
    step = lower([(0, 1, 2)] * 4, (0, 2), {0: 50, 1: 8, 2: 64}, "int32", INT32)
    got = run(step, [np.full(50 * 8 * 64, INT32.zero, np.int32)] * 4)
    np.testing.assert_array_equal(got, INT32.zero)


def test_small_steps_do_not_import_a_compiler() -> None:
    code = (
        "import sys, numpy as np\n"
        "from bucketflow.tasks.cpu.dense import contract\n"
        "from bucketflow.tasks.steps.semiring import SUM_PRODUCT\n"
        "contract([np.ones(4), np.ones(2)], [(0, 1), (1,)], (0,), {0: 2, 1: 2}, SUM_PRODUCT)\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
