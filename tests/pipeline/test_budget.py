"""Plans keep their promises: measured memory, slicing and recomputation give the same answer within the budget."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.api.prepared import prepare
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from tests.models import named_model

# Python objects that are not tables: the plan, lists, small temporaries of NumPy.
SLACK_BYTES = 5_000_000


def entries(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Costs, probabilities, or probabilities over so many orders of magnitude that products need scales."""
    if kind == "cost":
        return rng.integers(0, 50, shape)
    return rng.random(shape) if kind == "markov" else 10.0 ** rng.uniform(-60, 0, shape)


def grid(rows: int, columns: int, states: int, kind: str = "cost", seed: int = 0) -> Model:
    """A grid with random pairwise functions."""
    rng = np.random.default_rng(seed)
    functions = []
    for r in range(rows):
        for c in range(columns):
            here = r * columns + c
            right = [here + 1] if c + 1 < columns else []
            down = [here + columns] if r + 1 < rows else []
            for there in right + down:
                functions.append(Function((here, there), entries(rng, (states, states), kind)))
    return named_model(
        "cost" if kind == "cost" else "markov",
        [states] * (rows * columns),
        functions,
        top=10**6 if kind == "cost" else None,
    )


def measured_peak(model: Model, query: str, **options: Any) -> tuple[int, bucketflow.Result]:
    """Peak bytes that NumPy and Python allocate while solving."""
    bucketflow.solve(model, query, **options)  # imports and compiled kernels
    gc.collect()
    tracemalloc.start()
    try:
        result = bucketflow.solve(model, query, **options)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tree", ["refined", "bucket", "junction"])
@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov")])
def test_measured_peak_is_within_the_plan(query: str, kind: str, tree: str) -> None:
    model = grid(10, 10, 4, kind)
    peak, result = measured_peak(model, query, tree=tree)
    assert result.plan is not None
    assert result.plan.peak_bytes > SLACK_BYTES
    assert peak + model.nbytes <= result.plan.peak_bytes + SLACK_BYTES


@pytest.mark.parametrize(
    ("query", "kind"), [("optimum", "cost"), ("partition", "markov"), ("partition", "steep"), ("count", "cost")]
)
def test_smaller_budgets_give_the_same_answer(query: str, kind: str) -> None:
    model = grid(8, 8, 4, kind) if query == "count" else grid(10, 10, 4, kind)
    free = bucketflow.solve(model, query)
    assert free.plan is not None
    for share in (2, 8):
        budget = free.plan.peak_bytes // share
        peak, tight = measured_peak(model, query, memory=budget, fit="slice")
        assert tight.plan is not None
        assert share == 2 or tight.plan.slices > 1 or tight.plan.cuts
        assert tight.plan.peak_bytes <= budget
        assert peak + model.nbytes <= budget + SLACK_BYTES
        assert tight.value == free.value
        assert (tight.log10 is None) == (free.log10 is None)
        if free.log10 is not None:
            assert tight.log10 == pytest.approx(free.log10, rel=1e-12)


def test_recomputation_is_chosen_before_slicing() -> None:
    """A long chain of wide messages: keeping them all is what does not fit; less memory needs both."""
    model = grid(8, 40, 3)
    free = bucketflow.plan(model, tree="bucket")
    assert isinstance(free, Plan)
    value = bucketflow.solve(model).value
    cut = bucketflow.solve(model, memory=free.peak_bytes // 2, tree="bucket", fit="slice")
    assert cut.plan is not None
    assert cut.plan.slices == 1
    assert cut.plan.cuts
    assert cut.value == value
    both = bucketflow.solve(model, memory=free.peak_bytes * 2 // 5, tree="bucket", fit="slice")
    assert both.plan is not None
    assert both.plan.slices > 1
    assert both.plan.cuts
    assert both.value == value


def test_impossible_budget_names_both_numbers() -> None:
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* allowed 20 kB"):
        bucketflow.solve(grid(9, 9, 4), memory=20_000)


def test_plans_are_deterministic() -> None:
    model = grid(8, 8, 3)
    first, second = (prepare(model, "optimum", None, Options(seed=3)).plan for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tree == second.tree
    assert first.layouts == second.layouts
