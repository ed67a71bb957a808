"""Preparation keeps an optimum and never claims a bound above it."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow import load
from bucketflow.pipeline.cost_networks.cost_network import (
    CostNetwork,
    CostTable,
    NetworkProblem,
    cost_network,
    problem_of,
    tables_of,
)
from bucketflow.pipeline.cost_networks.elimination import Best, PackedBest, eliminate, replace
from bucketflow.pipeline.cost_networks.preparation import PreparedNetwork, compact, prepare
from bucketflow.pipeline.cost_networks.reparametrisation import ShiftLimits, shift
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.results.proof import removed_texts
from bucketflow.tasks.compiler.code_cache import impatient
from bucketflow.tasks.networks import reparametrise

COSTS = st.one_of(
    st.sampled_from([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, math.inf]),
    st.integers(0, 9).map(float),
    st.integers(0, 1 << 44).map(float),
)


@st.composite
def networks(draw: st.DrawFn) -> CostNetwork:
    """Few variables, functions of one to four, with zeros, ties, huge and infinite costs."""
    dims = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)))
    scopes = st.lists(st.sampled_from(range(len(dims))), min_size=1, max_size=4, unique=True)
    tables = []
    for scope in draw(st.lists(scopes, max_size=8)):
        shape = [dims[v] for v in scope]
        flat = draw(st.lists(COSTS, min_size=math.prod(shape), max_size=math.prod(shape)))
        tables.append(CostTable(tuple(scope), np.array(flat).reshape(shape)))
    return CostNetwork(dims, tuple(tables), draw(st.integers(-5, 5)))


def totals(network: CostNetwork) -> dict[tuple[int, ...], float]:
    return {states: network.total(states) for states in product(*map(range, network.dims))}


def optimum(network: CostNetwork) -> float:
    return min(totals(network).values())


def problem(network: CostNetwork) -> NetworkProblem:
    return problem_of(network.dims, network.tables, network.constant)


def network_of(problem: NetworkProblem) -> CostNetwork:
    dims = tuple(problem.flat.dims.tolist())
    return CostNetwork(dims, tables_of(problem.flat), int(problem.constant), tuple(problem.made))


def check_whole(network: CostNetwork) -> None:
    for table in network.tables:
        finite = table.costs[np.isfinite(table.costs)]
        assert (finite == np.rint(finite)).all()
        assert (np.abs(finite) < 2**53).all()


@given(st.data(), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_all_assignments_below_a_cut_off_may_be_kept(data: st.DataObject, more: int) -> None:
    network = data.draw(st.one_of(networks(), determined_networks()))
    exact = totals(network)
    least = min(exact.values())
    upper = None if least == math.inf else int(least) + more
    found = prepare(network, upper, keep_all=True)
    kept = {states: total for states, total in exact.items() if total < (math.inf if upper is None else upper)}
    if not found.feasible:
        assert not kept
        return
    made = [(found.network.restored(states), total) for states, total in totals(found.network).items()]
    below = [pair for pair in made if pair[1] < (math.inf if upper is None else upper)]
    assert len(below) == len(kept)
    assert dict(below) == kept


@st.composite
def determined_networks(draw: st.DrawFn) -> CostNetwork:
    """Networks in which some functions of two allow at most one state for each of the other's."""
    network = draw(networks())
    tables = list(network.tables)
    for x, y in draw(st.lists(st.tuples(*[st.integers(0, len(network.dims) - 1)] * 2), min_size=1, max_size=4)):
        if x != y:
            costs = np.full((network.dims[x], network.dims[y]), np.inf)
            for a in range(network.dims[x]):
                costs[a, draw(st.integers(0, network.dims[y] - 1))] = draw(COSTS)
            tables.append(CostTable((x, y), costs))
    return CostNetwork(network.dims, tuple(draw(st.permutations(tables))), network.constant)


@given(determined_networks())
@settings(max_examples=150)
def test_replacing_what_is_determined_keeps_every_total(network: CostNetwork) -> None:
    work = problem(network)
    cells = len(work.flat.costs)
    replaced = replace(work)
    after = network_of(work)
    check_whole(after)
    assert len(work.flat.costs) <= cells
    gone = {x for restore in work.made for x, _, _ in restore.choices}  # type: ignore[attr-defined]
    assert len(gone) == replaced
    assert not any(gone.intersection(table.scope) for table in after.tables if len(table.scope) > 1)
    restored = {after.restored(states): total for states, total in totals(after).items() if total < math.inf}
    before = {states: total for states, total in totals(network).items() if total < math.inf}
    assert restored == before
    prepared = prepare(network)
    assert prepared.feasible == (optimum(network) < math.inf)
    assert not prepared.feasible or optimum(prepared.network) == optimum(network)


def test_pairs_of_frequencies_are_one_variable() -> None:
    apart = np.where(np.abs(np.subtract.outer(range(6), range(6))) == 3, 0.0, np.inf)
    soft = CostTable((1, 2), np.arange(36.0).reshape(6, 6) % 7)
    work = problem(CostNetwork((6,) * 4, (CostTable((0, 1), apart), soft, CostTable((2, 3), apart))))
    assert replace(work) == 2
    assert work.removed["determined"].variables == 2
    (left,) = (table for table in network_of(work).tables if len(table.scope) == 2)
    assert left.costs.shape == (6, 6)


@given(networks())
@settings(max_examples=60)
def test_shifting_keeps_every_total(network: CostNetwork) -> None:
    work = problem(network)
    found = shift(work, ShiftLimits(math.inf, 1_000_000, lambda: False))
    best = optimum(network)
    if not work.feasible:
        assert best == math.inf
        return
    after = network_of(work)
    check_whole(after)
    assert work.constant <= best
    assert found.lower <= best
    kept = {states: total for states, total in totals(network).items() if total <= min(best, found.total)}
    assert all(after.total(states) == total for states, total in kept.items())
    for states, total in totals(network).items():
        assert after.total(states) in (total, math.inf)
    if found.states is not None:
        assert network.total(found.states.tolist()) == found.total
    elif best < math.inf:
        assert totals(after) == totals(network)


@given(networks())
@settings(max_examples=50)
def test_rules_restore_totals(network: CostNetwork) -> None:
    work = problem(network)
    compact(work)
    if work.feasible:
        compact(work, eliminate(work))
    best = optimum(network)
    if not work.feasible:
        assert best == math.inf
        return
    after = network_of(work)
    assert optimum(after) == best
    for states, total in totals(after).items():
        assert network.total(after.restored(states)) == total


def eliminated_both_ways(network: CostNetwork) -> tuple[NetworkProblem, NetworkProblem]:
    """Eliminate by compiled loops and in NumPy; check that both leave the same arrays and choose the same states."""
    compiled, plain = problem(network), problem(network)
    with impatient():
        eliminated = eliminate(compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reparametrise, "eliminate", lambda *_: None)
        assert eliminate(plain) == eliminated
    assert compiled.constant == plain.constant
    assert compiled.removed == plain.removed
    for one, other in zip(compiled.flat, plain.flat, strict=True):
        np.testing.assert_array_equal(one, other)
    for packed, best in zip(compiled.made, plain.made, strict=True):
        assert isinstance(packed, PackedBest)
        assert isinstance(best, Best)
        for (x, scope, states), (y, near, others) in zip(packed.unpacked.choices, best.choices, strict=True):
            assert (x, scope) == (y, near)
            np.testing.assert_array_equal(states, others)
        rng = np.random.default_rng(0)
        left = tuple(int(rng.integers(d)) for d in network.dims)
        assert packed(left) == packed.unpacked(left) == best(left)
    return compiled, plain


@given(networks())
@settings(max_examples=80, deadline=None)
def test_compiled_elimination_leaves_the_same_network(network: CostNetwork) -> None:
    eliminated_both_ways(network)


@pytest.mark.parametrize("seed", range(6))
def test_compiled_elimination_of_many_variables_leaves_the_same_network(seed: int) -> None:
    """Random functions of two to four near variables: new tables are larger than the old ones, and more in all."""
    rng = np.random.default_rng(seed)
    n = 150
    dims = tuple(rng.integers(2, 9, n).tolist())
    tables = []
    for _ in range(3 * n // 2):
        scope = tuple(rng.choice(np.arange(i := int(rng.integers(n - 6)), i + 6), rng.integers(2, 5), False).tolist())
        costs = rng.integers(0, 9, [dims[v] for v in scope]).astype(float)
        costs[rng.random(costs.shape) < 0.1] = np.inf
        tables.append(CostTable(scope, costs))
    compiled, _ = eliminated_both_ways(CostNetwork(dims, tuple(tables)))
    assert compiled.removed["small degree"].variables > n // 8


def test_variables_of_many_values_are_eliminated() -> None:
    tables = (CostTable((0, 1), np.abs(np.subtract.outer(range(300), range(2))) * 1.0),)
    work = problem(CostNetwork((300, 2), tables))
    with impatient():
        assert eliminate(work) == 1
    assert network_of(work).restored((0, 1)) == (1, 1)


def check_prepared(network: CostNetwork, prepared: PreparedNetwork, upper: float) -> None:
    best = optimum(network)
    if prepared.total is not None:
        assert prepared.states is not None
        assert network.total(prepared.states) == prepared.total
    if not prepared.feasible:
        assert best >= upper
        return
    assert prepared.lower <= best or best >= upper
    check_whole(prepared.network)
    after = totals(prepared.network)
    if best < upper:
        assert min(after.values()) == best
    assert min(after.values(), default=math.inf) >= best
    for states, total in after.items():
        if total < math.inf:
            assert network.total(prepared.network.restored(states)) == total


@given(networks())
@settings(max_examples=80)
def test_an_optimum_survives(network: CostNetwork) -> None:
    check_prepared(network, prepare(network), math.inf)


@given(networks(), st.integers(-1, 2))
@settings(max_examples=80)
def test_an_optimum_below_the_cut_off_survives(network: CostNetwork, more: int) -> None:
    best = optimum(network)
    upper = 5 if best == math.inf else int(best) + more
    check_prepared(network, prepare(network, upper), upper)


@given(networks(), st.integers(0, 30))
@settings(max_examples=30)
def test_it_may_end_at_any_time(network: CostNetwork, asked: int) -> None:
    left = iter(range(asked))
    check_prepared(network, prepare(network, stop=lambda: next(left, None) is None), math.inf)
    check_prepared(network, prepare(network, work=asked * 20), math.inf)


def chain(n: int, seed: int = 0) -> CostNetwork:
    rng = np.random.default_rng(seed)
    tables = [CostTable((i, i + 1), rng.integers(0, 100, (3, 3)).astype(float)) for i in range(n - 1)]
    return CostNetwork((3,) * n, tuple(tables))


def test_trees_are_solved() -> None:
    network = chain(40)
    prepared = prepare(network)
    assert prepared.network.dims == ()
    assert prepared.total == prepared.lower == prepared.network.constant
    assert network.total(prepared.network.restored(())) == prepared.total
    assert prepared.report.removed["small degree"].variables > 0
    assert prepared.report.after.variables == 0
    assert any(
        "small degree" in text for text in removed_texts({k: vars(v) for k, v in prepared.report.removed.items()})
    )


def test_random_graphs_shrink() -> None:
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 800, (2000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].tolist()
    tables = [CostTable((a, b), rng.integers(0, 50, (2, 2)).astype(float)) for a, b in pairs]
    prepared = prepare(CostNetwork((2,) * 800, tuple(tables)), work=2_000_000)
    assert prepared.lower > prepared.report.before.lower
    assert prepared.report.after.functions < len(tables)


def test_values_alone_bound_what_shares_cannot() -> None:
    """Equal neighbours on K5 cost one: the best is 4, every half-and-half looks free, one variable fixed does not."""
    tables = [CostTable((a, b), np.eye(2)) for a in range(5) for b in range(a)]
    network = CostNetwork((2,) * 5, tuple(tables))
    work = problem(network)
    assert shift(work, ShiftLimits(math.inf, 0, lambda: False)).lower == 0
    prepared = prepare(network)
    assert 2 <= prepared.lower <= 4 == prepared.total


def test_large_constants_do_not_blur_small_costs() -> None:
    rng = np.random.default_rng(3)
    tables = [CostTable((a, b), rng.integers(0, 4, (2, 2)).astype(float)) for a in range(6) for b in range(a)]
    near, far = (CostNetwork((2,) * 6, tuple(tables), constant) for constant in (0, 1 << 49))
    check_prepared(far, prepare(far), math.inf)
    check_prepared(near, prepare(near), math.inf)
    assert prepare(far).lower - (1 << 49) <= optimum(near)


@pytest.mark.parametrize(
    ("name", "known"), [("iscas89/c432.wcsp.xz", 101), ("iscas89/s953.wcsp.xz", 124), ("misc/warehouse.wcsp", 328)]
)
def test_public_instances_are_solved_without_a_search(data: Path, name: str, known: int) -> None:
    model = load(data / "wcsp" / name)
    network = reduce_model(model, "optimum", {})
    small, units = cost_network(network)
    prepared = prepare(small)
    assert prepared.network.dims == ()
    assert prepared.states is not None
    full = [int(domain[0]) for domain in network.domains]
    for v, state in zip(network.variables, prepared.states, strict=True):
        full[v] = int(network.domains[v][state])
    assert model.cost(full) == known
    assert units.exact
    assert network.constants or units.base + prepared.lower == known
