"""Quick steps against the general way, and what they leave to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.steps import step as step_module
from bucketflow.tasks.steps.semiring import LOG_SUM, SUM_PRODUCT
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps.scaled import QuickSumProduct, Scaled, SumProduct, measured

SIZES = (2, 3, 1, 4, 2)
SCOPE = st.lists(st.integers(0, 4), unique=True, max_size=4)


def table(axes: tuple[int, ...], seed: int) -> Scaled:
    rng = np.random.default_rng(seed)
    values = rng.random(int(np.prod([SIZES[v] for v in axes], dtype=int)))
    return measured(np.where(rng.random(values.size) < 0.2, 0.0, values), 3.0)


@given(scopes=st.lists(SCOPE, min_size=1, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_quick_steps_equal_general_ones(scopes: list[list[int]], seed: int, data: st.DataObject) -> None:
    axes = tuple(tuple(s) for s in scopes)
    union = sorted({v for s in axes for v in s})
    out = tuple(data.draw(st.lists(st.sampled_from(union), unique=True))) if union else ()
    step = make_step(9, tuple(range(len(axes))), axes, out, SIZES, SUM_PRODUCT)
    assert step.lowered.quick is not None
    tables = [table(a, seed + i) for i, a in enumerate(axes)]
    quick = QuickSumProduct(SIZES, False).step(step, tables, 1)
    general = SumProduct(SIZES, False).step(step, tables, 1)
    assert quick.values == pytest.approx(general.values, rel=1e-13)
    assert quick.log_scale == pytest.approx(general.log_scale)
    assert (quick.low, quick.high) == pytest.approx((general.low, general.high))


def test_steps_that_look_alike_are_lowered_once() -> None:
    one = make_step(9, (0, 1), ((0, 1), (1, 3)), (0, 3), SIZES, SUM_PRODUCT)
    other = make_step(8, (4, 5), ((4, 1), (1, 3)), (4, 3), SIZES, SUM_PRODUCT)
    assert one.lowered is other.lowered


def test_large_steps_and_other_semirings_are_not_quick() -> None:
    sizes = (1000, 1000)
    assert make_step(2, (0, 1), ((0, 1), (1,)), (0,), sizes, SUM_PRODUCT).lowered.quick is None
    assert make_step(2, (0, 1), ((0, 1), (1,)), (0,), SIZES, LOG_SUM).lowered.quick is None


def test_several_tables_are_joined_two_at_a_time() -> None:
    sizes, rng = (8, 9, 10, 11), np.random.default_rng(3)
    axes, out = ((0, 1, 2), (2, 3), (3,), (1, 3)), (0, 3)
    step = make_step(9, (0, 1, 2, 3), axes, out, sizes, SUM_PRODUCT)
    assert step.lowered.quick is not None
    assert len(step.lowered.quick.pairs) == 2
    tables = [measured(rng.random(int(np.prod([sizes[v] for v in a])))) for a in axes]
    expected = SumProduct(sizes, False).step(step, tables, 1)
    assert QuickSumProduct(sizes, False).step(step, tables, 1).values == pytest.approx(expected.values, rel=1e-13)


def test_a_range_that_does_not_fit_goes_the_safe_way() -> None:
    step = make_step(2, (0, 1), ((0,), (0,)), (), SIZES, SUM_PRODUCT)
    tiny = Scaled(np.array([1.0, 1e-300]), 0.0, np.log(1e-300), 0.0)
    other = Scaled(np.array([0.0, 1e-300]), 0.0, np.log(1e-300), 0.0)
    found = QuickSumProduct(SIZES, False).step(step, [tiny, other], 1)
    assert found.log_value() == pytest.approx(2 * np.log(1e-300))


@pytest.mark.parametrize("inputs", [64, 300])
def test_many_inputs_are_planned_in_about_so_many_comparisons(inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(inputs)
    sizes = (2,) * 12
    axes = tuple(tuple(rng.choice(12, 2, replace=False).tolist()) for _ in range(inputs))
    looked, push = [], step_module.heappush

    def counted(heap: list[tuple[int, int, int]], pair: tuple[int, int, int]) -> None:
        looked.append(pair)
        push(heap, pair)

    monkeypatch.setattr(step_module, "heappush", counted)
    step = make_step(inputs, tuple(range(inputs)), axes, (0,), sizes, SUM_PRODUCT)
    assert inputs < len(looked) < 20 * inputs
    assert step.lowered.quick is not None
    tables = [measured(rng.random(4)) for _ in axes]
    expected = SumProduct(sizes, False).step(step, tables, 1)
    found = QuickSumProduct(sizes, False).step(step, tables, 1)
    assert found.values * np.exp(found.log_scale - expected.log_scale) == pytest.approx(expected.values, rel=1e-12)


def test_temporaries_of_pairwise_joins_are_counted_while_they_live() -> None:
    terms, sizes = ["ab", "bc", "cd", "d", "d"], dict.fromkeys("abcd", 4)
    joins, left, cells = step_module.pairwise(terms, "a", sizes)
    live = peak = 0
    shapes = [(term, 0) for term in terms]
    for i, j, text in joins:
        result = text.partition("->")[2]
        right, before = shapes.pop(j), shapes.pop(i)
        live += 4 ** len(result)
        peak = max(peak, live)
        live -= before[1] + right[1]
        shapes.append((result, 4 ** len(result)))
    assert (left, cells) == ([term for term, _ in shapes], peak)
    assert peak < sum(4 ** len(text.partition("->")[2]) for *_, text in joins)


def test_more_tables_than_einsum_takes_are_joined_even_in_the_smallest_step() -> None:
    step = make_step(100, tuple(range(100)), ((0,),) * 100, (), (2,), SUM_PRODUCT)
    tables = [measured(np.array([0.5, 0.25]))] * 100
    found = QuickSumProduct((2,), False).step(step, tables, 1)
    assert found.log_value() == pytest.approx(np.log(0.5**100 + 0.25**100))
