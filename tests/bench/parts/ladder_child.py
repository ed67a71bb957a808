"""What a child of the ladder does: answer a question, and look at the answer from outside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from decimal import Decimal
from math import log2
from time import perf_counter, process_time
from typing import Any

from parts.instances import Question
from parts.ladder_gpu import Used, difference, send_steps, used

import bucketflow
from bucketflow.pipeline.results.result import Result


@dataclass(frozen=True)
class Solved:
    """What a child sends back."""

    value: Decimal | None
    log2_cells: float | None
    log2_largest: float | None
    cpu_seconds: float
    compiled: bool
    defect: str
    used: Used | None
    """What it took on a device, with ``--gpus 1``; the workers of several have their own."""
    cut: str
    """The number of slices, or of boxes of tables on disk."""
    seconds: float
    rows: float | None
    """Rows of the largest table of rows against its dense cells; None where all tables are dense."""


def solve(question: Question, options: dict[str, Any], least_cells: int | None) -> Solved:
    """Answer a question and look at the answer from outside."""
    model = bucketflow.load(question.path)
    if least_cells is not None:
        send_steps(least_cells)
    start, since = process_time(), perf_counter()
    result = bucketflow.solve(model, question.query, evidence=question.evidence, **options)
    seconds, wall = process_time() - start, perf_counter() - since
    found = result.value if model.kind == "cost" else result.log10
    value = None if found is None else Decimal(found)
    plan, gpus, work = result.plan, options["gpus"], result.rows_work
    return Solved(
        value,
        log2(plan.cells) if plan else None,
        log2(plan.cost.largest_table_cells) if plan else None,
        seconds,
        "numba" in sys.modules,
        assignment_defect(model, question, result) or (difference(model, question, result, options) if gpus else ""),
        used() if gpus == 1 else None,
        f"{plan.tasks} boxes" if plan and plan.spill else str(plan.slices) if plan else "–",
        wall,
        work.largest_rows / work.largest_cells if work and work.largest_rows else None,
    )


def assignment_defect(model: bucketflow.Model, question: Question, result: Result) -> str:
    """Say what is wrong with the returned assignment; nothing if its value and evidence are those asked for."""
    if result.status != "optimal":
        return ""
    if result.assignment is None or list(result.assignment) != list(model.names):
        return "the assignment does not name every variable"
    states = [model.state_index(v, result.assignment[name]) for v, name in enumerate(model.names)]
    for v, state in bucketflow.pipeline.formats.read.split_evidence(model, question.evidence)[0].items():
        if states[v] != state:
            return f"the assignment contradicts the evidence on {model.names[v]}"
    if model.kind == "cost":
        cost = model.cost(states)
        again: Any = None if cost is None else model.objective(cost)
        return "" if again == result.value else f"the assignment is worth {again}"
    again = model.log10_value(states)
    agrees = result.log10 is not None and abs(again - result.log10) <= 1e-9 * max(1.0, abs(again))
    return "" if agrees else f"the assignment is worth {again}"
