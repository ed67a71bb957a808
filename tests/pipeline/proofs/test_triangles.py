"""Triangles: that what they prove holds, that they close what single variables do not, and that totals stay."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable, States
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers.triangles import TriangleBounds, _ascending, _held
from tests.memory import traced

from .networks import brute_least, cost_networks


@st.composite
def cliques(draw: st.DrawFn) -> CostNetwork:
    """All pairs of a few variables, in any direction, some twice, beside others; ties, large and forbidden costs."""
    dims = tuple(draw(st.lists(st.integers(1, 6), min_size=3, max_size=5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.sampled_from([1, 2, 9, 1000, 2**47]))
    scopes = [(x, y) if rng.random() < 0.7 else (y, x) for x, y in combinations(range(len(dims)), 2)]
    scopes += [(0,), (1, 0), (0, 2, 1)][: draw(st.integers(0, 3))]
    tables = []
    for scope in scopes:
        shape = [dims[v] for v in scope]
        costs = rng.integers(draw(st.sampled_from([-3, 0])), largest + 1, size=shape).astype(np.float64)
        costs[rng.random(shape) < draw(st.sampled_from([0.0, 0.0, 0.3]))] = np.inf
        costs[rng.random(shape) < draw(st.sampled_from([0.0, 0.6]))] = 0.0
        tables.append(CostTable(scope, costs))
    return CostNetwork(dims, tuple(tables), draw(st.integers(-5, 5)))


def bounds_of(network: CostNetwork, upper: int | None = None) -> TriangleBounds:
    bounds = TriangleBounds(network, upper)
    bounds.memory_bytes = 1 << 28
    return bounds


def run(bounds: TriangleBounds, steps: int) -> list[States]:
    found: list[States] = []
    looks = iter(range(steps))
    bounds.run(lambda: next(looks, None) is None, lambda lower, total: None, found.append)
    return found


def test_bounds_of_random_networks_hold() -> None:
    @settings(deadline=None, max_examples=150)
    @given(st.one_of(cliques(), cost_networks()), st.integers(1, 6), st.sampled_from([None, -2, 0, 1, 5]))
    def check(network: CostNetwork, steps: int, above: int | None) -> None:
        least = brute_least(network)
        upper = None if above is None else above + (0 if least == math.inf else int(least))
        bounds = bounds_of(network, upper)
        found = run(bounds, steps)
        cut_off = math.inf if upper is None else upper
        assert bounds.lower <= max(min(least, cut_off), network.least)
        assert all(network.total(states) < cut_off for states in found)
        if bounds.done:
            assert bounds.lower == min(least, cut_off) or (bounds.total is None and least >= cut_off)
        narrowed = bounds._held and bounds._held.narrowed()
        if narrowed and least < (cut_off if bounds.total is None else bounds.total):
            assert brute_least(narrowed) == least

    check()


def test_totals_stay_as_they_are() -> None:
    """Of every assignment: what functions, triangles and the constant say of it together."""

    @settings(deadline=None, max_examples=40)
    @given(cliques(), st.integers(1, 4))
    def check(network: CostNetwork, count: int) -> None:
        held = _held(_ascending(network), None, 1 << 28)
        assert held is not None
        for _ in range(count):
            held.sweep(None)
        if held.constant == math.inf:
            assert brute_least(network) == math.inf
            return
        flat, triangles = held.flat, held.triangles
        assert flat.costs.min() >= 0.0
        for states in np.ndindex(network.dims):
            total = held.constant + sum(flat.unary[flat.first[:-1] + states])
            cells = [
                int(flat.stride[a:b] @ np.array(states)[flat.scope[a:b]])
                for a, b in zip(flat.edges[:-1], flat.edges[1:], strict=True)
            ]
            total += sum(flat.costs[begin + cell] for begin, cell in zip(flat.cells[:-1], cells, strict=True))
            for sides, begins in zip(triangles.sides, triangles.begin, strict=True):
                three = sum(held.costs[begin + cells[f]] for f, begin in zip(sides, begins, strict=True))
                assert three >= 0.0
                total += three
            assert total == network.total(states)

    check()


def odd_cycle() -> CostNetwork:
    """Three variables of two values, of which no two may agree: one pair has to, at a cost of 1."""
    agree = np.eye(2)
    return CostNetwork((2, 2, 2), tuple(CostTable(scope, agree) for scope in combinations(range(3), 2)))


def test_a_triangle_sees_what_single_variables_do_not() -> None:
    bounds = bounds_of(odd_cycle())
    assert bounds.lower == 0
    run(bounds, 9)
    assert bounds.done
    assert (bounds.lower, bounds.total) == (1, 1)


def test_no_room_and_no_triangles_are_hopeless() -> None:
    bounds = TriangleBounds(odd_cycle(), None)
    run(bounds, 9)
    assert bounds.hopeless
    path = bounds_of(CostNetwork((2, 2), (CostTable((0, 1), np.eye(2)),)))
    run(path, 9)
    assert path.hopeless


def test_what_is_held_fits_the_memory() -> None:
    """Of a clique: the least memory in which it is tried is at least what sweeps and looks take."""
    rng = np.random.default_rng(0)
    tables = [
        CostTable(scope, rng.integers(0, 1000, (8, 8)).astype(np.float64)) for scope in combinations(range(16), 2)
    ]
    network = CostNetwork((8,) * 16, tuple(tables))

    def found(memory_bytes: int) -> TriangleBounds:
        bounds = TriangleBounds(network, None)
        bounds.memory_bytes = memory_bytes
        run(bounds, 3)
        return bounds

    found(1 << 30)
    least = next(1 << bits for bits in range(10, 31) if not found(1 << bits).hopeless)
    assert found(3 * least // 8).hopeless
    peak, _ = traced(lambda: found(least), least)
    assert peak <= least


@ProverPolicy.using(late_from_seconds=0.0)
def test_the_portfolio_takes_triangles() -> None:
    """What they forbid leaves the optimum; provers begin anew with the rest."""

    @settings(deadline=None, max_examples=25)
    @given(cliques())
    def check(network: CostNetwork) -> None:
        portfolio = Portfolio(network, None, "triangles", ProofLimits(1 << 28))
        found, least = portfolio.run(), brute_least(network)
        assert found.lower <= least or found.proved
        if found.proved:
            assert (math.inf if found.total is None else found.total) == least

    check()
