"""Engines without a price have their turns at once, on two cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.answering.engines.strategy_policy import TurnLengths
from bucketflow.pipeline.answering.sums import DiagramSum, SearchedSum
from bucketflow.pipeline.models.model import Function
from tests.models import named_model
from tests.strategies import NEVER_QUICK, solve_by

#: Sweeps are so short that no other engine had a turn beside them; turns are ended by an engine, not by the clock.
PATIENT = replace(
    NEVER_QUICK,
    share=1e12,
    lengths={**NEVER_QUICK.lengths, "search": TurnLengths(60.0), "diagrams": TurnLengths(60.0)},
)


@pytest.fixture
def formula() -> Model:
    """Clauses that both engines count."""
    rng = np.random.default_rng(5)
    functions = []
    for _ in range(40):
        scope = rng.choice(18, 3, replace=False).tolist()
        values = np.ones((2, 2, 2))
        values[tuple(rng.integers(0, 2, 3))] = 0.0
        functions.append(Function(tuple(scope), values))
    return named_model("markov", [2] * 18, functions)


@pytest.fixture
def expected(formula: Model) -> float:
    found = bucketflow.solve(formula, "partition", method="dense").log10
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "bucketflow-race"] == []


def test_the_first_answer_ends_the_other_engine(
    formula: Model, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def endless(self: Any, edges: float, stop: Any) -> None:
        while not stop():
            pass
        ended.append(edges)

    monkeypatch.setattr(DiagramSum, "run", endless)
    found = solve_by(PATIENT, formula, "partition", threads=2)
    assert found.log10 == pytest.approx(expected, rel=1e-12)
    assert [turn.engine for turn in found.tried] == ["search", "diagrams"]
    assert len(ended) == 1


def test_an_engine_on_the_other_core_answers(formula: Model, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: Any, work: float, stop: Any) -> None:
        while not stop():
            pass

    monkeypatch.setattr(SearchedSum, "run", endless)
    found = solve_by(PATIENT, formula, "partition", threads=2)
    assert found.log10 == pytest.approx(expected, rel=1e-12)
    assert found.diagram is not None


def test_what_fails_within_half_of_the_memory_has_a_turn_alone(
    formula: Model, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reserved = DiagramSum.run, []

    def small(self: Any, edges: float, stop: Any) -> Any:
        reserved.append(self.reserved_bytes)
        if self.reserved_bytes:
            self.failure, self.hopeless = "do not fit memory", True
            return None
        self.hopeless = False
        return run(self, edges, stop)

    monkeypatch.setattr(DiagramSum, "run", small)
    monkeypatch.setattr(SearchedSum, "run", lambda *_: None)
    found = solve_by(PATIENT, formula, "partition", threads=2)
    assert found.log10 == pytest.approx(expected, rel=1e-12)
    assert reserved[0] > 0
    assert reserved[-1] == 0


def test_one_core_has_one_engine(formula: Model, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiagramSum, "run", lambda *_: pytest.fail("the search is through first"))
    found = solve_by(PATIENT, formula, "partition", threads=1)
    assert found.log10 == pytest.approx(expected, rel=1e-12)
    assert [turn.engine for turn in found.tried] == ["search"]


def test_errors_of_the_other_core_are_raised(formula: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(DiagramSum, "run", broken)
    monkeypatch.setattr(SearchedSum, "run", lambda *_: None)
    with pytest.raises(ZeroDivisionError):
        solve_by(PATIENT, formula, "partition", threads=2)
