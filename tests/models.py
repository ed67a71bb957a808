"""Random models for the tests, and answers by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from bucketflow import Model
from bucketflow.pipeline.models.model import Function, dense_function, row_function

DIMS = st.lists(st.integers(1, 3), min_size=1, max_size=7)


def _scopes(draw: st.DrawFn, n: int) -> list[list[int]]:
    """Scopes that may be empty, repeated, disconnected, or name a variable twice."""
    variable = st.integers(0, n - 1)
    return draw(st.lists(st.lists(variable, max_size=3), min_size=0, max_size=9))


def _cost_function(draw: st.DrawFn, scope: list[int], dims: list[int], top: int, low: int) -> Function:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = [dims[v] for v in scope]
    values = rng.integers(low, 9, size=shape)
    values = np.where(rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.7])), top, values)
    if scope and draw(st.booleans()):
        cells = np.array(list(np.ndindex(*shape)), dtype=np.int64)
        keep = rng.random(len(cells)) < 0.6
        default = draw(st.sampled_from([0, 3, top]))
        return row_function(scope, cells[keep], np.asarray(values).reshape(-1)[keep].astype(np.int64), default)
    return dense_function(scope, np.asarray(values, dtype=np.int64))


@st.composite
def cost_models(draw: st.DrawFn, low: int = -4) -> Model:
    """Cost networks with forbidden entries, negative costs, defaults, and a top that sums may reach."""
    dims = draw(DIMS)
    top = draw(st.sampled_from([12, 25, 10_000]))
    functions = [_cost_function(draw, scope, dims, top, low) for scope in _scopes(draw, len(dims))]
    return named_model("cost", dims, functions, top=top)


@st.composite
def markov_models(draw: st.DrawFn) -> Model:
    """Markov networks with zeros and values of very different size."""
    dims = draw(DIMS)
    functions = []
    for scope in _scopes(draw, len(dims)):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        shape = [dims[v] for v in scope]
        spread = draw(st.sampled_from([0.0, 3.0, 120.0]))
        values = 10.0 ** rng.uniform(-spread, spread / 4, size=shape)
        values = np.where(rng.random(shape) < draw(st.sampled_from([0.0, 0.3])), 0.0, values)
        functions.append(dense_function(scope, np.asarray(values)))
    return named_model("markov", dims, functions)


@st.composite
def bayes_models(draw: st.DrawFn) -> Model:
    """Bayesian networks: each variable has up to three earlier parents."""
    dims = draw(DIMS)
    functions = []
    for child, size in enumerate(dims):
        parents = draw(st.lists(st.integers(0, child - 1), max_size=3, unique=True)) if child else []
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        values = rng.integers(0, 4, size=[*(dims[p] for p in parents), size]).astype(float)
        values[..., 0] += 1.0
        functions.append(Function((*parents, child), values / values.sum(-1, keepdims=True), child=child))
    return named_model("bayes", dims, functions)


def named_model(kind: str, dims: list[int], functions: list[Function], top: int | None = None) -> Model:
    """Wrap functions as a model with variables x0, x1, …"""
    names = tuple(f"x{i}" for i in range(len(dims)))
    return Model(kind, names, tuple(dims), (None,) * len(dims), tuple(functions), top=top)  # type: ignore[arg-type]


def entries(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Costs, or such that forbid the last cell, or probabilities, or those of which products need scales."""
    if kind in ("cost", "forbids"):
        values = rng.integers(0, 50, shape)
        values[-1, -1] = 10**6 if kind == "forbids" else values[-1, -1]
        return values
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
        "cost" if kind in ("cost", "forbids") else "markov",
        [states] * (rows * columns),
        functions,
        top=10**6 if kind in ("cost", "forbids") else None,
    )


def assignments(model: Model, evidence: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield every full assignment that agrees with the evidence."""
    choices = [
        [evidence[name]] if name in evidence else range(d) for name, d in zip(model.names, model.dims, strict=True)
    ]
    return itertools.product(*choices)


def brute_optimum(model: Model, evidence: dict[str, int]) -> int | float | None:
    """Least cost, or greatest log10 probability; None if nothing is possible."""
    if model.kind == "cost":
        costs = [c for a in assignments(model, evidence) if (c := model.cost(a)) is not None]
        return min(costs, default=None)
    best = max(model.log10_value(a) for a in assignments(model, evidence))
    return None if best == -math.inf else best


def brute_log10_sum(model: Model, evidence: dict[str, int]) -> float | None:
    """log10 of the sum over all assignments; None if it is zero."""
    logs = [model.log10_value(a) for a in assignments(model, evidence)]
    top = max(logs)
    return None if top == -math.inf else top + math.log10(math.fsum(10 ** (v - top) for v in logs))


def brute_count(model: Model, evidence: dict[str, int]) -> int:
    """Number of assignments of finite cost or non-zero probability."""
    if model.kind == "cost":
        return sum(model.cost(a) is not None for a in assignments(model, evidence))
    return sum(model.log10_value(a) > -math.inf for a in assignments(model, evidence))
