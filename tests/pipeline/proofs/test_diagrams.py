"""Bounded elimination on decision diagrams finds optima, and proves that nothing is below a cut-off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.proofs.limits import OnBounds, Outcome
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers import diagram_buckets, diagrams
from bucketflow.pipeline.proofs.provers.diagrams import Deepening, DiagramSteps
from bucketflow.tasks.diagrams.diagram import DiagramPolicy
from tests.policies import InForce

from .networks import brute_least, cost_networks

GB = 1 << 30


def solve_diagrams(
    network: CostNetwork,
    order: Sequence[int],
    upper: int | None = None,
    *,
    lower: int | None = None,
    memory_bytes: int,
    stop: Callable[[], bool] = bool,
    on_bounds: OnBounds = lambda lower, total: None,
) -> Outcome:
    """Run eliminations until they are done, or stopped."""
    return Deepening(network, order, upper, lower, memory_bytes=memory_bytes).run(stop, on_bounds)


@given(cost_networks(), st.permutations(range(7)), st.integers(-3, 12), st.integers(0, 4))
def test_optima_and_proofs(network: CostNetwork, order: list[int], above: int, below: int) -> None:
    """With any cut-off; also one that is none, and with any lower bound that holds."""
    least = brute_least(network)
    order = [v for v in order if v < len(network.dims)]
    for upper in (None, int(least) + above if least < math.inf else 5):
        lower = None if least == math.inf else int(least) - below
        found = solve_diagrams(network, order, upper, lower=lower, memory_bytes=GB)
        assert found.proved
        if least == math.inf or (upper is not None and least >= upper):
            assert not found.feasible
            assert found.lower <= least
        else:
            assert found.total == found.lower == least
            assert found.states is not None
            assert network.total(found.states) == least


@given(cost_networks(largest=1000), st.integers(0, 20_000))
def test_any_memory_gives_bounds(network: CostNetwork, memory: int) -> None:
    least = brute_least(network)
    found = solve_diagrams(network, range(len(network.dims)), memory_bytes=memory)
    assert found.lower <= least
    if not found.feasible:
        assert least == math.inf
    if found.states is not None:
        assert network.total(found.states) == found.total
        assert found.total is not None
        assert found.total >= least


def band(n: int, d: int = 4) -> CostNetwork:
    """A strip whose messages are much larger than its functions; random costs, and some that make bounds good."""
    rng = np.random.default_rng(0)
    scopes = [(v, v + step) for step in (1, 5) for v in range(n - step)]
    tables = [CostTable(scope, np.floor(rng.random((d, d)) * 1e6)) for scope in scopes]
    tables += [CostTable((v,), 3e5 * np.arange(d)) for v in range(n)]
    return CostNetwork((d,) * n, tuple(tables))


def test_messages_that_do_not_fit_are_dropped_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total is known first, and the assignment is found with a cut-off just above it."""
    network = band(24)
    want = solve_diagrams(network, range(24), memory_bytes=GB)
    rounds = []
    run = diagram_buckets.Elimination.run

    def noted(self: diagram_buckets.Elimination, stop: Callable[[], bool]) -> diagram_buckets.Round:
        self._buckets.memory_bytes = GB if rounds else 115_000
        rounds.append(run(self, stop))
        return rounds[-1]

    monkeypatch.setattr(diagram_buckets.Elimination, "run", noted)
    upper = 3 * want.lower
    assert solve_diagrams(network, range(24), upper, lower=want.lower - 2, memory_bytes=GB) == want
    assert [(r.total, r.states is None) for r in rounds] == [(want.total, True), (want.total, False)]
    rounds.clear()
    monkeypatch.setattr(diagram_buckets.Elimination, "run", run)
    assert solve_diagrams(network, range(24), upper, memory_bytes=115_000) == Outcome(want.lower)
    # tables of states, and the copies of arrays that grow, count too
    assert solve_diagrams(network, range(24), upper, memory_bytes=75_000).lower < want.lower


def test_stopping_keeps_what_was_proved() -> None:
    network = band(24)
    least = solve_diagrams(network, range(24), memory_bytes=GB).lower
    told: list[int] = []
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 10

    found = solve_diagrams(
        network, range(24), memory_bytes=GB, stop=stop, on_bounds=lambda lower, total: told.append(lower)
    )
    assert not found.proved
    assert told == sorted(told)
    assert 0 < told[-1] == found.lower <= least


@pytest.mark.parametrize("better", [0, 1])
def test_what_was_stopped_goes_on(better: int) -> None:
    """Each run is stopped after a bucket or two; another assignment may become known on the way."""
    network = band(12)
    want = solve_diagrams(network, range(12), memory_bytes=GB)
    deepening = Deepening(network, range(12), None, None, memory_bytes=GB)
    lower = []
    for runs in range(1000):
        if runs == 5:
            deepening.learn(want.lower + better, 0)
        asked = count()
        found = deepening.run(lambda asked=asked: next(asked) > 1)  # type: ignore[misc]
        lower.append(found.lower)
        assert deepening.nbytes > 0
        if found.proved:
            break
    assert 5 < runs < 999
    assert lower == sorted(lower)
    assert found == (want if better else Outcome(want.lower, feasible=False))


def test_the_shortest_runs_get_there(in_force: InForce) -> None:
    """What is stopped goes on within a join; letting go of what that needs costs time only."""
    network = band(12)
    want = solve_diagrams(network, range(12), memory_bytes=GB)
    in_force(DiagramPolicy, turn_edges=200)
    deepening = Deepening(network, range(12), None, None, memory_bytes=GB)
    spared, runs = False, 0
    while True:
        runs += 1
        assert runs < 2000
        asked = count()
        found = deepening.run(lambda asked=asked: next(asked) > 0)  # type: ignore[misc]
        if found.proved:
            break
        held = deepening.nbytes
        if not spared:
            deepening.rest()
            spared = deepening.nbytes < held
    assert runs > 20
    assert spared
    assert found == want


def test_equal_hashes_change_nothing(in_force: InForce) -> None:
    network = band(12)
    want = solve_diagrams(network, range(12), memory_bytes=GB)
    in_force(DiagramPolicy, hash_factor=0)
    assert solve_diagrams(network, range(12), memory_bytes=GB) == want


def test_what_was_given_up_begins_anew() -> None:
    """An elimination that holds too much is given up; what it was for is still found."""
    network = band(12)
    want = solve_diagrams(network, range(12), memory_bytes=GB)
    deepening = Deepening(network, range(12), want.lower + 1, None, memory_bytes=GB)
    asked = count()
    assert not deepening.run(lambda: next(asked) > 4).proved
    held = deepening.nbytes
    deepening.begin_anew()
    assert deepening.nbytes < held
    assert deepening.run() == want


def test_the_last_cut_off_comes_next_as_soon_as_it_is_not_much_dearer() -> None:
    steps = DiagramSteps(0, 0, 3200)
    assert steps.next(0, 3200) == 100
    assert math.isinf(steps.seconds(3200))
    steps.learn(100, 400_000, 0.125)
    assert steps.next(100, 3200) == 300
    steps.learn(300, 1_600_000, 0.5)
    assert (steps.next(300, 3200), steps.next(300, 550)) == (500, 550)
    assert steps.next(300, 701) == 501 - 1
    assert steps.next(300, 700) == 700
    assert steps.seconds(500) == pytest.approx(2.0)
    steps.learn(500, 1_500_000, 0.5)
    assert (steps.next(500, 1100), steps.next(500, 1101)) == (1100, 900)
    assert steps.next(500, 1100) == 1100
    assert (steps.too_far(1100), steps.too_far(1100)) == (True, False)
    assert steps.next(500, 1100) == 900


def test_what_went_too_far_goes_on_with_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for the last cut-off at once, smaller ones are tried."""
    network = band(24)
    upper = network.least + 60_000_000
    want = solve_diagrams(network, range(24), upper, memory_bytes=GB)

    class Cramped(diagram_buckets.Elimination):
        def run(self, stop: Callable[[], bool]) -> diagram_buckets.Round:
            too_much = diagram_buckets.Round(None, None, network.least, 0, complete=False)
            return too_much if self.upper == upper else super().run(stop)

    monkeypatch.setattr(diagrams, "Elimination", Cramped)
    monkeypatch.setattr(DiagramSteps, "goes_straight", lambda self, further: self.may_go_straight)
    assert solve_diagrams(network, range(24), upper, memory_bytes=GB) == want


@pytest.mark.parametrize("above", [1, 2, 28])
def test_costs_that_are_not_whole_end_with_what_is_known(above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagrams are of whole costs, whose totals are lower: no elimination finds the bound of what it finds itself."""
    ones = np.array([[0.75, 4.25], [4.25, 0.75]])
    network = CostNetwork((2,) * 9, tuple(CostTable((v, v + 1), ones) for v in range(8)))
    runs = count()
    run = diagram_buckets.Elimination.run

    def counted(self: diagram_buckets.Elimination, stop: Callable[[], bool]) -> diagram_buckets.Round:
        assert next(runs) < 20
        return run(self, stop)

    monkeypatch.setattr(diagram_buckets.Elimination, "run", counted)
    found = solve_diagrams(network, range(9), 6 + above, memory_bytes=GB)
    assert found.lower <= found.total == 6
    assert not found.proved


def test_growth_is_known_at_once_where_others_proved_much() -> None:
    near, far = DiagramSteps(0, 100, 3300), DiagramSteps(0, 1600, 3200)
    near.learn(200, 3_200_000, 1.0)
    far.learn(1650, 3_200_000, 1.0)
    assert math.isinf(near.seconds(3300))
    assert 1.0 < far.seconds(2475) < 16.0
    assert far.next(1650, 2475) == 1650 + 100


@ProverPolicy.using(diagram_quick_edges=0)
def test_what_is_left_to_do_is_foreseen() -> None:
    """Not before it is known how eliminations grow, which two of them tell."""
    network = band(12)
    least = solve_diagrams(network, range(12), memory_bytes=GB).lower
    deepening = Deepening(network, range(12), least + 1, None, memory_bytes=GB)
    assert math.isinf(deepening.seconds_left)
    told: list[int] = []
    assert not deepening.run(lambda: len(told) > 1, lambda lower, total: told.append(lower)).proved
    assert 0.0 <= deepening.seconds_left < math.inf
    assert deepening.run().proved
