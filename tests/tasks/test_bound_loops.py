"""Loops over networks of costs have the same results in NumPy and compiled, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bucketflow.tasks.networks import dead_end_loops, reparametrise, srmp, srmp_numpy
from bucketflow.tasks.networks.flat import (
    Flat,
    chosen_parts,
    flatten,
    fold_contained,
    offsets,
    restrict,
    take_out,
)


def network(seed: int) -> Flat:
    """A few variables of two to four values, functions of two to four of them, some costs infinite."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    dims = rng.integers(2, 5, n)
    scopes = [rng.permutation(n)[: rng.integers(2, min(n, 4) + 1)] for _ in range(rng.integers(1, 14))]
    costs = rng.integers(0, 9, sum(int(np.prod(dims[scope])) for scope in scopes)).astype(np.float64)
    costs[rng.random(len(costs)) < rng.choice([0, 0.1, 0.4])] = np.inf
    unary = rng.integers(0, 9, int(dims.sum())).astype(np.float64)
    return flatten(dims, unary, costs, np.array([len(scope) for scope in scopes]), np.concatenate(scopes))


def copied(flat: Flat) -> Flat:
    return flat._replace(unary=flat.unary.copy(), costs=flat.costs.copy())


def same(a: Flat, b: Flat) -> None:
    np.testing.assert_array_equal(a.unary, b.unary)
    np.testing.assert_array_equal(a.costs, b.costs)


def structure(flat: Flat) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """An order, the ends of functions in it, and where the shifts of each edge begin."""
    least, largest = (bound.reduceat(flat.scope, flat.edges[:-1]) for bound in (np.minimum, np.maximum))
    ends = np.stack([flat.scope == bound[flat.function] for bound in (least, largest)])
    return np.arange(len(flat.dims)), ends, offsets(flat.dims[flat.scope])


@pytest.mark.parametrize("grain", [1.0, 2.0**-20])
def test_sweeps(grain: float) -> None:
    for seed in range(60):
        given = network(seed)
        order, ends, shift = structure(given)
        found = srmp_numpy.levels_of(given, srmp_numpy.level_numbers(given, order), ends, shift)
        limit, (a, b) = float(np.random.default_rng(seed).integers(5, 60)), (copied(given), copied(given))
        moved = np.zeros((2, int(shift[-1])))
        one = srmp_numpy.sweep(a, found, moved[0], grain, 0.0, limit, 5)
        other = srmp.sweep(b, order, ends, moved[1], shift, grain, 0.0, limit, 5)
        assert one[0] == other[0]
        if one[0] == np.inf:
            continue
        assert one == other
        same(a, b)
        np.testing.assert_array_equal(*moved)
        assert srmp_numpy.forbid_tuples(a, found, 8.0) == srmp.forbid_tuples(b, 8.0)
        same(a, b)
        whole = np.where(np.isfinite(moved[0]), np.rint(moved[0]), 0.0)
        srmp_numpy.shift_back(a, found, whole)
        srmp.shift_back(b, whole, shift)
        same(a, b)


def test_levels_hold_no_neighbours() -> None:
    flat = network(3)
    numbers = srmp_numpy.level_numbers(flat, np.arange(len(flat.dims)))
    for f in range(flat.n_functions):
        scope = np.sort(flat.scope[flat.edges[f] : flat.edges[f + 1]])
        assert (np.diff(numbers[scope]) > 0).all()


def test_assignments_that_are_read_off() -> None:
    for seed in range(60):
        flat = network(seed)
        order = np.random.default_rng(seed).permutation(len(flat.dims))
        one, other = np.full((2, len(order)), -1)
        for again in (order, order, order[::-1]):
            srmp_numpy.decode(flat, again, one)
            srmp.decode(flat, np.ascontiguousarray(again), other)
            np.testing.assert_array_equal(one, other)


def test_dominated_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        a = network(seed)
        b = copied(a)
        monkeypatch.setattr(reparametrise, "BLOCK_CELLS", 1 << int(np.random.default_rng(seed).integers(2, 10)))
        found = [
            remove(flat, np.ones(len(flat.dims), np.bool_), 1 << 30)
            for remove, flat in ((reparametrise.remove_dominated_in_numpy, a), (dead_end_loops.remove_dominated, b))
        ]
        assert found[0] == found[1]
        same(a, b)


@pytest.mark.parametrize("lengths", [[0, 3, 1, 0, 2], [40, 0, 90, 17, 33]])
@pytest.mark.parametrize("chosen", [[], [1], [4, 0, 3], [0, 1, 2, 3, 4]])
def test_parts_are_chosen_in_the_order_that_is_asked(lengths: list[int], chosen: list[int]) -> None:
    starts = offsets(np.array(lengths))
    values = np.arange(float(starts[-1]))
    expected = [value for i in chosen for value in range(starts[i], starts[i + 1])]
    found = chosen_parts(values, starts, np.array(chosen, np.int64))
    assert found.tolist() == expected
    assert found.dtype == values.dtype


def test_what_is_folded_restricted_and_taken_out_keeps_totals() -> None:
    for seed in range(40):
        flat = network(seed)
        rng = np.random.default_rng(seed)
        states = [rng.integers(0, flat.dims) for _ in range(4)]
        before = [total(flat, s) for s in states]
        taken = take_out(flat)
        if taken < np.inf:
            assert [total(flat, s) + taken for s in states] == before
            assert flat.costs.min() >= 0
        before = [total(flat, s) for s in states]
        left = fold_contained(flat)
        assert [total(flat, s, left) for s in states] == before
        scopes = [set(flat.scope[flat.edges[f] : flat.edges[f + 1]]) for f in np.flatnonzero(left)]
        assert not any(a <= b for i, a in enumerate(scopes) for j, b in enumerate(scopes) if i != j)
        kept = [np.sort(rng.permutation(d)[: rng.integers(1, d + 1)]) for d in flat.dims]
        first = offsets(np.array([len(values) for values in kept]))
        costs, sizes = restrict(flat, np.concatenate(kept), first)
        for f in range(flat.n_functions):
            scope = flat.scope[flat.edges[f] : flat.edges[f + 1]]
            table = flat.costs[flat.cells[f] : flat.cells[f + 1]].reshape(flat.dims[scope])
            expected = table[np.ix_(*(kept[x] for x in scope))].reshape(-1)
            at = int(sizes[:f].sum())
            np.testing.assert_array_equal(costs[at : at + sizes[f]], expected)


def total(flat: Flat, states: Any, left: Any = None) -> float:
    inside = np.add.reduceat(flat.stride * states[flat.scope], flat.edges[:-1])
    entries = flat.costs[flat.cells[:-1] + inside]
    return float(flat.unary[flat.first[:-1] + states].sum() + (entries if left is None else entries[left]).sum())
