"""Tables of a paper beside the results of bucketflow ("ours"), row by row, with ratios of times and checks.

`within` measures a row in a process of its own, if its time is limited.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...cluster.version import __version__
from ..drawings.html import Grid, page
from ..errors import BucketflowError, format_bytes
from .experiments import INFEASIBLE, Measured, Measurement, mean_of, prepared
from .papers import Figure, Instances, Paper, PaperRow, PaperTable, Way

# Seconds for the start of an interpreter and for reading the model, which are not counted.
_START_SECONDS = 600.0


@dataclass(frozen=True)
class Ended:
    """The end of a call: its result, or the reason why there is none."""

    found: Any = None
    reason: str | None = None


def within(seconds: float | None, prepare: Callable[..., Sequence[Callable[[], Any]]], *arguments: Any) -> list[Ended]:
    """Run each call of ``prepare(*arguments)`` for at most ``seconds`` wall seconds, up to the first that fails.

    Parameters
    ----------
    seconds : float or None
        Without it, the calls run in this process, without a limit.
    prepare : callable
        A function of a module, which a new interpreter can import; the arguments are pickled. Its time is not counted.

    Returns
    -------
    list of Ended
        A result for each call, or one reason at the end.
    """
    ended: list[Ended] = []
    if seconds is None:
        _run(lambda each: ended.append(each) if each else None, prepare, arguments)
        return ended
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_in_child, args=(sender, prepare, arguments), daemon=False)
    child.start()
    sender.close()
    try:
        if not receiver.poll(_START_SECONDS):
            return [Ended(reason="did not start")]
        while (found := receiver.recv()) is None or found.reason is None:
            if found is not None:
                ended.append(found)
            if not receiver.poll(seconds):
                return [*ended, Ended(reason=f"> {seconds:g} s")]
        return [*ended, found]
    except EOFError:
        child.join()
        return ended if child.exitcode == 0 else [*ended, Ended(reason=f"ended with code {child.exitcode}")]
    finally:
        child.terminate()
        child.join()


def _run_in_child(sender: Any, prepare: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _run(sender.send, prepare, arguments)
    sender.close()


def _run(send: Callable[[Ended | None], object], prepare: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send None when the calls are prepared, then the end of each call until one has no result."""
    prepared = _ended(lambda: prepare(*arguments))
    if prepared.reason is not None:
        send(prepared)
        return
    send(None)
    for call in prepared.found:
        ended = _ended(call)
        send(ended)
        if ended.reason is not None:
            return


def _ended(call: Callable[[], Any]) -> Ended:
    try:
        return Ended(call())
    except BucketflowError as error:
        return Ended(reason=f"refused: {error}")


Said = Callable[[str], None]

# Text in place of the seconds of a GPU if the cores answered because they are faster.
_BY_CORES = "cores"
# Number of random problems for each row: by default, and with --all, as in the papers.
_FEW, _MANY = 3, 50
_UNITS: Mapping[str, float] = {" s": 1.0, " ms": 1e-3}


@dataclass(frozen=True)
class ComparedRow:
    """A row of a paper beside ours: the result of each way, or the reason why there is none."""

    row: PaperRow
    ended: Mapping[str, Ended] = field(default_factory=dict)
    missing: bool = False

    def measured(self, way: str) -> Measured | None:
        """Return the result of a way."""
        found = self.ended[way].found if way in self.ended else None
        return found if isinstance(found, Measured) else None

    @property
    def checked(self) -> str:
        """Return ``"right"`` if all answers equal each other and the known answer, and are within all bounds.

        Otherwise return ``"WRONG"``, ``"no file"``, or an empty text if there is nothing to compare.
        """
        if self.missing:
            return "no file"
        found = [each for way in self.ended if (each := self.measured(way))]
        if any(each.right is False for each in found):
            return "WRONG"
        answers = [each.answers for each in found if each.answers]
        if self.row.answer is not None:
            answers.append((self.row.answer,))
        count = max(map(len, answers), default=0)
        whole = [each for each in answers if len(each) == count > 0]
        bounds = [each.bounds for each in found if len(each.bounds) == count > 0]
        inside = [_inside(pair, answer) for pairs in bounds for pair, answer in zip(pairs, whole[0], strict=True)]
        if any(each != whole[0] for each in whole) or not all(inside):
            return "WRONG"
        return "right" if inside or len(whole) > 1 or any(each.right for each in found) else ""


def _inside(pair: tuple[Any, Any], answer: Any) -> bool:
    """Whether an optimum is within bounds; an infeasible problem must have no upper bound."""
    lower, upper = pair
    if answer == INFEASIBLE:
        return upper is None
    return (lower is not None and lower <= answer) and (upper is None or answer <= upper)


_Cell = Callable[[ComparedRow], str]


@dataclass(frozen=True)
class ComparedTable:
    """A table of a paper beside ours."""

    table: PaperTable
    rows: tuple[ComparedRow, ...]

    @cached_property
    def columns(self) -> dict[str, _Cell]:
        """Functions that return the cells of a row, by heading: names, published figures, ours, ratios and the check.

        Columns of ours and ratios that are empty in every row are left out.
        """
        table = self.table
        names: dict[str, _Cell] = {name: _published(name) for name in table.columns[: table.keys]}
        if not names:
            names = {"instance": lambda each: each.row.instance}
            if any(each.row.z is not None for each in self.rows):
                names["z"] = lambda each: str(each.row.z)
        theirs = {f"theirs: {name}": _published(name) for name in table.columns[table.keys :]}
        ours = {f"ours: {head}": _own(way, key, head) for way in table.ways for key, head in way.shown.items()}
        ours |= {each.heading: self._ratio(each.above, each.below) for each in table.ratios}
        ours["missing file"] = lambda each: each.row.files[0] if each.missing else ""
        ours["checked"] = lambda each: each.checked
        return {**names, **theirs, **{head: cell for head, cell in ours.items() if any(map(cell, self.rows))}}

    def _ratio(self, above: str, below: str) -> _Cell:
        """Return the column of the ratio of two times; a cell is empty if a time is unknown."""

        def cell(each: ComparedRow) -> str:
            found = [_seconds(each, name, self.table.ways) for name in (above, below)]
            return "" if found[0] is None or not found[1] else _digits(found[0] / found[1])

        return cell

    @property
    def first_columns(self) -> list[str]:
        """Headings of the columns that fit 80 characters."""
        return [head for head in self.table.first.split(" | ") if head in self.columns]

    def under(self, headings: Sequence[str]) -> list[list[str]]:
        """Return the cells under some headings, a list for each row."""
        columns = self.columns
        return [[columns[head](each) for head in headings] for each in self.rows]

    @property
    def reasons(self) -> list[str]:
        """Why figures of ours are missing, in lines."""
        gone = dict.fromkeys(" or ".join(each.row.files) for each in self.rows if each.missing)
        lines = [f"no file: {', '.join(gone)}"] if gone else []
        told: dict[str, list[str]] = {}
        for each in self.rows:
            for way, ended in each.ended.items():
                if ended.reason and not ended.reason.startswith(">"):
                    named = [] if each.row.instance == str(each.row.z) else [each.row.instance]
                    name = ", ".join([*named, *([] if each.row.z is None else [f"z={each.row.z}"])])
                    told.setdefault(ended.reason, []).append(f"{name} ({way})")
        return [*lines, *(f"{'; '.join(dict.fromkeys(names))}: {reason}" for reason, names in told.items())]


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
        limit = "none" if self.seconds is None else f"{self.seconds:g} s for each problem"
        return [
            ("paper", self.paper.title),
            ("device of the paper", self.paper.device),
            *(("claim", claim) for claim in self.paper.claims),
            ("ours", f"bucketflow {__version__} on {self.machine}; time limit: {limit}"),
            ("differences", self.paper.differences),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only: every figure as it was published or measured."""
        tables = [
            {
                "title": each.table.title,
                "notes": list(each.table.notes),
                "rows": [
                    {
                        "instance": row.row.instance,
                        "published": dict(row.row.published),
                        "known": row.row.answer,
                        **({"z": row.row.z} if row.row.z is not None else {}),
                        "checked": row.checked,
                        "ours": {way: _plain(ended) for way, ended in row.ended.items()},
                    }
                    for row in each.rows
                ],
            }
            for each in self.tables
        ]
        named = {"paper": self.paper.name, "title": self.paper.title, "device": self.paper.device}
        return {**named, "machine": self.machine, "version": __version__, "time": self.seconds, "tables": tables}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text; values that JSON lacks become strings."""
        return json.dumps(self.to_dict(), indent=1, default=str)

    def to_html(self) -> str:
        """Return a page that needs no network."""
        sections: list[tuple[str, Any]] = [("About", self.facts)]
        for each in self.tables:
            headings = [*each.columns]
            sections.append((each.table.title, Grid(tuple(headings), tuple(map(tuple, each.under(headings))))))
            if told := _told(each):
                sections.append((f"{each.table.title}: notes", told))
        return page(f"{self.paper.name}: the paper and bucketflow", sections)

    def to_markdown(self, *, every: bool = True) -> str:
        """Return the tables as a part of a page in Markdown, with all columns or the first ones."""
        lines = [f"## {self.paper.name}", "", *(f"- {label}: {text}" for label, text in self.facts), ""]
        for each in self.tables:
            headings = list(each.columns) if every else each.first_columns
            cells = [headings, ["---"] * len(headings), *each.under(headings)]
            lines += [f"### {each.table.title}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
            if told := _told(each):
                lines += [*(f"- {label}: {text}" for label, text in told), ""]
        return "\n".join(lines)


def _told(table: ComparedTable) -> list[tuple[str, str]]:
    return [*(("note", note) for note in table.table.notes), *(("no figure", reason) for reason in table.reasons)]


def compared(
    paper: Paper, instances: Instances, gpus: str | None, seconds: float | None, say: Said, *, every: bool = False
) -> Comparison:
    """Measure every row of a paper.

    Parameters
    ----------
    paper : Paper
    instances : Instances
    gpus : str or None
        Number of GPUs to measure too; None for none.
    seconds : float or None
        Wall seconds of each problem, each way in a process of its own. Reading, and compiling a model for
        propagations, is not counted. None: no limit, in this process.
    say : callable
        Receives the row that is measured.
    every : bool
        Whether a random point has as many problems as in the papers.

    Raises
    ------
    BucketflowError
        If GPUs are requested and missing.
    """
    if gpus is not None:
        _need_gpus(gpus)
    known: dict[str, Ended] = {}
    count = _MANY if every else _FEW
    tables = []
    for table in paper.tables:
        ways = [way for way in table.ways if gpus is not None or not way.gpu]
        if not (table.columns or ways):
            continue  # nothing is published or measured
        rows = []
        for row in table.rows:
            say(f"{table.title}: {row.instance}" + ("" if row.z is None else f", z={row.z}"))
            path = instances.path(*row.files)
            missing = bool(ways and row.files and path is None)
            ended = {}
            for way in () if missing else ways:
                asked = Measurement(
                    way, row, path, gpus, None if seconds is None else seconds / 2, count, instances.folder
                )
                # tables repeat points, and tables of launches share a measurement
                key = repr((way.experiment, way.options, way.gpu, way.problem, row.problem, row.z, path, row.answer))
                if key not in known:
                    known[key] = _measured(asked, seconds)
                ended[way.name] = known[key]
            rows.append(ComparedRow(row, ended, missing))
        tables.append(ComparedTable(table, tuple(rows)))
    return Comparison(paper, _machine(gpus), seconds, tuple(tables))


def _need_gpus(gpus: str) -> None:
    """Refuse in one sentence if GPUs are missing."""
    from ...cluster.address import ClusterError
    from ...cluster.gpus import count_gpus

    try:
        count_gpus(gpus)
    except ClusterError as error:
        raise BucketflowError(str(error)) from None


def _measured(asked: Measurement, seconds: float | None) -> Ended:
    """Measure all problems of a row, and return the mean; if one problem has no result, return its reason."""
    ended = within(seconds, prepared, asked)
    reasons = [each for each in ended if each.reason is not None]
    return reasons[0] if reasons else Ended(mean_of([each.found for each in ended]))


def _machine(gpus: str | None) -> str:
    from ..machine.device import model_name

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = "GPUs not run" if gpus is None else f"{gpus} × {model_name()}"
    return f"{cores} cores of {platform.machine()}, {device}"


def _published(name: str) -> _Cell:
    return lambda each: _figure(each.row.published.get(name))


def _figure(value: Figure) -> str:
    """Show a published figure as printed, with commas between thousands of whole numbers."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _own(way: Way, key: str, heading: str) -> _Cell:
    def cell(each: ComparedRow) -> str:
        ended = each.ended.get(way.name)
        if ended is None:
            return ""
        if (found := each.measured(way.name)) is None:
            reason = ended.reason or ""
            return "" if not _is_time(heading) else reason if reason.startswith(">") else "–"
        if way.gpu and not found.on_device:
            return _BY_CORES if _is_time(heading) else ""
        value = found.figures.get(key)
        if isinstance(value, Mapping):  # one measurement for all rows
            value = value.get(each.row.instance)
        if key == "load" and value is not None:
            return format_bytes(value)
        if isinstance(value, float):
            return _digits(value * 1000 if heading.endswith(" ms") else value)
        return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)

    return cell


def _digits(value: float) -> str:
    """Show three digits of a number of ours, or more before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _is_time(heading: str) -> bool:
    return heading.endswith(tuple(_UNITS))


def _seconds(each: ComparedRow, name: str, ways: Sequence[Way]) -> float | None:
    """Return seconds of a published column or of a way; None where there is no number, or cores answered for a GPU."""
    if name in each.row.published:
        value = each.row.published[name]
        unit = next(unit for end, unit in _UNITS.items() if name.endswith(end))
        return value * unit if isinstance(value, int | float) else None
    found = each.measured(name)
    if found is None or (not found.on_device and any(way.gpu for way in ways if way.name == name)):
        return None
    return float(found.figures["seconds"])


def _plain(ended: Ended) -> dict[str, Any]:
    return {"reason": ended.reason} if ended.reason is not None else asdict(ended.found)


def listing(papers: Sequence[Paper]) -> list[tuple[str, str]]:
    """Return a line on each paper, and one on each of its tables."""
    lines = []
    for each in papers:
        lines.append((each.name, each.title))
        for table in each.tables:
            lines.append(("", f"{table.title}: {len(table.rows)} rows, {table.published} published numbers"))
    return lines


def write(comparison: Comparison, out: Path | None, page_file: Path | None) -> None:
    """Write the comparison as JSON, and as a page in HTML or Markdown, by its suffix."""
    from ..local_paths import whole_text

    texts = [] if out is None else [(out, comparison.to_json())]
    if page_file is not None:
        marked = page_file.suffix == ".md"
        texts.append((page_file, comparison.to_markdown() if marked else comparison.to_html()))
    for path, text in texts:
        with whole_text(path) as file:
            file.write(text)
