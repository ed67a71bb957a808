"""Lines of DIMACS files that begin with a letter: headers, weights, and what is not read, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import FormatError, shorten
from ..text.source import Source
from ..text.tokens import MAX_DOMAIN

# Hard clauses of MaxSAT evaluations since 2022 stand among the others.
_LETTERED = re.compile(rb"^[ \t]*(?!h[ \t\r\n])([^\s0-9%+-][^\n]*)", re.MULTILINE)
READ = re.compile(rb"^[ \t]*[pw](?=[ \t])[^\n]*", re.MULTILINE)
_HARD = re.compile(rb"^[ \t]*h(?=[ \t\r\n]|\Z)", re.MULTILINE)
_CLAUSE = re.compile(rb"^[ \t]*(?!w[ \t])(\S+)", re.MULTILINE)
# What other programs have at the beginning of a line.
_UNREAD = (
    (re.compile(r"x(?:-?[0-9]+)?"), "a parity constraint ('x')"),
    (re.compile(r"[ae]"), "a quantifier of QDIMACS"),
    (re.compile(r"[rd]"), "a random or dependent variable of SDIMACS or DQDIMACS"),
    (re.compile(r"[kb]|bnn"), "a cardinality constraint"),
    (re.compile(r"\{[0-9]*\}?"), "a group of clauses"),
    (re.compile(r"vp"), "variables to count alone ('vp'): write 'p cnf' and 'c p show'"),
    (re.compile(r"[svo]"), "the answer of a solver"),
)
_HEADERS = {
    "pcnf": "a projected formula ('p pcnf'): write 'p cnf' and 'c p show'",
    "cnf+": "cardinality constraints ('p cnf+')",
    "knf": "cardinality constraints ('p knf')",
    "gcnf": "groups of clauses ('p gcnf')",
    "icnf": "an incremental formula ('p icnf')",
    "inccnf": "an incremental formula ('p inccnf')",
    "dnf": "a formula in disjunctive normal form ('p dnf')",
    **dict.fromkeys(("sat", "satx", "sate", "satex"), "a formula of other operators ('p sat')"),
    **dict.fromkeys(("edge", "col", "tw", "sp", "max", "min", "asn", "aux", "mat"), "a graph"),
}
_LINE = "a line 'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES TOP'"
_BEFORE = "'p cnf' or 'p wcnf' before the clauses"


@dataclass(frozen=True)
class Line:
    """A line that begins with a letter: its number, where it starts, and its words."""

    number: int
    start: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Header:
    """What a header claims; None for what it does not. ``top`` is the weight of hard clauses as it is written."""

    weighted: bool
    n_vars: int | None = None
    n_clauses: int | None = None
    top: str | None = None
    line: int | None = None


def read_lines(source: Source) -> tuple[Header, list[Line]]:
    """Return the header, and the lines of weights; comments are blank already.

    Raises
    ------
    FormatError
        If there is no header but in a file of MaxSAT, or a line is of a kind that is not read.
    """
    headers, weights = [], []
    for line in _lines(source):
        if line.words[0] == "p":
            headers.append(line)
        elif line.words[0] == "w":
            weights.append(line)
        else:
            _refuse_unread(source.path, line)
    hard = _HARD.search(source.data)
    for line in headers[1:]:
        raise FormatError(source.path, line.number, "one header", "another line 'p'")
    header = _header(source.path, headers[0]) if headers else _without_header(source, hard)
    if headers:
        _check_first(source, headers[0].start)
    if headers and hard:
        found = "a line 'h', which files of MaxSAT have since 2022, without a line 'p'"
        raise FormatError(source.path, _number_at(source, hard.end()), "clauses behind the header", found)
    return header, weights


def _lines(source: Source) -> Iterator[Line]:
    number, start = 1, 0
    for found in _LETTERED.finditer(source.data):
        number, start = number + source.data.count(b"\n", start, found.start(1)), found.start(1)
        yield Line(number, start, tuple(found[1].decode(source.encoding).split()))


def _number_at(source: Source, place: int) -> int:
    return source.data.count(b"\n", 0, place) + 1


def _refuse_unread(path: str, line: Line) -> None:
    for pattern, what in _UNREAD:
        if pattern.fullmatch(line.words[0]):
            raise FormatError(path, line.number, "clauses", f"{what}, which is not read")


def _without_header(source: Source, hard: re.Match[bytes] | None) -> Header:
    if hard is None and source.suffix != ".wcnf":
        first = re.search(rb"\S+", source.data)
        at, found = (first.start(), repr(shorten(first[0].decode(source.encoding)))) if first else (0, "comments alone")
        raise FormatError(source.path, _number_at(source, at), _BEFORE, found)
    return Header(weighted=True)


def _header(path: str, line: Line) -> Header:
    kind, *numbers = line.words[1:] or ("",)
    if kind not in ("cnf", "wcnf"):
        found = f"{_HEADERS[kind]}, which is not read" if kind in _HEADERS else repr(shorten(" ".join(line.words)))
        raise FormatError(path, line.number, _BEFORE, found)
    if len(numbers) not in ((2, 3) if kind == "wcnf" else (2,)) or not all(
        n.isascii() and n.isdigit() for n in numbers[:2]
    ):
        raise FormatError(path, line.number, _LINE, repr(shorten(" ".join(line.words))))
    n_vars, n_clauses = (int(n) if len(n) < 20 else 10**20 for n in numbers[:2])
    if n_vars > MAX_DOMAIN:
        raise FormatError(
            path, line.number, f"the number of variables from 0 to {MAX_DOMAIN}", repr(shorten(numbers[0]))
        )
    return Header(kind == "wcnf", n_vars, n_clauses, numbers[2] if len(numbers) == 3 else None, line.number)


def _check_first(source: Source, start: int) -> None:
    """Refuse clauses before the header."""
    first = _CLAUSE.search(source.data[:start])
    if first is not None:
        found = repr(shorten(first[1].decode(source.encoding)))
        raise FormatError(source.path, _number_at(source, first.start(1)), _BEFORE, found)
