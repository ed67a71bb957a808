"""Questions that preprocessing answers have a plan too: one of no steps, which says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.plans.plan import empty_plan


@pytest.mark.parametrize(
    ("evidence", "query"),
    [
        (None, "partition"),  # everything is barren
        ({"a": 0, "b": 1}, "optimum"),
        ({"a": 0, "b": 1}, "count"),
    ],
)
def test_no_plan_is_none(evidence: Any, query: str) -> None:
    tables: list[Any] = [(["a"], [0.4, 0.6]), (["a", "b"], [[0.5, 0.5], [0.1, 0.9]])]
    model = bucketflow.Model.build("bayes", {"a": 2, "b": 2}, tables)
    plan = bucketflow.plan(model, query, evidence=evidence)
    assert plan == empty_plan()
    assert repr(plan).split() == ["steps", "0,", "preprocessing", "gives", "the", "answer"]
    assert "preprocessing gives the answer" in plan._repr_html_()
    assert (plan.cells, plan.cost.width, plan.predicted_seconds) == (0, 0, 0.0)
    assert (plan.tasks, plan.slices, plan.peak_bytes, plan.steps) == (1, 1, 0, ())


def test_a_model_without_functions() -> None:
    model = bucketflow.Model.build("cost", {"a": 2}, [])
    assert bucketflow.plan(model) == empty_plan()


def test_the_command_prints_zeros() -> None:
    done = CliRunner().invoke(main, ["plan", "diagnosis", "--query", "partition", "--json"])
    shown = json.loads(done.stdout)["plan"]
    assert (shown["cells"], shown["steps"], shown["slices"], shown["seconds"]) == (0, 0, 1, 0.0)
    printed = CliRunner().invoke(main, ["plan", "diagnosis", "--query", "partition"]).output
    assert "Preprocessing gives the answer" in printed


def test_figures_of_an_empty_plan() -> None:
    assert "0 tasks" in empty_plan().plot().text
