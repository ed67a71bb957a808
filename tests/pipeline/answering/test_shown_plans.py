"""The plan that is shown is the plan that runs, for questions that go both ways too."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.pool import ThreadPool
from bucketflow.pipeline.answering import placement, running
from bucketflow.pipeline.answering import prepared as prepared_questions
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.show_plan import _plan_rows
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.problem import PlanningPolicy
from bucketflow.pipeline.runs.parts import sweep_parts
from bucketflow.pipeline.trees.costs import Rates
from tests.models import grid
from tests.pipeline.runs.test_spread import branching
from tests.policies import InForce


def printed(*arguments: Any) -> Any:
    found = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for kind, name in (("markov", "markov.uai"), ("cost", "cost.wcsp")):
        bucketflow.save(grid(6, 6, 4, kind), folder / name)
    return {kind: folder / name for kind, name in (("markov", "markov.uai"), ("cost", "cost.wcsp"))}


@pytest.mark.parametrize("way", ["memory", "slices", "disk"])
@pytest.mark.parametrize("kind", ["markov", "cost"])
def test_the_plan_of_marginals_that_is_printed_is_the_one_that_runs(
    kind: str, way: str, models: dict[str, Path]
) -> None:
    path, query = models[kind], "marginals" if kind == "markov" else "max-marginals"
    model = bucketflow.load(path)
    whole = bucketflow.plan(model, query, joint=("x1", "x30"))
    assert whole is not None
    budgets = {
        "memory": ["--memory", "1GB"],
        "slices": ["--memory", whole.peak_bytes // 6, "--fit", "slice"],
        "disk": ["--memory", BudgetPolicy.margin_bytes + whole.peak_bytes // 3, "--fit", "spill"],
    }
    options = ["--joint", "x1,x30", "--evidence", "x0=1", "--tree", "bucket", *budgets[way]]
    shown = printed("plan", path, "--query", query, *options)
    answer = printed("marginals", path, *options, *(["--max-marginals"] if kind == "cost" else []))
    assert shown["query"] == query
    assert shown["plan"].items() >= {**answer["plan"], "steps": shown["plan"]["steps"]}.items()
    assert shown["plan"]["way"] == way
    assert (shown["plan"]["stages"] > 1) == (way == "disk")
    assert (len(shown["plan"]["sliced"]) > 0) == (shown["plan"]["slices"] > 1) == (way == "slices")
    assert shown["plan"]["seconds"] > 0
    rows = CliRunner().invoke(main, ["plan", str(path), "--query", query, *map(str, options)]).stdout.splitlines()
    assert any(row.startswith("stages") for row in rows) == (way == "disk")
    assert any(row.startswith("slices") for row in rows) == (way == "slices")


def test_the_plan_of_marginals_is_the_same_value() -> None:
    model = grid(5, 5, 3, "markov")
    asked: Any = {"evidence": {"x0": [0.2, 0.3, 0.5]}, "variables": ["x3", "x7"], "families": True, "memory": "1GB"}
    assert bucketflow.plan(model, "marginals", **asked) == bucketflow.marginals(model, **asked).plan


def test_parts_for_workers_are_those_that_are_shown(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    model = branching(4, 3, 4)
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    monkeypatch.setattr(placement, "DaskPools", lambda *_: nullcontext(ThreadPool(2)))
    in_force(PlanningPolicy, part_seconds=0.0)
    in_force(PlanningPolicy, start_seconds=0.0)
    ran: list[Any] = []
    monkeypatch.setattr(running, "sweep_parts", lambda run: (ran.append(run.plan.parts), sweep_parts(run))[1])
    shown = prepare(question_of(model, "marginals"), Resources(Options(workers=2)))
    found = bucketflow.marginals(model, workers=2)
    assert shown.plan is not None
    assert shown.plan.parts is not None
    assert ran == [shown.plan.parts]
    assert shown.plan.part_count == len(shown.plan.parts.heads) > 1
    assert shown.plan.tasks == len(set(shown.plan.parts.makers.values())) > shown.plan.part_count
    assert found.plan == shown.plan
    assert found.log10_evidence == bucketflow.marginals(model).log10_evidence


def test_only_marginals_are_asked_of_some_variables() -> None:
    model = grid(3, 3, 2, "markov")
    with pytest.raises(bucketflow.ModelError, match="are options of marginals, not of the partition"):
        bucketflow.plan(model, "partition", variables=["x0"])
    with pytest.raises(bucketflow.ModelError, match="unknown query 'mode'; one of"):
        bucketflow.plan(model, "mode")
    with pytest.raises(bucketflow.ModelError, match="unknown query 'marginals'; one of"):
        bucketflow.solve(model, "marginals")


def test_what_was_found_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([100, 50])
    monkeypatch.setattr("bucketflow.pipeline.machine.resources.default_memory_bytes", lambda: next(free))
    found = Resources(bucketflow.pipeline.options.Options())
    assert found.memory_bytes == found.host_bytes == found.memory_bytes == 100


@pytest.mark.parametrize("fit", ["slice", "spill"])
def test_the_way_that_is_chosen_has_one_prediction(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rates of this machine, where it was measured: another figure would be by nominal ones."""
    monkeypatch.setattr(prepared_questions, "is_worth_measuring", lambda seconds: True)
    question = question_of(grid(6, 6, 4), "optimum")
    whole = prepare(question, Resources(Options())).plan
    assert whole is not None
    memory = whole.peak_bytes // 2 if fit == "slice" else BudgetPolicy.margin_bytes + whole.peak_bytes // 2
    slow = Rates(1e6, 1e7, 1e7, 1e-3)
    found = prepare(question, Resources(Options(fit=fit, memory=memory)), rates=lambda semiring: slow)
    assert found.plan is not None
    rows = dict(_plan_rows(found, found.plan))
    way = "slicing" if fit == "slice" else "spilling"
    assert rows["predicted"].startswith(rows[way].rpartition(", ")[2])
