"""Plans with sparse tables: one tree for any number of cells, and more slices if tables turn out to be too large.

A run directory stores the facts from which a later process builds the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf, log2, prod
from typing import Any, Final

from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.steps.number_limits import ordered_sum
from ..errors import BudgetError, IncompatibleRunError, format_bytes
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..plans.problem import UNLIMITED_BYTES, Problem
from ..plans.row_bounds import LEAF_ROW_BYTES, expected_work, states_left
from ..trees.costs import tree_cost
from ..trees.tree import Tree
from .budget_policy import BudgetPolicy
from .spill import plan_spill

# Nominal seconds of the search for a tree by default, and per function: cells say little about sparse tables.
_ROWS_SEARCH_SECONDS: Final = 0.25
_ROWS_FUNCTION_SECONDS: Final = 1e-3
# Minimum expected rows for a search for another tree; below it, the search takes longer than its gain.
_ENOUGH_ROWS: Final = 1e8
# Factor of sparse variables' remaining states in prices; a larger factor avoids wide tables.
_SPARSE_STATES: Final = (1, 8)


def rows_plan(planner: Planner, tree: Tree | None = None, most_work: float = inf) -> Plan:
    """Plan a sweep by rows, both ways where the problem has targets.

    Parameters
    ----------
    tree : Tree, optional
        One that is known, and taken unless another has far fewer rows.
    most_work : float
        Rows that joins may have before the run ends without an answer.

    Raises
    ------
    BudgetError
        If the leaf tables alone do not fit memory.
    """
    planner, problem, allowed = planner.with_options(by_rows=True), planner.problem, planner.memory_bytes
    longest = min(_ROWS_SEARCH_SECONDS, _ROWS_FUNCTION_SECONDS * len(problem.scopes))
    assert problem.rows is not None
    found = tree or planner.tree(longest=longest)
    if most_work >= _ENOUGH_ROWS:
        found = _sparsest_tree(planner, longest, found)
    plan = planner.of(found)
    making = LEAF_ROW_BYTES * max(problem.rows, default=0)
    if (least := plan.model_bytes + plan.leaf_bytes + making) > allowed:
        raise BudgetError(
            f"the rows of the model and its functions need {format_bytes(least)}, allowed "
            f"{format_bytes(allowed)}; try a larger --memory"
        )
    return plan


def _sparsest_tree(planner: Planner, longest: float, found: Tree) -> Tree:
    """Where a tree that was searched by cells leaves many rows, search by the states that sparse tables leave."""
    policy = BudgetPolicy.current()
    problem, options = planner.problem, planner.options
    assert problem.rows is not None
    least = expected_work(found, problem.rows)
    given = options.children is not None or options.order != "auto" or options.tree != "refined"
    if given or problem.targets is not None or least < policy.searched_rows:
        return found
    left, known = states_left(problem.dims, problem.scopes, problem.rows), {problem.dims}
    for times in _SPARSE_STATES:
        # integers: variables with one state keep it
        dims = tuple([max(2, round(times * n)) if d > 1 else 1 for n, d in zip(left, problem.dims, strict=True)])
        if dims in known:
            continue
        known.add(dims)
        other = replace(planner, problem=replace(problem, dims=dims)).tree(longest=longest)
        other = replace(other, dims=problem.dims)
        if (work := expected_work(other, problem.rows)) * policy.close < least:
            found, least = other, work
    return found


def with_stored_rows(plan: Plan, memory_bytes: int) -> Plan:
    """Return a sparse plan without slices; its tables are on disk if they do not fit in memory.

    Raises
    ------
    BudgetError
        If nothing is left for them beside the leaf tables.
    """
    if (least := plan.model_bytes + plan.leaf_bytes + 3 * BudgetPolicy.current().margin_bytes) > memory_bytes:
        raise BudgetError(
            f"sparse tables on disk need {format_bytes(least)}, with the rows of the model and a margin, allowed "
            f"{format_bytes(memory_bytes)}; try a larger --memory"
        )
    return replace(plan, rows_stored=True, peak_bytes=min(plan.peak_bytes, memory_bytes))


def stored_or_sliced(planner: Planner, whole: Plan, plan: Plan, error: RowsNoRoomError) -> Plan:
    """Put tables on disk, or condition on more variables where that repeats little of the work.

    Parameters
    ----------
    whole : Plan
        Without slices.
    plan : Plan
        That did not fit, for the reason given.
    """
    sliced: Plan | BudgetError
    try:
        sliced = with_more_slices(planner, plan, error)
        if sliced.cells <= BudgetPolicy.current().worth_storing * whole.cells:
            return sliced
    except BudgetError as refused:
        sliced = refused
    try:
        return with_stored_rows(whole, planner.memory_bytes)
    except BudgetError:
        if isinstance(sliced, Plan):
            return sliced
        raise sliced from None


def is_sparse(problem: Problem) -> bool:
    """Whether leaf tables allow few enough cells for sparse tables: at most half of all cells, taken together."""
    assert problem.rows is not None
    cells = (prod(problem.dims[v] for v in scope) for scope in problem.scopes)
    return ordered_sum(log2(all_ / max(rows, 1)) for all_, rows in zip(cells, problem.rows, strict=True)) >= 1.0


def with_more_slices(planner: Planner, plan: Plan, error: RowsNoRoomError) -> Plan:
    """Condition on more variables, preferring variables of the failed table that occur in most other tables.

    Raises
    ------
    BudgetError
        If there are none, or too many slices.
    """
    policy = BudgetPolicy.current()
    last = planner.problem.last
    free = [v for v in error.axes if v not in plan.sliced and plan.dims[v] > 1 and (v in last or not last)]
    scopes = [frozenset().union(*step.input_axes) for step in plan.steps]
    often = {v: sum(v in scope for scope in scopes) for v in free}
    chosen, wanted = (
        list(plan.sliced),
        plan.slices * max(error.needed // max(error.allowed, 1), 2),
    )
    for v in sorted(free, key=lambda v: (-often[v], -plan.dims[v], v)):
        chosen.append(v)
        if prod(plan.dims[u] for u in chosen) >= wanted:
            break
    slices = prod(plan.dims[v] for v in chosen)
    if not free or slices > policy.most_slices:
        where = f" in {plan.slices:,} slices" if plan.slices > 1 else ""
        raise BudgetError(
            f"a sparse table needs at least {format_bytes(error.needed)}{where}, allowed "
            f"{format_bytes(error.allowed)}; try a larger --memory"
        )
    return planner.with_options(by_rows=True).conditioned(plan, frozenset(chosen))


def plan_record(plan: Plan, memory_bytes: int) -> dict[str, Any]:
    """Return the facts that rebuild the same plan, and the facts that ``inspect`` shows.

    Parameters
    ----------
    memory_bytes : int
        The memory budget of an in-memory plan; a plan that spills has its own.

    Returns
    -------
    dict
        JSON types: the tree's children, sliced variables, cuts (head, boxed and chunked variables of each stage),
        figures in bytes, cells and seconds, and a hash of all tables and the order of their axes.
    """
    spill = plan.spill
    record: dict[str, Any] = {
        "children": [list(kids) for kids in plan.tree.children],
        "sliced": list(plan.sliced),
        "group": plan.group,
        "device": plan.device,
        "rows": plan.row_bounds is not None,
        "rows_stored": plan.rows_stored,
        "unsliced_cells": plan.unsliced_cells,
        "stored_bytes": [plan.stored_bytes, plan.most_stored_bytes],
        "peak_bytes": plan.peak_bytes,
        "seconds": plan.predicted_seconds,
        "structure": structure(plan),
    }
    # the two kinds of plans have stages of different forms
    if spill is None:
        slices = {"table": plan.slices_name, "boxes": plan.groups, "peak_bytes": plan.peak_bytes}
        stages = [slices] if not plan.rows_stored and (plan.sliced or plan.results) else []
        steps = {"row_steps": [step.node for step in plan.steps]} if plan.rows_stored else {}
        disk_bytes = plan.disk_bytes
        return {**record, **steps, "memory_bytes": memory_bytes, "cuts": [], "stages": stages, "disk_bytes": disk_bytes}
    return {
        **record,
        "memory_bytes": spill.memory_bytes,
        "cuts": [[head, list(boxed), sorted(chunked)] for head, boxed, chunked in spill.cuts],
        "stages": spill.records(),
        "disk_bytes": spill.disk_bytes,
        "disk_rate": spill.disk_rate,
    }


def structure(plan: Plan) -> str:
    """Return a hash of a plan's tables and the order of their axes: the content that receipts describe."""
    steps = [(step.node, step.inputs, step.input_axes, step.axes) for step in plan.steps]
    return sha256(repr((plan.dims, plan.sliced, plan.layouts, steps)).encode()).hexdigest()


def stored_plan(planner: Planner, record: Mapping[str, Any]) -> Plan:
    """Rebuild the plan of a record, for any present limits.

    Raises
    ------
    IncompatibleRunError
        If its tree is not one of this problem's functions, or other tables are made of it now.
    """
    plan = _made_again(planner, record)
    if structure(plan) != record["structure"]:
        raise IncompatibleRunError(
            "this version of bucketflow builds different tables for the stored plan: continue with the version that "
            "made the plan, or "
            "use another --workdir"
        )
    return plan


def _made_again(planner: Planner, record: Mapping[str, Any]) -> Plan:
    problem = planner.problem
    children = _checked_children(problem, record["children"])
    again = planner.with_options(memory_bytes=record["memory_bytes"], by_rows=record.get("rows", False))
    tree = Tree(problem.dims, problem.scopes, children, problem.last)
    if not record["cuts"]:
        plan = again.of(tree, frozenset(record["sliced"]))
        # slices are compared with the best tree without slices, which is another tree
        whole = record.get("unsliced_cells") or tree_cost(tree, planner.rates, problem.itemsize).cells
        stored, most = record.get("stored_bytes", (plan.stored_bytes, plan.most_stored_bytes))
        plan = replace(plan, unsliced_cells=whole, stored_bytes=stored, most_stored_bytes=most)
        if record.get("rows_stored", False):
            return with_stored_rows(plan, again.memory_bytes)
        return replace(plan, group=record["group"])
    stages = tuple((head, tuple(boxed), frozenset(chunked)) for head, boxed, chunked in record["cuts"])
    again = again.with_options(stages=stages, device=planner.options.device and record["device"])
    whole = again.with_options(memory_bytes=UNLIMITED_BYTES).of(tree)
    return plan_spill(again, whole, record["disk_rate"])


def _checked_children(problem: Problem, children: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the children of all inner nodes, if every node is read once at most and after it is made."""
    leaves, seen = len(problem.scopes), set[int]()
    for node, kids in enumerate(children, leaves):
        if not kids or not all(0 <= kid < node and kid not in seen for kid in kids) or len({*kids}) < len(kids):
            raise IncompatibleRunError("the stored plan is not a tree of the model's functions; use another --workdir")
        seen.update(kids)
    return tuple(tuple(kids) for kids in children)
