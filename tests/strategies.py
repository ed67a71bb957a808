"""Questions answered by another policy than the one that is tuned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bucketflow import Model, Result
from bucketflow.pipeline.answering.answer_question import valued
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, StrategyPolicy, TurnLengths
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.models.query import QUERIES
from bucketflow.pipeline.options import Options, ProofOptions

#: No model is so easy that it is simply swept; an engine that is not always installed has no turns.
NEVER_QUICK = replace(
    POLICY,
    quick_seconds=dict.fromkeys(QUERIES, -1.0),
    soon_cells=0,
    lengths={**POLICY.lengths, "ganak": TurnLengths(0.25, most_turns=0)},
)
_EFFORT = ("method", "upper_bound", "time", "gap", "prune")


def solve_by(
    policy: StrategyPolicy, model: Model, query: str = "optimum", evidence: Any = None, **asked: Any
) -> Result:
    """Answer as :func:`bucketflow.solve` does, by a policy."""
    effort = {name: asked.pop(name) for name in _EFFORT if name in asked}
    outer = {name: asked.pop(name) for name in ("project", "maximize") if name in asked}
    question = question_of(model, query, evidence, **outer)
    return valued(question, Options(**asked), ProofOptions(**effort), policy=policy)
