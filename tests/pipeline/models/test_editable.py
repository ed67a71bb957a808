"""Models that are edited answer as models that are made anew."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import EditableModel, Model, ModelError

NAMES = "abcd"


def cost_model() -> Model:
    table = [[3, 1, 4], [1, 5, 9], [2, 6, 5]]
    return Model.build("cost", dict.fromkeys(NAMES, 3), [(tuple(pair), table) for pair in ("ab", "bc", "cd")], top=40)


@given(st.data())
@settings(max_examples=40)
def test_edits_answer_as_a_new_model(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    editable, sizes = EditableModel(cost_model()), []
    for step in data.draw(st.lists(st.sampled_from(["add", "free", "push", "pop", "ask"]), max_size=10)):
        if step == "push":
            editable.push()
            sizes.append(len(editable.model.functions))
        elif step == "pop" and sizes:
            editable.pop()
            assert len(editable.model.functions) == sizes.pop()
        elif step in ("add", "free"):
            scope = rng.permutation(list(NAMES))[:2].tolist()
            editable.add(scope, rng.integers(0 if step == "add" else -3, 9, (3, 3)))
        for query in ("optimum", "count"):
            here = editable.solve(query)
            wanted = bucketflow.solve(editable.model, query)
            assert (here.status, here.value) == (wanted.status, wanted.value)
            if here.assignment is not None:
                states = editable.model.observe(here.assignment)
                assert editable.model.cost([states[v] for v in range(4)]) == here.value


def test_what_is_known_is_kept() -> None:
    editable = EditableModel(cost_model())
    first = editable.solve()
    assert editable.solve() is first
    editable.push()
    assert first.assignment is not None
    free = np.full(3, 7)
    free[int(first.assignment["a"])] = 0
    editable.add("a", free)
    assert any("fewer functions" in note for note in editable.solve().notes)
    editable.pop()
    assert editable.solve() is first


def test_costs_are_in_the_units_of_answers() -> None:
    model = replace(cost_model(), decimals=1, maximize=True, top=None)
    editable = EditableModel(model)
    before = editable.solve().value
    editable.add((), np.array(2.5))
    editable.add("a", [0, 0, -np.inf])
    assert editable.solve().value == Decimal(str(before)) + Decimal("2.5")
    assert editable.solve().assignment is not None
    assert editable.solve().assignment["a"] != 2  # type: ignore[index]
    with pytest.raises(ModelError, match=r"a cost of the function is 0.25; the model's have at most 1 decimals"):
        editable.add("a", [0, 0.25, 0])


def test_rows_and_potentials_are_added() -> None:
    editable = EditableModel(Model.build("markov", {"x": 2, "y": 2}, [(("x", "y"), [[1.0, 2.0], [3.0, 4.0]])]))
    editable.add(("x", "y"), [0.0], rows=[[1, 1]], default=1.0)
    found = editable.solve()
    assert found.assignment == {"x": 1, "y": 0}
    assert 10 ** editable.solve("partition").log10 == pytest.approx(6.0)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("scope", "values", "message"),
    [
        ("z", [1, 2, 3], "'z', but this is not a variable of the model"),
        ("a", [1, 2], "has values of shape"),
        ("a", [1, 2, "many"], "'many', which is not a number"),
        ("a", [1, 2, float("nan")], "a whole number"),
        ("a", [1, 2, -1e30], "too large or small"),
    ],
)
def test_wrong_functions_are_refused(scope: str, values: list[object], message: str) -> None:
    editable = EditableModel(cost_model())
    with pytest.raises(ModelError, match=message):
        editable.add(scope, values)  # type: ignore[arg-type]
    assert len(editable.model.functions) == 3


def test_there_is_a_mark_to_go_back_to() -> None:
    with pytest.raises(ModelError, match="there is no mark to go back to"):
        EditableModel(cost_model()).pop()
    network = Model.build("bayes", {"x": 2}, [(("x",), [0.5, 0.5])])
    with pytest.raises(ModelError, match="a Bayesian network takes no further functions"):
        EditableModel(network).add("x", [1.0, 1.0])
