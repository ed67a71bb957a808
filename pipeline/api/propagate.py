"""From a run to marginals: both sweeps in slices, parts or boxes, and beliefs over the model's variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..plans.plan import Plan
from ..queries.beliefs import Beliefs
from ..queries.expansion import dressed
from ..results.posteriors import Marginals
from ..runs.box_beliefs import propagated
from ..runs.boxes import opened_boxes
from ..runs.device_sweeps import DeviceSweeps
from ..runs.forward import Run
from ..runs.parts import run_parts
from ..runs.slices import TABLES, Slices, build_sweeps, sweep_slices, whole_beliefs
from .answers import fixed_value
from .prepared import Prepared


def marginals(run: Run[Any], prepared: Prepared) -> Marginals:
    """Propagate, and spread what is found over all of the model."""
    question, asked = prepared.question, prepared.question.asked
    assert asked is not None
    return dressed(question.model, run.network, run.arithmetic, asked, propagate(run, prepared))


def propagate(run: Run[Any], prepared: Prepared) -> Beliefs:
    """Run both sweeps and add the functions without variables."""
    fixed = fixed_value(run.network)
    if fixed is None:
        return Beliefs(None, {})
    beliefs = Beliefs(0, {}) if run.planned is None else _swept(run, prepared)
    return beliefs if beliefs.total is None else replace(beliefs, total=run.arithmetic.shifted(beliefs.total, fixed))


def _swept(run: Run[Any], prepared: Prepared) -> Beliefs:
    plan, cut = run.plan, prepared.cut
    if plan.spill:
        with opened_boxes(run, TABLES, keep=False) as boxes:
            return propagated(boxes)
    slices = slices_of(run, prepared.group)
    if cut is not None:
        return whole_beliefs(slices, run_parts(plan, cut, slices.program, run.pool, _report(run, plan)))
    if run.device:
        device = DeviceSweeps(plan, slices.program.leaves, run.arithmetic, prepared.resources.memory_bytes)
        slices = replace(slices, device=device)
    return sweep_slices(slices, run.pool, run.threads, _report(run, plan))


def slices_of(run: Run[Any], group: int) -> Slices[Any]:
    """Build the leaf tables and what else the tasks share."""
    plan, folder = run.plan, run.folder and (run.folder / TABLES).absolute()
    sweeps = build_sweeps(run.network, plan, run.arithmetic, run.compiled)
    return Slices(sweeps, plan.results, plan.tree.roots, plan.sliced, group, run.arithmetic, folder)


def _report(run: Run[Any], plan: Plan) -> Callable[[int, int], None] | None:
    """Turn finished groups into bytes."""
    report, planned = run.progress, plan.read_bytes + plan.written_bytes
    if report is None:
        return None
    return lambda done, groups: report(planned * done // groups - planned * (done - 1) // groups)
