"""No result or plan depends on the built-in sum of floats, which Python compensates from 3.12 on."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import bucketflow

# Figures that are shown or decide who works next: seconds that were measured, and coordinates of pictures.
SHOWN = ("bucketflow.pipeline.cli.", "bucketflow.pipeline.drawings.", "bucketflow.pipeline.results.")
MEASURED = ("bucketflow.pipeline.answering.engines.", "bucketflow.pipeline.compiling")

QUESTIONS: dict[str, Callable[[], object]] = {
    "partition": lambda: bucketflow.solve("diagnosis", "partition", evidence="Storm=yes"),
    "optimum": lambda: bucketflow.solve("diagnosis"),
    "marginals": lambda: bucketflow.marginals("diagnosis", evidence="Storm=yes"),
    "count": lambda: bucketflow.solve("satellite", "count"),
    "rows": lambda: bucketflow.solve("satellite", representation="rows"),
    "slices": lambda: bucketflow.solve("grid", method="dense", memory="100kB"),
    "sliced sum": lambda: bucketflow.solve("diagnosis", "partition", memory="2kB"),
    "proof": lambda: bucketflow.solve("fields"),
    "bound": lambda: bucketflow.bound("grid", time=1),
    "draws": lambda: bucketflow.sample("diagnosis", 10, seed=1),
    "joint": lambda: bucketflow.conditional("diagnosis", ["Flow"], given=["Debris"]),
    "plan": lambda: bucketflow.plan("grid"),
}


@pytest.fixture
def sums_of_floats(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of this package that add floats by the built-in sum, where order or rounding matters."""
    found: list[str] = []
    plain = sum

    def watched(values: Iterable[Any], /, start: Any = 0) -> Any:
        items, caller = list(values), sys._getframe(1)
        name = str(caller.f_globals.get("__name__"))
        floats = [item for item in items if type(item) is float]
        if len(floats) > 2 and name.startswith("bucketflow.") and not name.startswith((*SHOWN, *MEASURED)):
            found.append(f"{name}:{caller.f_lineno}")
        return plain(items, start)

    monkeypatch.setattr(builtins, "sum", watched)
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_floats_are_added_in_order(question: str, sums_of_floats: list[str]) -> None:
    QUESTIONS[question]()
    assert sorted(set(sums_of_floats)) == []


def test_the_watch_sees_a_sum_of_floats(sums_of_floats: list[str]) -> None:
    exec("sum([0.1, 0.2, 0.3])", {"__name__": "bucketflow.pipeline.some"})
    exec("sum([1, 2, 3])", {"__name__": "bucketflow.pipeline.some"})
    assert sums_of_floats == ["bucketflow.pipeline.some:1"]
