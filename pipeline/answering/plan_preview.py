"""The network that preparation leaves of an optimum that is not quick, and the costs of sweeping it, as ``plan`` shows
them.
"""

from __future__ import annotations

import time
from typing import Any

from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import model_of
from ..cost_networks.preparation import PreparedNetwork, Report
from ..cost_networks.preparation import prepare as made_smaller
from ..errors import BudgetError, ModelError
from ..machine.rates import machine_rates
from ..machine.resources import Resources
from ..options import Options, ProofOptions
from ..plans.plan import Plan
from ..results.bounds import Bounds
from ..results.proof import plain_number, plan_figures
from .answer_question import strategy_before, with_planned_sweep
from .engines.engine_options import SWEEP, Strategy
from .optimum import Task
from .prepared import Prepared, prepare
from .question import Question, question_of


@dataclass(frozen=True)
class Remainder:
    """The problem that remains after preparation.

    Parameters
    ----------
    report : Report
        Counts of removed values, by rule.
    bounds : Bounds
        Bounds on the optimum after preparation; ``optimal`` or ``infeasible`` if nothing remains.
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
        """Return the remaining problem as plain types, as ``plan --json`` prints it."""
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
class PlanPreview:
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
    effort : ProofOptions
        How it is to be answered.
    unswept : str
        Description of a method that runs no sweep and so has no plan; empty otherwise.
    """

    question: Question
    whole: Prepared | None
    refused: str
    remainder: Remainder | None
    strategy: Strategy
    effort: ProofOptions = ProofOptions()
    unswept: str = ""


# Methods that answer an optimum, or else a sum, without a sweep, if they are requested by name.
_UNSWEPT = {
    "rows": ("partial assignments that mini-buckets do not exclude, enumerated layer by layer", ""),
    "diagram": ("elimination on decision diagrams below a bound", "sums on decision diagrams"),
    "search": ("depth-first branch and bound", "a search with cached components"),
    "ganak": ("", "Ganak, in a process of its own"),
}


def plan_preview(question: Question, options: Options, effort: ProofOptions) -> PlanPreview:
    """Plan a question with and without preparation, as its method answers it.

    Raises
    ------
    BudgetError
        If no acceptable plan fits memory either way.
    ModelError
        If the method is not one for the question.
    """
    effort.refuse_for(question.query)
    if question.asked is not None and effort.method != "auto":
        raise ModelError(
            f"{question.query} are computed by sweeps; the method {effort.method} is for an optimum, a sum or a count"
        )
    temporary = options.without_folder()
    strategy = strategy_before(question, temporary, effort)
    swept = not strategy.is_bounded
    unswept = _unswept(question, effort, swept)
    whole, refused = None, None
    try:
        if not unswept:
            whole = prepare(question, Resources(options), rates=machine_rates, patient=effort.method != "dense")
    except BudgetError as error:
        refused = error
    left = _remainder(question, options, effort) if effort.prune and not swept else None
    if refused is not None and (left is None or left.refused):
        raise refused if left is None else BudgetError(f"{refused}; {_hint(left)}") from None
    if whole is not None:
        strategy = with_planned_sweep(strategy, question, temporary, whole)
    elif refused is not None:
        strategy = strategy.without(SWEEP, str(refused))
    return PlanPreview(question, whole, "" if refused is None else str(refused), left, strategy, effort, unswept)


def _unswept(question: Question, effort: ProofOptions, swept: bool) -> str:
    """Return the description of a method without a sweep; "" if it sweeps, or preprocessing gives the answer."""
    optimum, total = _UNSWEPT.get(effort.method, ("", ""))
    if question.query == "optimum":
        return "" if swept else optimum
    return total if question.reduced[0].leaves else ""


def _hint(left: Remainder) -> str:
    before, after, bounds = left.report.before, left.report.after, left.bounds
    known = ", ".join(
        f"{which} {end}" for which, end in (("at least", bounds.lower), ("at most", bounds.upper)) if end is not None
    )
    return (
        f"preparation leaves {after.variables} of {before.variables} variables, which do not fit in memory either, "
        "and an "
        f"optimum of {known}; `solve` tries to prove it by bounds; with --time it gives the best assignment and an "
        "interval"
    )


def _remainder(question: Question, options: Options, effort: ProofOptions) -> Remainder:
    """Prepare an optimum as ``solve`` does, and plan what is left if it may be swept."""
    start = time.perf_counter()
    task = Task.of(question, options, effort, start)
    found = made_smaller(task.costs, task.known.upper)
    bounds = _bounds(task, found)
    plan, refused = None, ""
    if bounds.status == "bounded" and effort.method not in _UNSWEPT:
        left = model_of(found.network, task.known.upper if found.total is None else found.total + 1)
        try:
            plan = prepare(question_of(left, "optimum"), task.resources, rates=machine_rates).plan
        except BudgetError as error:
            refused = str(error)
    return Remainder(found.report, bounds, plan, refused, time.perf_counter() - start)


def _bounds(task: Task, found: PreparedNetwork) -> Bounds:
    """What preparation proved; a network without functions is solved by any states."""
    if not found.feasible:
        return Bounds("optimum", "infeasible")
    if found.network.tables:
        return task.between(found.lower, found.states, closed=found.total is not None and found.total <= found.lower)
    return task.between(found.lower, found.network.restored((0,) * len(found.network.dims)), closed=True)


def _sizes(size: Any) -> dict[str, int]:
    return {name: count for name, count in vars(size).items() if name != "lower"}
