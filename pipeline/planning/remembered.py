"""The last few plans: a plan is a function of sizes, which other states of the same variables seldom change.

Small networks take longer to plan than to run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...tasks.steps.remembered import Remembered
from ..plans.plan import Plan
from ..plans.problem import PlanOptions, Problem
from ..trees.costs import Rates

Key = tuple[Problem, PlanOptions, Rates]
"""What a plan without slices is a function of, whatever memory there is."""

_REMEMBERED: Final = 8
_planned: dict[Key, Plan] = {}
# What they take by other rates: predicting hundreds of steps takes a tenth as long as running them.
_PRICED: Final[Remembered[Plan]] = Remembered(_REMEMBERED)


def plan_key(problem: Problem, options: PlanOptions, rates: Rates) -> Key:
    """Return what a plan is remembered by."""
    order = options.order if isinstance(options.order, str) else tuple(options.order)
    return problem, replace(options, order=order, memory_bytes=1 << 62), rates


def known_plan(key: Key) -> Plan | None:
    """Return a plan that was kept."""
    return _planned.get(key)


def keep_plan(key: Key, plan: Plan) -> None:
    """Remember a plan, and forget the oldest of many."""
    _planned[key] = plan
    if len(_planned) > _REMEMBERED:
        _planned.pop(next(iter(_planned)), None)


def remembered_plan(problem: Problem, options: PlanOptions, rates: Rates) -> Plan | None:
    """Return the plan of one sweep that :func:`remember_plan` was given, if it fits memory."""
    plan = known_plan(plan_key(problem, options, rates))
    return plan if plan is not None and plan.fits(options.memory_bytes) else None


def remember_plan(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan) -> None:
    """Remember the first plan of one sweep that a search found, if it is the same wherever it fits memory."""
    if not (plan.sliced or plan.cuts or plan.spill):
        keep_plan(plan_key(problem, options, rates), plan)


def priced_once(plan: Plan, rates: Rates, price: Callable[[Plan, Rates], Plan]) -> Plan:
    """Return a plan by other rates, priced again only where it is not one of the last few."""
    return _PRICED.of((plan,), rates, lambda: price(plan, rates))


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.clear()
    _PRICED.forget()
