"""What the folder of a batch shows: how rows ended, and a table of them that can be sorted."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any

from .. import charts
from ..errors import IncompatibleRunError
from .display_policy import DisplayPolicy
from .runs import Sections

_COLUMNS = ("row", "name", "model", "query", "evidence", "status", "value", "log10", "message", "seconds")


def is_batch(folder: Path) -> bool:
    """Whether a folder holds the results of a batch."""
    return isfile(folder / "summary.csv") and isfile(folder / "summary.json")


def batch_sections(folder: Path) -> Sections:
    """Return the sections about a batch.

    Raises
    ------
    IncompatibleRunError
        If its files cannot be read.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text())
        with open(folder / "summary.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return _sections(summary, rows)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, OSError | ValueError) else "its summary is damaged"
        raise IncompatibleRunError(f"{folder} cannot be read: {why}") from None


def _sections(summary: Mapping[str, Any], rows: Sequence[dict[str, str]]) -> Sections:
    facts = [(name.replace("_", " "), str(value)) for name, value in summary.items() if value != 0]
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
    return dict(sorted(spent.items(), key=lambda item: -item[1])[: DisplayPolicy.current().model_bars])
