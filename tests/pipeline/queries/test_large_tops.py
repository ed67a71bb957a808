"""Optima within a unit of a large top, by every method, against exact integers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.answering.engines.sweep_engine import SweepEngine
from bucketflow.pipeline.cost_networks.cost_network import cost_network
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.models.model import FORBIDDEN, Function
from bucketflow.pipeline.preprocessing.preprocess import fixed_value, reduce_model
from bucketflow.pipeline.results.bounds import Bounds
from bucketflow.pipeline.results.result import Result
from tests.exact import costs
from tests.models import named_model

METHODS = ("auto", "dense", "rows", "diagram", "search")
TOPS = (2**60, 2**53 + 1, 2**58 - 1, 2**51 + 3)


def near_top(rng: random.Random, top: int) -> Model:
    """Costs that add up to a few below or above the top, or to far less, which is mostly forbidden."""
    dims = [rng.choice((2, 2, 3)) for _ in range(rng.randint(2, 5))]
    every = tuple(range(len(dims)))
    scopes = [tuple(rng.sample(every, min(len(dims), rng.choice((1, 2, 2, 3))))) for _ in range(4)]
    parts = [rng.choice((0, 0, top // 5, top // 3)) for _ in scopes]
    parts[0] = top + rng.randint(-4, 4) - sum(parts[1:])
    functions = []
    for scope, part in zip(scopes, parts, strict=True):
        shape = [dims[v] for v in scope]
        values = [rng.choice((part, part, 0)) + rng.randint(-2, 3) for _ in range(math.prod(shape))]
        functions.append(Function(scope, np.array(values, dtype=np.int64).reshape(shape)))
    model = named_model("cost", dims, functions)
    excluded = np.zeros(dims, dtype=np.int64)
    for states, cost in costs(model, {}).items():
        if cost < top - 6 or rng.random() < 0.1:
            excluded[states] = FORBIDDEN if rng.random() < 0.98 else 1
    return named_model("cost", dims, [*functions, Function(every, excluded)], top=top)


def models() -> Iterator[Model]:
    for seed in range(48):
        rng = random.Random(seed)
        yield near_top(rng, TOPS[seed % len(TOPS)])


def just_below(top: int) -> Model:
    """One pair of states costs 3 less than the top, all others reach it."""
    half = top // 2
    tables = [np.array([half, half - 3]), np.array([top - half, top - half + 1])]
    forbids = np.array([[0, 0], [0, 0]])
    functions = [Function((v,), table) for v, table in enumerate(tables)]
    return named_model("cost", [2, 2], [*functions, Function((0, 1), forbids)], top=top)


def within(found: Result | Bounds, exact: dict[tuple[int, ...], int], model: Model) -> None:
    """Check an answer or two bounds: what is said is true, if it is not everything."""
    best = min(exact.values(), default=None)
    if found.status == "infeasible":
        assert best is None
    ends = found.proof if isinstance(found, Result) else found
    if found.status == "bounded" and ends is not None:
        assert best is None or ends.lower is None or ends.lower <= best
        assert ends.upper is None or (best is not None and best <= ends.upper)
    if found.assignment is not None:
        assert found.value == exact[tuple(int(found.assignment[name]) for name in model.names)]
    if found.status == "optimal":
        assert found.value == best


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prune", [True, False])
def test_totals_near_a_large_top_are_told_apart(method: Any, prune: bool) -> None:
    for model in models():
        exact = costs(model, {})
        found = bucketflow.solve(model, method=method, prune=prune)
        within(found, exact, model)
        assert (found.assignment is None) == (not exact)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("top", TOPS)
def test_an_optimum_three_below_the_top(method: Any, top: int) -> None:
    found = bucketflow.solve(just_below(top), method=method)
    assert (found.value, found.assignment) == (top - 3, {"x0": 1, "x1": 0})
    assert bucketflow.bound(just_below(top)).upper in (top - 3, None)


def test_bounds_show_no_forbidden_assignment() -> None:
    for model in models():
        exact = costs(model, {})
        for z in (None, 1, 2):
            within(bucketflow.bound(model, time=9, z=z), exact, model)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limits", [{"time": 60.0}, {"gap": 0.0}, {"time": 60.0, "gap": 0.5}])
def test_limits_change_nothing_that_is_said(method: Any, limits: dict[str, Any]) -> None:
    for model in list(models())[::3]:
        within(bucketflow.solve(model, method=method, **limits), costs(model, {}), model)


@pytest.mark.parametrize("method", METHODS)
def test_a_bound_that_is_given_holds_to_the_last_unit(method: Any) -> None:
    for model in models():
        exact = costs(model, {})
        best = min(exact.values(), default=9)
        for given in (best, best - 1):
            found = bucketflow.solve(model, method=method, upper_bound=given)
            if given < best or not exact:
                assert (found.status, found.assignment) == ("infeasible", None)
            else:
                within(found, exact, model)
                assert found.value == best
            limited = bucketflow.solve(model, method=method, upper_bound=given, time=60)
            assert limited.value is None or limited.value <= given
            assert limited.status != "infeasible" or given < best or not exact


@pytest.mark.parametrize(
    "asked", [{"representation": "rows"}, {"fit": "slice", "memory": 700}, {"max_marginals": True}]
)
def test_sweeps_are_exact_however_they_run(asked: dict[str, Any]) -> None:
    for model in models():
        exact = costs(model, {})
        ask = bucketflow.marginals if asked.get("max_marginals") else bucketflow.solve
        memory = asked.get("memory", 1 << 30) + 2 * model.nbytes
        found = ask(model, **{**asked, "memory": memory})
        assert found.value == min(exact.values(), default=None)


def test_agents_are_exact() -> None:
    for model in models():
        exact = costs(model, {})
        found = bucketflow.dpop(model)
        assert found.value == min(exact.values(), default=None)


def test_where_no_sweep_fits_it_is_open_what_units_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise BudgetError("no memory")

    found = []
    forced: tuple[Any, ...] = ("rows", "diagram", "search")
    for model in filter(is_in_units, models()):
        for method in forced:
            with monkeypatch.context() as patch:
                patch.setattr(SweepEngine, "run", refused)
                found.append(bucketflow.solve(model, method=method, prune=False))
            within(found[-1], costs(model, {}), model)
    hidden = [each for each in found if each.status == "bounded" and each.assignment is None]
    assert len(hidden) > 3
    assert all("in units of" in note for each in hidden for note in each.notes)


def is_in_units(model: Model) -> bool:
    """Whether something is left to search, in units."""
    network = reduce_model(model, "optimum", {})
    if fixed_value(network) is None or not network.leaves:
        return False
    return not cost_network(network)[1].exact


def test_most_of_the_models_are_in_units_and_near_the_top() -> None:
    """Else the tests above would show nothing."""
    chosen = [model for model in models() if is_in_units(model)]
    assert len(chosen) > 20
    best = [min(exact.values()) for model in chosen if (exact := costs(model, {}))]
    assert len(best) > 5
