"""Derivatives of log Z by the entries of tables, against differences and against enumeration."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.api import derivatives
from bucketflow.pipeline.api.derivatives import multipliers
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from tests.exact import Weights
from tests.models import bayes_models, grid, markov_models


def enumerated(model: Model, findings: dict[str, Any], f: int, entry: tuple[int, ...]) -> float:
    """What an entry is multiplied by over Z: Z is linear in it, so the difference to any other value is exact."""

    def weight(value: float) -> int:
        function = model.functions[f]
        values = function.dense(model.dims).copy()
        values[entry] = value
        changed = replace(function, values=values, rows=None, child=None)
        return sum(Weights(replace(model.with_functions({f: changed}), kind="markov"), findings).weights.values())

    total = sum(Weights(model, findings).weights.values())
    return (weight(1.0) - weight(0.0)) / total


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_derivatives_are_exact(model: Model, hard: bool, data: st.DataObject) -> None:
    findings: dict[str, Any] = {"x0": 0} if hard else {}
    if not Weights(model, findings).weights:
        with pytest.raises(ModelError, match="has no derivatives"):
            bucketflow.marginals(model, evidence=findings, derivatives=True)
        return
    found = bucketflow.marginals(model, evidence=findings, derivatives=True).derivatives
    assert {*found} == {f for f, function in enumerate(model.functions) if function.scope}
    for f, table in found.items():
        assert table.shape == model.functions[f].dense(model.dims).shape
        cells = list(np.ndindex(table.shape))
        for entry in data.draw(st.lists(st.sampled_from(cells), min_size=1, max_size=2)):
            assert table[entry] == pytest.approx(enumerated(model, findings, f, entry), rel=1e-6, abs=1e-9)


def test_differences_of_a_larger_model() -> None:
    model = grid(5, 5, 3, "markov")
    evidence = {"x3": 1, "x7": [0.2, 0.5, 0.9]}
    found = bucketflow.marginals(model, evidence=evidence, derivatives=True).derivatives
    for f, entry in ((0, (0, 1)), (11, (2, 2)), (30, (1, 0))):
        step, logs = 1e-5, []
        for sign in (1.0, -1.0):
            values = model.functions[f].values.copy()
            values[entry] += sign * step
            moved = model.with_functions({f: replace(model.functions[f], values=values)})
            log10 = bucketflow.solve(moved, "partition", evidence=evidence).log10
            assert log10 is not None
            logs.append(log10 * math.log(10))
        assert found[f][entry] == pytest.approx((logs[0] - logs[1]) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("small", "expected"), [([5e-324, 1.0], [0.2, 1.0]), ([5e-324, 0.0], [math.inf, math.inf])])
def test_derivatives_by_entries_that_are_next_to_nothing(small: list[float], expected: list[float]) -> None:
    for pair in ([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.0, 1.0]]):  # one function takes a propagation, or two do
        model = Model.build("markov", {"a": 2, "b": 2}, [("a", small), ("a", [0.2, 1.0]), (("a", "b"), pair)])
        found = bucketflow.marginals(model, derivatives=True).derivatives[0]
        assert found.tolist() == pytest.approx(expected)


def test_derivatives_beside_a_run_directory(tmp_path: Path) -> None:
    model = bucketflow.load("diagnosis")
    plain = bucketflow.marginals(model, evidence={"Flow": "none"}, derivatives=True)
    stored = bucketflow.marginals(model, evidence={"Flow": "none"}, derivatives=True, workdir=tmp_path / "run")
    assert {*plain.derivatives} == {*stored.derivatives} == {*range(len(model.functions))}
    assert all(np.allclose(plain.derivatives[f], stored.derivatives[f]) for f in plain.derivatives)
    assert not bucketflow.marginals(model).derivatives


def test_only_sums_have_derivatives() -> None:
    with pytest.raises(ModelError, match="derivatives exist for sums only"):
        bucketflow.marginals(grid(2, 2, 2, "markov"), derivatives=True, max_marginals=True)
    with pytest.raises(ModelError, match="no marginal probabilities"):
        bucketflow.marginals(grid(2, 2, 2), derivatives=True)


def test_the_command_prints_them() -> None:
    found = CliRunner().invoke(main, ["marginals", "diagnosis", "--evidence", "Flow=none", "--derivatives", "--json"])
    exact = bucketflow.marginals(bucketflow.load("diagnosis"), evidence={"Flow": "none"}, derivatives=True).derivatives
    told = json.loads(found.stdout)["derivatives"]
    assert found.exit_code == 0
    assert {int(f): np.array(table).shape for f, table in told.items()} == {f: t.shape for f, t in exact.items()}
    assert np.allclose(told["3"], exact[3])
    refused = CliRunner().invoke(main, ["marginals", "diagnosis", "--derivatives", "--voi", "Flow"])
    assert (refused.exit_code, "cannot be combined with" in refused.stderr) == (2, True)


@given(st.one_of(bayes_models(), markov_models()), st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_functions_with_zeros_together_and_one_by_one_agree(model: Model, hard: bool) -> None:
    findings: dict[str, Any] = {"x0": 0} if hard else {}
    findings |= {"x1": [0.5] * model.dims[1]} if len(model.dims) > 1 else {}
    if not Weights(model, findings).weights:
        return
    together = bucketflow.marginals(model, evidence=findings, derivatives=True).derivatives
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivatives, "multipliers", lambda *_: None)  # as where tables do not fit memory
        alone = bucketflow.marginals(model, evidence=findings, derivatives=True).derivatives
    assert {*together} == {*alone}
    assert all(together[f] == pytest.approx(alone[f], rel=1e-9, abs=1e-12) for f in alone)


def test_what_does_not_fit_is_left_to_propagations_one_by_one() -> None:
    model = grid(6, 6, 4, "markov")
    question = question_of(model, "marginals", {"x3": 1}, (), (), True)
    assert multipliers(question, [0, 1], Resources(Options(memory="100kB"))) is None
    found = multipliers(question, [0, 1], Resources(Options(memory="100MB")))
    assert found is not None
    expected = bucketflow.marginals(model, evidence={"x3": 1}, derivatives=True).derivatives
    assert all(found[f] == pytest.approx(expected[f]) for f in (0, 1))


def test_the_same_question_plans_the_messages_to_functions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [(["a"], [0.0, 1.0]), (["a", "b"], [[1.0, 0.0], [0.5, 0.5]]), (["b", "c"], [[0.2, 0.8], [1.0, 0.0]])]
    model = Model.build("bayes", {"a": 2, "b": 2, "c": 2}, tables)
    planned, plan = list[int](), derivatives.leaf_messages
    monkeypatch.setattr(derivatives, "leaf_messages", lambda *given: planned.append(1) or plan(*given))
    first, second = (bucketflow.sensitivity(model, "c", 0) for _ in range(2))
    assert len(planned) == 2  # with the state, and without
    for f, table in first.joints.items():
        np.testing.assert_array_equal(table.direct, second.joints[f].direct)


def test_a_single_function_with_zeros_needs_no_model_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [(["a"], [0.25, 0.75]), (["a", "b"], [[1.0, 0.0], [0.5, 0.5]])]
    model = Model.build("bayes", {"a": 2, "b": 2}, tables)
    monkeypatch.delattr(derivatives, "_without")
    found = bucketflow.marginals(model, evidence={"b": [0.4, 0.2]}, derivatives=True).derivatives
    z = 0.25 * 0.4 + 0.75 * 0.5 * 0.6
    np.testing.assert_allclose(found[1], np.array([[0.25 * 0.4, 0.25 * 0.2], [0.75 * 0.4, 0.75 * 0.2]]) / z, rtol=1e-12)
    np.testing.assert_allclose(found[0], np.array([0.4, 0.3]) / z, rtol=1e-12)
