"""Soft evidence in questions about one value: log10 of p times l, by every method, against exact integers."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.jobs.driver import stored_question
from tests.exact import Weights
from tests.models import assignments
from tests.pipeline.queries.test_extremes import findings, near, probability_model


def cases() -> list[tuple[Model, dict[str, Any], Weights]]:
    found = []
    for seed in range(60):
        rng = random.Random(seed)
        model = probability_model(rng)
        evidence = findings(rng, model)
        found.append((model, evidence, Weights(model, evidence)))
    return found


CASES = cases()


def test_there_are_likelihoods() -> None:
    assert sum(any(isinstance(value, list) for value in evidence.values()) for _, evidence, _ in CASES) > 20


@pytest.mark.parametrize("asked", [
    {}, {"method": "dense"}, {"method": "diagram"}, {"method": "search"}, {"representation": "rows"},
    {"tree": "bucket", "order": "min-degree"}, {"prune": False},
])  # fmt: skip
@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_the_values_are_those_of_probability_times_likelihood(query: Any, asked: dict[str, Any]) -> None:
    for model, evidence, exact in CASES:
        try:
            found = bucketflow.solve(model, query, evidence=evidence, **asked)
        except bucketflow.BudgetError:
            assert asked.get("method") in ("diagram", "search")  # products too small for floats, too many clauses
            assert query == "partition"
            continue
        expected = exact.log10_best if query == "optimum" else exact.log10_sum
        if not exact.weights:
            assert found.status == "infeasible"
            continue
        assert found.log10 is not None
        assert near(found.log10, expected)
        if query == "optimum":
            assert found.assignment is not None
            states = tuple(int(found.assignment[name]) for name in model.names)
            assert near(exact.log10(exact.weights[states]), expected)


@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_bounds_enclose_them(query: Any) -> None:
    for model, evidence, exact in CASES:
        found = bucketflow.bound(model, query, evidence=evidence, z=2)
        if not exact.weights:
            continue
        expected = exact.log10_best if query == "optimum" else exact.log10_sum
        slack = 1e-9 * (1 + abs(expected))
        assert found.lower is None or found.lower <= expected + slack
        assert found.upper is None or expected - slack <= found.upper


def network() -> Model:
    """A Bayesian network with a child that only its likelihoods make matter."""
    return Model.build(
        "bayes",
        {"a": 2, "b": 3},
        [(("a",), [0.25, 0.75]), (("a", "b"), [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])],
    )


def test_likelihoods_of_a_child_are_not_left_out() -> None:
    model, weights = network(), [0.2, 0.3, 0.5]
    joint = {(a, b): 10 ** model.log10_value((a, b)) * weights[b] for a, b in assignments(model, {})}
    found = bucketflow.solve(model, "partition", evidence={"b": weights})
    assert 10**found.log10 == pytest.approx(sum(joint.values()))  # type: ignore[operator]
    assert bucketflow.solve(model, evidence={"b": weights}).assignment == {"a": 1, "b": 2}
    assert bucketflow.solve(model, "partition", evidence={"b": [0, 0, 0]}).status == "infeasible"
    assert 10 ** bucketflow.solve(model, "partition", evidence={"b": [8, 8, 8]}).log10 == pytest.approx(8)  # type: ignore[operator]


@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_a_run_directory_belongs_to_its_likelihoods(query: Any, tmp_path: Path) -> None:
    path, folder = tmp_path / "model.uai", tmp_path / "run"
    bucketflow.save(network(), path)
    model = bucketflow.load(path)
    evidence = {"x1": [0.2, 0.3, 0.5]}
    found = bucketflow.solve(model, query, evidence=evidence, workdir=folder)
    again = bucketflow.solve(model, query, evidence=evidence, workdir=folder)
    assert (again.log10, again.assignment) == (found.log10, found.assignment)
    assert bucketflow.resume(folder).log10 == found.log10  # type: ignore[union-attr]
    (folder / "result.json").unlink(missing_ok=True)
    assert bucketflow.resume(folder).log10 == found.log10  # type: ignore[union-attr]
    assert stored_question(folder)[1].soft[1].tolist() == evidence["x1"]
    for other in (None, {"x1": [0.2, 0.3, 0.4]}, {"x1": 1}):
        with pytest.raises(bucketflow.IncompatibleRunError, match="belongs to another run: its evidence is"):
            bucketflow.solve(model, query, evidence=other, workdir=folder)
    with pytest.raises(bucketflow.IncompatibleRunError, match="belongs to another run"):
        bucketflow.bound(model, query, evidence=evidence, workdir=folder)


def test_bounds_take_likelihoods_above_1() -> None:
    model = Model.build("bayes", {"a": 2, "b": 2}, [(("a",), [0.25, 0.75]), (("a", "b"), [[0.5, 0.5], [1, 0]])])
    found = bucketflow.bound(model, "partition", evidence={"b": [4.0, 2.0]}, time=0.5)
    assert near(found.lower, math.log10(0.25 * 3 + 0.75 * 4))
    assert near(found.upper, math.log10(0.25 * 3 + 0.75 * 4))
