"""What comments of DIMACS files say: weights of literals, variables that are counted alone, what is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import FormatError, shorten
from ...models.projection import Projection
from ..text.source import Source

COMMENT = re.compile(rb"^[ \t]*c[^\n]*", re.MULTILINE)
# The last is that of sharpSAT's projected variants; of a word such as 'cross' it is none.
_TOLD = re.compile(
    rb"^[ \t]*c(?:[ \t]+(p[ \t]+[^\s0-9-]\S*|t|ind|max|weights|MUST)(?!\S)|(r)(?=[ \t]+-?[0-9]))([^\n]*)",
    re.MULTILINE,
)
_PROJECTIONS = ("p show", "ind", "cr")
# What is written with these words in a comment is a header that was put aside.
_HEADERS = ("p cnf", "p wcnf", "p pcnf")
_TYPES = {"mc": (False, False), "wmc": (False, True), "pmc": (True, False), "pwmc": (True, True)}
"""Types of questions of the model counting competitions: whether projected, whether weighted."""


@dataclass(frozen=True)
class CommentFacts:
    """A comment that says something: its line, what begins it, and the words behind that."""

    line: int
    kind: str
    words: tuple[str, ...]

    def fail(self, path: str, expected: str, found: str | None = None) -> FormatError:
        """Return the error for this comment."""
        said = " ".join(self.words)
        return FormatError(path, self.line, expected, repr(shorten(said)) if found is None else found)


def read_comments(source: Source) -> list[CommentFacts]:
    """Return the comments that say something; those of people are none.

    Raises
    ------
    FormatError
        If one asks for a maximum of counts, which is not answered.
    """
    if _TOLD.search(source.data) is None:
        return []
    found, line, start = [], 1, 0
    for told in _TOLD.finditer(source.data):
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
    return told.kind not in _HEADERS


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
    """Say what comments ask for that answers do not show."""
    for one in told:
        if one.kind == "t" and one.words[0] not in _TYPES:
            yield f"'c t {shorten(one.words[0])}' in line {one.line} names no type of question that is known"
        elif one.kind == "t" and weighs and not _TYPES[one.words[0]][1]:
            yield f"the file asks for a count without its weights ('c t {one.words[0]}' in line {one.line})"
        elif one.kind == "MUST":
            by = shorten(" ".join(one.words[2:]))
            yield f"'c MUST MULTIPLY BY' in line {one.line} asks for the count times {by}; answers are without that"
        elif one.kind == "p optshow":
            yield f"'c p optshow' in line {one.line} names variables that decide the others, which changes no answer"
        elif one.kind == "max" or (one.kind.startswith("p ") and one.kind not in ("p show", "p weight")):
            yield f"'c {shorten(one.kind)}' in line {one.line} is not known and is left out"
    if projection is not None:
        count, told_where = len(projection.variables), projection.told.rpartition(": ")[2]
        yield f"assignments of {count} of {n_vars} variables alone are counted ({told_where}), optima are of all"
