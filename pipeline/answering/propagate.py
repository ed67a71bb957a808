"""From a run to marginals: both sweeps in slices, parts or boxes, and beliefs over the model's variables."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...storage.spec import TableSpec
from ...tasks.steps.number_limits import FAR_INTEGER
from ..plans.problem import sliced_dims
from ..preprocessing.preprocess import fixed_value
from ..queries.beliefs import Beliefs, place
from ..queries.expansion import dressed
from ..results.posteriors import Marginals
from ..runs.parts import sweep_parts
from ..runs.run import TABLES, Run
from ..runs.slices import sweep_beliefs, whole_beliefs
from ..trees.tree import Target
from .question import Question

if TYPE_CHECKING:
    from ..runs.dense_boxes import BoxRun

# The answer of a propagation in boxes: the sum of the results of all boxes.


def propagated(boxes: BoxRun[Any]) -> Beliefs:
    """Run every box that is not done yet and add up what all have found; tables between stages go, unless kept."""
    boxes.resume()
    boxes.complete()
    beliefs = boxes.receipts.until_whole(lambda: _beliefs(boxes), boxes.complete)
    for spec in () if boxes.keep else boxes.specs.values():
        boxes.store.delete(spec)
    return beliefs


def _beliefs(boxes: BoxRun[Any]) -> Beliefs:
    """Add up what the boxes have found."""
    from ..runs.box_answers import ends

    arithmetic = boxes.run.arithmetic
    total = arithmetic.joined(arithmetic.total(roots) for _, roots in ends(boxes))
    if total is None:
        return Beliefs(None, {})
    tables: dict[Target, Any] = {}
    for index, spec in boxes.found.items():
        tables |= _stage_beliefs(boxes, index, spec)
    return Beliefs(total, tables)


def _stage_beliefs(boxes: BoxRun[Any], index: int, spec: TableSpec) -> dict[Target, Any]:
    """Add up the beliefs of the boxes of one stage, each target's with weights of its own."""
    stage, dims = boxes.spill.stages[index], boxes.spill.dims
    if not stage.results:
        return {}
    sizes = sliced_dims(dims, stage.boxed)
    combiners = {t: boxes.run.arithmetic.combiner({t: tuple(dims[v] for v in t)}) for t in stage.results}
    values = np.empty((1, spec.shape[1]), spec.dtype)
    for number in range(spec.shape[0]):
        boxes.store.load(spec, values, [boxes.receipts[spec.name, (number, 0)]], {spec.variables[0]: number})
        states = boxes.spill.states(stage, number)
        start = len(combiners)
        for weight, (target, combiner) in zip(values[0], combiners.items(), strict=False):
            cells = prod(sizes[v] for v in target)
            if np.isfinite(weight) and weight != FAR_INTEGER:
                combiner.add(weight.item(), {target: (values[0, start : start + cells], place(target, states))})
            start += cells
    return {target: combiner.beliefs().tables[target] for target, combiner in combiners.items()}


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
        from ..runs.dense_boxes import opened_boxes

        with opened_boxes(run, TABLES, keep=run.kept_bytes is not None) as boxes:
            return propagated(boxes)
    if plan.parts or run.devices > 1 or (run.by_steps and plan.slices == 1):
        return whole_beliefs(run.arithmetic, plan, sweep_parts(run).tables)
    return sweep_beliefs(run)
