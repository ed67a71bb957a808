"""ln Z in JAX and PyTorch: against enumeration, differences and the derivatives of a sweep."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BucketflowError, BudgetError, Model, ModelError
from bucketflow.pipeline.circuits import jax_functions
from bucketflow.pipeline.trees.costs import Rates
from tests.models import bayes_models, brute_log10_sum, grid, markov_models

SLOW = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
FRAMEWORKS = ["jax", "torch"]


@pytest.fixture(params=[*FRAMEWORKS, "jax, equal steps together"])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The functions for a framework that is installed, in float64."""
    name, _, together = request.param.partition(", ")
    found = pytest.importorskip(name)
    if together:
        monkeypatch.setattr(jax_functions._Jax, "together_rates", Rates(1e12, 1e12, step_seconds=1.0))
    if request.param == "torch":
        yield bucketflow.torch
        return
    before = found.config.jax_enable_x64
    found.config.update("jax_enable_x64", True)
    yield bucketflow.jax
    found.config.update("jax_enable_x64", before)


def derived(function: Any, at: list[Any]) -> list[Any]:
    """Derivatives of a number by arrays, by the framework of the function."""
    framework = function.framework
    found: list[Any] = framework.compiled(lambda own: framework.gradient(function, own))(at)
    return [np.asarray(one) if "torch" not in type(one).__module__ else one.detach().numpy() for one in found]


@SLOW
@given(st.one_of(bayes_models(), markov_models()), st.booleans())
def test_sums_and_derivatives_of_random_models(framework: Any, model: Model, hard: bool) -> None:
    evidence = {"x0": 0} if hard else {}
    found = framework.log_partition(model, evidence=evidence)
    expected = brute_log10_sum(model, evidence)
    if expected is None:
        assert float(found()) == -math.inf
        assert all(np.isfinite(table).all() for table in derived(found, found.logs))
        return
    assert float(found()) == pytest.approx(expected * math.log(10), rel=1e-9, abs=1e-9)
    posteriors = bucketflow.marginals(model, evidence=evidence, families=True)
    tables = derived(found, found.logs)
    for f, belief in posteriors.families.items():
        assert tables[f] == pytest.approx(belief, abs=1e-9)
    own = found.marginals()
    for name in model.names:
        assert own[name].tolist() == pytest.approx(posteriors[name].tolist(), abs=1e-9)


def test_derivatives_by_tables_are_those_of_the_sweep_and_can_be_compiled() -> None:
    jax = pytest.importorskip("jax")
    model = grid(2, 3, 3, "markov")
    evidence = {"x3": 1, "x5": [0.2, 0.5, 0.9]}
    with jax.enable_x64(True):
        found = bucketflow.jax.log_partition(model, evidence=evidence)
        tables = [jax.numpy.asarray(f.values) for f in model.functions]
        by_tables = jax.jit(jax.grad(lambda own: found([jax.numpy.log(table) for table in own])))(tables)
    expected = bucketflow.marginals(model, evidence=evidence, derivatives=True).derivatives
    assert expected is not None
    for f, table in enumerate(by_tables):
        assert np.asarray(table) == pytest.approx(expected[f])


def test_pytorch_derives_as_differences_and_jax_do() -> None:
    """First and second derivatives by differences (PyTorch's own check), and the first beside those of JAX."""
    torch = pytest.importorskip("torch")
    model, evidence = grid(2, 3, 2, "markov"), {"x3": 1, "x5": [0.2, 0.9]}
    found = bucketflow.torch.log_partition(model, evidence=evidence)
    logs = [table.detach().clone().requires_grad_() for table in found.logs]
    assert torch.autograd.gradcheck(lambda *own: found(list(own)), logs, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *own: found(list(own)), logs, fast_mode=True)
    found(logs).backward()
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        peer = bucketflow.jax.log_partition(model, evidence=evidence)
        expected = jax.grad(peer)(peer.logs)
    for own, other in zip(logs, expected, strict=True):
        assert own.grad.numpy() == pytest.approx(np.asarray(other), abs=1e-12)


def test_second_derivatives_are_covariances() -> None:
    """By the logarithm of a likelihood a posterior changes as the covariance of both states says."""
    jax = pytest.importorskip("jax")
    model = grid(2, 3, 2, "markov")
    with jax.enable_x64(True):
        found = bucketflow.jax.log_partition(model)

        def posterior(likelihood: Any) -> Any:
            return found.marginals(evidence={"x5": likelihood})["x0"]

        moved = np.asarray(jax.jit(jax.jacobian(posterior))(jax.numpy.zeros(2)))
    joint = bucketflow.marginals(model, joint=("x0", "x5")).joint["x0", "x5"]
    assert moved == pytest.approx(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0)), abs=1e-12)


def test_evidence_of_a_call_takes_the_place_of_that_it_was_made_with(framework: Any) -> None:
    model = grid(2, 2, 2, "markov")
    found = framework.log_partition(model, evidence={"x1": 0})
    likelihood = np.log([0.3, 0.6])
    expected = bucketflow.solve(model, "partition", evidence={"x1": [0.3, 0.6]}).log10
    assert expected is not None
    own = found(evidence={"x1": found.framework.array(likelihood)})
    assert float(own) == pytest.approx(expected * math.log(10))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.jax.log_partition(bucketflow.load("satellite")), "this model has costs"),
        (lambda: bucketflow.jax.log_partition(grid(2, 2, 2, "markov"), workers=2), "'workers' does not apply"),
        (
            lambda: bucketflow.jax.log_partition(grid(2, 2, 2, "markov"), order=["x0"]),
            "each variable of the model exactly once",
        ),
        (lambda: bucketflow.jax.log_partition(grid(2, 2, 2, "markov"))([]), "4 tables are expected"),
        (lambda: bucketflow.jax.log_partition(grid(2, 2, 2, "markov"))(evidence={"z": [1.0]}), "evidence has 'z'"),
        (lambda: bucketflow.jax.log_partition(grid(2, 2, 2, "markov"), memry=1), "did you mean 'memory'"),
    ],
)
def test_what_does_not_go_is_one_sentence(ask: Any, message: str) -> None:
    pytest.importorskip("jax")
    with pytest.raises(ModelError, match=message):
        ask()


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    pytest.importorskip("jax")
    with pytest.raises(BudgetError, match=r"need [\d.]+ kB, allowed 1 kB"):
        bucketflow.jax.log_partition(grid(3, 3, 3, "markov"), memory=1000)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_missing_framework_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BucketflowError, match=rf"bucketflow\.{name} needs .*\[{name}\]"):
        getattr(bucketflow, name).log_partition(grid(2, 2, 2, "markov"))


def test_steps_of_xla_are_not_joined_to_large_ones() -> None:
    """What a step of this package's own costs would join chains of pairs to clusters of seven variables."""
    pytest.importorskip("jax")
    names = [f"x{k}" for k in range(60)]
    chain = Model.build("markov", dict.fromkeys(names, 4), [(pair, np.ones((4, 4))) for pair in pairwise(names)])
    log_z = bucketflow.jax.log_partition(chain)
    if log_z.framework.rates.step_seconds < Rates().step_seconds:  # on a CPU
        assert sum(step.lowered.cells for step in log_z.plan.up) < 60 * 4**3
    assert float(log_z()) == pytest.approx(60 * math.log(4), rel=1e-5)


def test_equal_steps_are_few_where_they_are_done_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 variables in a row: few kinds of steps are left to do one after the other."""
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax_functions._Jax, "together_rates", Rates(1e3, 1e3, step_seconds=1.0))
    names = [f"x{k}" for k in range(64)]
    rng = np.random.default_rng(0)
    chain = Model.build("markov", dict.fromkeys(names, 2), [(pair, 1 + rng.random((2, 2))) for pair in pairwise(names)])
    log_z = bucketflow.jax.log_partition(chain)
    assert len(log_z._joins) <= 12
    assert float(log_z()) == pytest.approx(bucketflow.solve(chain, "partition").log10 * math.log(10), rel=1e-5)
    gradient = jax.jit(jax.grad(log_z))(log_z.logs)
    for f, belief in bucketflow.marginals(chain, families=True).families.items():
        np.testing.assert_allclose(gradient[f], belief, atol=1e-4)
