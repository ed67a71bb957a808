"""What helps a portfolio from elsewhere: parts that hear of better totals, slices that are never run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import proof_workers as helpers_module
from bucketflow.pipeline.answering.proof_workers import ProofWorkers
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.remote_prover import Helper, Subproblem, restricted, sliced_variables
from tests.policies import InForce

from .networks import brute_least, coarse_networks, cost_networks

MEMORY = 1 << 26


@dataclass
class Channel:
    """Tells a helper a total from the first time on that it polls."""

    best: int | None = None
    closed: bool = False
    reports: list[tuple[int, Any]] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.best

    def report(self, lower: int, states: list[int] | None) -> None:
        self.reports.append((lower, states))


@dataclass
class Inline:
    """Workers that do their tasks when they are asked what ended, the last one first."""

    slots: int = 2
    word: Any = None
    tasks: list[tuple[Any, Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    done: list[tuple[Any, Any]] = field(default_factory=list)
    closed: bool = False
    alone = False

    @property
    def at_work(self) -> int:
        return len(self.tasks) + len(self.done)

    def start(self, key: Any, function: Callable[..., Any], *args: Any) -> None:
        self.tasks.append((key, function, args))

    def say(self, word: Any) -> None:
        self.word = word

    def heard(self) -> list[Any]:
        if not callable(self.word) and self.tasks:
            key, function, args = self.tasks.pop()
            self.done.append((key, function(_Member(self), *args)))
        found, self.messages = self.messages, []
        return found

    def ended(self) -> list[tuple[Any, Any]]:
        found, self.done = self.done, []
        return found

    def close(self) -> None:
        self.closed = True


@dataclass
class _Member:
    hands: Inline
    alone: bool = False

    def heard(self) -> Any:
        return self.hands.word

    def tell(self, message: Any) -> None:
        self.hands.messages.append(message)


def helped(network: CostNetwork, method: str, hands: Inline) -> Portfolio:
    """A portfolio that does nothing itself but preparing; helpers do the rest."""
    portfolio = Portfolio(network, None, method, ProofLimits(MEMORY))
    portfolio.prepare(0)
    proof_workers = ProofWorkers(portfolio, Resources(Options()))
    if not portfolio.incumbent.done:
        proof_workers.start(hands)
    while not portfolio.incumbent.done:
        proof_workers._exchange(hands)
    proof_workers.close()
    return portfolio


@pytest.mark.parametrize("method", ["auto", "rows", "search", "diagram"])
def test_helpers_alone_find_the_optimum(method: str) -> None:
    @settings(deadline=None, max_examples=12)
    @given(network=st.one_of(cost_networks(), coarse_networks()), slots=st.integers(1, 5))
    def check(network: CostNetwork, slots: int) -> None:
        least, outcome = brute_least(network), helped(network, method, Inline(slots)).incumbent.outcome()
        assert outcome.proved
        assert outcome.feasible == (least < math.inf)
        if outcome.feasible:
            assert outcome.states is not None
            assert outcome.total == network.total(outcome.states) == least

    check()


@given(network=st.one_of(cost_networks(), coarse_networks()), above=st.integers(-3, 3))
@settings(deadline=None, max_examples=30)
def test_what_is_heard_is_a_cut_off(network: CostNetwork, above: int) -> None:
    least = brute_least(network)
    heard = 5 if math.isinf(least) else int(least) + above
    channel = Channel(heard)
    outcome = Helper(Subproblem(network, None, "auto", ProofLimits(MEMORY)), channel).run()
    assert outcome.proved
    assert outcome.feasible or least >= heard
    assert outcome.total == (least if outcome.feasible else None)
    totals = [int(network.total(states)) for _, states in channel.reports if states is not None]
    assert all(total >= least for total in totals)
    assert not outcome.feasible or least in totals


@given(network=cost_networks(), count=st.integers(1, 40))
@settings(deadline=None, max_examples=40)
def test_slices_share_out_all_assignments(network: CostNetwork, count: int) -> None:
    variables = sliced_variables(network, range(len(network.dims)), count)
    every = product(*(range(network.dims[v]) for v in variables))
    chosen = [dict(zip(variables, states, strict=True)) for states in every]
    parts = [restricted(network, states) for states in chosen]
    assert sum(math.prod(part.dims) for part in parts) == math.prod(network.dims)
    assert min(map(brute_least, parts)) == brute_least(network)
    for states, part in zip(chosen, parts, strict=True):
        found = part.restored((0,) * len(part.dims))
        assert all(found[v] == a for v, a in states.items())
        assert network.total(found) == part.total((0,) * len(part.dims))
        assert part.least <= brute_least(part)


def test_slices_that_hold_nothing_better_are_never_run() -> None:
    rng = np.random.default_rng(0)
    tables = [CostTable((v, v + 1), rng.integers(0, 9, (4, 4)).astype(float)) for v in range(9)]
    tables += [CostTable((v,), np.array([0.0, 90.0, 90.0, 90.0])) for v in range(10)]
    network = CostNetwork((4,) * 10, tuple(tables))
    portfolio = Portfolio(network, None, "search", ProofLimits(MEMORY, prune=False))
    portfolio.prepare()
    proof_workers = ProofWorkers(portfolio, Resources(Options()))
    proof_workers.start(hands := Inline(1))
    while not portfolio.incumbent.done:
        proof_workers._exchange(hands)
    proof_workers.close()
    assert portfolio.incumbent.outcome().proved
    assert proof_workers.turns < 4
    assert proof_workers.unrun > 2


def test_the_portfolio_goes_on_while_workers_are_started(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    network = CostNetwork((3, 3), (CostTable((0, 1), np.arange(9.0).reshape(3, 3)),))
    portfolio = Portfolio(network, None, "search", ProofLimits(MEMORY, prune=False))
    portfolio.incumbent.order = (0, 1)
    may_open, events, current = Event(), list[str](), ContextVar[str]("current")

    @contextmanager
    def pools(resources: Resources) -> Iterator[object]:
        assert may_open.wait(60)
        events.append("opened")
        token = current.set("pool")
        yield SerialPool()
        current.reset(token)  # in the context where it was set, as Dask's clients do
        events.append("closed")

    monkeypatch.setattr(helpers_module, "DaskPools", pools)
    monkeypatch.setattr(helpers_module, "REPORT_SECONDS", 0.0)
    in_force(helpers_module.HelperPolicy, started_seconds=0.0)
    proof_workers = ProofWorkers(portfolio, Resources(Options(workers=1)))
    for _ in range(3):
        proof_workers.look()
    assert events == []
    may_open.set()
    while not proof_workers.closed:
        proof_workers.look()  # a pool without workers is none
    proof_workers.close()  # as whoever began does in the end, and a sweep before it begins
    assert events == ["opened", "closed"]


def test_a_slice_that_fails_leaves_the_portfolio_alone(caplog: pytest.LogCaptureFixture) -> None:
    network = CostNetwork((3, 3), (CostTable((0, 1), np.arange(9.0).reshape(3, 3)[::-1].copy()),))
    portfolio = Portfolio(network, None, "search", ProofLimits(MEMORY, prune=False))
    portfolio.prepare()
    proof_workers = ProofWorkers(portfolio, Resources(Options()))
    proof_workers.start(hands := Inline(1))
    hands.done, hands.tasks = [(0, MemoryError("a worker had none"))], []
    proof_workers._exchange(hands)
    assert proof_workers.closed
    assert hands.closed
    assert not portfolio.incumbent.done
    assert "a worker had none" in caplog.text
    assert portfolio.run().total == 0
