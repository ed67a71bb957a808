"""From a run to marginals: both sweeps in slices, parts or boxes, and beliefs over the model's variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..preprocessing.preprocess import fixed_value
from ..queries.beliefs import Beliefs
from ..queries.expansion import dressed
from ..results.posteriors import Marginals
from ..runs.box_beliefs import propagated
from ..runs.dense_boxes import opened_boxes
from ..runs.parts import sweep_parts
from ..runs.run import TABLES, Run
from ..runs.slices import sweep_beliefs, whole_beliefs
from .question import Question


def marginals(run: Run[Any], question: Question) -> Marginals:
    """Propagate, and spread what is found over all of the model."""
    assert question.asked is not None
    return dressed(question.model, run.network, run.arithmetic, question.asked, propagate(run))


def propagate(run: Run[Any]) -> Beliefs:
    """Run both sweeps and add the functions without variables."""
    fixed = fixed_value(run.network)
    if fixed is None:
        return Beliefs(None, {})
    beliefs = Beliefs(0, {}) if run.planned is None else _swept(run)
    return beliefs if beliefs.total is None else replace(beliefs, total=run.arithmetic.shifted(beliefs.total, fixed))


def _swept(run: Run[Any]) -> Beliefs:
    plan = run.plan
    if plan.rows_stored:
        from ..runs.row_tasks import opened_row_tables

        with opened_row_tables(run, TABLES, keep=run.kept_bytes is not None) as tables:
            return whole_beliefs(run.arithmetic, plan, tables.outputs())
    if plan.spill:
        with opened_boxes(run, TABLES, keep=run.kept_bytes is not None) as boxes:
            return propagated(boxes)
    if plan.parts or run.devices > 1 or (run.by_steps and plan.slices == 1):
        return whole_beliefs(run.arithmetic, plan, sweep_parts(run).tables)
    return sweep_beliefs(run)
