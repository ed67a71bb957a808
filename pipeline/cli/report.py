"""What ``plan``, ``info`` and ``examples`` print."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...cluster.budget import COMPILED_PROCESS_BYTES, PROCESS_BYTES
from ...tasks.cpu.compiler import COLD_CELLS
from ..errors import BudgetError
from ..examples import examples
from ..models.model import Model
from ..models.preprocess import absorb, components
from ..plans.plan import Plan, format_bytes, format_cells
from ..results.result import plan_figures
from ..text import logarithm, printable
from ..trees.memory import step_bytes, table_bytes

if TYPE_CHECKING:
    from ..api.prepared import Prepared

_LARGEST_STEPS = 6
# Characters of a labelled line.
_LINE = 400


def plan_json(prepared: Prepared) -> str:
    """Return the plan as one line of JSON; ``seconds`` is the prediction for one core.

    ``memory_bytes`` is the budget of the model and the tables, ``process_bytes`` what Python takes beside it.
    """
    plan = prepared.plan
    extra: dict[str, Any] = {}
    if plan is not None:
        extra = {
            "steps": len(plan.steps),
            "parts": plan.part_count,
            "stages": len(plan.spill.stages) if plan.spill else 0,
            "read_bytes": plan.read_bytes,
            "written_bytes": plan.written_bytes,
            "sweeps": plan.sweeps,
            "slice_overhead": round(plan.slice_overhead, 6),
            "sliced": [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced],
            "seconds": plan.seconds,
            "memory_bytes": prepared.memory_bytes,
            "process_bytes": process_bytes(plan),
        }
    figures = {**(plan_figures(plan) or {}), **extra}
    return json.dumps({"query": prepared.question.query, "plan": figures or None, "planning_seconds": prepared.seconds})


def print_plan(prepared: Prepared) -> None:
    """Print the plan's figures and its largest steps."""
    plan = prepared.plan
    if plan is None:
        click.echo("Nothing is left to eliminate: preprocessing gives the answer.")
        return
    print_rows(_plan_rows(prepared, plan))
    _show(_steps_table(prepared, plan))


def process_bytes(plan: Plan) -> int:
    """Return about what the process of a run takes besides its tables, which no budget counts."""
    return COMPILED_PROCESS_BYTES if plan.cells * plan.evaluated >= COLD_CELLS else PROCESS_BYTES


def _plan_rows(prepared: Prepared, plan: Plan) -> list[tuple[str, str]]:
    names = [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced]
    rows = plan.rows()
    rows += [
        ("budget", format_bytes(prepared.memory_bytes)),
        ("process", f"some {format_bytes(process_bytes(plan))} outside the budget, for Python and its code"),
        ("planning", f"{prepared.seconds:.2f} s"),
    ]
    prices = prepared.prices
    ways = (("slicing", prices.slices), ("spilling", prices.spill)) if prices else ()
    for label, way in ways:
        if isinstance(way, BudgetError):
            rows.append((label, str(way)))
        elif way is not None:
            rows.append((label, f"{way.tasks:,} tasks, peak {format_bytes(way.peak_bytes)}, {way.seconds:.3g} s"))
    if names:
        rows.append(("conditioned on", ", ".join(map(printable, names[:6])) + (" …" if len(names) > 6 else "")))
    return rows


def _steps_table(prepared: Prepared, plan: Plan) -> Table:
    """The most expensive steps, by cells."""
    table = _table("largest steps", "eliminates")
    for column in ("inputs", "cells", "output", "bytes", "kernel"):
        table.add_column(column, justify="left" if column == "kernel" else "right", no_wrap=True)
    sizes = plan.tree.dims
    model, variables = prepared.network.model, prepared.network.variables
    for step in sorted(plan.steps, key=lambda s: -s.lowered.cells)[:_LARGEST_STEPS]:
        gone = {v for axes in step.input_axes for v in axes} - set(step.axes) - set(plan.sliced)
        names = [model.names[variables[v]] for v in sorted(gone)]
        table.add_row(
            ", ".join(printable(name, 20) for name in names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else ""),
            str(len(step.inputs)),
            format_cells(step.lowered.cells),
            _short(table_bytes(sizes, step.axes, 1)),
            format_bytes(step_bytes(step, sizes, plan.itemsize)),
            step.lowered.regime,
        )
    return table


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count:.3g}"


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
    shown = {label: value for label, value in facts.items() if value is not None and value != ""}
    print_rows((k.replace("_", " "), f"{v:,}" if isinstance(v, int) else str(v)) for k, v in shown.items())


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print labelled lines: whole at any width, the terminal wraps them."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        line = Text.assemble((f"{label:<{width}}", "dim"), "  ", printable(text, _LINE))
        _show(line, soft_wrap=True, highlight=False)


def print_run(facts: dict[str, Any]) -> None:
    """Print how far a run directory is: its stages, and the slowest tasks."""
    head = [(label, str(facts[label])) for label in ("model", "query", "status")]
    if facts["answer"]:
        found = {k: logarithm(v) if "log10" in k and v is not None else v for k, v in facts["answer"].items()}
        head.append(("answer", ", ".join(f"{k} {v}" for k, v in found.items() if v is not None)))
    disk = f"{format_bytes(facts['disk_bytes'])} of {format_bytes(facts['disk_bytes_planned'])} planned"
    print_rows([*head, ("on disk", disk)])
    stages = _table("stages", "table")
    for column in ("boxes", "chunks done", "bytes", "planned peak", "seconds"):
        stages.add_column(column, justify="right", no_wrap=True)
    for s in facts["stages"]:
        figures = (format_bytes(s["bytes"]), format_bytes(s["peak_bytes_planned"]), f"{s['seconds']:.2f}")
        stages.add_row(s["table"], f"{s['boxes']:,}", f"{s['chunks_done']:,}", *figures)
    if facts["stages"]:
        _show(stages)
    for task in facts["slowest"]:
        click.echo(f"slow: {task['table']} {task['chunk']} {task['seconds']} s")


def print_examples() -> None:
    """List the example models."""
    for example in examples():
        _show(Text.assemble((example.name, "bold"), "  ", example.title))
        for text in (example.description, example.query):
            _show(Padding(Text(text), (0, 0, 0, 4)))
        for command in example.commands:
            _show(Padding(Text(f"bucketflow {command}"), (0, 0, 0, 4)))


def print_calibration(found: dict[str, Any]) -> None:
    """Print what a machine and its GPU do in a second."""
    head = [("disk", f"{format_bytes(round(found['disk_bytes_per_second']))}/s")]
    gpu = found["gpu"]
    if gpu is None:
        head.append(("GPU", found["gpu_missing"]))
    else:
        head.append(("GPU", gpu["name"]))
        head.append(("link", f"{format_bytes(round(gpu['link_bytes_per_second']))}/s"))
        head.append(("upload", f"{gpu['upload_seconds'] * 1e6:.0f} us at least"))
    print_rows([*head, ("kept in", found["cache"])])
    table = _table("rates a second", "", "kernels")
    for column in ("cells", "of products", "bytes", "us/step", "from"):
        table.add_column(column, justify="right", no_wrap=True)
    for place, kernels in (("CPU", found["cpu"]), ("GPU", gpu["kernels"] if gpu else {})):
        for name, rates in kernels.items():
            least = f"2^{math.log2(gpu['least_cells'][name]):.0f}" if place == "GPU" else ""
            figures = (_rate(rates[f]) for f in ("cells_per_second", "matmul_cells_per_second", "bytes_per_second"))
            table.add_row(place, name, *figures, f"{rates['step_seconds'] * 1e6:.1f}", least)
    _show(table)


def _rate(value: float) -> str:
    return f"{value / 1e12:.3g} T" if value >= 1e12 else f"{value / 1e9:.3g} G"


def _show(shown: RenderableType, **how: Any) -> None:
    """Print something with names from files as they are, whatever the terminal's encoding."""
    console = Console(markup=False, emoji=False)
    with console.capture() as capture:
        console.print(shown, **how)
    click.echo(capture.get(), nl=False)


def _table(title: str, *columns: str) -> Table:
    """A table whose first columns are text, which is folded where there is no room for it."""
    table = Table(title=title, box=box.SIMPLE, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
