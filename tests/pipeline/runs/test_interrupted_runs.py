"""Runs and questions that were interrupted at any line: asked again, or resumed, they answer as if nothing was."""

# ruff: noqa: F401, F811

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.pipeline.plans.planner import forget_plans
from bucketflow.tasks.rows.ordering import forget_layouts
from tests.interrupting import Interrupted, at_every_line
from tests.models import grid
from tests.pipeline.runs.test_damage import RUNS, answer, asked, budget, equal, known_disk

Planned = tuple[Path, dict[str, Any], Callable[..., dict[str, Any]]]

QUESTIONS: dict[str, tuple[str, Callable[[Model], Any]]] = {
    "optimum": ("cost", bucketflow.solve),
    "by rows": ("forbids", lambda model: bucketflow.solve(model, representation="rows")),
    "partition": ("markov", lambda model: bucketflow.solve(model, "partition")),
    "count": ("forbids", lambda model: bucketflow.solve(model, "count")),
    "marginals": ("markov", bucketflow.marginals),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_was_interrupted_is_answered_when_it_is_asked_again(name: str) -> None:
    """Of the same model and of an equal one: plans, layouts and what is left under evidence are remembered."""
    kind, ask = QUESTIONS[name]

    def forgotten() -> Model:
        forget_plans()
        forget_layouts()
        return grid(3, 4, 3, kind)

    expected = answer(ask(forgotten()))
    for model, how in at_every_line(ask, forgotten, 20):
        for again in (model, grid(3, 4, 3, kind)):
            agrees(answer(ask(again)), expected, how)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, known_disk: None) -> Callable[[str], Planned]:
    """Make the directory of a run that has its plan, and nothing else yet."""

    @cache
    def made(name: str) -> Planned:
        query, kind, fit, share = RUNS[name]
        folder = tmp_path_factory.mktemp("planned")
        path = folder / ("grid.wcsp" if kind in ("cost", "forbids") else "grid.uai")
        bucketflow.save(grid(5, 5, 4, kind), path)
        options = budget(bucketflow.load(path), query, fit, share)
        expected = asked(path, folder / "whole", query, options)
        (folder / "run").mkdir()
        shutil.copy(folder / "whole" / "plan.json", folder / "run")
        return folder / "run", expected, partial(asked, path, query=query, options=options)

    return made


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(("whole", 16), ("slices", 16), ("spilled", 6), ("sums", 16)),
        *(("spilled sums", 12), ("counts", 12), ("marginals", 12)),
    ],
)
def test_a_run_that_was_interrupted_goes_on(
    name: str, most: int, planned: Callable[[str], Planned], tmp_path: Path
) -> None:
    folder, expected, _ = planned(name)
    numbers = count()
    for run, how in at_every_line(
        lambda run: answer(bucketflow.resume(run)),
        lambda: Path(shutil.copytree(folder, tmp_path / str(next(numbers)))),
        most,
    ):
        agrees(answer(bucketflow.resume(run)), expected, how)
        assert not [*run.rglob("*.partial")], how


def test_a_run_that_was_interrupted_before_it_had_a_plan_is_asked_again(
    planned: Callable[[str], Planned], tmp_path: Path
) -> None:
    _, expected, ask = planned("whole")
    numbers = count()
    for run, how in at_every_line(lambda run: ask(run=run), lambda: tmp_path / str(next(numbers)), 20):
        agrees(ask(run=run), expected, how)


def agrees(found: dict[str, Any], expected: dict[str, Any], how: Interrupted) -> None:
    assert how.came is None or issubclass(how.came, (how.error, BucketflowError)), how
    assert found.keys() == expected.keys(), how
    assert all(equal(found[key], expected[key]) for key in expected), how
