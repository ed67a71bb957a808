"""Pages for other ``--json`` outputs than answers: plans, models, runs, jobs, rates; and tables of batches."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...storage.files import Place, is_there
from ..drawings import charts
from ..drawings.shown import LISTED_MEMBERS
from ..errors import (
    IncompatibleRunError,
    format_bytes,
    format_cells,
    printable,
    rounded_sum,
    short_number,
    shown_number,
)
from .runs import Sections

# Objects inside each other that are shown.
_NESTED_OBJECTS: Final = 8

_COLUMNS = ("row", "name", "model", "query", "evidence", "status", "value", "log10", "message", "seconds")

# Numbers that are right however small they are.
_PROBABILITIES = frozenset(("likelihood", "posterior", "probability", "value"))


def is_batch(folder: Place) -> bool:
    """Whether a folder holds the results of a batch."""
    return all(is_there(folder / name) for name in ("summary.csv", "summary.json"))


def batch_sections(folder: Place) -> Sections:
    """Return the sections about a batch.

    Raises
    ------
    IncompatibleRunError
        If its files cannot be read.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text())
        rows = list(csv.DictReader((folder / "summary.csv").read_text().splitlines(keepends=True)))
        return _sections(summary, rows)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, OSError | ValueError) else "its summary is damaged"
        raise IncompatibleRunError(f"{folder} cannot be read: {why}") from None


def _sections(summary: Mapping[str, Any], rows: Sequence[dict[str, str]]) -> Sections:
    facts = [(name.replace("_", " "), _shown(name, value)) for name, value in summary.items() if value]
    columns = {name: [_cell(name, row.get(name) or "") for row in rows] for name in _COLUMNS}
    sections: Sections = [("Summary", facts)]
    spent = _by_model(rows)
    if spent:
        chart = charts.bars("Seconds by model", list(spent), {"seconds": list(spent.values())}, "seconds")
        sections.append(("Models", chart))
    return [*sections, ("Rows", charts.table(columns, "seconds"))]


def _cell(name: str, text: str) -> Any:
    if name == "model":
        return Path(text).name
    if name in ("row", "seconds", "log10") and text:
        return float(text) if name != "row" else int(text)
    return text


def _by_model(rows: Sequence[dict[str, str]]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for row in rows:
        name = Path(row["model"]).name
        spent[name] = spent.get(name, 0.0) + float(row["seconds"] or 0)
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:LISTED_MEMBERS])


# The commands with this display, the subjects of their objects, and names that each object has.
_FACTS = {
    "plan": ("Question", ("query", "plan")),
    "info": ("Model", ("kind", "variables", "functions")),
    "inspect": ("Run", ("query", "stages", "disk_bytes")),
    "submit": ("Job", ("job", "directory", "price")),
    "batch": ("Batch", ("rows", "answered", "exit_code")),
    "circuit": ("Circuit", ("out", "nodes", "edges")),
    "check": ("Check of a circuit", ("faults", "nodes", "edges", "compared")),
    "evaluate": ("Answer", ()),
    "formats": ("Formats", ("formats", "unread")),
    "voi": ("Answer", ("value_of_information",)),
    "sensitivity": ("Answer", ("sensitivity",)),
    "conditional": ("Answer", ("conditional",)),
    "entropy": ("Answer", ("entropy",)),
    "mutual": ("Answer", ("mutual_information",)),
    "relevant": ("Answer", ("relevant_findings",)),
    "conflict": ("Answer", ("conflict",)),
    "value": ("Answer", ("query", "forbidden_by")),
    "simulate": ("Simulation", ("runs",)),
    "calibrate": ("Machine", ("cpu", "disk_bytes_per_second")),
}
_JOB = ("id", "state", "share")


def is_evaluation(found: Any) -> bool:
    """Whether ``evaluate`` printed an object: a status and, for each case, a logarithm, or a count or samples."""
    answers = ("log10", "log10_evidence", "count", "samples")
    known = {"status", "assignments", "marginals", "states", "variables", *answers}
    return isinstance(found, dict) and {*found} <= known and any(name in found for name in answers)


def command_of(found: Any) -> str:
    """Return the command whose ``--json`` printed an object or a list; nothing if none did."""
    if isinstance(found, list):
        return "jobs" if found and all(isinstance(job, dict) and {*_JOB} <= {*job} for job in found) else ""
    return next((command for command, (_, names) in _FACTS.items() if names and {*names} <= {*found}), "")


def fact_sections(found: Any, command: str) -> Sections:
    """Return the sections about what a command printed."""
    if isinstance(found, list):
        return [("Jobs", _table(found) if found else [("jobs", "none")])]
    rows = _rows({name: value for name, value in found.items() if not _is_section(value)})
    sections: Sections = [(_FACTS[command][0], rows)] if rows else []
    if command == "conditional":
        return [*sections, *map(_conditional, found["conditional"])]
    for name, value in found.items():
        if _is_section(value):
            sections += _facts_of(_words(name).capitalize(), value)
    return sections


def _conditional(each: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a conditional distribution as a table: a line for each state of the given variables."""
    given, names, states = each["given"], each["variables"], each["states"]
    rows = [*product(*(states[name] for name in given))]
    cells = [*product(*(states[name] for name in names))]
    numbers = np.array(each["table"], dtype=object).reshape(len(rows), len(cells))
    columns: dict[str, list[str]] = {name: [str(row[k]) for row in rows] for k, name in enumerate(given)}
    for k, cell in enumerate(cells):
        label = ", ".join(f"{name}={state}" for name, state in zip(names, cell, strict=True))
        columns[label] = [_shown("probability", p) for p in numbers[:, k].tolist()]
    given_text = f" given {', '.join(given)}" if given else ""
    return f"{', '.join(names)}{given_text}", charts.table(columns)


def _facts_of(title: str, value: Any) -> Sections:
    """Return a table of a list of objects; of an object labelled lines, and its tables as sections of their own."""
    if isinstance(value, list):
        return [(title, _table(value))]
    rows = _rows({name: member for name, member in value.items() if not _is_table(member)})
    tables = [(f"{title}: {_words(name)}", _table(member)) for name, member in value.items() if _is_table(member)]
    return [*([(title, rows)] if rows else []), *tables]


def _is_section(value: Any) -> bool:
    return bool(value) and (isinstance(value, dict) or _is_table(value))


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _table(members: Sequence[Mapping[str, Any]]) -> Any:
    """A line for each of some objects, a column for each name that one of them has."""
    names = dict.fromkeys(name for each in members for name in each)
    columns = {_words(name): [_shown(name, each.get(name)) for each in members] for name in names}
    return charts.table(columns)


def _rows(found: Mapping[str, Any], before: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """Return labelled lines; lines of a nested object begin with its name."""
    rows: list[tuple[str, str]] = []
    for name, value in found.items():
        label = f"{before}{_words(name)}"
        if isinstance(value, dict) and value and depth < _NESTED_OBJECTS:
            rows += _rows(value, f"{label}: ", depth + 1)
        else:
            rows.append((label, _shown(name, value)))
    return rows


def _words(name: str) -> str:
    """Write a name as a label; the unit of a size stands beside the number."""
    return printable(name.removesuffix("_bytes").replace("_", " "))


def _shown(name: str, value: Any) -> str:
    """Write a value: a size with its unit, a list as its members."""
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _count(name, value)
    if isinstance(value, float):
        if name.startswith("log10"):
            return shown_number(value)
        return short_number(value, 6) if name in _PROBABILITIES else rounded_sum(value)
    if isinstance(value, dict):
        return "; ".join(f"{_words(inner)} {_shown(inner, member)}" for inner, member in value.items())
    if isinstance(value, list):
        more = f", … and {len(value) - LISTED_MEMBERS} more" if len(value) > LISTED_MEMBERS else ""
        return ", ".join(_shown(name, each) for each in value[:LISTED_MEMBERS]) + more
    return printable(str(value), 400)


def _count(name: str, value: int) -> str:
    if name.endswith("bytes"):
        return format_bytes(value)
    return format_cells(value) if name.endswith("cells") else f"{value:,}"
