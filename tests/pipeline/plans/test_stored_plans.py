"""A plan that a run directory holds is read back as the same plan, and a tree that is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bucketflow.pipeline.answering.prepared import planner_of, prepare
from bucketflow.pipeline.answering.question import Question, question_of
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.rows_fit import plan_record, stored_plan
from bucketflow.pipeline.errors import IncompatibleRunError
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner
from tests.models import grid


def one_way(options: Options) -> tuple[Planner, Plan]:
    return planned_for(question_of(grid(7, 7, 4, "cost"), "optimum"), options)


def both_ways(options: Options) -> tuple[Planner, Plan]:
    return planned_for(question_of(grid(7, 7, 4, "markov"), "marginals"), options)


def planned_for(question: Question, options: Options) -> tuple[Planner, Plan]:
    resources = Resources(options)
    found = prepare(question, resources)
    assert found.plan is not None
    return planner_of(found, resources.memory_bytes), found.plan


@pytest.mark.parametrize("fit", ["refuse", "slice", "spill"])
@pytest.mark.parametrize("planned", [one_way, both_ways])
def test_the_same_plan_comes_back(planned: Any, fit: Any) -> None:
    peak = planned(Options(memory="1GB", tree="bucket", threads=1))[1].peak_bytes
    memory = {"refuse": peak, "slice": peak // 4, "spill": BudgetPolicy.margin_bytes + peak // 3}[fit]
    planner, plan = planned(Options(memory=memory, fit=fit, tree="bucket", threads=1))
    record = json.loads(json.dumps(plan_record(plan, memory)))
    again = stored_plan(planner, record)
    assert (bool(plan.sliced), plan.spill is not None) == (fit == "slice", fit == "spill")
    assert again.tree == plan.tree
    assert again.sliced == plan.sliced
    assert again.spill == plan.spill
    assert again.peak_bytes == plan.peak_bytes
    if plan.spill is None:
        assert again.steps == plan.steps
        assert again.results == plan.results


@pytest.mark.parametrize("asked", [{}, {"fit": "slice"}, {"fit": "spill"}, {"representation": "rows", "fit": "slice"}])
@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("marginals", "markov")])
def test_a_report_shows_the_figures_that_the_plan_had(query: str, kind: str, asked: dict[str, Any]) -> None:
    """Slices, say, are compared with the best plan without them, which is another tree than the one that is stored."""
    question = question_of(grid(7, 7, 4, kind), query)
    whole = prepare(question, Resources(Options())).plan
    assert whole is not None
    memory = {"slice": whole.peak_bytes // 4}.get(
        asked.get("fit", ""), BudgetPolicy.margin_bytes + whole.peak_bytes // 3
    )
    resources = Resources(Options(memory=memory, **asked))
    planned = prepare(question, resources)
    assert planned.plan is not None
    record = json.loads(json.dumps(plan_record(planned.plan, planned.memory_bytes)))
    again = prepare(question, resources, record).plan
    assert again is not None
    assert again.rows() == planned.plan.rows()


@pytest.mark.parametrize("damage", ["twice", "itself", "none", "unknown"])
def test_what_is_no_tree_is_refused(damage: str) -> None:
    planner, plan = one_way(Options(memory="1GB"))
    record = plan_record(plan, 1 << 30)
    kids = record["children"][-1]
    kids[0] = {"twice": kids[-1] if len(kids) > 1 else 0, "itself": 10**6, "none": -1, "unknown": 10**9}[damage]
    with pytest.raises(IncompatibleRunError, match="not a tree"):
        stored_plan(planner, record)
