"""Branch and bound with soft arc consistency."""

from __future__ import annotations

import math
import tracemalloc
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
from bucketflow.pipeline.proofs.provers import branch_and_bound
from bucketflow.pipeline.proofs.provers.branch_and_bound import Search, search_bytes
from bucketflow.tasks.search.state import DECISIONS, END, REST_CELLS, grown
from tests.pipeline.proofs.networks import assert_proved, brute_least, cost_networks


def most_cells(begun: Search, cells: int) -> None:
    """Let so many combinations of values be enumerated at first, none of 0."""
    begun._state.memory[REST_CELLS] = cells


@settings(deadline=None)
@given(cost_networks(), st.integers(-2, 2), st.booleans(), st.booleans())
def test_optima(network: CostNetwork, beside: int, bounded: bool, enumerated: bool) -> None:
    least = brute_least(network)
    upper = int(least if least < math.inf else 7) + beside if bounded else None
    begun = Search(network, range(len(network.dims)), upper, memory_bytes=1 << 30)
    most_cells(begun, 1 << 20 if enumerated else 0)
    outcome = begun.run()
    assert_proved(outcome, network, least, upper)


@settings(deadline=None, max_examples=50)
@given(cost_networks(largest=1 << 49), st.booleans())
def test_optima_of_huge_costs(network: CostNetwork, enumerated: bool) -> None:
    least = brute_least(network)
    begun = Search(network, range(len(network.dims)), None)
    most_cells(begun, 1 << 20 if enumerated else 0)
    outcome = begun.run()
    assert outcome.proved
    assert (math.inf if outcome.total is None else outcome.total) == least


@settings(deadline=None)
@given(cost_networks(), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 9)), min_size=1, max_size=4))
def test_searches_begin_anew_with_other_values(network: CostNetwork, asked: list[tuple[int, int]]) -> None:
    """Each finds the least total of its values below its cut-off, whatever was searched before."""
    first = network.least + 20
    begun = Search(network, range(len(network.dims)), first)
    for seed, below in asked:
        rng = np.random.default_rng(seed)
        allowed = [rng.random(d) < 0.7 for d in network.dims]
        begun.begin_anew(allowed, first - below)
        stopped = rng.random() < 0.3
        outcome = begun.run((lambda: True) if stopped else (lambda: False))
        masks = [CostTable((v,), np.where(values, 0.0, np.inf)) for v, values in enumerate(allowed)]
        least = brute_least(CostNetwork(network.dims, (*network.tables, *masks), network.constant))
        assert outcome.proved or stopped
        if outcome.proved and least < first - below:
            assert outcome.states is not None
            assert outcome.total == network.total(outcome.states) == least
            assert all(allowed[v][a] for v, a in enumerate(outcome.states))
        elif outcome.proved:
            assert not outcome.feasible


@pytest.fixture(scope="module")
def clique() -> CostNetwork:
    """Seven variables of twelve values, every pair with costs, two triples: many nodes and halved domains."""
    rng = np.random.default_rng(3)
    pairs = [(x, y) for x in range(7) for y in range(x)]
    tables = [CostTable(pair, rng.integers(0, 40, (12, 12)).astype(float)) for pair in pairs]
    wide = [CostTable(scope, rng.integers(0, 30, (12, 12, 12)).astype(float)) for scope in [(0, 3, 5), (6, 2, 1)]]
    return CostNetwork((12,) * 7, (*tables, *wide), 4)


def test_networks_that_do_not_fit_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "Search", lambda *_, **__: pytest.fail("it is laid out"))
    network = CostNetwork((9, 9), (CostTable((0, 1), np.arange(81.0).reshape(9, 9)),))
    alone = Portfolio(network, None, "search", ProofLimits(search_bytes(network) - 1, prune=False))
    assert not alone.run().proved


def test_open_nodes_keep_the_bound(clique: CostNetwork) -> None:
    whole = Search(clique, range(7), None, memory_bytes=1 << 30).run()
    assert whole.proved
    assert whole.total is not None
    seen: list[tuple[int, int | None]] = []
    with ProverPolicy.using(search_nodes=3):
        pieces = Search(clique, range(7), None, memory_bytes=1 << 30).run(on_bounds=lambda *b: seen.append(b))
    assert pieces.total == whole.total
    assert [lower for lower, _ in seen] == sorted(lower for lower, _ in seen)
    assert all(lower <= whole.total <= (total or math.inf) for lower, total in seen)
    assert len(seen) > 10
    beginning = Search(clique, range(7), None, memory_bytes=1 << 30).run(iter([False] * 9 + [True]).__next__)
    assert not beginning.proved
    assert beginning.lower <= whole.total <= (beginning.total or math.inf)
    assert not Search(clique, range(7), whole.total, memory_bytes=1 << 30).run().feasible


@pytest.mark.parametrize("seed", range(3))
def test_enumerations_that_are_given_up(seed: int) -> None:
    """Pairs with a third of forbidden entries, too many combinations for one enumeration."""
    rng = np.random.default_rng(seed)
    tables = []
    for pair in [(x, y) for x in range(11) for y in range(x)]:
        costs = rng.integers(0, 12, (9, 9)).astype(float)
        costs[rng.random((9, 9)) < 0.3] = np.inf
        tables.append(CostTable(pair, costs))
    network = CostNetwork((9,) * 11, tuple(tables))
    whole = Search(network, range(11), None)
    most_cells(whole, 0)
    expected = whole.run()
    assert expected.proved
    for cells in (1 << 12, 1 << 60):
        begun = Search(network, range(11), None)
        most_cells(begun, cells)
        outcome = begun.run()
        assert outcome.proved
        assert (outcome.total, outcome.lower) == (expected.total, expected.lower)
        assert begun._state.memory[REST_CELLS] != cells


def test_memory_ends_a_search_with_what_it_proved(clique: CostNetwork) -> None:
    outcome = Search(clique, range(7), None, memory_bytes=1).run()
    assert not outcome.proved
    assert outcome.lower <= min(clique.total(states) for states in product(range(2), repeat=7))


@ProverPolicy.using(search_nodes=32)
def test_failed_decisions_come_first(data: Path) -> None:
    model = load(data / "wcsp/celar/CELAR6-SUB0.wcsp.xz")
    network, _ = cost_network(reduce_model(model, "optimum", {}))
    turns: list[int] = []
    outcome = Search(network, range(len(network.dims)), 160, memory_bytes=1 << 30).run(
        lambda: len(turns) > 20, lambda lower, total: turns.append(lower)
    )
    assert outcome.proved
    assert outcome.total == 159


@ProverPolicy.using(search_nodes=16)
def test_searches_go_on_where_they_stopped(clique: CostNetwork) -> None:
    whole, stopped = Search(clique, range(7), None), Search(clique, range(7), None)
    expected = whole.run()
    lowers, turns = [], 0
    while not (outcome := stopped.run(iter([False, False, True]).__next__)).proved:
        lowers.append(outcome.lower)
        turns += 1
    assert turns > 5
    assert lowers == sorted(lowers)
    assert (outcome.total, outcome.lower) == (expected.total, expected.lower)
    # nothing is searched twice
    assert stopped.nodes == whole.nodes
    assert stopped.run() == outcome


@settings(deadline=None, max_examples=50)
@given(cost_networks(), st.integers(1, 4), st.integers(-1, 2))
def test_cut_offs_that_others_found(network: CostNetwork, turns: int, beside: int) -> None:
    least = brute_least(network)
    begun = Search(network, range(len(network.dims)), None)
    begun.run(iter([False] * turns + [True]).__next__)
    cut_off = int(least if least < math.inf else 7) + beside
    begun.learn(cut_off, tuple(d - 1 for d in network.dims))
    outcome = begun.run()
    assert outcome.proved
    if least < cut_off or outcome.feasible:
        assert outcome.total == outcome.lower == least
    else:
        assert least >= max(cut_off, outcome.lower)


@ProverPolicy.using(search_nodes=16)
def test_the_explored_part_of_the_tree_grows_to_all_of_it(clique: CostNetwork) -> None:
    search, parts = Search(clique, range(7), None), list[float]()
    while not search.run(iter([False, False, True]).__next__).proved:
        parts.append(search.closed)
        waiting = sum(share for *_, share in search._nodes) + search._share
        assert search.closed + waiting == pytest.approx(1.0)
    assert parts == sorted(parts)
    assert 0.0 <= parts[0] < 0.5 < parts[-1]
    assert search.closed == pytest.approx(1.0)
    assert search.remaining_seconds == 0.0


def test_remaining_seconds_follow_from_the_later_half(clique: CostNetwork) -> None:
    search = Search(clique, range(7), None)
    assert search.remaining_seconds == math.inf
    search.seconds, search._progress = 8.0, [(1.0, 0.0), (3.0, 0.1), (6.0, 0.2), (8.0, 0.6)]
    assert search.remaining_seconds == pytest.approx(0.4 * 5.0 / 0.5)
    search._progress = [(1.0, 0.3), (8.0, 0.3)]
    assert search.remaining_seconds == math.inf


def test_many_values_are_halved_by_their_order() -> None:
    costs = np.random.default_rng(0).integers(0, 1000, (3, 20, 20)).astype(float)
    pairs = ((0, 1), (0, 2), (1, 2))
    network = CostNetwork((20,) * 3, tuple(CostTable(*pair) for pair in zip(pairs, costs, strict=True)))
    begun = Search(network, range(3), None)
    most_cells(begun, 0)
    begun._explore()
    begun._left = 3
    begun._explore()
    begun._open()
    for _, _, mask, _ in begun._nodes:
        for values in np.unpackbits(np.frombuffer(mask, np.uint8), count=60).reshape(3, 20):
            assert np.count_nonzero(np.diff(values, prepend=0, append=0)) == 2
    sizes = {int(np.frombuffer(mask, np.uint8).sum()) for _, _, mask, _ in begun._nodes}
    assert len(sizes) > 1


def test_longer_trails_are_not_there_several_times() -> None:
    rng = np.random.default_rng(0)
    tables = [CostTable((v, v + 1), rng.integers(0, 9, (30, 30)).astype(float)) for v in range(99)]
    begun = Search(CostNetwork((30,) * 100, tuple(tables)), range(100), None)
    while begun.nbytes < 4_000_000:
        assert begun._grow()
    before = begun._state
    tracemalloc.start()
    try:
        longer = grown(before)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2.1 * before.memory.nbytes
    for place in range(DECISIONS, END):
        old, new = (s.memory[s.memory[place] : s.memory[place + 1]] for s in (before, longer))
        assert len(new) == 2 * len(old)
        assert (new[: len(old)] == old).all()
