"""Every query against brute force on random models."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from tests.models import (
    bayes_models,
    brute_count,
    brute_log10_sum,
    brute_optimum,
    cost_models,
    markov_models,
)

MODELS = st.one_of(cost_models(), markov_models(), bayes_models())
PROBABILITIES = st.one_of(markov_models(), bayes_models())


@st.composite
def observed(draw: st.DrawFn, models: st.SearchStrategy[Model] = MODELS) -> tuple[Model, dict[str, int]]:
    """A model and evidence on some of its variables."""
    model = draw(models)
    chosen = draw(st.lists(st.integers(0, len(model.dims) - 1), max_size=2, unique=True))
    return model, {model.names[v]: draw(st.integers(0, model.dims[v] - 1)) for v in chosen}


@pytest.mark.parametrize("options", [{}, {"tree": "bucket"}, {"tree": "junction"}, {"order": "min-degree"}])
@given(case=observed())
def test_optimum(case: tuple[Model, dict[str, int]], options: dict[str, Any]) -> None:
    model, evidence = case
    result = bucketflow.solve(model, evidence=evidence, **options)
    expected = brute_optimum(model, evidence)
    if expected is None:
        assert result.status == "infeasible"
        assert result.assignment is None
        return
    assert result.status == "optimal"
    assert result.assignment is not None
    states = [int(result.assignment[name]) for name in model.names]
    assert all(states[model.index[name]] == state for name, state in evidence.items())
    if model.kind == "cost":
        assert result.value == expected == model.cost(states)
    else:
        assert result.log10 == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert model.log10_value(states) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(case=observed(PROBABILITIES))
def test_partition(case: tuple[Model, dict[str, int]]) -> None:
    model, evidence = case
    result = bucketflow.solve(model, "partition", evidence=evidence)
    expected = brute_log10_sum(model, evidence)
    if expected is None:
        assert (result.status, result.log10) == ("infeasible", None)
    else:
        assert result.status == "ok"
        assert result.log10 == pytest.approx(expected, rel=1e-11, abs=1e-11)


@given(case=observed())
def test_count(case: tuple[Model, dict[str, int]]) -> None:
    model, evidence = case
    result = bucketflow.solve(model, "count", evidence=evidence)
    assert (result.status, result.value) == ("ok", brute_count(model, evidence))


@given(case=observed(), data=st.data())
def test_given_order(case: tuple[Model, dict[str, int]], data: st.DataObject) -> None:
    model, evidence = case
    order = data.draw(st.permutations(model.names))
    result = bucketflow.solve(model, evidence=evidence, order=order, tree="bucket")
    expected = brute_optimum(model, evidence)
    assert (result.value if model.kind == "cost" else result.log10) == (
        expected if model.kind == "cost" or expected is None else pytest.approx(expected, rel=1e-12, abs=1e-12)
    )


@given(case=observed(markov_models()))
def test_large_counts_are_exact(case: tuple[Model, dict[str, int]]) -> None:
    """Forty free copies of a variable make the count exceed int64 and float64."""
    model, evidence = case
    wide = 997
    extra = Model(
        "markov",
        (*model.names, *(f"y{i}" for i in range(40))),
        (*model.dims, *([wide] * 40)),
        (None,) * (len(model.dims) + 40),
        model.functions,
    )
    result = bucketflow.solve(extra, "count", evidence=evidence)
    assert result.value == brute_count(model, evidence) * wide**40


def test_unknown_names_are_refused() -> None:
    model = bucketflow.load(_example("satellite.wcsp"))
    with pytest.raises(bucketflow.ModelError, match="'nobody'"):
        bucketflow.solve(model, evidence={"nobody": 1})
    with pytest.raises(bucketflow.ModelError, match="no state"):
        bucketflow.solve(model, evidence={model.names[0]: 99})
    with pytest.raises(bucketflow.ModelError, match="unknown query"):
        bucketflow.solve(model, "best")
    with pytest.raises(bucketflow.ModelError, match="partition"):
        bucketflow.solve(model, "partition")
    for name in ("order", "tree", "fit"):
        with pytest.raises(bucketflow.ModelError, match=f"unknown {name} 'nonsense'"):
            bucketflow.solve(model, **{name: "nonsense"})
    with pytest.raises(bucketflow.ModelError, match="omits"):
        bucketflow.solve(model, order=[model.names[0]])


def test_underflow_is_impossible() -> None:
    """A chain whose every product is below the smallest float still has a partition function."""
    import numpy as np

    from bucketflow.pipeline.models.model import Function
    from tests.models import named_model

    tiny = np.array([[1e-300, 1e-290], [0.0, 1e-280]])
    functions = [Function((i, i + 1), tiny) for i in range(30)]
    result = bucketflow.solve(named_model("markov", [2] * 31, functions), "partition")
    steps = np.array([[-300, -290], [-math.inf, -280]])
    total = np.zeros(2)
    for _ in range(30):
        terms = steps + total[None, :]
        top = terms.max(axis=1)
        total = top + np.log10((10 ** (terms - top[:, None])).sum(axis=1))
    assert result.log10 == pytest.approx(np.logaddexp(*(total * math.log(10))) / math.log(10), rel=1e-12)


def _example(name: str) -> str:
    from bucketflow.pipeline.examples import example_path

    return str(example_path(name))


def test_an_example_stands_for_its_model_and_nothing_else_does() -> None:
    assert bucketflow.solve("satellite").value == bucketflow.solve(bucketflow.load("satellite")).value
    for ask in (bucketflow.solve, bucketflow.plan, bucketflow.marginals):
        with pytest.raises(bucketflow.ModelError, match=r"found int"):
            ask(3)  # type: ignore[operator]
