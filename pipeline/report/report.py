"""``report``: one page about a run directory, a job, a batch or an answer.

The JSON objects that a page shows have a :data:`Shape`: names and kinds of values, checked before drawing. A shape is a
function of a value and of its place in the file, such as ``proof.tried``. A value of another shape raises
:exc:`ShapeError`; unknown names are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ...cluster.memory import default_memory_bytes
from ...storage.object_store import ObjectPath
from ..drawings import charts
from ..drawings.html import page
from ..errors import FormatError, checks_keywords, public, shorten
from ..formats.text.source import read_json
from ..local_paths import folder_path, whole_text
from ..results.dpop_result import DpopResult
from .fact_pages import batch_sections, command_of, fact_sections, is_batch, is_evaluation
from .runs import Sections, answer_sections, answer_title, best_sections, origin_rows, run_sections

Shape = Callable[[Any, str], None]


class ShapeError(Exception):
    """A value of another kind.

    Parameters
    ----------
    expected, found : str
        In words, with where it stands.
    """

    def __init__(self, expected: str, found: str):
        super().__init__(expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


def _plain(words: str, *kinds: type) -> Shape:
    """The shape of a value of some kinds; a truth value is no number."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ShapeError(f"{words} for {where or 'the whole'}", shorten(json.dumps(value)))

    return check


TEXT = _plain("a text", str)
NUMBER = _plain("a number", int, float)
COUNT = _plain("a whole number", int)
#: A cost, a count or a logarithm; decimals that no float holds are texts.
FIGURE = _plain("a number", int, float, str)
STATE = _plain("a state", int, str)
EVIDENCE = _plain("a state or likelihoods", int, str, list)


def or_none(shape: Shape) -> Shape:
    """The shape of a value, or of none."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            shape(value, where)

    return check


def listed(shape: Shape, length: int | None = None) -> Shape:
    """The shape of a list whose members have one."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            of = "" if length is None else f" of {length}"
            raise ShapeError(f"a list{of} for {where or 'the whole'}", shorten(json.dumps(value)))
        for k, member in enumerate(value):
            shape(member, f"{where}[{k}]")

    return check


def named(shape: Shape) -> Shape:
    """The shape of an object of any names whose values have one."""

    def check(value: Any, where: str) -> None:
        for name, member in _object(value, where).items():
            shape(member, _inside(where, name))

    return check


def record(needed: Mapping[str, Shape], perhaps: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object with known names: required names, and optional names, which may be null."""

    def check(value: Any, where: str) -> None:
        there = _object(value, where)
        for name, shape in needed.items():
            if name not in there:
                raise ShapeError(f"{_inside(where, name)}", "nothing")
            shape(there[name], _inside(where, name))
        for name, shape in (perhaps or {}).items():
            or_none(shape)(there.get(name), _inside(where, name))

    return check


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ShapeError(f"names with values for {where or 'the whole'}", shorten(json.dumps(value)))
    return value


def _inside(where: str, name: str) -> str:
    return f"{where}.{shorten(name)}" if where else shorten(name)


_ROUND = record({"seconds": NUMBER, "lower": or_none(FIGURE), "upper": or_none(FIGURE)})
_PROOF = record(
    {"method": TEXT, "lower": or_none(FIGURE), "upper": or_none(FIGURE)},
    {"tried": named(NUMBER), "history": listed(listed(or_none(FIGURE), 3))},
)
_MODEL = record({"name": TEXT, "source": TEXT, "kind": TEXT, "variables": COUNT})
_JOINT = record({"variables": listed(TEXT), "table": _plain("a table", list)})
_RANKED = record({"rank": COUNT, "assignment": named(STATE)}, {"value": FIGURE, "log10": NUMBER})
#: Output of ``solve --best``.
BEST = record(
    {"status": TEXT, "seconds": named(NUMBER), "assignments": listed(_RANKED)},
    {"optimal_count": FIGURE, "model": _MODEL, "evidence": named(EVIDENCE), "notes": listed(TEXT)},
)
#: Output of ``solve``, ``marginals``, ``bound`` and ``result``.
ANSWER = record(
    {"status": TEXT, "seconds": named(NUMBER), "peak_rss_bytes": COUNT},
    {
        "query": TEXT,
        "value": FIGURE,
        "log10": NUMBER,
        "log10_evidence": NUMBER,
        "lower": FIGURE,
        "upper": FIGURE,
        "gap": NUMBER,
        "assignment": named(STATE),
        "model": _MODEL,
        "evidence": named(EVIDENCE),
        "joint": listed(_JOINT),
        "marginals": named(listed(or_none(NUMBER))),
        "states": named(listed(STATE)),
        "rounds": listed(_ROUND),
        "proof": _PROOF,
        "notes": listed(TEXT),
    },
)


# Sections of an answer of ``dpop``: the answer, its pseudo-tree, its costs, and the traffic of links.


def is_dpop(found: Mapping[str, Any]) -> bool:
    """Whether an answer is one of agents."""
    return "parents" in found and "metrics" in found


def dpop_sections(found: Mapping[str, Any]) -> Sections:
    """Return the sections about what ``dpop --json`` printed.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        If something is missing, or no such thing as stands there.
    """
    result = DpopResult.from_dict(found)
    sections: Sections = [("Answer", result.rows()), ("Metrics", result.metric_rows()), ("Pseudo-tree", _tree(result))]
    if result.by_agent:
        sections.append(("Agents", _owned(result)))
    links = result.metrics.link_bytes
    if links:
        ends: dict[str, list[Any]] = {"from": [a for a, _ in links], "to": [b for _, b in links]}
        ends["bytes"] = list(links.values())
        sections.append(("Load by link", charts.table(ends, sparks="bytes")))
    return sections


def _tree(result: DpopResult) -> Any:
    names, links = list(result.parents), result.metrics.link_bytes
    index = {name: k for k, name in enumerate(names)}
    further = [(index[name], index[other]) for name, others in result.pseudo_parents.items() for other in others]
    parents = [-1 if parent is None else index[parent] for parent in result.parents.values()]
    nbytes = [
        0 if parent is None else links.get((name, parent), 0) + links.get((parent, name), 0)
        for name, parent in result.parents.items()
    ]
    return charts.pseudo_tree(names, parents, further, nbytes)


def _owned(result: DpopResult) -> Any:
    said = [", ".join(f"{name}={state}" for name, state in own.items()) for own in result.by_agent.values()]
    return charts.table({"agent": list(result.by_agent), "assignment": said})


@public
@checks_keywords
def report(source: str | PathLike[str], out: str | PathLike[str]) -> None:
    """Write a page that needs no network: question, answer, plan, tasks.

    Parameters
    ----------
    source : path
        A run directory (also of a job), the folder of a batch, or a file with the output of ``--json``.
    out : path
        The page, ``.html``.

    Raises
    ------
    IncompatibleRunError
        If the folder is neither.
    FormatError
        If the file holds nothing that a command printed, or something damaged.
    ModelError
        If the page cannot be written.

    Examples
    --------
    >>> import bucketflow
    >>> with open("answer.json", "w") as file:
    ...     _ = file.write(bucketflow.solve("satellite").to_json())
    >>> bucketflow.report("answer.json", "answer.html")
    """
    folder = folder_path(source)
    title = f"bucketflow: {folder.name}"
    if isinstance(folder, ObjectPath) or os.path.isdir(folder):
        sections = batch_sections(folder) if is_batch(folder) else run_sections(folder)
        heading, asked = sections[0]
        if heading == "Question":
            title = "{model}: {query}".format(**{**dict(asked), "model": Path(dict(asked)["model"]).name})
        text = page(title, sections)
    else:
        text = _page_of_file(title, folder)
    with whole_text(out) as file:
        file.write(text)


def _page_of_file(title: str, path: Path) -> str:
    """Return the page about what ``--json`` printed."""
    found = _read(path)
    command = _command(found)
    if not command:
        raise FormatError(str(path), None, "the output of a bucketflow command with --json", "other JSON")
    try:
        sections = _sections(found, command)
        return page(answer_title(found, path.name) if command in ("solve", "best") else title, sections)
    except ShapeError as error:
        raise FormatError(str(path), None, error.expected, error.found) from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        raise FormatError(str(path), None, f"the JSON of the command {command}", "a damaged one") from None


def _read(path: Path) -> Any:
    try:
        return read_json(path, default_memory_bytes())
    except (ValueError, RecursionError):
        raise FormatError(str(path), None, "the JSON object of an answer", "something else") from None


def _command(found: Any) -> str:
    """Return the command whose ``--json`` printed it; nothing if none did."""
    if not isinstance(found, dict | list):
        return ""
    if found == []:
        return "jobs"
    if isinstance(found, dict) and is_dpop(found):
        return "dpop"
    if "assignments" in found and "optimal_count" in found:
        return "best"
    if is_evaluation(found):
        return "evaluate"
    command = command_of(found)
    return "solve" if "status" in found and "seconds" in found and command != "circuit" else command


def _sections(found: Any, command: str) -> Sections:
    """Return the sections about what a command printed; raises whatever a damaged one leads to."""
    if command == "dpop":
        return dpop_sections(found)
    if command == "best":
        BEST(found, "")
        return _with_origin(best_sections(found), found)
    if command == "solve":
        ANSWER(found, "")
        return _with_origin(answer_sections(found, str(found.get("query", ""))), found)
    return fact_sections(found, command)


def _with_origin(sections: Sections, found: Any) -> Sections:
    """Return sections, and a last one with the path of the model."""
    return [*sections, *([("Origin", rows)] if (rows := origin_rows(found)) else [])]
