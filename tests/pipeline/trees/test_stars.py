"""Models with many functions around one variable: right answers, from plans that grow with their number."""

from __future__ import annotations

import doctest
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees import rewrites
from bucketflow.pipeline.trees.costs import Rates, two_way_seconds
from bucketflow.pipeline.trees.rewrites import MOST_INPUTS, split_stars
from bucketflow.pipeline.trees.tree import bucket_tree
from bucketflow.tasks.cpu.dense import contract
from bucketflow.tasks.steps.semiring import LOG_SUM, MIN_PLUS, SUM_PRODUCT, Semiring
from tests.models import named_model
from tests.pipeline.trees.test_trees import check, problems


def naive_bayes(features: int, classes: int = 3) -> Model:
    """A class and what depends on it alone, three states each."""
    rng = np.random.default_rng(features)
    functions = [Function((0,), rng.dirichlet(np.ones(classes)), child=0)]
    functions += [Function((0, i), rng.dirichlet(np.ones(3), classes), child=i) for i in range(1, features + 1)]
    return named_model("bayes", [classes] + [3] * features, functions)


def posterior(model: Model, evidence: dict[str, int]) -> tuple[float, Any]:
    """Return log10 P(evidence) and the posterior of the class."""
    ln = np.log(model.functions[0].values)
    for name, state in evidence.items():
        ln = ln + np.log(model.functions[model.index[name]].values[:, state])
    top = ln.max()
    total = top + np.log(np.exp(ln - top).sum())
    return total / np.log(10), np.exp(ln - total)


@pytest.mark.parametrize("features", [63, 64, 70, 200])
def test_many_features(features: int) -> None:
    model = naive_bayes(features)
    evidence = {f"x{i}": i % 3 for i in range(1, features, 2)}
    log10, of_class = posterior(model, evidence)
    expected = {"x0": of_class}
    if f"x{features}" not in evidence:
        expected[f"x{features}"] = of_class @ model.functions[features].values
    compiled = bucketflow.compile(model)
    answers = [bucketflow.marginals(model, evidence=evidence)]
    for packed in (False, True):
        compiled._keep_tables(packed)
        compiled.set_evidence({})
        compiled.set_evidence({**evidence, "x1": 0})
        compiled.marginals()
        compiled.set_evidence(evidence)
        answers.append(compiled.marginals())
    batch = compiled.marginals_batch({name: [0, state] for name, state in evidence.items()})
    assert batch.log10_evidence[1] == pytest.approx(log10)
    for name, p in expected.items():
        assert batch[name][1] == pytest.approx(p)
        for found in answers:
            assert found.log10_evidence == pytest.approx(log10)
            assert found[name] == pytest.approx(p)
    assert bucketflow.marginals(model, evidence=evidence, max_marginals=True)["x0"].max() == 1.0


def test_plans_grow_with_the_number_of_features() -> None:
    """Each message back joins few tables: all steps together read about as many as there are features."""
    for features in (100, 800):
        plan = bucketflow.compile(naive_bayes(features)).plan
        assert plan is not None
        assert sum(len(step.inputs) for step in plan.steps) < 20 * features
        assert max(len(step.inputs) for step in plan.steps) <= MOST_INPUTS


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, MIN_PLUS, LOG_SUM])
@pytest.mark.parametrize("cells", [4, 10_000])
def test_a_step_takes_any_number_of_tables(semiring: Semiring, cells: int) -> None:
    rng = np.random.default_rng(cells)
    tables = [rng.uniform(0.9, 1.1, cells) for _ in range(130)]
    found = contract(tables, [(0,)] * 130, (0,), {0: cells}, semiring)
    product = np.prod if semiring is SUM_PRODUCT else np.sum
    assert found == pytest.approx(product(tables, axis=0))


def test_the_worked_example() -> None:
    assert doctest.testmod(rewrites).failed == 0


def test_steps_of_functions_alone_stay_whole() -> None:
    """No message goes back to a function, so its step is swept a few times, not once for each of its inputs."""
    dims, scopes = (3,) * 12, tuple(combinations(range(12), 2))
    problem = Problem(dims, scopes, SUM_PRODUCT, 8, targets=tuple((v,) for v in range(12)))
    tree = bucket_tree(dims, scopes, range(12))
    whole = Planner(problem, PlanOptions(), Rates()).of(tree)
    assert two_way_seconds(tree, Rates(), 8) == pytest.approx(whole.seconds, rel=0.3)
    found = Planner(problem, PlanOptions(memory_bytes=1 << 40), Rates()).whole()
    assert found.seconds <= whole.seconds < Planner(problem, PlanOptions(), Rates()).of(split_stars(tree)).seconds


def test_small_steps_are_not_merged_into_large_ones(data: Path) -> None:
    """With every step priced at 40 us, 15 million cells were swept instead of 4 to save steps that take 5 us.

    With all variables of a small join priced as one reading it were 6.5 million: each of them is read.
    """
    plan = bucketflow.plan(bucketflow.load(data / "bn" / "pigs.bif.gz"), "marginals")
    assert plan is not None
    assert plan.cells < 5 * 10**6


@settings(max_examples=50)
@given(problems())
def test_splitting_makes_no_table_larger(problem: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> None:
    dims, scopes = problem
    tree = bucket_tree(dims, scopes * 5, range(len(dims)))
    split = split_stars(tree)
    check(split)
    assert max(split.cells, default=1) <= max(tree.cells, default=1)
    assert max(split.joined_cells, default=1) <= max(tree.joined_cells, default=1)
