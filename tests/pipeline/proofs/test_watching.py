"""Bounds are shown while they close, and the answer says in a line how it was proved."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.api import progress
from bucketflow.pipeline.drawings.shown import DisplayPolicy
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.results.proof import Proof
from bucketflow.pipeline.results.remaining_time import ClosingBounds, SweptShare
from tests.pipeline.proofs.test_chain import grid


def probabilities(model: Model) -> Model:
    tables = [([model.names[v] for v in f.scope], 2.0 ** (-f.values / 16)) for f in model.functions]
    return Model.build("markov", dict(zip(model.names, model.dims, strict=True)), tables)


@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_callbacks_see_bounds_close(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model = grid(10) if kind == "cost" else probabilities(grid(10))
    told: list[tuple[Any, Any]] = []
    with caplog.at_level(logging.INFO, "bucketflow"):
        found = bucketflow.solve(model, on_bounds=lambda lower, upper: told.append((lower, upper)))
    assert found.proof is not None
    best = found.value if kind == "cost" else found.log10
    slack = 0 if kind == "cost" else 1e-9
    lowers, uppers = ([end for end in ends if end is not None] for ends in zip(*told, strict=True))
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)
    assert lowers[-1] - slack <= best <= uppers[-1] + slack  # type: ignore[operator]
    assert best in (lowers[-1], uppers[-1])
    assert caplog.messages[-1] == found.proof.reason
    turns = [message for message in caplog.messages if message.startswith("turn ")]
    assert [turn.engine for turn in found.tried] == [turn.split()[2] for turn in turns]
    assert f"proved by {found.proof.method}" in repr(found)


def test_reasons_are_a_line() -> None:
    proof = Proof(
        "rows", 3, 3, 0.0, {"preparation": 0.1, "rows": 0.2, "search": 0.3, "dense": 0.005}, {}, 3, 1, 2.0**39.2
    )
    assert proof.reason == (
        "proved by rows after preparation and search; a sweep over all cells would take about 2^39 cells"
    )
    assert Proof("none", 3, 4, 0.3, {"rows": 0.2}, {}, 3, 1).reason == "not proved by rows"


@DisplayPolicy.using(bar_seconds=-1.0)
def test_terminals_see_a_line_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with progress.progress_lines(hidden=False) as report:
        assert report is not None
        report(ClosingBounds(90, None, "preparation"))
        report(ClosingBounds(90, 100, "rows"))
        report(SweptShare(1, 2))
    assert "rows: at least 90, at most 100, gap 0.1" in terminal.getvalue()


def test_hidden_progress_calls_nothing() -> None:
    with progress.progress_lines(hidden=True) as report:
        assert report is None
