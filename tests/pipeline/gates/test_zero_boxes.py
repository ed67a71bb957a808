"""Where functions are 0, as boxes: they cover the zeros, each once, and few of them do where zeros have a shape."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model
from bucketflow.pipeline.circuits.circuit_check import zero_boxes
from bucketflow.pipeline.gates.circuit import CircuitPolicy
from bucketflow.pipeline.models.function import Function


def covered(function: Function, dims: tuple[int, ...]) -> np.ndarray:
    """How many boxes hold each assignment of the scope."""
    found = np.zeros([dims[v] for v in function.scope], int)
    for box in zero_boxes(function, dims):
        found[np.ix_(*box)] += 1
    return found


@st.composite
def functions(draw: st.DrawFn) -> tuple[Function, tuple[int, ...]]:
    """Dense ones, and rows with a default of 0 or another."""
    dims = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    scope = tuple(draw(st.permutations(range(len(dims)))))
    cells = [*product(*[range(dims[v]) for v in scope])]
    values = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 0.5]), min_size=len(cells), max_size=len(cells))))
    if draw(st.booleans()):
        return Function(scope, values.reshape([dims[v] for v in scope])), dims
    listed = draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
    rows = np.array([cell for cell, there in zip(cells, listed, strict=True) if there], np.uint8)
    order = draw(st.permutations(range(len(rows))))
    rows, values = rows.reshape(-1, len(scope))[list(order)], values[listed][list(order)]
    return Function(scope, values, rows, draw(st.sampled_from([0.0, 2.0]))), dims


@given(functions())
def test_boxes_are_the_zeros_each_once(made: tuple[Function, tuple[int, ...]]) -> None:
    function, dims = made
    np.testing.assert_array_equal(covered(function, dims), function.dense(dims) == 0)


def test_zeros_of_a_child_that_follows_from_its_parents_are_few_boxes() -> None:
    table = np.zeros((4, 4, 2))
    table[..., 1] = np.arange(4)[:, None] + np.arange(4) > 0
    table[..., 0] = 1 - table[..., 1]
    assert len(zero_boxes(Function((0, 1, 2), table), (4, 4, 2))) == 3


def test_rows_over_thousands_of_variables() -> None:
    many, dims = tuple(range(3000)), (2,) * 3000
    clause = np.zeros((1, 3000), np.uint8)
    (box,) = zero_boxes(Function(many, np.zeros(1), clause, 1.0), dims)
    assert [mask.tolist() for mask in box] == [[True, False]] * 3000
    two = np.repeat(clause, 2, axis=0)
    two[1, [10, 2990]] = 1
    assert len(zero_boxes(Function(many, np.ones(2), two, 0.0), dims)) > 2990


def test_rows_that_differ_in_hundreds_of_variables() -> None:
    """Each splits what is left of them: one step down for each variable."""
    dims, single = (2,) * 600, np.eye(600, dtype=np.uint8)
    boxes = zero_boxes(Function(tuple(range(600)), np.zeros(600), single, 1.0), dims)
    assert sorted(tuple(mask[1] for mask in box) for box in boxes) == sorted(map(tuple, (single == 1).tolist()))


def test_too_many_boxes_are_refused() -> None:
    """Where one of some variables is 1, nearly all other pairs are a box."""
    function, dims = Function(tuple(range(30)), np.ones(30), np.eye(30, dtype=np.uint8), 0.0), (2,) * 30
    boxes = zero_boxes(function, dims)
    assert sum(math.prod(int(mask.sum()) for mask in box) for box in boxes) == 2**30 - 30
    with CircuitPolicy.using(box_entries=30 * len(boxes)):
        assert len(zero_boxes(function, dims)) == len(boxes)
    with (
        CircuitPolicy.using(box_entries=30 * len(boxes) - 1),
        pytest.raises(BudgetError, match="30 assignments that a function of 30 variables lists leave zeros in more"),
    ):
        zero_boxes(function, dims)


def test_what_a_circuit_allows_is_named_by_states_that_the_function_forbids() -> None:
    found = bucketflow.circuit(Model.build("markov", {"a": 3, "b": 3, "c": 2}, [(("a", "b", "c"), np.ones((3, 3, 2)))]))
    table = np.ones((3, 3, 2))
    table[1:, 2] = 0
    stricter = Model.build("markov", {"a": 3, "b": 3, "c": 2}, [(("a", "b", "c"), table)])
    (fault, *_) = bucketflow.check_circuit(found, stricter).faults
    assert fault == "the circuit allows {'a': 1, 'b': 2, 'c': 0}, which function 0 forbids"
