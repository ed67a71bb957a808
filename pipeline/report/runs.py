"""Sections of a run directory: its query and answer, its plan, and its tasks' ledger."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ...storage import ledger
from ...storage.faults import StorageError
from ...storage.files import Place
from ...storage.run_folder import JobDir, stored_bounds, stored_plan, stored_result
from ...storage.spec import Receipt
from ...tasks.steps.step import Step
from ..answering.prepared import Prepared, prepare
from ..api.stored_runs import stored_question
from ..drawings import charts
from ..drawings.html import Html
from ..drawings.shown import LISTED_MEMBERS, SAME_SECONDS
from ..drawings.svg import Svg
from ..errors import BucketflowError, IncompatibleRunError, counted, format_bytes, shown_number
from ..formats.read import load
from ..machine.rates import cached_rates
from ..machine.resources import Resources
from ..options import Options
from ..plans.plan import Plan
from ..plans.prediction import step_seconds, steps_seconds
from ..plans.task_graph import eliminated
from ..results.posteriors import posterior_bars
from ..results.proof import shown_assignment
from ..trees.costs import Rates

# Names of variables in a label.
_LABEL_NAMES: Final = 3

# Sections of an answer, as ``--json`` prints it.

Sections = list[tuple[str, Any]]


def answer_sections(found: Mapping[str, Any], query: str) -> Sections:
    """Return the sections about an answer."""
    sections: Sections = [("Answer", [*_short(found, query), *_rows(found)])]
    if found.get("marginals"):
        if (network := _network(found, query)) is not None:
            sections.append(("Network", network))
        sections.append(("Marginals", marginal_bars(found, query)))
    if found.get("joint"):
        sections.append(("Joints", _joints(found)))
    proof = found.get("proof")
    history = _history(found)
    if history:
        sections.append(("Convergence", charts.convergence(str(found.get("query", query)), history, _unit(found))))
    if proof and proof.get("tried"):
        tried = {name: seconds for name, seconds in proof["tried"].items() if seconds}
        if tried:
            chart = charts.bars("CPU seconds by way", list(tried), {"seconds": list(tried.values())}, "seconds")
            sections.append(("Ways that were tried", chart))
    return sections


def _network(found: Mapping[str, Any], query: str) -> Svg | None:
    """Draw the model of an answer with its posteriors; None if the model's file has gone or changed, or is large."""
    source = (found.get("model") or {}).get("source") or ""
    few = len(found["marginals"]) <= LISTED_MEMBERS
    if query == "max-marginals" or not (few and os.path.isfile(source)):
        return None
    try:
        model = load(source)
        tables = {name: _numbers(table) for name, table in found["marginals"].items()}
        if any(len(table) != model.dims[model.index[name]] for name, table in tables.items()):
            return None
        hard = {name: state for name, state in (found.get("evidence") or {}).items() if not isinstance(state, list)}
        return model.draw(posteriors=tables, evidence=hard)
    except (BucketflowError, KeyError):
        return None


def origin_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the path of the model's file, for the end of a page."""
    source = (found.get("model") or {}).get("source")
    return [("file of the model", source)] if source else []


def best_sections(found: Mapping[str, Any]) -> Sections:
    """Return the sections about the best assignments: how good they are, and where they differ from the first."""
    ranked = found["assignments"]
    rows = [("asked", _asked(found, f"the best {len(ranked):,} assignments"))]
    rows.append(("answer", str(found["status"]) if ranked else "nothing is possible"))
    if found.get("optimal_count") is not None:
        rows.append(("optimal assignments", shown_number(found["optimal_count"])))
    if ranked:
        rows.append(("the best", shown_assignment(ranked[0]["assignment"])))
    rows.append(("seconds", ", ".join(f"{name} {seconds:.3f}" for name, seconds in found["seconds"].items())))
    rows += [("note", text) for text in found.get("notes") or ()]
    sections: Sections = [("Answer", rows)]
    if ranked:
        unit = "value" if ranked[0].get("value") is not None else "log10"
        first = ranked[0]["assignment"]
        changes = [{x: s for x, s in each["assignment"].items() if first.get(x) != s} for each in ranked]
        columns: dict[str, Sequence[Any]] = {
            "rank": [each["rank"] for each in ranked],
            unit: [shown_number(each[unit]) if each.get(unit) is not None else "" for each in ranked],
            "differs from the best in": [shown_assignment(change) if change else "" for change in changes],
        }
        sections.append(("Assignments", charts.table(columns)))
    return sections


def answer_title(found: Mapping[str, Any], otherwise: str) -> str:
    """Return the title of a page about an answer: the model and the query."""
    model = found.get("model") or {}
    name = Path(model.get("source") or "").name or model.get("name")
    query = found.get("query") or ("marginals" if "marginals" in found else "answer")
    return f"{name}: {query}" if name else f"bucketflow: {otherwise}"


def _short(found: Mapping[str, Any], query: str) -> list[tuple[str, str]]:
    """Return the query, the answer, its trustworthiness and its cost, one line each."""
    asked = _asked(found, str(found.get("query") or query or "marginals"))
    seconds = sum(found["seconds"].values())
    cost = f"{seconds:.3g} s, {format_bytes(found['peak_rss_bytes'])} at most"
    return [("asked", asked), ("answer", _said(found)), ("trust", _trust(found)), ("cost", cost)]


def _asked(found: Mapping[str, Any], what: str) -> str:
    """Return a description of the query: the model and the evidence."""
    model, evidence = found.get("model"), found.get("evidence") or {}
    if not model:
        return what
    name = Path(model["source"]).name or model["name"] or "a model in memory"
    given = f"given {shown_assignment(evidence)}" if evidence else "without evidence"
    return f"{what} of {name}, {model['kind']}, {model['variables']:,} variables, {given}"


def _said(found: Mapping[str, Any]) -> str:
    if found["status"] == "infeasible":
        return "infeasible: no assignment is possible, or the evidence has probability 0"
    if found.get("query") == "sample" and "samples" in found:
        return (
            f"{counted(found['samples'], 'sample')} of {counted(found['variables'], 'variable')}, seed {found['seed']}"
        )
    for name, what in (("value", "value"), ("log10", "log10"), ("log10_evidence", "log10 of the evidence")):
        if found.get(name) is not None:
            return f"{what} {shown_number(found[name])}"
    return str(found["status"])


def _trust(found: Mapping[str, Any]) -> str:
    """Say how far an answer is proved."""
    status, proof = found["status"], found.get("proof") or {}
    if found.get("query") == "sample":
        return "exact: independent draws, without a chain"
    ends = proof if proof else found
    if status == "bounded":
        gap = "" if ends.get("gap") is None else f", gap {shown_number(ends['gap'])}"
        between = f"between {shown_number(ends.get('lower'))} and {shown_number(ends.get('upper'))}{gap}"
        return f"not proved: the answer lies {between}"
    checked = "; the assignment was evaluated again on the input" if found.get("assignment") else ""
    if proof:
        return f"proved by {proof['method']}: no assignment is better{checked}"
    exact = (
        "proved"
        if status in ("optimal", "infeasible")
        else ("exact, except for rounding if it is computed with floats")
    )
    return f"{exact}{checked}"


def _history(found: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """Both bounds by seconds: of an optimum as they were proved and found, of ``bound`` by size of its mini-buckets."""
    rounds = found.get("rounds") or ()
    ends = accumulate(each["seconds"] for each in rounds)
    by_size = [(t, each["lower"], each["upper"]) for t, each in zip(ends, rounds, strict=True)]
    return by_size or (found.get("proof") or {}).get("history") or ()


def _unit(found: Mapping[str, Any]) -> str:
    return "cost" if found.get("log10") is None and found.get("value") is not None else "log10"


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("status", str(found["status"]))]
    for name in ("lower", "upper", "gap"):
        if found.get(name) is not None:
            rows.append((name, shown_number(found[name])))
    proof = found.get("proof")
    if proof:
        rows.append(("proved by", str(proof["method"])))
        rows.append(("bounds", f"{shown_number(proof['lower'])} … {shown_number(proof['upper'])}"))
    if found.get("assignment"):
        rows.append(("assignment", shown_assignment(found["assignment"])))
    rows.append(("seconds", ", ".join(f"{name} {seconds:.3f}" for name, seconds in found["seconds"].items())))
    rows.append(("peak memory", format_bytes(found["peak_rss_bytes"])))
    return rows + [("note", text) for text in found.get("notes", ())]


def marginal_bars(found: Mapping[str, Any], query: str) -> Html:
    """Bars of the distributions of the first variables, and of all others the state that is greatest."""
    most = LISTED_MEMBERS
    tables = list(found["marginals"].items())
    unit = "best that is possible" if query == "max-marginals" else "probability"
    labels = {name: list(map(str, found["states"][name])) for name, _ in tables}
    shown = [(name, labels[name], np.array(_numbers(table))) for name, table in tables[:most]]
    first = "The first " if len(tables) > most else ""
    chart = posterior_bars(f"{first}{counted(len(shown), 'variable')}", shown, unit, found.get("evidence") or {})
    if len(tables) <= most:
        return chart
    best = [(name, max(range(len(table)), key=lambda k: _numbers(table)[k]), table) for name, table in tables]
    columns: dict[str, Sequence[Any]] = {
        "variable": [name for name, _, _ in best],
        "state": [labels[name][k] for name, k, _ in best],
        unit: [_numbers(table)[k] for _, k, table in best],
    }
    return charts.below(
        chart, charts.details(f"all {len(tables):,}: the most likely state of each", charts.table(columns))
    )


def _numbers(table: Sequence[Any]) -> list[float]:
    return [math.inf if value is None else float(value) for value in table]


def _joints(found: Mapping[str, Any]) -> Html:
    """Bars of the first combinations of each joint that was asked for."""
    most, made = LISTED_MEMBERS, []
    for each in found["joint"]:
        names = [", ".join(map(str, states)) for states in product(*(found["states"][v] for v in each["variables"]))]
        values = _numbers(np.array(each["table"], dtype=object).ravel().tolist())
        part = f"the first {most:,} of " if len(names) > most else ""
        title = f"{', '.join(each['variables'])}: {part}{counted(len(names), 'combination')}"
        made.append(charts.bars(title, names[:most], {"probability": values[:most]}, "probability"))
    return charts.below(*made)


# The measured seconds of a run's steps beside their predictions.


Told = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Taken:
    """A step, as often as it was done.

    Parameters
    ----------
    label : str
    cells : int
        Swept each time.
    times : int
    predicted, measured : float
        Seconds in all.
    """

    label: str
    cells: int
    times: int
    predicted: float
    measured: float


def step_sections(prepared: Prepared, plan: Plan, receipts: Iterable[Receipt], found: Mapping[str, Any]) -> Sections:
    """Return bars of the longest steps and a table of all; nothing where the host did not do the steps of a plan."""
    spent = _spent([*(receipt.steps for receipt in receipts), found.get("steps", {})])
    if plan.device or plan.row_bounds is not None or not spent:
        return []
    taken = sorted(_taken(prepared, plan, spent), key=lambda t: -max(t.predicted, t.measured))
    longest = taken[:LISTED_MEMBERS]
    series = {"predicted": [t.predicted for t in longest], "measured": [t.measured for t in longest]}
    chart = charts.bars("Seconds by step, the longest", [t.label for t in longest], series, "seconds")
    columns: dict[str, Sequence[Any]] = {
        "step": [t.label for t in taken],
        "cells": [t.cells for t in taken],
        "times": [t.times for t in taken],
        "predicted s": [float(f"{t.predicted:.3g}") for t in taken],
        "measured s": [float(f"{t.measured:.3g}") for t in taken],
        "measured / predicted": [float(f"{t.measured / t.predicted:.2g}") for t in taken],
    }
    return [("Steps: predicted and measured", chart), ("All steps", charts.table(columns))]


def _spent(told: Iterable[Told]) -> dict[int, tuple[float, int]]:
    """Add up seconds and times of every step."""
    seconds: dict[int, float] = defaultdict(float)
    times: dict[int, int] = defaultdict(int)
    for steps in told:
        for node, (took, often) in steps.items():
            seconds[int(node)] += took
            times[int(node)] += int(often)
    return {node: (seconds[node], times[node]) for node in seconds}


def _taken(prepared: Prepared, plan: Plan, spent: Mapping[int, tuple[float, int]]) -> list[Taken]:
    rates = cached_rates(prepared.problem.semiring) or Rates()
    stages = plan.spill.stages if plan.spill else ()
    done: dict[int, Step] = {step.node: step for step in plan.steps}
    done |= {step.node: step for stage in stages for step in stage.steps}
    back = {step.node for step in plan.back}
    found = []
    for node, step in done.items():
        if node in spent:
            seconds, times = spent[node]
            predicted = times * step_seconds(step.lowered, rates, plan.itemsize)
            label = _label(prepared, step, node in back)
            found.append(Taken(label, step.lowered.cells, times, predicted, seconds))
    return found


def _label(prepared: Prepared, step: Step, back: bool) -> str:
    model, variables = prepared.network.model, prepared.network.variables
    shown = step.axes if back else eliminated(step)
    names = ", ".join(model.names[variables[v]] for v in shown[:_LABEL_NAMES])
    more = f" and {len(shown) - _LABEL_NAMES} more" if len(shown) > _LABEL_NAMES else ""
    return f"{'back to' if back else 'eliminates'} {names or 'nothing'}{more}"


class RunTask(NamedTuple):
    """A task that left receipts: who ran it, the table it wrote, when."""

    writer: str
    table: str
    begin: float
    end: float


@dataclass(frozen=True)
class TaskHistory:
    """The receipts of tasks in a ledger.

    Parameters
    ----------
    written : sequence of (str, Receipt)
        Every receipt with the process that wrote it, including receipts of chunks that were computed again.
    """

    written: Sequence[tuple[str, Receipt]]

    @cached_property
    def latest(self) -> list[Receipt]:
        """The last receipt of every chunk."""
        return list({receipt.key: receipt for _, receipt in self.written}.values())

    @property
    def redone(self) -> int:
        """Chunks that were done again."""
        return len(self.written) - len(self.latest)

    @cached_property
    def tasks(self) -> list[RunTask]:
        """The tasks that say when they ended; several chunks of one have the same begin."""
        timed = sorted(
            (RunTask(writer, r.table, r.ended - r.seconds, r.ended) for writer, r in self.written if r.ended),
            key=lambda task: (task.writer, task.table, task.begin),
        )
        found: list[RunTask] = []
        for task in timed:
            before = found[-1] if found else None
            if before and before[:2] == task[:2] and task.begin - before.begin < SAME_SECONDS:
                found[-1] = before._replace(end=max(before.end, task.end))
            else:
                found.append(task)
        return found


def run_sections(folder: Place) -> Sections:
    """Return the sections about a run directory.

    Raises
    ------
    IncompatibleRunError
        If it is none.
    """
    try:
        stored, found = stored_plan(folder), stored_result(folder) or stored_bounds(folder)
        history = TaskHistory(ledger.history(folder / "tables"))
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    sections: Sections = [("Question", _question_rows(stored))]
    sections += answer_sections(found, stored["identity"]["query"]) if found else [("Answer", [("status", "not yet")])]
    sections += _job_sections(folder)
    sections += _plan_sections(folder, stored, history, found or {})
    origin = [("file of the model", stored["source"] or "in memory"), ("bucketflow", stored["bucketflow"])]
    origin.append(("hash of the model", stored["identity"]["model"]))
    return [*sections, *_history_sections(history), ("Origin", origin)]


def _question_rows(stored: dict[str, Any]) -> list[tuple[str, str]]:
    same = stored["identity"]
    evidence = ", ".join(f"{name}={state}" for name, state in same["evidence"].items())
    model = Path(stored["source"]).name if stored["source"] else "in memory"
    return [("model", model), ("query", same["query"]), ("evidence", evidence or "none")]


def _plan_sections(folder: Place, stored: dict[str, Any], history: TaskHistory, found: dict[str, Any]) -> Sections:
    """Show the plan, made again from the model's file; without that file, what is stored of it."""
    try:
        prepared = _prepared(folder, stored)
    except BucketflowError as error:
        return [("Plan", [("not shown", str(error))])]
    plan = prepared.plan if prepared else None
    if prepared is None or plan is None:
        return []
    names = prepared.network.model.names
    sections: Sections = [("Plan", plan.rows()), ("Tree", plan.draw([names[v] for v in prepared.network.variables]))]
    if plan.spill is not None and history.written:
        sections.append(("Predicted and measured", _stages(prepared, plan, history)))
    sections += step_sections(prepared, plan, history.latest, found)
    if history.written:
        sections.append(("Work", _work_rows(plan, history)))
    return sections


def _prepared(folder: Place, stored: dict[str, Any]) -> Prepared | None:
    if stored["plan"] is None:
        return None
    _, question = stored_question(folder)
    return prepare(question, Resources(Options()), stored["plan"])


def _stages(prepared: Prepared, plan: Plan, history: TaskHistory) -> Any:
    """Bars of seconds by stage: as steps are predicted in every box, and as tasks took."""
    assert plan.spill is not None
    rates = cached_rates(prepared.problem.semiring) or Rates()
    spent: dict[str, float] = defaultdict(float)
    for task in history.tasks:
        spent[task.table] += task.end - task.begin
    names, predicted = [], []
    for stage, record in zip(plan.spill.stages, plan.spill.records(), strict=True):
        names.append(str(record["table"]))
        predicted.append(steps_seconds(stage.steps, rates, plan.itemsize) * int(record["boxes"]))
    series: dict[str, list[float]] = {
        "predicted, steps only": predicted,
        "measured, with reading and writing": [spent[name] for name in names],
    }
    return charts.bars("Seconds by stage", names, series, "seconds")


def _work_rows(plan: Plan, history: TaskHistory) -> list[tuple[str, str]]:
    latest = history.latest
    peak = max((receipt.peak_bytes for receipt in latest), default=0)
    stored = sum(receipt.nbytes for receipt in latest)
    seconds = sum(task.end - task.begin for task in history.tasks)
    rows = [
        ("receipts", f"{len(latest):,}, and {history.redone:,} of chunks that were computed again"),
        ("seconds of tasks", f"{seconds:.3g}, predicted {plan.predicted_seconds:.3g} on one core"),
        ("memory", f"{format_bytes(plan.peak_bytes)} planned; the largest process used {format_bytes(peak)} in all"),
        ("stored", f"{format_bytes(stored)} in chunks"),
    ]
    if plan.spill is not None:
        moved = f"{format_bytes(plan.spill.read_bytes)} to read, {format_bytes(plan.spill.written_bytes)} to write"
        rate = f", at {format_bytes(int(plan.spill.disk_rate))}/s of this disk" if plan.spill.disk_rate else ""
        rows.append(("moved", f"{moved} as planned{rate}"))
    return rows


def _history_sections(history: TaskHistory) -> Sections:
    tasks = history.tasks
    begin = min((task.begin for task in tasks), default=0.0)
    spans = [(task.writer, task.begin - begin, task.end - begin, task.table) for task in tasks]
    return [("Timeline", charts.timeline(spans))] if spans else []


def _job_sections(folder: Place) -> Sections:
    """Show what happened to a job."""
    job = JobDir(folder)
    if not job.holds_job():
        return []
    notes = job.notes()
    record = job.read()
    rows = [("job", record["id"]), ("state", record["state"]), ("cluster", record["scheduler"])]
    rows += [(note["time"].replace("T", " ")[:19], _told(note)) for note in notes if note["event"] != "progress"]
    return [("Job", rows)]


def _told(note: dict[str, Any]) -> str:
    return " ".join(str(note[name]) for name in ("event", "worker", "message") if note.get(name))
