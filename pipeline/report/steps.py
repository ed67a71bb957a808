"""What the steps of a run took beside what was predicted for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...storage.spec import Receipt
from ...tasks.steps.step import Step
from ..api.answering.prepared import Prepared
from ..figures import charts
from ..plans.plan import Plan
from ..plans.prediction import step_seconds
from ..rates.cpu import cached_rates
from ..trees.costs import Rates
from .answers import Sections

# Steps whose bars are shown, and names of variables in a label.
_SHOWN, _NAMED = 20, 3

Told = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Taken:
    """A step, as often as it was done.

    Parameters
    ----------
    label : str
    cells : int
        Swept each time.
    times : int
    predicted, measured : float
        Seconds in all.
    """

    label: str
    cells: int
    times: int
    predicted: float
    measured: float


def step_sections(prepared: Prepared, plan: Plan, receipts: Iterable[Receipt], found: Mapping[str, Any]) -> Sections:
    """Return bars of the longest steps and a table of all; nothing where the host did not do the steps of a plan."""
    spent = _spent([*(receipt.steps for receipt in receipts), found.get("steps", {})])
    if plan.device or plan.row_bounds is not None or not spent:
        return []
    taken = sorted(_taken(prepared, plan, spent), key=lambda t: -max(t.predicted, t.measured))
    longest = taken[:_SHOWN]
    series = {"predicted": [t.predicted for t in longest], "measured": [t.measured for t in longest]}
    chart = charts.bars("Seconds by step, the longest", [t.label for t in longest], series, "seconds")
    columns: dict[str, Sequence[Any]] = {
        "step": [t.label for t in taken],
        "cells": [t.cells for t in taken],
        "times": [t.times for t in taken],
        "predicted s": [float(f"{t.predicted:.3g}") for t in taken],
        "measured s": [float(f"{t.measured:.3g}") for t in taken],
        "measured / predicted": [float(f"{t.measured / t.predicted:.2g}") for t in taken],
    }
    return [("Steps: predicted and measured", chart), ("All steps", charts.table(columns))]


def _spent(told: Iterable[Told]) -> dict[int, tuple[float, int]]:
    """Add up seconds and times of every step."""
    seconds: dict[int, float] = defaultdict(float)
    times: dict[int, int] = defaultdict(int)
    for steps in told:
        for node, (took, often) in steps.items():
            seconds[int(node)] += took
            times[int(node)] += int(often)
    return {node: (seconds[node], times[node]) for node in seconds}


def _taken(prepared: Prepared, plan: Plan, spent: Mapping[int, tuple[float, int]]) -> list[Taken]:
    rates = cached_rates(prepared.problem.semiring) or Rates()
    stages = plan.spill.stages if plan.spill else ()
    done: dict[int, Step] = {step.node: step for step in plan.steps}
    done |= {step.node: step for stage in stages for step in stage.steps}
    back = {step.node for step in plan.back}
    found = []
    for node, step in done.items():
        if node in spent:
            seconds, times = spent[node]
            predicted = times * step_seconds(step.lowered, rates, plan.itemsize)
            label = _label(prepared, step, node in back)
            found.append(Taken(label, step.lowered.cells, times, predicted, seconds))
    return found


def _label(prepared: Prepared, step: Step, back: bool) -> str:
    model, variables = prepared.network.model, prepared.network.variables
    gone = sorted({v for axes in step.input_axes for v in axes} - set(step.axes))
    shown = step.axes if back else gone
    names = ", ".join(model.names[variables[v]] for v in shown[:_NAMED])
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{'back to' if back else 'eliminates'} {names or 'nothing'}{more}"
