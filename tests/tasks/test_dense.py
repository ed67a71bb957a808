"""Dense steps against a brute-force loop, for every semiring, dtype and shape."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.cpu import numpy_blocks
from bucketflow.tasks.cpu.dense import contract, run
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import (
    LOG_SUM,
    MIN_PLUS,
    SUM_PRODUCT,
    Semiring,
    min_plus,
    mod_sum_product,
)

SEMIRINGS = [
    min_plus("int16", 8),
    min_plus("int16", 2),
    min_plus("int32", 3),
    min_plus("int64", 8),
    MIN_PLUS,
    SUM_PRODUCT,
    LOG_SUM,
    mod_sum_product(2**31 - 1),
    mod_sum_product(5),
]

Scopes = tuple[list[tuple[int, ...]], tuple[int, ...], dict[int, int]]


@st.composite
def scopes(draw: st.DrawFn, max_cells: int = 3000) -> Scopes:
    """Draw the inputs, output and sizes of a step with a bounded join."""
    n = draw(st.integers(0, 7))
    sizes: dict[int, int] = {}
    for v in range(n):
        room = max_cells // math.prod(sizes.values())
        sizes[v] = draw(st.integers(1, max(1, min(7, room))))
    names = list(range(n))
    inputs = []
    for _ in range(draw(st.integers(1, 6))):
        order = draw(st.permutations(names))
        inputs.append(tuple(order[: draw(st.integers(0, n))]))
    present = sorted(set().union(*inputs))
    order = draw(st.permutations(present))
    return inputs, tuple(order[: draw(st.integers(0, len(order)))]), sizes


def draw_tables(
    inputs: Sequence[tuple[int, ...]], sizes: dict[int, int], semiring: Semiring, seed: int
) -> list[np.ndarray]:
    """Draw tables with a share of absorbing values (infinite costs, zero probabilities)."""
    rng = np.random.default_rng(seed)
    tables = []
    for scope in inputs:
        shape = tuple(sizes[v] for v in scope)
        if semiring.saturates:
            values = rng.integers(0, semiring.zero, shape)
        elif semiring.name == "mod_sum_product":
            values = rng.integers(0, semiring.modulus, shape)
        else:
            values = rng.random(shape) * 4
        values = np.where(rng.random(shape) < 0.1, semiring.zero, values)
        tables.append(np.ascontiguousarray(values, dtype=semiring.dtype))
    return tables


def brute_force(
    tables: Sequence[np.ndarray],
    inputs: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    sizes: dict[int, int],
    semiring: Semiring,
) -> np.ndarray:
    """Evaluate the definition, one assignment at a time, in Python numbers."""
    names = sorted(set().union(*inputs))
    terms: dict[tuple[int, ...], list[float]] = {}
    for states in itertools.product(*(range(sizes[v]) for v in names)):
        at = dict(zip(names, states, strict=True))
        values = [t[tuple(at[v] for v in scope)].item() for t, scope in zip(tables, inputs, strict=True)]
        product = math.prod(values) if "sum_product" in semiring.name else sum(values)
        terms.setdefault(tuple(at[v] for v in output), []).append(product)
    result = [_total(terms[o], semiring) for o in itertools.product(*(range(sizes[v]) for v in output))]
    return np.array(result, dtype=semiring.dtype)


def _total(values: list[float], semiring: Semiring) -> float:
    if semiring.name == "min_plus":
        return min(semiring.zero, *values)
    if semiring.name == "log_sum":
        best = max(values)
        return best if best == -math.inf else best + math.log(math.fsum(math.exp(v - best) for v in values))
    return sum(values) % semiring.modulus if semiring.modulus else math.fsum(values)


def assert_equal(got: np.ndarray, expected: np.ndarray, semiring: Semiring) -> None:
    """Compare exactly for integers, within rounding for floats."""
    assert got.dtype == expected.dtype
    if semiring.dtype == "float64":
        np.testing.assert_allclose(got.reshape(-1), expected, rtol=1e-12)
    else:
        np.testing.assert_array_equal(got.reshape(-1), expected)


@settings(max_examples=60, deadline=None)
@given(step=scopes(), seed=st.integers(0, 99), semiring=st.sampled_from(SEMIRINGS))
def test_equals_brute_force(step: Scopes, seed: int, semiring: Semiring) -> None:
    inputs, output, sizes = step
    tables = draw_tables(inputs, sizes, semiring, seed)
    got = contract(tables, inputs, output, sizes, semiring)
    assert_equal(got, brute_force(tables, inputs, output, sizes, semiring), semiring)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
def test_flat_tables_and_given_output(semiring: Semiring) -> None:
    sizes = {0: 3, 1: 4, 2: 5}
    tables = draw_tables([(0, 1), (1, 2)], sizes, semiring, 1)
    out = np.empty((3, 5), semiring.dtype)
    step = pickle.loads(pickle.dumps(lower([(0, 1), (1, 2)], (0, 2), sizes, semiring.dtype, semiring)))
    assert run(step, [t.reshape(-1) for t in tables], out) is out
    assert_equal(out, brute_force(tables, [(0, 1), (1, 2)], (0, 2), sizes, semiring), semiring)


def test_forty_two_binary_and_unit_variables() -> None:
    sizes = {v: 2 if v % 4 == 0 else 1 for v in range(80)}
    scope = tuple(range(80))
    semiring = min_plus("int32")
    table = np.arange(2**20, dtype=np.int32)
    got = contract([table, np.int32([7])], [scope, ()], scope[:-8], sizes, semiring)
    np.testing.assert_array_equal(got, table.reshape(-1, 4).min(1) + 7)


def test_one_axis_per_binary_variable_is_never_made() -> None:
    """Eighteen axes that cannot be fused, in reverse order."""
    scope = tuple(range(18))
    table = np.arange(2**18, dtype=np.float64)
    got = contract([table], [scope], scope[::-1], dict.fromkeys(scope, 2), MIN_PLUS)
    np.testing.assert_array_equal(got.reshape((2,) * 18), table.reshape((2,) * 18).transpose())


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [([], (), "at least one"), ([(0, 0)], (0,), "repeats"), ([(0,)], (1,), "no input")],
)
def test_bad_scopes_are_refused(inputs: list[tuple[int, ...]], output: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lower(inputs, output, {0: 2, 1: 2}, "float64", SUM_PRODUCT)


def test_bad_tables_are_refused() -> None:
    step = lower([(0, 1)], (0,), {0: 2, 1: 3}, "float64", SUM_PRODUCT)
    with pytest.raises(ValueError, match="2 tables"):
        run(step, [np.ones(6), np.ones(6)])
    with pytest.raises(ValueError, match="5 cells"):
        run(step, [np.ones(5)])
    with pytest.raises(ValueError, match="dtype"):
        run(step, [np.ones(6, np.float32)])
    with pytest.raises(ValueError, match="contiguous"):
        run(step, [np.ones((2, 6))[:, ::2]])
    with pytest.raises(ValueError, match="cells"):
        run(step, [np.ones(6)], np.empty(3))


LARGE = {
    "grid": ([(0, 1, 2, 3), (1, 2), (3,)], (0, 1, 2), {0: 40, 1: 30, 2: 8, 3: 5}),
    "leading": ([(3, 0, 1), (3, 1, 2), ()], (0, 1, 2), {0: 30, 1: 20, 2: 10, 3: 7}),
    "to scalar": ([(0, 1, 2)], (), {0: 50, 1: 40, 2: 30}),
    "reversed": ([(0, 1, 2), (2, 0)], (2, 1, 0), {0: 40, 1: 30, 2: 20}),
    "no elimination": ([(0, 1), (1, 2), (2, 0)], (2, 1, 0), {0: 33, 1: 32, 2: 31}),
    "product": ([(0, 1), (1, 2)], (0, 2), {0: 70, 1: 45, 2: 67}),
    "many": ([(0, 1, 2), *[(v, w) for v in range(5) for w in range(5) if v != w]], (3, 0), dict.fromkeys(range(5), 10)),
    "many to scalar": ([tuple(range(12)), *[(v, v + 1) for v in range(16)] * 2], (), dict.fromkeys(range(17), 2)),
    "batched": ([(3, 1, 0), (3, 1, 2), (3, 2)], (3, 0, 2), {0: 40, 1: 33, 2: 35, 3: 3}),
}


def expected_large(
    tables: Sequence[np.ndarray],
    inputs: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    semiring: Semiring,
) -> np.ndarray:
    """Evaluate a step whose join fits in memory by one broadcast, in 64 bits."""
    names = sorted(set().union(*inputs))
    wide = []
    for table, scope in zip(tables, inputs, strict=True):
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        shape = {scope[i]: table.shape[i] for i in order}
        view = table.transpose(order) if scope else table
        view = view.reshape([shape.get(v, 1) for v in names])
        wide.append(view.astype(np.int64) if table.dtype.kind == "i" else view)
    joined = wide[0]
    for view in wide[1:]:
        if "sum_product" in semiring.name:
            joined = joined * view
            joined = joined % semiring.modulus if semiring.modulus else joined
        else:
            joined = joined + view
            joined = np.minimum(joined, semiring.zero) if semiring.saturates else joined
    axes = tuple(i for i, v in enumerate(names) if v not in output)
    if semiring.name == "min_plus":
        total = np.minimum(joined.min(axes), semiring.zero)
    elif semiring.name == "log_sum":
        total = np.logaddexp.reduce(joined.reshape(joined.shape), axes) if axes else joined
    else:
        total = joined.sum(axes)
        total = total % semiring.modulus if semiring.modulus else total
    left = [v for v in names if v in output]
    return np.transpose(total, [left.index(v) for v in output]).reshape(-1).astype(semiring.dtype)


@lru_cache(maxsize=1)
def drawn_large(semiring: Semiring, case: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Tables of a large step, and what comes out of it."""
    inputs, output, sizes = LARGE[case]
    tables = draw_tables(inputs, sizes, semiring, 5)
    return tables, expected_large(tables, inputs, output, semiring)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
def test_large_steps(semiring: Semiring, case: str, compiled: bool) -> None:
    inputs, output, sizes = LARGE[case]
    tables, expected = drawn_large(semiring, case)
    step = lower(inputs, output, sizes, semiring.dtype, semiring)
    assert_equal(run(step, tables, compiled=compiled), expected, semiring)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("semiring", [min_plus("int32"), SUM_PRODUCT, LOG_SUM], ids=str)
def test_workspace_is_the_measured_peak(semiring: Semiring, case: str, compiled: bool) -> None:
    inputs, output, sizes = LARGE[case]
    tables = draw_tables(inputs, sizes, semiring, 5)
    step = lower(inputs, output, sizes, semiring.dtype, semiring)
    out = np.empty(step.out_cells, semiring.dtype)
    run(step, tables, out, compiled=compiled)
    tracemalloc.start()
    run(step, tables, out, compiled=compiled)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= step.workspace_bytes + 24576  # NumPy's own buffers, of which versions before 2.3 have more


@pytest.mark.parametrize("case", ["many", "many to scalar"])
def test_without_a_compiler_small_inputs_are_merged_first(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading every input for every cell took ten times as long, with 154 inputs."""
    inputs, output, sizes = LARGE[case]
    step = lower(inputs, output, sizes, "float64", MIN_PLUS)
    join, read = numpy_blocks.join, 0

    def counted(semiring: Semiring, views: Sequence[np.ndarray], joined: np.ndarray) -> np.ndarray:
        nonlocal read
        read += len(views) * views[0].size
        return join(semiring, views, joined)

    monkeypatch.setattr(numpy_blocks, "join", counted)
    run(step, draw_tables(inputs, sizes, MIN_PLUS, 5), compiled=False)
    assert read < len(inputs) * step.cells / 4
