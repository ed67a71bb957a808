"""Comments and lettered lines of DIMACS files: headers, weights, projections, and what is not read, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tasks.steps.number_limits import LARGEST_INT32
from ..errors import FormatError, shorten
from ..models.model import Projection
from .text.source import Source

COMMENT = re.compile(rb"^[ \t]*c[^\n]*", re.MULTILINE)
# The last group matches the lines of sharpSAT's projected variants, but not a word such as 'cross'.
_TOLD = re.compile(
    rb"^[ \t]*c(?:[ \t]+(p[ \t]+[^\s0-9-]\S*|t|ind|max|weights|MUST)(?!\S)|(r)(?=[ \t]+-?[0-9]))([^\n]*)",
    re.MULTILINE,
)
# The same words without a blank, such as 'cp show 1 0' and 'cind 1 0'.
_JOINED = re.compile(
    rb"^[ \t]*(?!c[ \t]+(?:p[ \t]+(?:show|weight)|ind)[ \t])(c[ \t]*(?:p[ \t]*(?:show|weight)|ind)[ \t]*-?[0-9])",
    re.MULTILINE,
)
_PROJECTIONS = ("p show", "ind", "cr")
# A comment with these words is a header that was commented out.
_COMMENTED_HEADERS = ("p cnf", "p wcnf", "p pcnf")
_TYPES = {"mc": (False, False), "wmc": (False, True), "pmc": (True, False), "pwmc": (True, True)}
"""Types of questions of the model counting competitions: whether projected, whether weighted."""


@dataclass(frozen=True)
class CommentFacts:
    """A comment with a known meaning: its line, its keyword, and the words after the keyword."""

    line: int
    kind: str
    words: tuple[str, ...]

    def fail(self, path: str, expected: str, found: str | None = None) -> FormatError:
        """Return the error for this comment."""
        said = " ".join(self.words)
        return FormatError(path, self.line, expected, repr(shorten(said)) if found is None else found)


def read_comments(source: Source, stop: int) -> list[CommentFacts]:
    """Return the comments before an index that have a known meaning; other comments are skipped.

    Raises
    ------
    FormatError
        If one asks for a maximum of counts, which is not answered, or if the words of one are joined.
    """
    for joined in _JOINED.finditer(source.data, 0, stop):
        shown = repr(shorten(joined[1].decode(source.encoding)))
        line = source.data.count(b"\n", 0, joined.start(1)) + 1
        raise FormatError(source.path, line, "a blank after each word of 'c p show', 'c p weight' or 'c ind'", shown)
    if _TOLD.search(source.data, 0, stop) is None:
        return []
    found, line, start = [], 1, 0
    for told in _TOLD.finditer(source.data, 0, stop):
        line, start = line + source.data.count(b"\n", start, told.start()), told.start()
        kind = "cr" if told[2] else " ".join(told[1].decode(source.encoding).split())
        one = CommentFacts(line, kind, tuple(told[3].decode(source.encoding).split()))
        if _is_meant(one):
            found.append(one)
    source.allowance.take(512 * len(found), "its weights")
    for told_max in (one for one in found if one.kind == "max" and one.words[-1] == "0"):
        what = "variables to maximise over ('c max'), which is not answered"
        raise told_max.fail(source.path, "counts of assignments", what)
    return found


def _is_meant(told: CommentFacts) -> bool:
    """Whether a comment is one for programs: words may begin sentences of people."""
    words = told.words
    if told.kind == "t":
        return len(words) == 1
    if told.kind == "MUST":
        return words[:2] == ("MULTIPLY", "BY")
    if told.kind == "max":
        return bool(words) and all(map(_is_integer, words))
    if told.kind in ("ind", "weights"):
        return bool(words) and re.match(r"[-+.]?[0-9]", words[0]) is not None
    return told.kind not in _COMMENTED_HEADERS


def _is_integer(word: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,10}", word) is not None


def projection_of(path: str, told: Sequence[CommentFacts], n_vars: int) -> Projection | None:
    """Return the variables that are counted alone; None if these are all.

    Raises
    ------
    FormatError
        If they are no variables, contradict each other, or are not named where a projected count is asked for.
    """
    sets: dict[str, set[int]] = {}
    first = next((one for one in told if one.kind in _PROJECTIONS), None)
    for one in told:
        if one.kind in _PROJECTIONS:
            sets.setdefault(one.kind, set()).update(_variables(path, one, n_vars))
    if first is None:
        for one in told:
            if one.kind == "t" and _TYPES.get(one.words[0], (False,))[0]:
                raise one.fail(path, "'c p show' with the variables that are counted", f"'c t {one.words[0]}' alone")
        return None
    variables = sets[first.kind]
    for kind, others in sets.items():
        if others != variables:
            line = next(one for one in told if one.kind == kind)
            raise line.fail(path, f"the variables of {_said(first.kind)!r}", f"others in {_said(kind)!r}")
    if len(variables) == n_vars:
        return None
    return Projection(tuple(sorted(variables)), f"{path}:{first.line}: {_said(first.kind)!r}")


def _said(kind: str) -> str:
    return kind if kind == "cr" else f"c {kind}"


def _variables(path: str, told: CommentFacts, n_vars: int) -> Iterator[int]:
    words = told.words[:-1] if told.words[-1:] == ("0",) else told.words
    for word in words:
        if not _is_integer(word) or not 1 <= int(word) <= n_vars:
            raise told.fail(path, f"variables from 1 to {n_vars} behind {_said(told.kind)!r}", repr(shorten(word)))
        yield int(word) - 1


def notes_of(told: Sequence[CommentFacts], projection: Projection | None, n_vars: int, weighs: bool) -> Iterator[str]:
    """Yield notes about requests in comments that answers do not follow."""
    for one in told:
        if one.kind == "t" and one.words[0] not in _TYPES:
            yield f"'c t {shorten(one.words[0])}' in line {one.line} names an unknown type of query"
        elif one.kind == "t" and weighs and not _TYPES[one.words[0]][1]:
            yield f"the file asks for a count without its weights ('c t {one.words[0]}' in line {one.line})"
        elif one.kind == "MUST":
            by = shorten(" ".join(one.words[2:]))
            yield (
                f"'c MUST MULTIPLY BY' in line {one.line} asks for the count times {by}; answers do not include "
                "this factor"
            )
        elif one.kind == "p optshow":
            yield f"'c p optshow' in line {one.line} names variables that determine the others; this changes no answer"
        elif one.kind == "max" or (one.kind.startswith("p ") and one.kind not in ("p show", "p weight")):
            yield f"'c {shorten(one.kind)}' in line {one.line} is unknown and ignored"
    if projection is not None:
        count, told_where = len(projection.variables), projection.told.rpartition(": ")[2]
        yield f"assignments of {count} of {n_vars} variables alone are counted ({told_where}), optima are of all"


# Hard clauses of MaxSAT evaluations since 2022 stand among the others.
_LETTERED = re.compile(rb"^[ \t]*(?!h[ \t\r\n])([^\s0-9%+-][^\n]*)", re.MULTILINE)
READ = re.compile(rb"^[ \t]*[pw](?=[ \t])[^\n]*", re.MULTILINE)
_HARD = re.compile(rb"^[ \t]*h(?=[ \t\r\n]|\Z)", re.MULTILINE)
_CLAUSE = re.compile(rb"^[ \t]*(?!w[ \t])(\S+)", re.MULTILINE)
# Line beginnings of other programs.
_UNREAD = (
    (re.compile(r"x(?:-?[0-9]+)?"), "a parity constraint ('x')"),
    (re.compile(r"[ae]"), "a quantifier of QDIMACS"),
    (re.compile(r"[rd]"), "a random or dependent variable of SDIMACS or DQDIMACS"),
    (re.compile(r"[kb]|bnn"), "a cardinality constraint"),
    (re.compile(r"\{[0-9]*\}?"), "a group of clauses"),
    (re.compile(r"vp"), "variables to count alone ('vp'): write 'p cnf' and 'c p show'"),
    (re.compile(r"[svo]"), "the answer of a solver"),
    (re.compile(r"o[1-9][0-9]*"), "a file with several objectives, as in .mcnf"),
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
    """Claims of a header; None for a missing claim. ``top`` is the written weight of hard clauses."""

    weighted: bool
    n_vars: int | None = None
    n_clauses: int | None = None
    top: str | None = None
    line: int | None = None


def read_lines(source: Source, stop: int) -> tuple[Header, list[Line]]:
    """Return the header, and the lines of weights, all before an index; comments are blank already.

    Raises
    ------
    FormatError
        If there is no header but in a file of MaxSAT, or a line is of a kind that is not read.
    """
    headers, weights = [], []
    for line in _lines(source, stop):
        if line.words[0] == "p":
            headers.append(line)
        elif line.words[0] == "w":
            weights.append(line)
        else:
            _refuse_unread(source.path, line)
    hard = _HARD.search(source.data, 0, stop)
    for line in headers[1:]:
        raise FormatError(source.path, line.number, "one header", "another line 'p'")
    header = _header(source.path, headers[0]) if headers else _without_header(source, hard)
    if headers:
        _check_first(source, headers[0].start)
    if headers and hard:
        found = "a line 'h', which files of MaxSAT have since 2022, without a line 'p'"
        raise FormatError(source.path, _number_at(source, hard.end()), "clauses behind the header", found)
    return header, weights


def _lines(source: Source, stop: int) -> Iterator[Line]:
    number, start = 1, 0
    for found in _LETTERED.finditer(source.data, 0, stop):
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
    if n_vars > LARGEST_INT32:
        raise FormatError(
            path, line.number, f"the number of variables from 0 to {LARGEST_INT32}", repr(shorten(numbers[0]))
        )
    return Header(kind == "wcnf", n_vars, n_clauses, numbers[2] if len(numbers) == 3 else None, line.number)


def _check_first(source: Source, start: int) -> None:
    """Refuse clauses before the header."""
    first = _CLAUSE.search(source.data[:start])
    if first is not None:
        found = repr(shorten(first[1].decode(source.encoding)))
        raise FormatError(source.path, _number_at(source, first.start(1)), _BEFORE, found)
