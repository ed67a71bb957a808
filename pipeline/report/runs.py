"""What a run directory shows: its question and answer, its plan, and what its tasks left in the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...storage import ledger
from ...storage.errors import StorageError
from ...storage.folders.jobdir import JobDir
from ...storage.folders.rundir import stored_bounds, stored_plan, stored_result
from ...storage.spec import Receipt
from ..api.answering.prepared import Prepared, prepare
from ..api.resume import stored_question
from ..errors import BucketflowError, IncompatibleRunError
from ..figures import charts
from ..options import Options
from ..plans.plan import Plan
from ..plans.prediction import steps_seconds
from ..rates.cpu import cached_rates
from ..resources import Resources
from ..text import format_bytes
from ..trees.costs import Rates
from .answers import Sections, answer_sections
from .steps import step_sections

# Clocks that are read together differ by less.
_SAME_SECONDS = 1e-4


class Task(NamedTuple):
    """A task that left receipts: who ran it, the table it wrote, when."""

    writer: str
    table: str
    begin: float
    end: float


@dataclass(frozen=True)
class History:
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
    def tasks(self) -> list[Task]:
        """The tasks that say when they ended; several chunks of one have the same begin."""
        timed = sorted(
            (Task(writer, r.table, r.ended - r.seconds, r.ended) for writer, r in self.written if r.ended),
            key=lambda task: (task.writer, task.table, task.begin),
        )
        found: list[Task] = []
        for task in timed:
            before = found[-1] if found else None
            if before and before[:2] == task[:2] and task.begin - before.begin < _SAME_SECONDS:
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
        history = History(ledger.history(folder / "tables"))
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
    return [*rows, ("bucketflow", same["version"]), ("hash of the model", same["model"])]


def _plan_sections(folder: Path, stored: dict[str, Any], history: History, found: dict[str, Any]) -> Sections:
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


def _stages(prepared: Prepared, plan: Plan, history: History) -> Any:
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


def _work_rows(plan: Plan, history: History) -> list[tuple[str, str]]:
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


def _history_sections(history: History) -> Sections:
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
