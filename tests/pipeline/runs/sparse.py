"""Models whose functions allow few of their assignments."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from bucketflow import Model
from bucketflow.pipeline.models.function import Function
from tests.models import bayes_models, cost_models, markov_models, named_model

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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


def ring(pool: int, kind: Any = "cost", groups: int = 5) -> Model:
    """Groups of four variables in a ring, each within some of its joint states; functions allow half of the pairs."""
    rng = np.random.default_rng(1)
    names = [[f"x{k}_{i}" for i in range(4)] for k in range(groups)]
    pools = [rng.permutation(10**4)[:pool] for _ in range(groups)]
    functions: list[Any] = []
    for k in range(groups):
        left, right = np.nonzero(rng.random((pool, pool)) < 0.5)
        ends = pools[k][left], pools[(k + 1) % groups][right]
        rows = np.array([end // 10**i % 10 for end in ends for i in range(4)], np.uint8).T
        values: Any = rng.integers(0, 100, len(rows)) if kind == "cost" else rng.random(len(rows))
        functions.append((names[k] + names[(k + 1) % groups], rows, values, 1000 if kind == "cost" else 0.0))
    variables = dict.fromkeys([name for group in names for name in group], 10)
    return Model.build(kind, variables, functions, top=1000 if kind == "cost" else None)


def dense_ring(kind: Any = "cost") -> Model:
    """A ring of small groups, which fits memory dense."""
    model = ring(6, kind, groups=4)
    few = {name: 10 for k in range(4) for name in (f"x{k}_0", f"x{k}_1", f"x{k}_2")}
    functions: list[Any] = []
    for function in model.functions:
        names = [model.names[v] for v in function.scope if model.names[v] in few]
        assert function.rows is not None
        columns = [c for c, v in enumerate(function.scope) if model.names[v] in few]
        functions.append((names, function.rows[:, columns], function.values, function.default))
    return Model.build(kind, few, functions, top=model.top)
