"""Posteriors as functions of parameters: against networks in which these are changed."""

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
from bucketflow import Model, ModelError, Sensitivity, marginals, sensitivity
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.results.parameter_slopes import Parameter
from tests.models import bayes_models, markov_models

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def changed(model: Model, parameter: Parameter, value: float) -> Model:
    """The model with another value of a parameter; in a Bayesian network the others of its distribution follow."""
    function = model.functions[parameter.function]
    table, at = function.dense(model.dims).copy(), list[Any](parameter.states)
    if model.kind == "bayes":
        assert function.child is not None
        axis = function.scope.index(function.child)
        own, at[axis] = parameter.states[axis], slice(None)
        row = table[tuple(at)].copy()
        left = 1.0 - row[own]
        row = row * ((1.0 - value) / left) if left > 0 else np.full(len(row), (1.0 - value) / max(len(row) - 1, 1))
        row[own] = value
        table[tuple(at)] = row
    else:
        table[tuple(at)] = value
    functions = list(model.functions)
    functions[parameter.function] = replace(function, values=table, rows=None)
    return replace(model, functions=tuple(functions))


def check(model: Model, found: Sensitivity, evidence: dict[str, Any], values: list[float], some: int) -> None:
    """Compare some parameters at some values with the network that has them."""
    parameters = [*found.ranked()]
    assert len(parameters) == len(found)
    slopes = [abs(each.slope) for each in parameters]
    assert slopes == sorted(slopes, reverse=True)
    for each in parameters[:: max(1, len(parameters) // some)]:
        function = model.functions[each.function]
        if model.kind == "bayes" and model.dims[function.scope[-1]] == 1:
            assert each.slope == 0
            continue
        for value in values:
            exact = marginals(changed(model, each, value), evidence=evidence)
            told = each.posterior_at(value)
            if exact.status == "infeasible":
                assert math.isnan(told)
                continue
            chosen = model.state_index(model.variable(found.variable), found.state)
            assert told == pytest.approx(exact[found.variable][chosen], abs=1e-7)
            back = each.value_for(told)
            if abs(each.posterior_at(0.9) - each.posterior_at(0.1)) > 1e-3:
                assert back == pytest.approx(value, abs=1e-6)


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans())
@SLOW
def test_posteriors_are_those_of_changed_networks(model: Model, hard: bool, soft: bool) -> None:
    evidence: dict[str, Any] = {}
    if hard and len(model.names) > 1:
        evidence[model.names[1]] = 0
    if soft:
        evidence[model.names[0]] = [0.3 + 0.1 * k for k in range(model.dims[0])]
    if marginals(model, evidence=evidence).status == "infeasible":
        with pytest.raises(ModelError, match="impossible"):
            sensitivity(model, model.names[0], 0, evidence=evidence)
        return
    for state in {0, model.dims[0] - 1}:
        found = sensitivity(model, model.names[0], state, evidence=evidence)
        check(model, found, evidence, [0.0, 0.25, 1.0], 6)


def test_a_state_that_is_impossible_may_become_possible() -> None:
    """Its probability has no logarithm."""
    tables = [(("a",), [1.0, 0.0]), (("a", "b"), [[0.5, 0.5], [0.25, 0.75]])]
    model = Model.build("bayes", {"a": 2, "b": 2}, tables)
    found = sensitivity(model, "a", 1, evidence={"b": 1})
    assert found.posterior == 0
    parameter = found.parameter(0, (1,))
    assert parameter.posterior_at(0.5) == pytest.approx(0.6)
    assert parameter.slope == pytest.approx(1.5)
    assert parameter.value_for(0.6) == pytest.approx(0.5)
    assert parameter.value_for(2.0) is None
    check(model, found, {"b": 1}, [0.0, 0.5, 1.0], 100)


def test_tables_that_are_no_distributions_are_taken_as_they_are() -> None:
    tables = [(("a",), [0.5, 0.7]), (("a", "b"), [[0.3, 0.3], [1.0, 2.0]])]
    model = Model.build("bayes", {"a": 2, "b": 2}, tables, check=False)
    found = sensitivity(model, "a", 0, evidence={"b": 1})
    assert found.notes == (
        "not all tables are distributions: if a parameter changes, the other entries stay unchanged",
    )
    for each in found.ranked():
        assert each.posterior_at(each.value) == pytest.approx(found.posterior)
    check(replace(model, kind="markov"), found, {"b": 1}, [0.0, 0.25, 3.0], 100)


def test_where_the_evidence_becomes_impossible_the_posterior_is_undefined() -> None:
    tables = [(("a",), [0.5, 0.5]), (("a", "b"), [[0.5, 0.5], [1.0, 0.0]])]
    model = Model.build("bayes", {"a": 2, "b": 2}, tables)
    found = sensitivity(model, "a", 0, evidence={"b": 1})
    assert math.isnan(found.parameter(0, (0,)).posterior_at(0.0))
    shown = found.to_dict()
    assert next(each for each in shown["parameters"] if each["parameter"] == "P(a=0)")["posterior_at_0"] is None
    json.dumps(shown, allow_nan=False)


def test_tables_name_parameters_and_are_a_frame() -> None:
    found = sensitivity("diagnosis", "Flow", "none", evidence={"Storm": "yes"})
    headings, first, *rest = found.cells()
    assert headings == ("parameter", "value", "slope", "posterior at 0", "posterior at 1")
    assert first[0].startswith("P(MotorState=stopped | ")
    assert len(rest) + 1 == len(found)
    assert found.asked is not None
    assert found.asked.to_dict()["evidence"] == {"Storm": "yes"}
    pytest.importorskip("pandas")
    assert len(found.to_frame()) == len(found)
    markov = sensitivity(bucketflow.load("grid"), "x0", 0)
    assert [*next(markov.cells())] == ["parameter", "value", "slope"]
    assert "=" in markov.described(next(markov.ranked()))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["diagnosis", "--sensitivity", "Flow"], "takes one state, as x=v"),
        (["diagnosis", "--sensitivity", "Flow=full,Storm=no"], "takes one state, as x=v"),
        (["diagnosis", "--sensitivity", "Flow=nix"], "has no state 'nix'"),
        (["diagnosis", "--sensitivity", "Flow=full", "--evidence", "Flow=none"], "is observed"),
        (["diagnosis", "--sensitivity", "Flow=full", "--joint", "Flow,Storm"], "cannot be combined with"),
        (["satellite", "--sensitivity", "x9=1"], "cost"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str) -> None:
    found = CliRunner().invoke(main, ["marginals", *arguments])
    assert found.exit_code == 2
    assert why in found.stderr


def test_the_command_prints_parameters() -> None:
    asked = ["marginals", "diagnosis", "--sensitivity", "Flow=none", "--relevant", "Flow", "--evidence", "Storm=yes"]
    text = CliRunner().invoke(main, asked).stdout
    assert "sensitivity of P(Flow=none) = " in text
    assert "P(MotorState=stopped | " in text
    shown = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    assert shown["sensitivity"]["count"] == len(shown["sensitivity"]["parameters"])
    assert [each["finding"] for each in shown["relevant_findings"]["findings"]] == ["Storm"]


def test_the_command_says_what_the_answer_is_without(tmp_path: Path) -> None:
    """Tables that are no distributions, and those of hidden variables."""
    (path := tmp_path / "half.uai").write_text("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n.5 .7\n4\n.3 .7 .9 .1\n")
    found = CliRunner().invoke(main, ["marginals", str(path), "--no-check", "--sensitivity", "x0=1"])
    assert (
        "note: not all tables are distributions: if a parameter changes, the other entries stay unchanged"
    ) in found.stderr
    assert "sensitivity of P(x0=1) = 0.583333 to 6 parameters" in found.stdout
    tables = [(("a",), [0.5, 0.5]), (("a", "b"), [[0.5, 0.5], [1.0, 0.0]]), (("b", "c"), [[0.5, 0.5], [0.1, 0.9]])]
    model = replace(Model.build("bayes", dict.fromkeys("abc", 2), tables), hidden=1, summed="c")
    told = sensitivity(model, "a", 0, evidence={"b": 0})
    assert len(told) == 6
    assert told.notes == ("parameters of 1 table over hidden variables are left out",)


def wide_model(orders: int) -> Model:
    """Two states of x whose weights differ by many orders, each in two factors; y follows x."""
    half = 10.0 ** (orders // 2)
    return Model.build(
        "markov",
        {"x": 2, "y": 2},
        [(("x",), [half, 1.0]), (("x",), [half, 1.0]), (("x", "y"), [[0.25, 0.75], [0.6, 0.4]])],
    )


@pytest.mark.parametrize("orders", [200, 320, 560])
def test_posteriors_beyond_the_range_of_floats_are_computed(orders: int) -> None:
    """What is left of the evidence without one entry is 10^-orders of it: no float where that is above 308."""
    model = wide_model(orders)
    found = sensitivity(model, "y", 0)
    assert found.posterior == pytest.approx(0.25)
    assert found.parameter(0, [0]).posterior_at(0.0) == pytest.approx(0.6)
    assert found.parameter(0, [1]).posterior_at(0.0) == pytest.approx(0.25)
    assert found.parameter(2, [0, 1]).posterior_at(0.0) == pytest.approx(1.0)
    assert all(not math.isnan(each.posterior_at(0.5)) for each in found.ranked())
    assert any("orders of magnitude" in note for note in found.notes) == (orders > 300)


def test_evidence_that_becomes_impossible_stays_undefined_in_wide_models() -> None:
    functions = [(("x",), [1e200, 0.0]), (("x", "y"), [[1e-200, 1.0], [1.0, 1.0]])]
    found = sensitivity(Model.build("markov", {"x": 2, "y": 2}, functions), "y", 0)
    assert math.isnan(found.parameter(0, [0]).posterior_at(0.0))


def test_derivatives_of_entries_whose_probability_is_below_all_floats() -> None:
    """The second state of x has the probability 10^-330, and the derivative by its entry of 10^-90 is 10^-240."""
    functions = [(("x",), [1e150, 1e-90]), (("x",), [1e90, 1.0])]
    model = Model.build("markov", {"x": 2}, functions)
    found = marginals(model, derivatives=True).derivatives
    np.testing.assert_allclose(found[0], [1e-150, 1e-240], rtol=1e-9)
    np.testing.assert_allclose(found[1], [1e-90, 0.0], rtol=1e-9)


def test_constants_are_parameters_that_change_no_posterior() -> None:
    empty = np.empty((0, 0), np.uint8)
    for constant in (
        ((), 3.0),
        ((), [[]], [3.0], 2.0),
        ((), empty, np.empty(0), 3.0),
    ):
        found = sensitivity(Model.build("markov", {"x": 2}, [(("x",), [1.0, 2.0]), constant]), "x", 0)
        parameter = found.parameter(1, ())
        assert (parameter.value, parameter.slope) == (3.0, 0.0)
        assert parameter.posterior_at(7.0) == pytest.approx(1 / 3)
        assert math.isnan(parameter.posterior_at(0.0))
        assert len(found) == len([*found.ranked()]) == 3
        assert [*found.lines()][-1].endswith("without influence: slope 0")
        with pytest.raises(ModelError, match="no entry for the states"):
            found.parameter(0, (2,))
        with pytest.raises(ModelError, match="function 5 has no parameters"):
            found.parameter(5, ())


def test_parameters_without_influence_are_counted_and_not_listed() -> None:
    lines = [*sensitivity("diagnosis", "Storm", "yes").lines()]
    slopes = [float(line.rpartition("slope ")[2].partition(",")[0]) for line in lines[1:-1]]
    assert slopes
    assert min(map(abs, slopes)) >= 1e-12
    assert "without influence: slope 0" in lines[-1]


def test_the_command_shows_conditional_tables_with_states() -> None:
    from click.testing import CliRunner

    from bucketflow.pipeline.cli.main import main

    printed = CliRunner().invoke(main, ["marginals", "diagnosis", "--conditional", "Flow|Storm"]).stdout
    assert [line.split() for line in printed.splitlines()[2:4]] == [
        ["Storm", "full", "reduced", "none"],
        ["no", "0.8218", "0.1235", "0.05465"],
    ]
