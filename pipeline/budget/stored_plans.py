"""Plans in run directories: the stored facts of a plan, and rebuilding the same plan from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from ..errors import IncompatibleRunError
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..plans.problem import UNLIMITED_BYTES, Problem
from ..trees.costs import tree_cost
from ..trees.tree import Tree
from .rows_fit import with_stored_rows
from .spill import plan_spill


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
