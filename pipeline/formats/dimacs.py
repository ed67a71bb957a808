"""The DIMACS formats: formulas in conjunctive normal form, with weights of literals or of clauses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ..errors import FormatError, shorten
from ..models.function import Function, dense_function, row_function
from ..models.model import FORBIDDEN, Model
from .text.source import Source
from .text.tables import take_function, take_variables
from .text.tokens import MAX_DOMAIN, WordStream

_COMMENT = re.compile(rb"^[ \t]*c[^\n]*", re.MULTILINE)
# SATLIB's files end with a line of a percent sign and one of a zero.
_END = re.compile(rb"^%\s*(?:0\s*)?\Z", re.MULTILINE)
# What the model counting competition says in comments: weights, and variables whose values alone are counted.
_TOLD = re.compile(rb"^[ \t]*c[ \t]+p[ \t]+(weight|show)(?!\S)([^\n]*)", re.MULTILINE)
_NUMBER = re.compile(r"[-+.0-9eE]+(?:/[-+.0-9eE]+)?")
# Clauses of fewer variables are arrays of all their cells.
_ROWS_FROM = 3


def read_dimacs(source: Source) -> Model:
    """Read a DIMACS file, ``p cnf`` or the weighted ``p wcnf``.

    Variable 3 of the file is ``x3``, with the states 0 (false) and 1 (true). A formula is potentials, 0 where a clause
    is violated; weights of literals (``c p weight 3 0.4 0``) are potentials too. Violated clauses of a weighted
    formula cost their weights, and are forbidden from the top on, if the file has one.

    Raises
    ------
    FormatError
        If the file is malformed, weighs only one literal of a variable, or asks for a projected count.
    """
    told = _told(source)
    words = WordStream(source.blank(_COMMENT).blank(_END))
    if words.peek(0) != "p" or words.peek(1) not in ("cnf", "wcnf"):
        raise words.fail(int(words.peek(0) == "p"), "'p cnf' or 'p wcnf' before the clauses")
    n_vars = words.integer(2, "the number of variables", 0, MAX_DOMAIN)
    n_clauses = words.integer(3, "the number of clauses", 0)
    take_variables(words, n_vars)
    weighted = words.peek(1) == "wcnf"
    weights = _weights(source, told, n_vars, weighted)
    functions = chain(_Clauses(words, n_vars, weighted, _header_words(source)).functions(n_clauses), weights)
    return Model(
        kind="cost" if weighted else "markov",
        names=tuple(f"x{v}" for v in range(1, n_vars + 1)),
        dims=(2,) * n_vars,
        states=(None,) * n_vars,
        functions=tuple(functions),
        name=source.stem,
    )


def _header_words(source: Source) -> int:
    return len(source.data.lstrip().partition(b"\n")[0].split())


@dataclass
class _Clauses:
    words: WordStream
    n_vars: int
    weighted: bool
    at: int
    made: dict[tuple[bytes, int], Function] = field(default_factory=dict)

    def functions(self, count: int) -> Iterator[Function]:
        """Yield a function for each clause that some assignment violates."""
        words, n_read, at = self.words, 0, self.at
        if at != 4 and not (self.weighted and at == 5):
            raise words.fail(min(at, 4), "a line 'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES TOP'")
        top = words.integer(4, "the top weight", 1) if at == 5 else FORBIDDEN
        words.allowance.take(0, f"{len(words)} literals", for_now=16 * len(words))
        numbers = words.integer_array(at, len(words), self._expected)
        for zero in np.append(np.flatnonzero(numbers == 0), len(numbers)).tolist():
            start = at - self.at
            if start == len(numbers):
                break
            if n_read == count:
                raise words.fail(at, f"the end of the file after {count} clauses")
            weight = self._weight(at, top) if self.weighted else FORBIDDEN
            if zero == len(numbers):
                raise words.fail(len(words), "0 at the end of a clause")
            if made := self._clause(numbers[start + self.weighted : zero].tolist(), at + self.weighted, weight):
                yield made
            n_read, at = n_read + 1, self.at + zero + 1
        if n_read < count:
            raise words.fail(len(words), f"{count} clauses", f"the end of the file after {n_read}")

    @property
    def _expected(self) -> str:
        return f"a literal from {-self.n_vars} to {self.n_vars}, or 0 at the end of a clause"

    def _weight(self, at: int, top: int) -> int:
        """Read the cost of violating a clause."""
        weight = self.words.integer(at, "the weight of a clause", 1)
        if FORBIDDEN <= weight < top:
            raise self.words.fail(at, f"a weight below {FORBIDDEN} or of at least the top")
        return FORBIDDEN if weight >= top else weight

    def _clause(self, literals: list[int], at: int, weight: int) -> Function | None:
        """Return a clause as a function; None if it cannot be violated."""
        for k, literal in enumerate(literals):
            if not -self.n_vars <= literal <= self.n_vars:
                raise self.words.fail(at + k, self._expected)
        distinct = dict.fromkeys(literals)
        if any(-literal in distinct for literal in distinct):
            return None
        scope = tuple([abs(literal) - 1 for literal in distinct])
        take_function(self.words, len(scope))
        violated = bytes([literal < 0 for literal in distinct])
        if (violated, weight) not in self.made:
            self.words.allowance.take(2 * len(scope), "its clauses")
            self.made[violated, weight] = self._function(scope, violated, weight)
        return self.made[violated, weight].changed(scope=scope)

    def _function(self, scope: tuple[int, ...], violated: bytes, weight: int) -> Function:
        """Return a function that is worth something else where every variable is in the violated state."""
        default, value = (0, np.array([weight])) if self.weighted else (1.0, np.zeros(1))
        if len(scope) >= _ROWS_FROM:
            return row_function(scope, np.array([list(violated)], dtype=np.uint8), value, default)
        values = np.full((2,) * len(scope), default)
        values[tuple(violated)] = value[0]
        return dense_function(scope, values)


def _told(source: Source) -> list[tuple[int, str, list[str]]]:
    """Return line, kind and words of what comments say."""
    if _TOLD.search(source.data) is None:
        return []
    found, line, start = [], 1, 0
    for told in _TOLD.finditer(source.data):
        line, start = line + source.data.count(b"\n", start, told.start()), told.start()
        found.append((line, told[1].decode(), told[2].decode(source.encoding).split()))
    source.allowance.take(512 * len(found), "its weights")
    return found


def _weights(source: Source, told: list[tuple[int, str, list[str]]], n_vars: int, weighted: bool) -> Iterator[Function]:
    """Yield a function for each variable whose literals weigh."""
    weights: dict[int, float] = {}
    shown: set[str] = set()
    for line, kind, words in told:
        if kind == "show":
            shown |= {*words}
            continue
        if weighted:
            raise FormatError(source.path, line, "weights of clauses", "a weight of a literal")
        literal, weight = _weight(source.path, line, words, n_vars)
        if weights.setdefault(literal, weight) != weight:
            raise FormatError(source.path, line, "one weight for each literal", f"another one of {literal}")
    if "show" in (kind for _, kind, _ in told) and not shown >= {str(v) for v in range(1, n_vars + 1)}:
        line = next(line for line, kind, _ in told if kind == "show")
        raise FormatError(source.path, line, "all variables", "a projection to some ('c p show'), which is not read")
    for literal in weights:
        if -literal not in weights:
            line = next(line for line, kind, words in told if kind == "weight" and words[0] == str(literal))
            raise FormatError(source.path, line, f"weights of {abs(literal)} and {-abs(literal)}", f"that of {literal}")
    for literal in filter(lambda literal: literal > 0, weights):
        yield dense_function((literal - 1,), np.array([weights[-literal], weights[literal]]))


def _weight(path: str, line: int, words: list[str], n_vars: int) -> tuple[int, float]:
    """Read a literal and its weight."""
    said = " ".join(words)
    if len(words) not in (2, 3) or words[2:] not in ([], ["0"]):
        raise FormatError(path, line, "a literal, its weight and 0", repr(shorten(said)))
    if not re.fullmatch(r"-?[0-9]{1,10}", words[0]) or not 1 <= abs(int(words[0])) <= n_vars:
        raise FormatError(path, line, f"a literal from {-n_vars} to {n_vars}", repr(shorten(words[0])))
    try:
        over, _, under = words[1].partition("/")
        weight = float(over) / float(under or 1) if _NUMBER.fullmatch(words[1]) else math.nan
    except (ValueError, ZeroDivisionError):
        weight = math.nan
    if not 0.0 <= weight < math.inf:
        raise FormatError(path, line, "a finite weight of at least 0", repr(shorten(words[1])))
    return int(words[0]), weight
