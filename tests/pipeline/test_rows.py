"""Tables that hold only what is possible: the answers of dense ones, whatever the query, and however they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.function import Function
from bucketflow.tasks.sweeps.rows import algebra
from tests.models import bayes_models, cost_models, markov_models, named_model

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["all rows", "whichever is smaller"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are arrays all the same, but for tests of rows."""
    monkeypatch.setattr(algebra, "SMALL_CELLS", 0)
    if request.param == "all rows":
        monkeypatch.setattr(algebra, "CELLS_OF_A_ROW", 0)
        monkeypatch.setattr(algebra, "takes_less", lambda dense_bytes, rows_bytes: False)


@st.composite
def sparse_models(draw: st.DrawFn, kind: str) -> Model:
    """Functions that allow from a thousandth to all of their assignments, as arrays or by rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dims = draw(st.lists(st.integers(2, 5), min_size=2, max_size=7))
    functions = []
    for _ in range(draw(st.integers(1, 6))):
        scope = tuple(rng.permutation(len(dims))[: draw(st.integers(1, min(4, len(dims))))].tolist())
        shape = [dims[v] for v in scope]
        density = draw(st.sampled_from([0.001, 0.03, 0.3, 0.7, 1.0]))
        allowed = rng.random(shape) < density
        if draw(st.booleans()):
            allowed[tuple(0 for _ in shape)] = True
        zero: Any = 100 if kind == "cost" else 0.0
        values: Any = rng.integers(0, 9, shape) if kind == "cost" else 10.0 ** rng.uniform(-9, 3, shape)
        if draw(st.booleans()):
            rows = np.argwhere(allowed)
            functions.append(Function(scope, values[allowed], rows, default=zero))
        else:
            functions.append(Function(scope, np.where(allowed, values, zero)))
    return named_model(kind, dims, functions, top=100 if kind == "cost" else None)


COSTS = st.one_of(cost_models(), sparse_models("cost"))
WEIGHTS = st.one_of(markov_models(), bayes_models(), sparse_models("markov"))


def both(model: Model, query: str, **options: Any) -> Iterator[Any]:
    """Answers by rows and dense."""
    for representation in ("rows", "dense"):
        yield bucketflow.solve(model, query, representation=representation, **options)  # type: ignore[arg-type]


@FEW
@given(model=COSTS)
def test_least_costs_and_counts(kept: None, model: Model) -> None:
    for query in ("optimum", "count"):
        rows, dense = both(model, query)
        assert (rows.status, rows.value) == (dense.status, dense.value)
        assert rows.assignment is None or model.objective(model.cost([*rows.assignment.values()])) == rows.value


@FEW
@given(model=WEIGHTS)
def test_best_probabilities_sums_and_counts(kept: None, model: Model) -> None:
    for query in ("optimum", "partition"):
        rows, dense = both(model, query)
        assert rows.status == dense.status
        assert rows.log10 is dense.log10 is None or rows.log10 == pytest.approx(dense.log10, rel=1e-12, abs=1e-12)
    rows, dense = both(model, "count")
    assert rows.value == dense.value


@FEW
@given(model=COSTS)
def test_least_costs_of_every_state(kept: None, model: Model) -> None:
    rows, dense = (bucketflow.marginals(model, maximum=True, representation=r) for r in ("rows", "dense"))
    assert (rows.status, rows.value) == (dense.status, dense.value)
    assert all(np.array_equal(rows[name], dense[name]) for name in dense)


@FEW
@given(model=WEIGHTS)
def test_posteriors(kept: None, model: Model) -> None:
    for maximum in (False, True):
        options: Any = {"maximum": maximum, "families": True}
        rows, dense = (bucketflow.marginals(model, representation=r, **options) for r in ("rows", "dense"))
        assert rows.status == dense.status
        for name in dense:
            np.testing.assert_allclose(rows[name], dense[name], rtol=1e-9, atol=1e-300)
        for f in dense.families:
            np.testing.assert_allclose(rows.families[f], dense.families[f], rtol=1e-9, atol=1e-300)
