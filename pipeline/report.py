"""What ``plan``, ``info`` and ``examples`` print."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from .examples import examples
from .memory import step_bytes, table_bytes
from .model import Model
from .planner import Plan, format_bytes, format_cells
from .reduce import absorb, components
from .result import plan_dict

if TYPE_CHECKING:
    from .api import Prepared

_LARGEST_STEPS = 6


def plan_json(prepared: Prepared) -> str:
    """Return the plan as one line of JSON; ``seconds`` is the prediction for one core."""
    plan = prepared.plan
    extra: dict[str, Any] = {}
    if plan is not None:
        extra = {
            "steps": len(plan.steps),
            "read_bytes": plan.read_bytes,
            "written_bytes": plan.written_bytes,
            "slice_overhead": round(plan.slice_overhead, 6),
            "sliced": [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced],
            "seconds": plan.seconds,
        }
    figures = {**(plan_dict(plan) or {}), **extra}
    return json.dumps({"query": prepared.network.query, "plan": figures or None, "planning_seconds": prepared.seconds})


def print_plan(prepared: Prepared) -> None:
    """Print the plan's figures and its largest steps."""
    plan = prepared.plan
    console = Console(soft_wrap=True)
    if plan is None:
        console.print("Nothing is left to eliminate: preprocessing gives the answer.")
        return
    facts = _facts_table()
    for label, text in _plan_rows(prepared, plan):
        facts.add_row(label, text)
    console.print(facts)
    console.print(_steps_table(prepared, plan))


def _plan_rows(prepared: Prepared, plan: Plan) -> list[tuple[str, str]]:
    names = [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced]
    rows = [*plan.rows(), ("planning", f"{prepared.seconds:.2f} s")]
    if names:
        rows.append(("conditioned on", ", ".join(names[:6]) + (" …" if len(names) > 6 else "")))
    return rows


def _steps_table(prepared: Prepared, plan: Plan) -> Table:
    """The most expensive steps, by cells."""
    table = Table(title="largest steps", box=box.SIMPLE, title_justify="left")
    for column in ("eliminates", "inputs", "cells", "output", "bytes", "kernel"):
        text = column in ("eliminates", "kernel")
        table.add_column(column, justify="left" if text else "right", no_wrap=True)
    sizes = plan.tree.dims
    model, variables = prepared.network.model, prepared.network.variables
    for step in sorted(plan.steps, key=lambda s: -s.lowered.cells)[:_LARGEST_STEPS]:
        gone = {v for axes in step.input_axes for v in axes} - set(step.axes) - set(plan.sliced)
        names = [model.names[variables[v]] for v in sorted(gone)]
        table.add_row(
            ", ".join(names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else ""),
            str(len(step.inputs)),
            format_cells(step.lowered.cells),
            format_cells(table_bytes(sizes, step.axes, 1)),
            format_bytes(step_bytes(step, sizes, plan.itemsize)),
            step.lowered.regime,
        )
    return table


def model_facts(model: Model) -> dict[str, Any]:
    """Describe a model: sizes, domains, arities, connectivity, how much of it is forbidden."""
    functions = model.functions
    scopes = {i: tuple(sorted(f.scope)) for i, f in enumerate(functions) if f.scope}
    used = {v for scope in scopes.values() for v in scope}
    return {
        "kind": model.kind,
        "name": model.name,
        "variables": len(model.dims),
        "max_domain": max(model.dims, default=0),
        "log10_assignments": round(sum(math.log10(d) for d in model.dims), 3),
        "functions": len(functions),
        "max_arity": max((len(f.scope) for f in functions), default=0),
        "row_functions": sum(f.rows is not None for f in functions),
        "stored_values": sum(int(f.values.size) for f in functions),
        "scopes_after_absorbing": len(absorb(scopes)),
        "components": components(len(model.dims), list(scopes.values())),
        "unused_variables": len(model.dims) - len(used),
        "top": model.top,
        "evidence": len(model.evidence),
    }


def print_facts(facts: dict[str, Any]) -> None:
    """Print labelled facts, leaving out what does not apply."""
    table = _facts_table()
    for label, value in facts.items():
        if value is not None and value != "":
            table.add_row(label.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    Console(soft_wrap=True).print(table)


def print_examples() -> None:
    """List the example models."""
    console = Console(soft_wrap=True)
    for example in examples():
        console.print(f"[bold]{example.name}[/bold]  {example.title}")
        console.print(f"    {example.description}")
        console.print(f"    {example.query}")
        console.print(f"    bucketflow solve {example.name}", highlight=False)


def _facts_table() -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column()
    return table
