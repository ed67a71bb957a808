"""What a command shows or writes, a function does too; answers and models name what users look for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow import Model


def pair(cost: int = 1) -> Model:
    return Model.build("cost", {"a": ["x", "y"], "b": 2}, [(["a", "b"], [[3, cost], [2, 5]])])


def test_models_are_equal_where_all_that_is_asked_of_them_is() -> None:
    assert pair() == pair()
    assert hash(pair()) == hash(pair())
    assert pair() != pair(cost=0)
    assert pair() != "a model"
    rows = [Model.build("cost", {"a": 2}, [(["a"], [[k]], [1], 0)]) for k in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    assert pair() != Model.build("cost", {"a": 2, "b": 2}, [(["a", "b"], [[3, 1], [2, 5]])])


def test_a_model_names_its_variables_and_states() -> None:
    model = pair()
    assert {name: list(states) for name, states in model.variables.items()} == {"a": ["x", "y"], "b": [0, 1]}
    assert model["a"] == ("x", "y")
    assert "a" in model
    assert "c" not in model
    with pytest.raises(bucketflow.ModelError, match=r"'aa' is not a variable .*did you mean 'a'"):
        model["aa"]
    with pytest.raises(TypeError):
        iter(model)


def test_results_name_cost_and_probability() -> None:
    found = bucketflow.solve(pair())
    assert (found.cost, found.probability) == (1, None)
    found = bucketflow.solve("diagnosis", "partition", evidence="Storm=yes")
    assert found.probability == pytest.approx(10**found.log10)  # type: ignore[operator]
    assert found.cost is None
    assert bucketflow.solve("grid", "count").cost is None
    huge = Model.build("markov", {"a": 2, "b": 2}, [(["a"], [1e200, 0]), (["b"], [1e200, 0])])
    assert bucketflow.solve(huge, "partition").probability == math.inf


def test_a_plan_says_its_width_in_a_line() -> None:
    plan = bucketflow.plan("grid", "partition")
    assert plan.width == plan.cost.width
    assert plan.largest_table_cells == plan.cost.largest_table_cells
    assert plan.summary().startswith(f"width {plan.width}, ")
    assert "preprocessing" in bucketflow.plan(Model.build("cost", {"a": 2}, []), "optimum").summary()


def test_dir_lists_names_that_exist_and_no_inner_ones() -> None:
    model = bucketflow.load("diagnosis")
    for found in (model, bucketflow.plan(model), bucketflow.compile(model), bucketflow.solve(model)):
        names = dir(found)
        assert 10 <= len(names) < 25
        assert all(hasattr(found, name) for name in names)
        assert not any(name.startswith("_") for name in names)


def test_public_names_belong_to_the_package() -> None:
    wrong = [
        name
        for name in bucketflow.__all__
        if name not in ("jax", "torch") and getattr(bucketflow, name).__module__ != "bucketflow"
    ]
    assert wrong == []


def test_models_are_drawn_described_converted_and_evaluated(tmp_path: Path) -> None:
    drawn = bucketflow.draw("diagnosis", posteriors=True, evidence={"Storm": "yes"})
    assert "Storm" in drawn.markup
    assert bucketflow.info("diagnosis")["variables"] == 26
    assert bucketflow.info("meetings")["agents"] == 7
    target = tmp_path / "model.uai"
    notes = bucketflow.convert("diagnosis", target)
    assert bucketflow.load(target).dims == bucketflow.load("diagnosis").dims
    assert all(isinstance(note, str) for note in notes)
    assert bucketflow.evaluate(pair(), {"a": "x", "b": 1}).value == 1
    assert [example.name for example in bucketflow.examples()][:1] == ["satellite"]


def test_information_is_that_of_compiled_models() -> None:
    compiled = bucketflow.compile("diagnosis")
    compiled.set_evidence({"Storm": "yes"})
    expected = compiled.entropy(["Flow"]), compiled.mutual_information(["Flow"], ["Debris"])
    found = (
        bucketflow.entropy("diagnosis", "Flow", evidence="Storm=yes"),
        bucketflow.mutual_information("diagnosis", "Flow", "Debris", evidence={"Storm": "yes"}),
    )
    assert found == pytest.approx(expected)
    table = np.asarray(bucketflow.marginals("diagnosis", "Flow", evidence="Storm=yes")["Flow"])
    assert found[0] == pytest.approx(-float(table @ np.log2(table)))


def test_plans_and_samples_show_names_and_states() -> None:
    assert "x20" in bucketflow.plan("grid", "partition").plot().markup
    shown = repr(bucketflow.sample(pair(), 5, temperature=1.0))
    assert "draw 3" in shown
    assert "a=" in shown
    assert "2 more draws" in shown
