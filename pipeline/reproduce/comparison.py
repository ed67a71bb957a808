"""Tables of a paper beside ours: a line an instance, with the published figures, our seconds, ratios and checks."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...cluster.version import __version__
from ..drawings.pages import Grid, page
from ..errors import format_bytes
from .experiments import Asked, Measured, prepared
from .papers import Figure, Instances, Kind, Paper, PaperRow, PaperTable
from .timed_call import Ended, within

Said = Callable[[str], None]

# Our displayed figures by kind, in addition to seconds: from the CPU, otherwise from a GPU.
_SHOWN: Mapping[Kind, Mapping[str, str]] = {
    "optimum": {"answer": "optimum", "by": "by", "first": "first s"},
    "bound": {"lower": "lower", "upper": "upper", "quality": "lower / optimum", "size": "mini-buckets"},
    "propagation": {"tables": "our tables", "table": "our max table"},
    "agents": {
        **{"agents": "agents", "order": "tree", "width": "width", "messages": "messages", "load": "network load"},
        **{"simulated": "simulated s", "quality": "bound / optimum"},
    },
}

# What stands for the seconds of a GPU where cores answered, because they are faster.
_BY_CORES = "cores"
# Columns that are shown by default, besides the time that a paper is compared by.
_FIRST_COLUMNS = (
    "instance",
    "z",
    "ours: CPU",
    "ours: all agents",
    "ours: GPU",
    "paper / CPU",
    "paper / GPU",
    "checked",
)


@dataclass(frozen=True)
class ComparedRow:
    """A row of a paper beside ours: the result of each place, or the reason why there is none."""

    row: PaperRow
    ended: Mapping[str, Ended] = field(default_factory=dict)
    missing: bool = False

    def measured(self, where: str) -> Measured | None:
        """The result of a place."""
        found = self.ended[where].found if where in self.ended else None
        return found if isinstance(found, Measured) else None

    @cached_property
    def ours(self) -> Measured | None:
        """The result of the CPU, otherwise of one core or a GPU."""
        return next((found for where in ("cpu", "core", "gpu") if (found := self.measured(where))), None)

    @property
    def checked(self) -> str:
        """Whether every answer is right, as far as one is known."""
        if self.missing:
            return "no file"
        known = [each.right for where in self.ended if (each := self.measured(where)) and each.right is not None]
        return "" if not known else "right" if all(known) else "WRONG"


@dataclass(frozen=True)
class ComparedTable:
    """A table of a paper beside ours.

    Parameters
    ----------
    table : PaperTable
    rows : tuple of ComparedRow
    """

    table: PaperTable
    rows: tuple[ComparedRow, ...]

    @cached_property
    def columns(self) -> dict[str, Callable[[ComparedRow], str]]:
        """Cells of a row by their headings; columns that are empty in every row are left out."""
        table, unit = self.table, _unit(self.table)
        columns: dict[str, Callable[[ComparedRow], str]] = {"instance": lambda each: each.row.instance}
        if any(each.row.z is not None for each in self.rows):
            columns["z"] = lambda each: "" if each.row.z is None else str(each.row.z)
        if any(each.row.answer is not None for each in self.rows):
            columns["known"] = lambda each: _figure(each.row.answer)
        columns |= {f"theirs: {heading}": _published(key) for key, heading in table.columns.items()}
        columns |= {f"ours: {heading.removeprefix('our ')}": _own(key) for key, heading in _SHOWN[table.kind].items()}
        columns |= {f"ours: {head} {unit}": _seconds(where, unit) for where, head in _heads(table.kind).items()}
        if table.against is not None:
            columns |= {"paper / CPU": _ratio(table.against, "cpu"), "paper / GPU": _ratio(table.against, "gpu")}
        columns |= {"CPU / GPU": _ratio("cpu", "gpu"), "checked": lambda each: each.checked}
        return {head: cell for head, cell in columns.items() if head == "instance" or any(map(cell, self.rows))}

    @property
    def first_columns(self) -> list[str]:
        """Headings of the columns that matter most: few enough for 80 characters."""
        against = self.table.columns.get(self.table.against or "")
        unit = _unit(self.table)
        wanted = {*_FIRST_COLUMNS, *(f"{head} {unit}" for head in _FIRST_COLUMNS), f"theirs: {against}"}
        return [head for head in self.columns if head in wanted]

    def under(self, headings: Sequence[str]) -> list[list[str]]:
        """Return the cells under some headings, a list for each row."""
        columns = self.columns
        return [[columns[head](each) for head in headings] for each in self.rows]

    @property
    def cells(self) -> list[list[str]]:
        """The table's cells, a list a row."""
        return self.under([*self.columns])

    @property
    def reasons(self) -> list[str]:
        """Why something is not there, in lines."""
        lines = [
            f"{each.row.instance}: no file {' or '.join(each.row.files)} was found"
            for each in self.rows
            if each.missing
        ]
        for each in self.rows:
            for where, ended in each.ended.items():
                if ended.reason and not ended.reason.startswith(">"):
                    lines.append(f"{each.row.instance}, {where}: {ended.reason}")
        return lines


@dataclass(frozen=True)
class Comparison:
    """A paper beside ours."""

    paper: Paper
    machine: str
    seconds: float | None
    tables: tuple[ComparedTable, ...]

    @property
    def wrong(self) -> list[str]:
        """Instances with an answer that is not right."""
        return [each.row.instance for table in self.tables for each in table.rows if each.checked == "WRONG"]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Facts shown before the tables."""
        limit = "none" if self.seconds is None else f"{self.seconds:g} s a figure"
        return [
            ("paper", self.paper.title),
            ("device of the paper", self.paper.device or "unknown"),
            *(("claim", claim) for claim in self.paper.claims),
            ("ours", f"bucketflow {__version__} on {self.machine}; time limit: {limit}"),
            ("differences", self.paper.apart),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only: every figure as it was measured."""
        tables: list[dict[str, Any]] = []
        for each in self.tables:
            rows = [
                {
                    "instance": row.row.instance,
                    "published": dict(row.row.published),
                    "known": row.row.answer,
                    **({"z": row.row.z} if row.row.z is not None else {}),
                    "checked": row.checked,
                    "ours": {where: _plain(ended) for where, ended in row.ended.items()},
                }
                for row in each.rows
            ]
            about: dict[str, Any] = {
                "title": each.table.title,
                "source": each.table.source,
                "missing": list(each.table.missing),
            }
            tables.append({**about, "rows": rows})
        named = {"paper": self.paper.name, "title": self.paper.title, "device": self.paper.device}
        return {**named, "machine": self.machine, "version": __version__, "time": self.seconds, "tables": tables}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text, a number that JSON has not as a string."""
        return json.dumps(self.to_dict(), indent=1, default=str)

    def to_html(self) -> str:
        """Return a page that needs no network."""
        sections: list[tuple[str, Any]] = [("About", self.facts)]
        for each in self.tables:
            sections.append((each.table.title, Grid(tuple(each.columns), tuple(map(tuple, each.cells)))))
            sections.append((f"{each.table.title}: sources", _sources(each)))
        return page(f"{self.paper.name}: the paper and bucketflow", sections)

    def to_markdown(self, *, every: bool = True) -> str:
        """Return the tables as a part of a page in Markdown, with every column and all sources, or in short."""
        lines = [f"## {self.paper.name}", "", *(f"- {label}: {text}" for label, text in self.facts), ""]
        for each in self.tables:
            headings = list(each.columns) if every else each.first_columns
            heads = [headings, ["---"] * len(headings)]
            lines += [
                f"### {each.table.title}",
                "",
                *(f"| {' | '.join(cells)} |" for cells in (*heads, *each.under(headings))),
                "",
            ]
            told = _sources(each) if every else [("no figure", reason) for reason in each.reasons]
            lines += [*(f"- {label}: {text}" for label, text in told), ""]
        return "\n".join(lines)


def _sources(table: ComparedTable) -> list[tuple[str, str]]:
    missing = "; ".join(table.table.missing)
    about = [("source of the published figures", table.table.source), ("not available", missing)]
    return [*about, *(("no result", reason) for reason in table.reasons)]


def compared(paper: Paper, instances: Instances, gpus: str | None, seconds: float | None, say: Said) -> Comparison:
    """Ask every question of a paper, each place in a process of its own where time is limited.

    Parameters
    ----------
    paper : Paper
    instances : Instances
    gpus : str or None
        How many GPUs are asked too; None for none.
    seconds : float or None
        Wall seconds of each figure; reading, and compiling a model for propagations, is not counted.
    say : callable
        Told what is asked now.
    """
    tables = []
    for table in paper.tables:
        rows = []
        for row in table.rows:
            say(f"{table.title}: {row.instance}" + ("" if row.z is None else f", z={row.z}"))
            rows.append(_row(table, row, instances, gpus, seconds))
        tables.append(ComparedTable(table, tuple(rows)))
    return Comparison(paper, _machine(gpus), seconds, tuple(tables))


def _row(
    table: PaperTable, row: PaperRow, instances: Instances, gpus: str | None, seconds: float | None
) -> ComparedRow:
    path = instances.path(row)
    if path is None and not row.problem:
        return ComparedRow(row, missing=True)
    ended = {}
    for where in _heads(table.kind):
        if where != "gpu" or gpus is not None:
            asked = Asked(where, gpus, None if seconds is None else seconds / 2)
            ended[where] = within(seconds, prepared, table.kind, row, path, asked)
    return ComparedRow(row, ended)


def _machine(gpus: str | None) -> str:
    from ..machine.device import device_name

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = "no GPU asked" if gpus is None else device_name()
    return f"{cores} cores of {platform.machine()}, {device}"


def _heads(kind: Kind) -> dict[Any, str]:
    """Places that are asked, and their headings; agents work on one core each."""
    if kind == "agents":
        return {"cpu": "all agents", "gpu": "GPU"}
    return {"cpu": "CPU", "core": "one core, dense" if kind == "optimum" else "one core", "gpu": "GPU"}


def _unit(table: PaperTable) -> str:
    return "ms" if table.kind == "propagation" else "s"


def _published(key: str) -> Callable[[ComparedRow], str]:
    return lambda each: _figure(each.row.published.get(key))


def _own(key: str) -> Callable[[ComparedRow], str]:
    def cell(each: ComparedRow) -> str:
        value = each.ours.figures.get(key) if each.ours else None
        return format_bytes(value) if key == "load" and value is not None else _figure(value)

    return cell


def _seconds(where: str, unit: str) -> Callable[[ComparedRow], str]:
    def cell(each: ComparedRow) -> str:
        if (found := each.measured(where)) is not None:
            if where == "gpu" and not found.on_device:
                return _BY_CORES
            return f"{found.seconds * (1000 if unit == 'ms' else 1):.3g}"
        reason = each.ended[where].reason if where in each.ended else None
        return "" if reason is None else reason if reason.startswith(">") else "–"

    return cell


def _ratio(numerator: str, denominator: str) -> Callable[[ComparedRow], str]:
    """How many times as long one takes: a published column, or a place, beside a place."""

    def cell(each: ComparedRow) -> str:
        above, below = each.measured(numerator), each.measured(denominator)
        if denominator == "gpu" and below is not None and not below.on_device:
            return ""
        published = each.row.published.get(numerator)
        if below is None or below.seconds <= 0:
            return ""
        if above is not None:
            return f"{above.seconds / below.seconds:.3g}"
        if not isinstance(published, int | float):
            return ""
        return f"{published * (1e-3 if numerator.endswith('_ms') else 1) / below.seconds:.3g}"

    return cell


def _figure(value: Figure | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "–".join(map(_figure, value))
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(ended: Ended) -> dict[str, Any]:
    return {"reason": ended.reason} if ended.reason is not None else asdict(ended.found)


def listing(papers: Sequence[Paper]) -> list[tuple[str, str]]:
    """Return a line on each paper, and one on each of its tables with the published and missing figures."""
    lines = []
    for each in papers:
        lines.append((each.name, each.title))
        for table in each.tables:
            known = f"{len(table.rows)} rows, {table.published} published figures"
            lines.append(("", f"{table.title}: {known}; not available: {'; '.join(table.missing)}"))
    return lines


def write(comparison: Comparison, out: Path | None, page_file: Path | None) -> None:
    """Write what was found as JSON, and as a page in HTML or Markdown, by its suffix."""
    from ..written_files import whole_text

    texts = [] if out is None else [(out, comparison.to_json())]
    if page_file is not None:
        marked = page_file.suffix == ".md"
        texts.append((page_file, comparison.to_markdown() if marked else comparison.to_html()))
    for path, text in texts:
        with whole_text(path) as file:
            file.write(text)
