"""Parts of tables that belong to slices: those that restricting each table gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.sweeps.program import SlicedTables
from bucketflow.tasks.sweeps.sweep import restrict
from tests.memory import traced


@st.composite
def sliced(draw: st.DrawFn) -> tuple[dict[int, Any], dict[int, tuple[int, ...]], list[int], list[int]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    variables = range(len(sizes))
    scopes = draw(st.lists(st.lists(st.sampled_from(variables), unique=True, max_size=4), max_size=6))
    axes = {10 + i: tuple(scope) for i, scope in enumerate(scopes)}
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    tables = {n: rng.integers(0, 1000, int(np.prod([sizes[v] for v in scope]))) for n, scope in axes.items()}
    return tables, axes, sizes, draw(st.lists(st.sampled_from(variables), unique=True, min_size=1))


@given(sliced(), st.integers(0, 99), st.sampled_from([1, 8, 1 << 12]), st.sampled_from([1, 30, 1 << 18]))
def test_each_is_that_of_its_table(drawn: Any, seed: int, small: int, together: int) -> None:
    tables, axes, sizes, variables = drawn
    with SweepPolicy.using(sliced_cells=small, sliced_together=together):
        slices, rng = SlicedTables(tables, axes, sizes, variables), np.random.default_rng(seed)
        for _ in range(8):
            states = {v: int(rng.integers(sizes[v])) for v in variables}
            found = slices.at(states)
            assert found.keys() == tables.keys()
            for node, table in tables.items():
                np.testing.assert_array_equal(found[node], restrict(table, axes[node], sizes, states).reshape(-1))


def test_tables_of_several_dtypes_are_taken_one_by_one() -> None:
    tables = {0: np.arange(6, dtype=np.int16), 1: np.arange(6.0)}
    slices = SlicedTables(tables, {0: (0, 1), 1: (1, 0)}, (2, 3), (0,))
    found = [slices.at({0: 1}) for _ in range(9)][-1]
    assert {n: (t.dtype.name, t.tolist()) for n, t in found.items()} == {
        0: ("int16", [3, 4, 5]),
        1: ("float64", [1.0, 3.0, 5.0]),
    }


def test_places_are_found_for_some_cells_however_many_tables_there_are() -> None:
    axes = {n: (n + 1, 0, n + 2) for n in range(3000)}
    tables = {n: np.zeros(2 * 8 * 8, np.int16) for n in axes}

    def taken(together: int) -> int:
        with SweepPolicy.using(sliced_together=together):
            slices = SlicedTables(tables, axes, [2, *[8] * 3002], (0,))
            for _ in range(4):
                slices.at({0: 0})
            return traced(lambda: slices.at({0: 1}), within=np.inf)[0]  # places are found once

    assert taken(1 << 14) < taken(1 << 30) / 2


def test_few_slices_are_taken_one_by_one() -> None:
    """To find all places takes longer than to take the tables of a few slices, which are views of the tables."""
    tables = {k: np.arange(6.0) for k in range(9)}
    slices = SlicedTables(tables, dict.fromkeys(range(9), (0, 1)), [2, 3], (0,))
    for k in range(7):
        found = slices.at({0: k % 2})[8]
        np.testing.assert_array_equal(found, np.arange(3.0) + 3 * (k % 2))
        assert np.shares_memory(found, tables[8]) == (k < 4)
