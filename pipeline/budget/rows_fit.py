"""Plans whose tables are rows: one tree, whatever its cells, and as many slices as the tables turned out to need."""

from __future__ import annotations

from dataclasses import replace
from math import log2, prod
from typing import Final

from ...tasks.sweeps.rows.room import NoRoomError
from ..errors import BudgetError, format_bytes
from ..plans.plan import Plan, PlanOptions, Problem
from ..plans.planner import plan_tree, searched_tree
from ..plans.row_bounds import LEAF_ROW_BYTES
from ..plans.slices import MAX_SLICES
from ..trees.costs import Rates

#: Nominal seconds of the search for a tree, unless told: cells say little about rows.
_SEARCH_SECONDS: Final = 0.25
_FUNCTION_SECONDS: Final = 1e-3
# Slices grow by this factor at most before it is tried again.
_MOST_AT_ONCE: Final = 64


def rows_plan(problem: Problem, options: PlanOptions, rates: Rates) -> Plan:
    """Plan a sweep by rows, both ways where the problem has targets.

    Raises
    ------
    BudgetError
        If the leaf tables alone do not fit memory.
    """
    wanted = replace(options, by_rows=True)
    longest = min(_SEARCH_SECONDS, _FUNCTION_SECONDS * len(problem.scopes))
    plan = plan_tree(problem, wanted, rates, searched_tree(problem, wanted, rates, longest=longest))
    assert problem.rows is not None
    making = LEAF_ROW_BYTES * max(problem.rows, default=0)
    if (least := plan.model_bytes + plan.leaf_bytes + making) > options.memory_bytes:
        raise BudgetError(
            f"the rows of the model and its functions need {format_bytes(least)}, allowed "
            f"{format_bytes(options.memory_bytes)}; try a larger --memory"
        )
    return plan


def is_sparse(problem: Problem) -> bool:
    """Whether leaf tables allow so few of their cells that rows may be fewer: half of all at most, taken together."""
    assert problem.rows is not None
    cells = (prod(problem.dims[v] for v in scope) for scope in problem.scopes)
    return sum(log2(all_ / max(rows, 1)) for all_, rows in zip(cells, problem.rows, strict=True)) >= 1.0


def with_more_slices(problem: Problem, options: PlanOptions, plan: Plan, error: NoRoomError) -> Plan:
    """Condition on more variables, those of the table that does not fit which most others have too.

    Raises
    ------
    BudgetError
        If there are none, or too many slices.
    """
    free = [v for v in error.axes if v not in plan.sliced and plan.dims[v] > 1]
    scopes = [frozenset().union(*step.input_axes) for step in plan.steps]
    often = {v: sum(v in scope for scope in scopes) for v in free}
    chosen, wanted = list(plan.sliced), plan.slices * min(max(error.needed // max(error.allowed, 1), 2), _MOST_AT_ONCE)
    for v in sorted(free, key=lambda v: (-often[v], -plan.dims[v], v)):
        chosen.append(v)
        if prod(plan.dims[u] for u in chosen) >= wanted:
            break
    slices = prod(plan.dims[v] for v in chosen)
    if not free or slices > MAX_SLICES:
        raise BudgetError(
            f"by rows a table needs at least {format_bytes(error.needed)} in {plan.slices:,} slices, allowed "
            f"{format_bytes(error.allowed)}; try a larger --memory"
        )
    tree = replace(plan.tree, dims=plan.dims)
    return plan_tree(problem, replace(options, by_rows=True), Rates(), tree, frozenset(chosen))
