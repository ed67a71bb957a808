"""Output of ``plan``: the plan of a query and, for an optimum that is not quick, the network after preparation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from ...cluster.memory import COMPILED_PROCESS_BYTES, PROCESS_BYTES, limited_task_bytes
from ...tasks.compiler.code_cache import COLD_CELLS
from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import LISTED_STEPS
from ..drawings.svg import drawing_ending
from ..errors import (
    BudgetError,
    ModelError,
    format_bytes,
    format_cells,
    parse_rate,
    parse_size,
    printable,
    shown_number,
)
from ..machine.rates import machine, removed_launches
from ..plans.plan import Plan, empty_plan, remembered_with_rates
from ..results.proof import plan_figures, removed_texts
from ..simulation.simulate import simulate
from ..trees.memory import step_bytes, table_bytes
from .options import print_written
from .show_run import print_rows, show, table

if TYPE_CHECKING:
    from ...cluster.worker_facts import TaskMemory
    from ..answering.engines.engine_options import Strategy
    from ..answering.plan_preview import PlanPreview, Remainder
    from ..answering.prepared import Prepared
    from ..trees.layouts import JunctionTreeSizes


def plan_json(found: PlanPreview) -> str:
    """Return the plan as one line of JSON: None where none fits, zeros where preprocessing gives the answer.

    ``seconds`` is the prediction for one core. ``unswept`` describes a method that runs no sweep. ``memory_bytes`` is
    the budget of the model and the tables, and ``process_bytes`` is the memory of Python in addition. ``impossible``
    counts states and function entries that are part of no assignment. ``removed`` counts the variables that
    preprocessing removed, by reason. ``prepared`` describes the network after preparation and its plan, for an optimum
    that is not quick. ``junction_tree`` gives the sizes of a requested junction tree.
    """
    prepared, left = found.whole, found.remainder
    notes = found.question.model.notes
    shown: dict[str, Any] = {"query": found.question.query, "method": found.effort.method, "plan": None}
    if notes:
        shown["notes"] = list(notes)
    if found.unswept:
        shown["unswept"] = found.unswept
    elif prepared is None:
        shown["refused"] = found.refused
    else:
        plan = prepared.plan or empty_plan()
        shown["plan"] = {**(plan_figures(plan) or {}), **_details(prepared, plan)}
        if _is_junction(prepared):
            shown["plan"]["junction_tree"] = asdict(plan.junction_tree)
        shown["planning_seconds"] = prepared.seconds
        shown["impossible"] = vars(prepared.network.pruned)
        shown["removed"] = {reason: len(names) for reason, names in _gone(prepared).items()}
    shown["strategy"] = found.strategy.to_dict()
    return json.dumps({**shown, **({"prepared": left.to_dict()} if left else {})}, allow_nan=False)


def write_graph(found: PlanPreview, path: str) -> None:
    """Write the task graph of a plan. If no plan fits for an optimum, write the graph of the network after preparation.

    Raises
    ------
    ModelError
        If what answers sweeps nothing, or the file cannot be written.
    BudgetError
        If no plan fits.
    """
    if found.unswept:
        raise ModelError(f"there is no task graph: {found.unswept}")
    prepared, left = found.whole, found.remainder
    if prepared is not None:
        model, variables = prepared.network.model, prepared.network.variables
        (prepared.plan or empty_plan()).graph([model.names[v] for v in variables]).save(path)
    elif left is not None and left.plan is not None:
        left.plan.graph().save(path)
    else:
        raise BudgetError(f"there is no task graph: {found.refused}")


def _details(prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """Return the details of a plan that only ``plan`` shows."""
    least = prepared.resources.asked.kept_bytes
    return {
        "steps": len(plan.steps),
        "parts": plan.part_count,
        "stages": len(plan.spill.stages) if plan.spill else 0,
        "read_bytes": plan.read_bytes,
        "written_bytes": plan.written_bytes,
        "sweeps": plan.sweeps,
        "slice_overhead": round(plan.slice_overhead, 6),
        "sliced": [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced],
        "seconds": plan.predicted_seconds,
        **({"launches": launches} if (launches := _launches(prepared, plan)) else {}),
        **(
            {}
            if (least := prepared.resources.asked.kept_bytes) is None
            else {"kept_bytes": plan.kept_tables_bytes(least)}
        ),
        "memory_bytes": prepared.memory_bytes,
        **({"smallest_worker": asdict(smallest.worker)} if (smallest := _smallest_worker(prepared)) else {}),
        "process_bytes": process_bytes(plan),
    }


def print_plan(found: PlanPreview) -> None:
    """Print the plan's figures and its largest steps, and the same after preparation."""
    prepared, left = found.whole, found.remainder
    if prepared is None:
        print_rows([("method", found.unswept) if found.unswept else ("no plan", found.refused)])
    elif prepared.plan is None:
        click.echo("Preprocessing gives the answer: no sweep is needed.")
        rows = [*_gone_rows(prepared), *_fallen_rows(prepared)]
        command = f"bucketflow solve … --query {found.question.query} answers immediately"
        print_rows([*rows, ("predicted", "0 s"), ("next", command)])
    else:
        print_rows(_plan_rows(prepared, prepared.plan))
        if _is_junction(prepared):
            show(_cliques(prepared.plan.junction_tree))
        show(_steps_table(prepared, prepared.plan))
    if prepared is None or prepared.plan is not None or left is not None:
        show(_offers(found.strategy))
    if left is not None:
        show(_comparison(prepared.plan if prepared else None, left))
        print_rows(_remainder_rows(left, found.unswept))


def _is_junction(prepared: Prepared) -> bool:
    return prepared.resources.asked.tree == "junction"


def _cliques(sizes: JunctionTreeSizes) -> Table:
    """Sizes of cliques and separators, in cells and variables."""
    made = table("junction tree", "")
    for column in ("cliques", "separators"):
        made.add_column(column, justify="right", no_wrap=True)
    rows = [("number", "count"), ("cells", "cells"), ("min cells", "least_cells"), ("mean cells", "mean_cells")]
    rows += [("max cells", "most_cells"), ("min variables", "least_variables")]
    rows += [("mean variables", "mean_variables"), ("max variables", "most_variables")]
    for label, name in rows:
        numbers = [getattr(each, name) for each in (sizes.cliques, sizes.separators)]
        made.add_row(label, *(f"{number:,.1f}" if name.startswith("mean") else f"{number:,}" for number in numbers))
    return made


def _offers(strategy: Strategy) -> Table:
    """The engines that may answer, in the order of their turns."""
    made = table("strategy", "engine", "predicted", "may take", "why")
    for offer in strategy.offers:
        price = offer.price
        where = "" if price.device == "host" else f" on {price.device}"
        predicted = f"{price.seconds:.3g} s ({price.certainty})" if price.known else "unknown"
        made.add_row(offer.engine + where, predicted, offer.length, offer.why)
    return made


def _comparison(whole: Plan | None, left: Remainder) -> Table:
    """The question and its plan before and after preparation."""
    made = table("preparation", "")
    for column in ("before", "after"):
        made.add_column(column, justify="right", no_wrap=True)
    before, after = left.report.before, left.report.after
    for name in ("variables", "values", "functions"):
        made.add_row(name, *(f"{getattr(size, name):,}" for size in (before, after)))
    made.add_row("entries", f"{before.cells:,}", f"{after.cells:,}")
    if whole or left.plan:
        nothing = {} if left.plan or left.refused else _figures(None, "0")
        columns = (_figures(whole, "none fits"), nothing or _figures(left.plan, "none fits"))
        for name in columns[0]:
            made.add_row(name, *(column[name] for column in columns))
    return made


def _figures(plan: Plan | None, without: str) -> dict[str, str]:
    """Return the predicted figures of a sweep, or the text ``without`` for each figure if there is no plan."""
    if plan is None:
        return dict.fromkeys(("width", "cells to sweep", "peak memory", "predicted"), without)
    return {
        "width": str(plan.cost.width),
        "cells to sweep": format_cells(plan.cells),
        "peak memory": format_bytes(plan.peak_bytes),
        "predicted": f"{plan.predicted_seconds:.3g} s",
    }


def _remainder_rows(left: Remainder, unswept: str) -> list[tuple[str, str]]:
    bounds = left.bounds
    if bounds.status == "bounded":
        known = f"at least {shown_number(bounds.lower)}, at most {shown_number(bounds.upper)}"
        way = (
            "by bounds: sparse tables, diagrams, search and sweeps of the remaining problem take turns; --time ends "
            "with an interval"
        )
        rows = [("optimum", known), *([] if unswept else [("solve", way)])]
    else:
        known = "no assignment is possible" if bounds.lower is None else f"{shown_number(bounds.lower)}, proved"
        rows = [("optimum", known)]
    if left.refused:
        rows.append(("no plan", left.refused))
    rows += [("removed", text) for text in removed_texts(left.to_dict()["removed"])]
    return [*rows, ("preparing", f"{left.seconds:.2f} s")]


def process_bytes(plan: Plan) -> int:
    """Return about what the process of a run takes besides its tables, which no budget counts."""
    return COMPILED_PROCESS_BYTES if plan.cells * plan.evaluated >= COLD_CELLS else PROCESS_BYTES


def _launches(prepared: Prepared, plan: Plan) -> str:
    """Return the sentence about stored launches for a plan that runs on this machine, and "" for other machines."""
    if prepared.resources.asked.remote:
        return ""
    if not plan.device:
        return removed_launches(machine())
    from ..machine.device import device_name

    return removed_launches(device_name())


def _plan_rows(prepared: Prepared, plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of a plan as pairs of label and text.

    Parameters
    ----------
    prepared : Prepared
    plan : Plan
    """
    names = [prepared.network.model.names[prepared.network.variables[v]] for v in plan.sliced]
    rows = plan.rows()
    rows += [
        ("budget", _budget_text(prepared)),
        ("process", f"some {format_bytes(process_bytes(plan))} outside the budget, for Python and its code"),
        ("planning", f"{prepared.seconds:.2f} s"),
        *_gone_rows(prepared),
        *_fallen_rows(prepared),
    ]
    if launches := _launches(prepared, plan):
        rows.append(("launches", launches))
    if (least := prepared.resources.asked.kept_bytes) is not None:
        kept = format_bytes(plan.kept_tables_bytes(least))
        rows.append(("kept tables", f"{kept} in {prepared.resources.asked.folder}, for inspection"))
    prices = prepared.prices
    ways = (("slicing", prices.slices), ("spilling", prices.spill)) if prices else ()
    for label, way in ways:
        if isinstance(way, BudgetError):
            rows.append((label, str(way)))
        elif way is not None:
            way = remembered_with_rates(way, plan.around.rates)  # as the plan that was chosen is predicted
            rows.append(
                (label, f"{way.tasks:,} tasks, peak {format_bytes(way.peak_bytes)}, {way.predicted_seconds:.3g} s")
            )
    if names:
        rows.append(("conditioned on", ", ".join(map(printable, names[:6])) + (" …" if len(names) > 6 else "")))
    return rows


def _smallest_worker(prepared: Prepared) -> TaskMemory | None:
    """Return the worker of a running cluster whose memory limits the plan; None if something else does."""
    asked = prepared.resources.asked
    limits = asked.remote and asked.memory is None and asked.gpus is None and not prepared.stored
    return prepared.resources.smallest_worker if limits else None


def _budget_text(prepared: Prepared) -> str:
    """Return the budget of a task, and the worker that limits it."""
    text, smallest = format_bytes(prepared.memory_bytes), _smallest_worker(prepared)
    if smallest is None:
        return text
    worker = smallest.worker
    share = f"a memory limit of {format_bytes(worker.limit_bytes)}" if worker.limit_bytes else "no memory limit"
    several = f" and {worker.threads} threads" if worker.threads > 1 else ""
    return f"{text}, of worker {worker.address} with {share}{several}"


def _gone(prepared: Prepared) -> dict[str, list[str]]:
    """Name the variables that preprocessing removed, by the reason."""
    network, observed = prepared.network, prepared.question.hard
    model = network.model
    one_state = [v for v, states in enumerate(network.domains) if len(states) == 1 and v not in observed]
    by_reason = {
        "observed": sorted(observed),
        "barren": sorted(network.barren - observed.keys()),
        "one_state": [v for v in one_state if v not in network.barren],
        "without_function": [v for v in network.free if v not in observed],
    }
    return {reason: [model.names[v] for v in variables] for reason, variables in by_reason.items()}


def _gone_rows(prepared: Prepared) -> list[tuple[str, str]]:
    """Say which variables preprocessing removed, and why."""
    reasons = {
        "observed": "fixed by the evidence",
        "barren": "summed to 1: no evidence and no queried variable depends on them",
        "one_state": "only one state is possible",
        "without_function": "no function mentions them",
    }
    rows = []
    for reason, names in _gone(prepared).items():
        if names:
            listed = ", ".join(map(printable, names[:6])) + (" …" if len(names) > 6 else "")
            rows.append((reason.replace("_", " "), f"{len(names):,} variables, {reasons[reason]}: {listed}"))
    if prepared.plan is None and (constants := prepared.network.constants):
        rows.append(("constants", f"{len(constants):,} functions whose variables all have one state"))
    return rows


def _fallen_rows(prepared: Prepared) -> list[tuple[str, str]]:
    pruned = prepared.network.pruned
    if not (pruned.states or pruned.entries):
        return []
    return [
        ("impossible", f"{pruned.states:,} states and {pruned.entries:,} entries of functions, removed before planning")
    ]


def _steps_table(prepared: Prepared, plan: Plan) -> Table:
    """The most expensive steps, by cells."""
    steps = table("largest steps", "eliminates")
    for column in ("inputs", "cells", "output", "bytes", "kernel"):
        steps.add_column(column, justify="left" if column == "kernel" else "right", no_wrap=True)
    sizes = plan.tree.dims
    model, variables = prepared.network.model, prepared.network.variables
    for step in sorted(plan.steps, key=lambda s: -s.lowered.cells)[:LISTED_STEPS]:
        gone = {v for axes in step.input_axes for v in axes} - set(step.axes) - set(plan.sliced)
        names = [model.names[variables[v]] for v in sorted(gone)]
        steps.add_row(
            ", ".join(printable(name, 20) for name in names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else ""),
            str(len(step.inputs)),
            format_cells(step.lowered.cells),
            _short(table_bytes(sizes, step.axes, 1)),
            format_bytes(step_bytes(step, sizes, plan.itemsize)),
            step.lowered.regime,
        )
    return steps


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count:.3g}"


# ``plan --simulate``: how long a plan would run on workers of several numbers.


@dataclass(frozen=True)
class SimulationOptions:
    """The options of a simulation.

    Parameters
    ----------
    workers : tuple of int
    seed : int
    given : dict
        Keywords of :func:`bucketflow.simulate`.
    timeline : str or None
        File of the drawing.
    """

    workers: tuple[int, ...]
    seed: int
    given: dict[str, Any]
    timeline: str | None

    @classmethod
    def of(cls, text: str, options: dict[str, Any], simulated: dict[str, Any]) -> SimulationOptions:
        """Read the options, and plan for the memory and the threads of a worker unless others are given.

        Raises
        ------
        ModelError
            If the numbers of workers or a size cannot be read.
        """
        name, _, numbers = text.partition("=")
        parts = [part.strip() for part in numbers.split(",")]
        if name.strip() != "workers" or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ModelError(f"--simulate is {text!r}; write for example workers=1,8,64")
        if options.get("workers") or options.get("scheduler"):
            raise ModelError("--simulate describes the workers; leave out --workers and --scheduler")
        given = dict(simulated)
        timeline = given.pop("timeline", None)
        if timeline is not None:
            drawing_ending(timeline)
        for rate in ("bandwidth", "storage_bandwidth"):
            if rate in given:
                parse_rate(given[rate])
        gpus, threads = given.pop("gpus_per_worker", None), given.pop("worker_threads", 1)
        if gpus is not None and options.get("gpus") is None:
            raise ModelError("--gpus-per-worker needs a plan for GPUs; give --gpus 1 on a machine with a GPU")
        given["slots"] = gpus or threads
        limit = given.get("worker_memory")
        if limit is not None and options["memory"] is None and gpus is None:
            options["memory"] = limited_task_bytes(parse_size(limit), threads)
        options["threads"] = options.get("threads") or 1
        return cls(tuple(map(int, parts)), options.get("seed", 0), given, timeline)

    def show(self, found: PlanPreview, as_json: bool) -> None:
        """Simulate the plan of a query; print the table and the chains, and draw the timeline."""
        simulation = simulate(_swept(found), self.workers, seed=self.seed, **self.given)
        if self.timeline is not None:
            simulation.draw().save(self.timeline)
            print_written(self.timeline)
        if as_json:
            click.echo(simulation.to_json())
            return
        click.echo(repr(simulation))


def _swept(found: PlanPreview) -> Plan:
    """Return the plan that is simulated: of the whole model, or of the network after preparation.

    Raises
    ------
    ModelError
        If the method runs no sweep.
    BudgetError
        If no plan fits.
    """
    if found.unswept:
        raise ModelError(f"there is nothing to simulate: {found.unswept}")
    if found.whole is not None:
        return found.whole.plan or empty_plan()
    if found.remainder is not None and found.remainder.plan is not None:
        return found.remainder.plan
    raise BudgetError(f"there is nothing to simulate: {found.refused}")
