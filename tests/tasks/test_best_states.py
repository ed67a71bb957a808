"""Best joint states: as good as the best of all joint states, whatever is joined, eliminated or swept on the way."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS, Semiring, min_plus
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.steps.views import TableSlice, slice_of
from bucketflow.tasks.sweeps import best_states
from bucketflow.tasks.sweeps.sweep import restrict
from tests.device_stand_in import device
from tests.policies import InForce

SEMIRINGS = (min_plus("int16", 4), min_plus("int32", 2), min_plus("int64", 2), MIN_PLUS)
# Joint states compared at once, and cells of a join: everything at once, elimination alone, sweeps, all mixed.
LIMITS = ((1 << 11, 1 << 16), (1, 1 << 16), (4, 1), (4, 16))


def draw(seed: int, semiring: Semiring, variables: int) -> tuple[list[TableSlice], tuple[int, ...]]:
    """Draw tables over some of the variables, a third of whose entries are infinite, and fix one variable of each."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, variables))
    slices = []
    for _ in range(int(rng.integers(1, 9))):
        scope = tuple(int(v) for v in rng.permutation(variables)[: rng.integers(1, 5)])
        cells = rng.integers(0, 50, int(np.prod([sizes[v] for v in scope]))).astype(semiring.dtype)
        cells[rng.random(cells.size) < 0.3] = semiring.zero
        fixed = {scope[0]: int(rng.integers(sizes[scope[0]]))} if rng.random() < 0.5 else {}
        slices.append(slice_of(cells, scope, sizes, fixed))
    return slices, sizes


def value(slices: list[TableSlice], states: dict[int, int], semiring: Semiring) -> float:
    """Return the sum of all slices at some states."""
    return min(sum(float(s.view()[tuple(states[v] for v in s.scope)]) for s in slices), float(semiring.zero))


def check(slices: list[TableSlice], sizes: tuple[int, ...], semiring: Semiring) -> None:
    every = sorted({v for s in slices for v in s.scope})
    states = best_states.best_states(slices, sizes, semiring, compiled=False)
    assert sorted(states) == every
    assert all(0 <= states[v] < sizes[v] for v in every)
    best = min(
        value(slices, dict(zip(every, code, strict=True)), semiring)
        for code in product(*(range(sizes[v]) for v in every))
    )
    assert value(slices, states, semiring) == best


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: s.dtype)
def test_no_joint_state_is_better(in_force: InForce, limits: tuple[int, int], semiring: Semiring) -> None:
    in_force(SweepPolicy, joint_states=limits[0], joined_cells=limits[1])
    for seed in range(40):
        check(*draw(seed, semiring, 7), semiring)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: s.dtype)
def test_tables_of_a_step_are_looked_at_at_once(semiring: Semiring) -> None:
    for seed in range(60):
        slices, sizes = draw(seed, semiring, 7)
        fixed = {v: n - 1 for v, n in enumerate(sizes) if v % 3 == seed % 3}
        axes = tuple(s.scope for s in slices)
        tables = {i: np.ascontiguousarray(s.view()).reshape(-1) for i, s in enumerate(slices)}
        step = make_step(len(axes), tuple(tables), axes, (), sizes, semiring)
        left = [slice_of(tables[i], axes[i], sizes, fixed) for i in tables]
        found = best_states.joint_worth(step, tables, sizes, semiring, fixed)
        assert found is not None
        assert found.best == best_states.best_states(left, sizes, semiring)


def test_what_has_many_joint_states_or_is_elsewhere_is_not_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, axes = (2,) * 12, (tuple(range(6)), tuple(range(6, 12)))
    step = make_step(2, (0, 1), axes, (), sizes, SEMIRINGS[0])
    here = np.zeros(64, np.int16)
    assert best_states.joint_worth(step, {0: here, 1: here}, sizes, SEMIRINGS[0], {}) is None
    found = best_states.joint_worth(step, {0: here, 1: here}, sizes, SEMIRINGS[0], {0: 1})
    assert found is not None
    assert found.best == dict.fromkeys(range(1, 12), 0)
    with device(monkeypatch) as there:
        assert (
            best_states.joint_worth(step, {0: here, 1: there.empty(64, np.int16)}, sizes, SEMIRINGS[0], {0: 1}) is None
        )


@pytest.mark.parametrize("limits", [(1 << 11, 1 << 16), (4, 16)], ids=str)
def test_tables_of_a_device(monkeypatch: pytest.MonkeyPatch, in_force: InForce, limits: tuple[int, int]) -> None:
    in_force(SweepPolicy, joint_states=limits[0], joined_cells=limits[1])
    with device(monkeypatch) as there:
        for seed in range(30):
            slices, sizes = draw(seed, SEMIRINGS[1], 6)
            moved = []
            for i, s in enumerate(slices):
                table = there.empty(s.table.size, s.table.dtype)
                table[...] = s.table
                moved.append(s._replace(table=table) if i % 2 else s)
            here = best_states.best_states(slices, sizes, SEMIRINGS[1])
            states = best_states.best_states(moved, sizes, SEMIRINGS[1])
            assert states.keys() == here.keys()
            assert value(slices, states, SEMIRINGS[1]) == value(slices, here, SEMIRINGS[1])


def test_a_chain_is_not_joined() -> None:
    sizes = (4,) * 200
    rng = np.random.default_rng(1)
    slices = [slice_of(rng.integers(0, 9, 16).astype("int32"), (v, v + 1), sizes, {}) for v in range(199)]
    states = best_states.best_states(slices, sizes, SEMIRINGS[1])
    least: Any = np.zeros(4)
    for s in slices:
        least = (least[:, None] + s.view()).min(axis=0)
    assert value(slices, states, SEMIRINGS[1]) == least.min()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_slices_are_restricted_tables(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=5, max_size=5)))
    axes = tuple(data.draw(st.permutations(range(5)))[: data.draw(st.integers(0, 5))])
    table = np.arange(int(np.prod([sizes[v] for v in axes])))
    states = {v: data.draw(st.integers(0, sizes[v] - 1)) for v in axes if data.draw(st.booleans())}
    some = {v: n for v, n in states.items() if data.draw(st.booleans())}
    s = slice_of(table, axes, sizes, some).fixed(states)
    assert s.scope == tuple(v for v in axes if v not in states)
    np.testing.assert_array_equal(s.view().reshape(-1), restrict(table, axes, sizes, states))


def test_a_variable_fixed_before_has_one_cell_for_any_state() -> None:
    s = slice_of(np.arange(6), (0, 1, 2), (2, 1, 3), {1: 4})
    assert s.scope == (0, 2)
    np.testing.assert_array_equal(s.view(), np.arange(6).reshape(2, 3))
