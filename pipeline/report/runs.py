"""What a run directory shows: its question and answer, its plan, and what its tasks left in the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ...storage import ledger
from ...storage.job_folder import JobDir
from ...storage.run_folder import stored_bounds, stored_plan, stored_result
from ...storage.spec import Receipt, StorageError
from ...tasks.steps.step import Step
from .. import charts
from ..answering.prepared import Prepared, prepare
from ..api.resume import stored_question
from ..errors import BucketflowError, IncompatibleRunError, format_bytes, shown_number
from ..machine.cpu import cached_rates
from ..machine.resources import Resources
from ..options import Options
from ..plans.plan import Plan
from ..plans.prediction import step_seconds, steps_seconds
from ..results.proof import shown_assignment
from ..trees.costs import Rates
from .display_policy import DisplayPolicy

# What an answer shows, as ``--json`` prints it.

Sections = list[tuple[str, Any]]


def answer_sections(found: Mapping[str, Any], query: str) -> Sections:
    """Return the sections about an answer."""
    sections: Sections = [("Answer", _rows(found))]
    if found.get("marginals"):
        sections.append(("Marginals", marginal_bars(found, query)))
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
    for name in ("value", "log10", "log10_evidence", "lower", "upper", "gap"):
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


def marginal_bars(found: Mapping[str, Any], query: str) -> Any:
    """Bars of the distributions of the first variables."""
    policy = DisplayPolicy.current()
    names, values = [], []
    for name, table in list(found["marginals"].items())[: policy.variable_bars]:
        for label, value in zip(found["states"][name], table, strict=True):
            names.append(f"{name} = {label}")
            values.append(float("nan") if value is None else float(value))
    unit = "best that is possible" if query == "max-marginals" else "probability"
    return charts.bars(
        f"The first {min(policy.variable_bars, len(found['marginals']))} variables", names, {unit: values}, unit
    )


# What the steps of a run took beside what was predicted for them.


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
    longest = taken[: DisplayPolicy.current().step_bars]
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
    policy = DisplayPolicy.current()
    model, variables = prepared.network.model, prepared.network.variables
    gone = sorted({v for axes in step.input_axes for v in axes} - set(step.axes))
    shown = step.axes if back else gone
    names = ", ".join(model.names[variables[v]] for v in shown[: policy.label_names])
    more = f" and {len(shown) - policy.label_names} more" if len(shown) > policy.label_names else ""
    return f"{'back to' if back else 'eliminates'} {names or 'nothing'}{more}"


class RunTask(NamedTuple):
    """A task that left receipts: who ran it, the table it wrote, when."""

    writer: str
    table: str
    begin: float
    end: float


@dataclass(frozen=True)
class TaskHistory:
    """What tasks left in a ledger.

    Parameters
    ----------
    written : sequence of (str, Receipt)
        Every receipt with the process that wrote it, those of chunks that were done again too.
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
        policy = DisplayPolicy.current()
        timed = sorted(
            (RunTask(writer, r.table, r.ended - r.seconds, r.ended) for writer, r in self.written if r.ended),
            key=lambda task: (task.writer, task.table, task.begin),
        )
        found: list[RunTask] = []
        for task in timed:
            before = found[-1] if found else None
            if before and before[:2] == task[:2] and task.begin - before.begin < policy.same_seconds:
                found[-1] = before._replace(end=max(before.end, task.end))
            else:
                found.append(task)
        return found


def run_sections(folder: Path) -> Sections:
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
    return sections + _history_sections(history)


def _question_rows(stored: dict[str, Any]) -> list[tuple[str, str]]:
    same = stored["identity"]
    evidence = ", ".join(f"{name}={state}" for name, state in same["evidence"].items())
    rows = [("model", stored["source"] or "in memory"), ("query", same["query"]), ("evidence", evidence or "none")]
    return [*rows, ("bucketflow", stored["bucketflow"]), ("hash of the model", same["model"])]


def _plan_sections(folder: Path, stored: dict[str, Any], history: TaskHistory, found: dict[str, Any]) -> Sections:
    """Show the plan, made again from the model's file; without that file, what is stored of it."""
    try:
        prepared = _prepared(folder, stored)
    except BucketflowError as error:
        return [("Plan", [("not shown", str(error))])]
    plan = prepared.plan if prepared else None
    if prepared is None or plan is None:
        return []
    names = prepared.network.model.names
    sections: Sections = [("Plan", plan.rows()), ("Tree", plan.plot([names[v] for v in prepared.network.variables]))]
    if plan.spill is not None and history.written:
        sections.append(("Predicted and measured", _stages(prepared, plan, history)))
    sections += step_sections(prepared, plan, history.latest, found)
    if history.written:
        sections.append(("Work", _work_rows(plan, history)))
    return sections


def _prepared(folder: Path, stored: dict[str, Any]) -> Prepared | None:
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
        ("receipts", f"{len(latest):,}, and {history.redone:,} of chunks that were done again"),
        ("seconds of tasks", f"{seconds:.3g}, predicted {plan.predicted_seconds:.3g} on one core"),
        ("memory", f"{format_bytes(plan.peak_bytes)} planned; the largest process had {format_bytes(peak)} in all"),
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


def _job_sections(folder: Path) -> Sections:
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
