"""Distributions carry the names of their variables and states."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import LabeledArray, ModelError

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
    table = LabeledArray(np.zeros([2] * 8), names, [range(2)] * 8)
    assert len(repr(table).splitlines()) == 2 + 128
    table = LabeledArray(np.zeros([2] * 9), [*names, "x8"], [range(2)] * 9)
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
        (lambda: found["wet"]["dry", "dry"], "2 states are given for 1 variable"),
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
        LabeledArray(np.zeros(2), ["a"], [["x", "y", "z"]])
    with pytest.raises(ModelError, match="are not the variables"):
        LabeledArray(np.zeros((1, 2)), ["a", "b"], [range(1), range(2)]).reordered(["a"])


# Keys that mix labels and slices, and numbers as they are shown.


def _cube() -> LabeledArray:
    return LabeledArray(np.arange(24).reshape(2, 3, 4), ["a", "b", "c"], [["no", "yes"], ["x", "y", "z"], range(4)])


@pytest.mark.parametrize(
    ("key", "plain", "states"),
    [
        (("yes", slice(1, 3)), (1, slice(1, 3)), [["y", "z"], [0, 1, 2, 3]]),
        ((slice(None), "y"), (slice(None), 1), [["no", "yes"], [0, 1, 2, 3]]),
        ((slice(None, None, -1), "y", 2), (slice(None, None, -1), 1, 2), [["yes", "no"]]),
        ((..., "y", 3), (slice(None), 1, 3), [["no", "yes"]]),
        (("no", ..., slice(2)), (0, slice(None), slice(2)), [["x", "y", "z"], [0, 1]]),
        (({"b": "z", "c": slice(1, 2)}), (slice(None), 2, slice(1, 2)), [["no", "yes"], [1]]),
    ],
)
def test_slices_beside_labels_keep_their_axes(key: Any, plain: Any, states: list[list[Any]]) -> None:
    cube = _cube()
    found = cube[key]
    assert np.array_equal(found, np.asarray(cube)[plain])
    assert list(map(list, found.states)) == states


def test_lists_beside_labels_give_plain_arrays() -> None:
    cube = _cube()
    found = cube["yes", [0, 2]]
    assert np.array_equal(found, np.asarray(cube)[1, [0, 2]])
    assert not getattr(found, "variables", ())


@pytest.mark.parametrize("key", [("yes", None), (..., "yes", ...), ("no", "x", 0, 0)])
def test_keys_that_labels_do_not_go_with_are_refused(key: Any) -> None:
    with pytest.raises(ModelError, match=r"labels go with|4 states are given for 3 variables"):
        _cube()[key]


def test_numbers_are_shown_without_noise() -> None:
    def lines(values: Any) -> str:
        return "\n".join(LabeledArray(values, ["a"], [["no", "yes"]]).lines())

    assert "no   0\n" in lines(np.array([-3.77e-16, -2.5]))
    assert "e-16" not in lines(np.array([-3.77e-16, -2.5]))
    assert "1e-17" in lines(np.array([1e-17, 1.0]))  # a probability is not noise
    assert "-0" not in lines(np.array([-0.0, 1.0]))
    assert "1,234,567" in lines(np.array([1_234_567, 3]))  # a cost is exact
    table = LabeledArray(np.array([[-3.77e-16, -2.5], [1.0, 2.0]]), ["a", "b"], [["no", "yes"]] * 2)
    assert "e-16" not in repr(table)
    assert "e-16" not in str(table._repr_html_())
