"""What preparation leaves of an optimum that is not quick, and what sweeping that would cost: shown by ``plan``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from ..cost_networks.cost_network import model_of
from ..cost_networks.preparation import Prepared as Smaller
from ..cost_networks.preparation import Report
from ..cost_networks.preparation import prepare as made_smaller
from ..errors import BudgetError
from ..machine.cpu import machine_rates
from ..machine.resources import Resources
from ..options import Effort, Options
from ..plans.plan import Plan
from ..results.bounds import Bounds
from ..results.proof import plain_number, plan_figures
from .door import strategy_before
from .engines.offers import Strategy
from .optimum import Task
from .prepared import Prepared, prepare
from .question import Question, question_of


@dataclass(frozen=True)
class Remainder:
    """What is left to search after preparation.

    Parameters
    ----------
    report : Report
        What was removed, by rule.
    bounds : Bounds
        What the optimum lies between already; ``optimal`` or ``infeasible`` where nothing is left.
    plan : Plan or None
        Sweeps what is left; None where nothing is, or where no plan fits.
    refused : str
        Why no plan fits; else empty.
    seconds : float
        Spent on preparation and planning.
    """

    report: Report
    bounds: Bounds
    plan: Plan | None
    refused: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what ``plan --json`` prints: plain types only."""
        plan = self.plan
        return {
            "status": self.bounds.status,
            "lower": plain_number(self.bounds.lower),
            "upper": plain_number(self.bounds.upper),
            "removed": {rule: vars(what) for rule, what in self.report.removed.items()},
            "before": _sizes(self.report.before),
            "after": _sizes(self.report.after),
            "plan": {**(plan_figures(plan) or {}), "seconds": plan.predicted_seconds} if plan else None,
            **({"refused": self.refused} if self.refused else {}),
            "planning_seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True)
class Outlook:
    """The plan of a whole question, and what preparation makes of it.

    Parameters
    ----------
    question : Question
    whole : Prepared or None
        Without preparation; None where no plan fits.
    refused : str
        Why no plan fits; else empty.
    remainder : Remainder or None
        None where nothing is prepared.
    strategy : Strategy
        The engines that may answer, as ``solve`` asks them.
    """

    question: Question
    whole: Prepared | None
    refused: str
    remainder: Remainder | None
    strategy: Strategy


def outlook(question: Question, options: Options, prune: bool) -> Outlook:
    """Plan a question with and without preparation.

    Raises
    ------
    BudgetError
        If no acceptable plan fits memory either way.
    """
    whole, refused = None, None
    try:
        whole = prepare(question, Resources(options), rates=machine_rates)
    except BudgetError as error:
        refused = error
    strategy = strategy_before(question, replace(options, workdir=None), whole, str(refused))
    left = _remainder(question, options) if prune and "bounds" in strategy.engines else None
    if refused is not None and (left is None or left.refused):
        raise refused if left is None else BudgetError(f"{refused}; {_hint(left)}") from None
    return Outlook(question, whole, "" if refused is None else str(refused), left, strategy)


def _hint(left: Remainder) -> str:
    before, after, bounds = left.report.before, left.report.after, left.bounds
    known = ", ".join(
        f"{which} {end}" for which, end in (("at least", bounds.lower), ("at most", bounds.upper)) if end is not None
    )
    return (
        f"preparation leaves {after.variables} of {before.variables} variables, which do not fit either, and an "
        f"optimum of {known}; `solve` tries to prove it by bounds, and with --time gives the best found and an interval"
    )


def _remainder(question: Question, options: Options) -> Remainder:
    """Prepare an optimum as ``solve`` does, and plan what is left."""
    start = time.perf_counter()
    task = Task.of(question, options, Effort(), start)
    found = made_smaller(task.costs, task.chain.upper)
    bounds = _bounds(task, found)
    plan, refused = None, ""
    if bounds.status == "bounded":
        left = model_of(found.network, task.chain.upper if found.total is None else found.total + 1)
        try:
            plan = prepare(question_of(left, "optimum"), task.resources, rates=machine_rates).plan
        except BudgetError as error:
            refused = str(error)
    return Remainder(found.report, bounds, plan, refused, time.perf_counter() - start)


def _bounds(task: Task, found: Smaller) -> Bounds:
    """What preparation proved; a network without functions is solved by any states."""
    if not found.feasible:
        return Bounds("optimum", "infeasible")
    if found.network.tables:
        return task.between(found.lower, found.states, closed=found.total is not None and found.total <= found.lower)
    return task.between(found.lower, found.network.restored((0,) * len(found.network.dims)), closed=True)


def _sizes(size: Any) -> dict[str, int]:
    return {name: count for name, count in vars(size).items() if name != "lower"}
