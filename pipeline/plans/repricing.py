"""Plans priced by other rates, and steps lowered for another semiring: the same steps, other figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...tasks.steps.caches import Remembered
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.step import Step, make_step
from ..trees.costs import Rates, lowered_seconds, residue_rates, steps_cost
from .plan import Plan
from .plan_parts import Evaluations
from .problem import Problem, sliced_dims

#: The last few plans by other rates: predicting hundreds of steps takes a tenth as long as running them.
PRICED: Final[Remembered[Plan]] = Remembered(8)


def with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates."""
    later = plan.evaluations and repriced(plan.evaluations, rates, plan.itemsize)
    cost = steps_cost(plan.steps, plan.tree, rates, plan.itemsize)
    shared = steps_cost(plan.steps[: plan.variant_from], plan.tree, rates, plan.itemsize).seconds
    around = replace(plan.around, rates=rates)
    return replace(plan, cost=cost, shared_seconds=shared, evaluations=later, around=around)


def repriced(evaluations: Evaluations, rates: Rates, itemsize: int) -> Evaluations:
    """Predict the seconds of a sweep of several points with other rates of floats."""
    rates = residue_rates(rates)
    return replace(evaluations, seconds=ordered_sum(lowered_seconds(s, rates, itemsize) for s in evaluations.steps))


def remembered_with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with seconds predicted from other rates. The results for the last few plans are cached."""
    return PRICED.of((plan,), rates, lambda: with_rates(plan, rates))


def relowered(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its steps lowered for another semiring of the same value size."""

    def lowered(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[Step, ...]:
        return tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in steps)

    spill = plan.spill
    if spill is not None:
        stages = (replace(s, steps=lowered(s.steps, sliced_dims(spill.dims, s.boxed))) for s in spill.stages)
        spill = replace(spill, stages=tuple(stages))
    return replace(plan, up=lowered(plan.up, plan.tree.dims), spill=spill)


def lowered_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    problem: Problem,
) -> Step:
    """Fix the loops of one step for the given domain sizes."""
    return make_step(node, inputs, input_axes, axes, sizes, problem.semiring)
