"""toulbar2 as a prover: its optima, its process, and portfolios without it."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable, States
from bucketflow.pipeline.proofs import prover_registry
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio
from bucketflow.pipeline.proofs.prover_registry import ALL_PROVERS, Registered, using
from bucketflow.pipeline.proofs.provers import toulbar2
from bucketflow.pipeline.proofs.provers.toulbar2 import Toulbar2Prover, Toulbar2Search
from tests.pipeline.proofs.networks import assert_proved, brute_least, cost_networks

needs_toulbar2 = pytest.mark.skipif(find_spec("pytoulbar2") is None, reason="the extra toulbar2 is not installed")
_PLENTY = 1 << 32


@pytest.fixture
def only() -> Registered:
    return next(entry for entry in ALL_PROVERS if entry.name == "toulbar2")


def clique_of(variables: int) -> CostNetwork:
    """Variables of five values, every pair with costs or forbidden entries."""
    rng = np.random.default_rng(3)
    tables = []
    for pair in [(x, y) for x in range(variables) for y in range(x)]:
        costs = rng.integers(0, 40, (5, 5)).astype(float)
        costs[rng.random((5, 5)) < 0.1] = np.inf
        tables.append(CostTable(pair, costs))
    return CostNetwork((5,) * variables, tuple(tables), 4)


@pytest.fixture
def clique() -> CostNetwork:
    return clique_of(14)


@pytest.fixture
def search(clique: CostNetwork) -> Iterator[Toulbar2Search]:
    begun = Toulbar2Search(clique, None, _PLENTY, 1)
    yield begun
    begun.process.close()


def is_gone(number: int) -> bool:
    """Whether a process ends within ten seconds."""
    for _ in range(200):
        if not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def is_stopped(number: int) -> bool:
    """Whether a process is suspended within ten seconds: a signal takes a moment to arrive."""
    for _ in range(200):
        if psutil.Process(number).status() == psutil.STATUS_STOPPED:
            return True
        time.sleep(0.05)
    return False


@needs_toulbar2
@settings(deadline=None, max_examples=12)
@given(cost_networks(), st.integers(-2, 2), st.booleans())
def test_optima(network: CostNetwork, beside: int, bounded: bool) -> None:
    least = brute_least(network)
    upper = int(least if least < math.inf else 7) + beside if bounded else None
    tried = Portfolio(network, upper, "toulbar2", ProofLimits(_PLENTY, prune=False))
    outcome = tried.run()
    tried.close()
    assert_proved(outcome, network, least, upper)


@needs_toulbar2
def test_a_forbidden_assignment_at_the_cut_off_is_no_solution() -> None:
    """toulbar2 reports it, and then that the search is complete."""
    forbidden = CostTable((0,), np.array([np.inf]))
    network = CostNetwork((1, 2, 2), (forbidden, CostTable((1, 2), np.array([[5.0, 0.0], [3.0, 8.0]]))), 0)
    for _ in range(5):
        search = Toulbar2Search(network, 6, _PLENTY, 0)
        with search.process.working():
            while not (search.process.ended or search.complete):
                assert not list(search.read())
        search.process.close()
        assert search.complete


@needs_toulbar2
def test_tables_of_four_variables_and_huge_costs() -> None:
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 1 << 48, (3, 2, 2, 2)).astype(float)
    wide[rng.random(wide.shape) < 0.5] = np.inf
    pair = -rng.integers(0, 1 << 48, (2, 3)).astype(float)
    network = CostNetwork((2, 2, 3, 2), (CostTable((2, 0, 3, 1), wide), CostTable((1, 2), pair)), -7)
    tried = Portfolio(network, None, "toulbar2", ProofLimits(_PLENTY, prune=False))
    assert tried.run().total == brute_least(network)
    tried.close()


@needs_toulbar2
def test_the_process_rests_between_turns_and_goes_on() -> None:
    clique = clique_of(22)
    tried = Portfolio(clique, None, "toulbar2", ProofLimits(_PLENTY, prune=False))
    while "toulbar2" not in tried.team.provers:
        tried.run(1e-3)
    prover = tried.team.provers["toulbar2"]
    assert isinstance(prover, Toulbar2Prover)
    assert prover.search is not None
    number = prover.search.process.pid
    assert not tried.incumbent.done
    assert is_stopped(number)
    assert prover.nbytes > 0
    expected = Portfolio(clique, None, "search", ProofLimits(_PLENTY, prune=False)).run()
    outcome = tried.run()
    assert (outcome.total, outcome.proved) == (expected.total, True)
    assert prover.search.process.pid == number
    assert tried.incumbent.tried["toulbar2"] > 1e-3
    tried.close()
    assert is_gone(number)


@needs_toulbar2
def test_an_interrupted_question_ends_the_process(monkeypatch: pytest.MonkeyPatch, only: Registered) -> None:
    numbers = []

    def interrupted(self: Toulbar2Search) -> Iterator[States]:
        numbers.append(self.process.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(Toulbar2Search, "read", interrupted)
    rng = np.random.default_rng(0)
    pairs = [(f"x{a}", f"x{b}") for a in range(30) for b in range(a)]
    model = bucketflow.Model.build(
        "cost", {f"x{v}": 8 for v in range(30)}, [(list(pair), rng.integers(0, 50, (8, 8))) for pair in pairs]
    )
    with using([only]), pytest.raises(KeyboardInterrupt):
        bucketflow.solve(model, time=60, prune=False)
    assert len(numbers) == 1
    assert is_gone(numbers[0])


@needs_toulbar2
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parents")
def test_a_killed_parent_ends_the_process(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import numpy as np, time\n"
        "from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable\n"
        "from bucketflow.pipeline.proofs.provers.toulbar2 import Toulbar2Search\n"
        "search = Toulbar2Search(CostNetwork((2,), (CostTable((0,), np.array([1.0, 2.0])),)), None, 1 << 32, 1)\n"
        "print(search.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert is_gone(number)


@needs_toulbar2
def test_a_total_that_differs_from_ours_ends_the_prover(search: Toulbar2Search) -> None:
    states = (0,) * 14
    assert list(search._take("New solution: 1 (0 backtracks, 0 nodes, depth 1, 0.0 seconds)")) == []
    assert list(search._take(" 0" * 14)) == []
    assert search.network.total(states) != search.offset + 1
    assert (search.process.ended, search.complete, search.total) == (True, False, None)
    assert is_gone(search.process.pid)


@needs_toulbar2
def test_bounds_count_from_our_constant(search: Toulbar2Search) -> None:
    assert list(search._take("Optimality gap: [3, 12] 75.000 % (7 backtracks, 9 nodes, 0.1 seconds)")) == []
    assert search.lower == search.offset + 3
    assert list(search._take("Optimality gap: [1, 12] 75.000 % (7 backtracks, 9 nodes, 0.1 seconds)")) == []
    assert search.lower == search.offset + 3


@needs_toulbar2
@pytest.mark.parametrize(("largest", "memory_bytes"), [(float(1 << 53), _PLENTY), (1.0, 1 << 20)])
def test_networks_beyond_its_limits_are_not_begun(largest: float, memory_bytes: int) -> None:
    network = CostNetwork((2, 2), (CostTable((0, 1), np.array([[0.0, largest], [largest, 1.0]])),))
    tried = Portfolio(network, None, "toulbar2", ProofLimits(memory_bytes, prune=False))
    assert not tried.run().proved
    assert tried.exhausted


def test_without_the_extra_it_has_no_turns(monkeypatch: pytest.MonkeyPatch, clique: CostNetwork) -> None:
    monkeypatch.setattr(prover_registry, "find_spec", lambda name: None)
    monkeypatch.setattr(toulbar2, "Toulbar2Search", lambda *_: pytest.fail("it begins"))
    tried = Portfolio(clique, None, "auto", ProofLimits(_PLENTY))
    assert tried.run().proved
    assert "toulbar2" not in tried.turns.provers
