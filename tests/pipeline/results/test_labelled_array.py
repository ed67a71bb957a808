"""Distributions carry the names of their variables and states."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import bucketflow
from bucketflow import LabelledArray, ModelError

RAIN = bucketflow.Model.build(
    "bayes",
    {"rain": ["no", "yes"], "wet": ["dry", "damp", "soaked"], "depth": 2},
    [
        (["rain"], [0.8, 0.2]),
        (["rain", "wet"], [[0.9, 0.1, 0.0], [0.1, 0.3, 0.6]]),
        (["wet", "depth"], [[0.7, 0.3], [0.5, 0.5], [0.1, 0.9]]),
    ],
)
WET = np.array([0.8 * 0.9 + 0.2 * 0.1, 0.8 * 0.1 + 0.2 * 0.3, 0.2 * 0.6])
PAIR = np.array([[0.8 * 0.9, 0.8 * 0.1, 0.0], [0.2 * 0.1, 0.2 * 0.3, 0.2 * 0.6]])


def test_a_marginal_is_indexed_by_label_and_by_position() -> None:
    wet = bucketflow.marginals(RAIN)["wet"]
    assert wet.variables == ("wet",)
    assert list(wet.states[0]) == ["dry", "damp", "soaked"]
    assert wet["damp"] == wet[1] == pytest.approx(WET[1])
    assert np.asarray(wet) == pytest.approx(WET)
    assert list(bucketflow.marginals(RAIN)["depth"].states[0]) == [0, 1]


def test_arithmetic_slices_and_copies_are_plain() -> None:
    wet = bucketflow.marginals(RAIN)["wet"]
    for plain in (wet * 2, wet[1:], np.log(wet + 1)):
        assert type(plain) is np.ndarray
    assert type(wet.sum()) is np.float64
    assert repr(wet.copy()) == repr(np.array(wet))


def test_it_prints_labels_and_numbers() -> None:
    table = bucketflow.conditional(RAIN, "wet", given="rain")
    assert repr(table) == "      wet\nrain  dry  damp  soaked\nno    0.9  0.1   0\nyes   0.1  0.3   0.6"
    assert str(bucketflow.marginals(RAIN)["rain"]).splitlines()[1].split()[:2] == ["no", "0.8"]
    assert "soaked" in table._repr_html_()  # type: ignore[operator]


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    names = [f"x{k}" for k in range(8)]
    table = LabelledArray(np.zeros([2] * 8), names, [range(2)] * 8)
    assert len(repr(table).splitlines()) == 2 + 128
    table = LabelledArray(np.zeros([2] * 9), [*names, "x8"], [range(2)] * 9)
    assert repr(table).splitlines()[-1].startswith("… shortened after 200 lines")


@pytest.mark.parametrize("names", [("rain", "wet"), ("wet", "rain")])
def test_joints_are_found_by_their_set_in_any_order(names: tuple[str, ...]) -> None:
    found = bucketflow.marginals(RAIN, joint=[("rain", "wet")])
    expected = PAIR if names[0] == "rain" else PAIR.T
    assert found.joint[names].variables == names
    assert np.asarray(found.joint[names]) == pytest.approx(expected)
    assert found.joint[names]["yes", "damp"] if names[0] == "rain" else found.joint[names]["damp", "yes"]
    assert np.asarray(found.joint[{*names}]) == pytest.approx(PAIR)
    assert [*found.joint] == [frozenset(names)]


def test_states_of_some_variables_leave_the_others() -> None:
    pair = bucketflow.compile(RAIN).joint(["rain", "wet"])
    assert pair[{"wet": "damp"}].variables == ("rain",)
    assert pair[{"wet": "damp"}]["yes"] == pytest.approx(0.06)
    assert pair["yes"].variables == ("wet",)


def test_missing_names_are_answered_with_the_one_that_was_meant() -> None:
    found = bucketflow.marginals(RAIN)
    for ask, said in (
        (lambda: found["wett"], "did you mean 'wet'"),
        (lambda: found["wet"]["sooked"], "did you mean 'soaked'"),
        (lambda: found["wet"][{"rian": "yes"}], "there is no axis 'rian'"),
        (lambda: found.joint["wet", "rain"], "none was requested"),
        (lambda: found["wet"]["dry", "dry"], "2 states are given for 1 variables"),
    ):
        with pytest.raises(ModelError, match=said):
            ask()
    assert found.get("wett") is None
    assert "wett" not in found


def test_it_travels_and_becomes_a_frame() -> None:
    pytest.importorskip("pandas")
    pair = bucketflow.compile(RAIN).joint(["rain", "wet"])
    again = pickle.loads(pickle.dumps(pair))
    assert (again.variables, [*map(list, again.states)]) == (pair.variables, [*map(list, pair.states)])
    assert np.array_equal(again, pair)
    assert pair.to_series()["yes", "damp"] == pytest.approx(0.06)
    assert pair.to_frame().loc["yes", "soaked"] == pytest.approx(0.12)
    assert list(pair.to_frame().columns) == ["dry", "damp", "soaked"]


def test_it_becomes_an_xarray() -> None:
    pytest.importorskip("xarray")
    pair = bucketflow.compile(RAIN).joint(["rain", "wet"])
    assert float(pair.to_xarray().sel(rain="yes", wet="damp")) == pytest.approx(0.06)


def test_axes_and_labels_must_fit_the_array() -> None:
    with pytest.raises(ModelError, match=r"an array of shape \(2,\)"):
        LabelledArray(np.zeros(2), ["a"], [["x", "y", "z"]])
    with pytest.raises(ModelError, match="are not the variables"):
        LabelledArray(np.zeros((1, 2)), ["a", "b"], [range(1), range(2)]).reordered(["a"])
