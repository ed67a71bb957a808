"""Russian doll search, and costs of single values that are apart from what functions forbid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable, cost_network
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers import russian_dolls
from bucketflow.pipeline.proofs.provers.russian_dolls import RussianDolls, doll_bytes, separated
from bucketflow.tasks.compiler.working_time import LOOK_SECONDS
from tests.memory import traced
from tests.pipeline.proofs.networks import assert_proved, brute_least, cost_networks


@pytest.fixture(autouse=True)
def all_networks() -> Iterator[None]:
    """Dolls are tried though functions have costs of their own, and stopped after single decisions."""
    with ProverPolicy.using(dolls_soft_share=1.0), pytest.MonkeyPatch.context() as patched:
        patched.setattr(russian_dolls, "LOOK_SECONDS", -1.0)
        yield


@settings(deadline=None)
@given(cost_networks(), st.integers(-2, 2), st.booleans())
def test_optima(network: CostNetwork, beside: int, bounded: bool) -> None:
    least = brute_least(network)
    upper = int(least if least < math.inf else 7) + beside if bounded else None
    outcome = RussianDolls(network, upper).run()
    assert_proved(outcome, network, least, upper)


@settings(deadline=None)
@given(cost_networks(largest=1 << 49))
def test_optima_of_huge_costs(network: CostNetwork) -> None:
    dolls, least = RussianDolls(network, None), brute_least(network)
    outcome = dolls.run()
    assert outcome.proved == dolls.possible
    if dolls.possible:
        assert (math.inf if outcome.total is None else outcome.total) == least
    else:
        assert outcome.lower <= least


@settings(deadline=None)
@given(cost_networks(), st.integers(1, 5), st.integers(0, 3))
def test_searches_go_on_where_they_stopped(network: CostNetwork, pieces: int, beside: int) -> None:
    """A cut-off that falls while a doll is searched leaves the optimum below it, or proves that there is none."""
    least = brute_least(network)
    dolls, told, known = RussianDolls(network, None), list[int](), None
    for turn in range(100_000):
        outcome = dolls.run(iter([False] * pieces + [True]).__next__, lambda lower, total: told.append(lower))
        if outcome.proved:
            break
        assert outcome.lower <= least
        if turn == 3 and least < math.inf:
            known = int(least) + beside
            dolls.learn(known)
    assert told == sorted(told)
    if least < (math.inf if known is None else known):
        assert (outcome.total, outcome.lower) == (least, least)
        assert outcome.states is not None
        assert network.total(outcome.states) == least
    else:
        assert not outcome.feasible
        assert all(lower <= least for lower in told)


@settings(deadline=None)
@given(cost_networks(), st.integers(1, 9), st.integers(0, 3), st.booleans())
def test_every_assignment_below_a_cut_off_that_may_fall(
    network: CostNetwork, above: int, lower: int, one: bool
) -> None:
    totals = {states: network.total(states) for states in product(*map(range, network.dims))}
    least = min(totals.values(), default=math.inf)
    upper = int(least if least < math.inf else 7) + above
    dolls, found = RussianDolls(network, upper, every=True), list[tuple[int, ...]]()

    def met(states: tuple[int, ...]) -> None:
        found.append(states)
        dolls.learn(upper - lower)

    while not dolls.finished:
        most = len(found) + (1 if one else 10_000)
        dolls.run(lambda most=most: len(found) >= most, on_states=met)
    assert dolls.lower >= upper - lower or not found
    assert max(Counter(found).values(), default=1) == 1
    assert {states for states, total in totals.items() if total < upper - lower} <= {*found}
    assert all(totals[states] < (upper - lower if i else upper) for i, states in enumerate(found))


def hard_network(seed: int, n: int = 12) -> CostNetwork:
    """Weights of values, and conflicts of two and three variables."""
    rng = np.random.default_rng(seed)
    dims = tuple(int(d) for d in rng.integers(2, 5, n))
    tables = [CostTable((v,), rng.integers(0, 50, dims[v]).astype(float)) for v in range(n)]
    for k in (2, 3):
        for _ in range(2 * n):
            scope = tuple(int(v) for v in rng.choice(n, k, replace=False))
            shape = [dims[v] for v in scope]
            tables.append(CostTable(scope, np.where(rng.random(shape) < 0.3, np.inf, 0.0)))
    return CostNetwork(dims, tuple(tables), 3)


def shifted(network: CostNetwork, seed: int) -> CostNetwork:
    """The same totals, with costs of single values moved into functions over them."""
    rng = np.random.default_rng(seed)
    tables = list(network.tables)
    for i, table in enumerate(network.tables):
        for axis, v in enumerate(table.scope) if len(table.scope) > 1 else ():
            amount = rng.integers(-9, 10, network.dims[v]).astype(float)
            shape = [-1 if a == axis else 1 for a in range(len(table.scope))]
            tables[i] = CostTable(table.scope, tables[i].costs + amount.reshape(shape))
            tables.append(CostTable((v,), -amount))
    return CostNetwork(network.dims, tuple(tables), network.constant)


@pytest.mark.parametrize("seed", range(6))
@ProverPolicy.using(dolls_soft_share=0.0)
def test_shifts_are_undone(seed: int) -> None:
    network = shifted(hard_network(seed), seed)
    found = separated(network)
    assert found is not None
    unary, tables, constant = found
    assert all(set(np.unique(table.costs)) <= {0.0, np.inf} for table in tables)
    apart = CostNetwork(network.dims, (*tables, *(CostTable((v,), own) for v, own in enumerate(unary))), constant)
    rng = np.random.default_rng(seed)
    for _ in range(200):
        states = [int(rng.integers(d)) for d in network.dims]
        assert apart.total(states) == network.total(states)
    expected = Portfolio(network, None, "search", ProofLimits(1 << 30)).run()
    assert RussianDolls(network, None).run().total == expected.total


@ProverPolicy.using(dolls_soft_share=0.05)
def test_functions_with_costs_of_their_own_are_left_to_others() -> None:
    network = CostNetwork((2, 2), (CostTable((0, 1), np.array([[0.0, 3.0], [4.0, 1.0]])),))
    dolls = RussianDolls(network, None)
    assert not dolls.possible
    assert not dolls.run().proved
    assert dolls.nbytes == 0


def test_the_portfolio_tries_dolls_where_they_fit() -> None:
    network = hard_network(1)
    least = RussianDolls(network, None).run().total
    fits = Portfolio(network, None, "dolls", ProofLimits(1 << 30, prune=False))
    outcome = fits.run()
    assert outcome.proved
    assert outcome.total == least
    assert fits.incumbent.prover == "dolls"
    refused = Portfolio(network, None, "dolls", ProofLimits(doll_bytes(network) - 1, prune=False))
    assert not refused.run().proved
    assert refused.exhausted


@pytest.mark.parametrize(("k", "d"), [(2, 2), (2, 4), (2, 20), (3, 2), (3, 4)])
def test_laying_out_takes_what_is_said(k: int, d: int) -> None:
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(1000):
        scope = tuple(int(v) for v in rng.choice(50, k, replace=False))
        tables.append(CostTable(scope, np.where(rng.random((d,) * k) < 0.4, np.inf, 0.0)))
    network = CostNetwork((d,) * 50, tuple(tables))
    peak, dolls = traced(lambda: RussianDolls(network, None), doll_bytes(network))
    assert dolls.possible
    assert dolls.nbytes <= peak <= doll_bytes(network)


@ProverPolicy.using(dolls_soft_share=0.05)
def test_observations_of_a_satellite(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A published optimum (SPOT5 509) of 348 variables, tree width 83."""
    monkeypatch.setattr(russian_dolls, "LOOK_SECONDS", LOOK_SECONDS)
    network, units = cost_network(reduce_model(load(data / "wcsp/spot5_orig/509.wcsp.xz"), "optimum", {}))
    outcome = RussianDolls(network, None).run()
    assert outcome.proved
    assert outcome.total is not None
    assert units.at_least(outcome.total) == 36446


def test_networks_of_a_million_cells_are_laid_out() -> None:
    """Larger networks take too long to lay out, and are left to others."""
    shared = np.add.outer(np.arange(800.0), np.arange(800.0))
    assert separated(CostNetwork((800, 800), (CostTable((0, 1), shared),))) is not None
    assert separated(CostNetwork((800, 800, 800), tuple(CostTable((v, v + 1), shared) for v in range(2)))) is None
