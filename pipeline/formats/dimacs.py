"""The DIMACS formats: formulas in conjunctive normal form, with weights of literals or of clauses.

Read are the header, the clauses as functions, and the weights in the notations of model counters and weighted MaxSAT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import FAR_INTEGER, LARGEST_DECIMALS, LARGEST_INT32
from ..errors import FormatError, shorten
from ..models.checks import fitting
from ..models.function import Function, dense_function, many_functions, row_function
from ..models.model import FORBIDDEN, Kind, Model, Projection
from .decimal_costs import decimal_places
from .dimacs_lines import COMMENT, READ, CommentFacts, Header, Line, notes_of, projection_of, read_comments, read_lines
from .format_policy import FormatPolicy
from .text.source import Source, check_deadline
from .text.tables import take_functions, take_variables
from .text.tokens import WordStream

# Clauses of fewer variables are arrays of all their cells.
_ROWS_FROM = 3
_EXACT = Context(prec=80)
# Bytes of literals, in the signs of a clause.
_POSITIVE, _NEGATIVE = np.uint8(ord("+")), np.uint8(ord("-"))

Weight = int | Decimal | None
"""Cost of violating a clause; None if this is forbidden."""


@dataclass
class WeightedClauses:
    """The clauses behind a header.

    Parameters
    ----------
    words : Words
        Numbers alone.
    header : Header
    """

    words: WordStream
    header: Header
    made: dict[tuple[bytes, int], Function] = field(default_factory=dict)

    def __post_init__(self) -> None:
        words = self.words
        words.allowance.take(0, f"{len(words)} literals", for_now=16 * len(words))
        self.numbers = self._numbers()
        self.ends = np.flatnonzero(self.numbers == 0)
        self.starts = np.append(0, self.ends[:-1] + 1)[: len(self.ends)]
        if len(self.numbers) and self.numbers[-1] != 0:
            raise words.fail(len(words), "0 at the end of a clause")

    def _numbers(self) -> NDArray[np.int64]:
        """Return all words as numbers; of weights that are none, or not whole, as a number that is no literal."""
        words = self.words
        if not self.header.weighted:
            return words.integer_array(0, len(words), self._expected)
        try:
            return words.integer_array(0, len(words), self._expected)
        except FormatError:
            what, numbers = f"a weight above 0, or {self._expected}", np.empty(len(words), np.int64)
            for at, part in words.parts(0, len(words)):
                numbers[at : at + len(part)] = words.converted(part, _number, what, at.__add__)
            return numbers

    @property
    def count(self) -> int:
        """How many clauses there are."""
        return len(self.ends)

    @cached_property
    def n_vars(self) -> int:
        """How many variables there are: as many as the header says, or more where clauses name more.

        Raises
        ------
        FormatError
            If one is too large for any.
        """
        literals = self.numbers.copy() if self.header.weighted else self.numbers
        if self.header.weighted:
            literals[self.starts] = 0
        for at in np.flatnonzero((literals > LARGEST_INT32) | (literals < -LARGEST_INT32))[:1].tolist():
            raise self.words.fail(at, self._expected)
        largest = max(int(literals.max(initial=0)), -int(literals.min(initial=0)))
        return max(self.header.n_vars or 0, largest)

    @property
    def _expected(self) -> str:
        most = LARGEST_INT32 if self.header.n_vars is None else self.header.n_vars
        return f"a literal from {-most} to {most}, or 0 at the end of a clause"

    def notes(self) -> Iterator[str]:
        """Say how the file differs from its header."""
        header = self.header
        if header.n_clauses is not None and header.n_clauses != self.count:
            yield f"the header says {header.n_clauses} clauses, the file has {self.count}, which are all read"
        if header.n_vars is not None and header.n_vars < self.n_vars:
            yield f"the header says {header.n_vars} variables, clauses name {self.n_vars}, which are all read"

    def weights(self) -> tuple[list[int], int]:
        """Return the costs of violating each clause, and how many decimals they have.

        Raises
        ------
        FormatError
            If one is no weight, or too large.
        """
        if not self.header.weighted:
            return [FORBIDDEN] * self.count, 0
        found = [self._weight(at) for at in self.starts.tolist()]
        decimals = decimal_places([weight for weight in found if weight is not None])
        if decimals > LARGEST_DECIMALS:
            deepest = max(range(len(found)), key=lambda k: decimal_places([found[k] or 0]))
            raise self.words.fail(
                int(self.starts[deepest]), f"at most {LARGEST_DECIMALS} decimals", f"{decimals} decimals"
            )
        return [
            self._stored(int(at), weight, decimals) for at, weight in zip(self.starts, found, strict=True)
        ], decimals

    @cached_property
    def _top(self) -> int | Decimal | None:
        """The weight of hard clauses; None if there are none."""
        if self.header.top is None:
            return None
        try:
            return _weight_of(self.header.top)
        except ValueError:
            found = repr(shorten(self.header.top))
            raise FormatError(self.words.path, self.header.line, "a top weight above 0", found) from None

    def _weight(self, at: int) -> Weight:
        word, top = self.words.peek(at), self._top
        if word == "h" and self.header.n_clauses is None:
            return None
        try:
            weight = _weight_of(word)
        except ValueError:
            raise self.words.fail(at, "the weight of a clause, above 0") from None
        return None if top is not None and weight >= top else weight

    def _stored(self, at: int, weight: Weight, decimals: int) -> int:
        if weight is None:
            return FORBIDDEN
        # first as it is: a number of a million digits is not written out
        if weight < FORBIDDEN:
            scaled = weight * 10**decimals if isinstance(weight, int) else int(weight.scaleb(decimals, _EXACT))
            if scaled < FORBIDDEN:
                return scaled
        within = f" with {decimals} decimals" if decimals else ""
        why = "costs are 64-bit integers; if all weights have a common factor, divide by it"
        raise self.words.fail(at, f"a weight below {FORBIDDEN}{within}, or of at least the top ({why})")

    def functions(self, weights: Sequence[int]) -> list[Function]:
        """Return a function for each clause that some assignment violates."""
        first = int(self.header.weighted)
        take_functions(self.words, self.count, len(self.numbers) - self.count)
        starts, lengths = self.starts + first, self.ends - self.starts - first
        found: list[Function | None] = [None] * self.count
        block = FormatPolicy.current().token_block_bytes
        for length in np.flatnonzero(np.bincount(lengths)).tolist():
            every = np.flatnonzero(lengths == length)
            for first_of in range(0, len(every), block):
                check_deadline()
                which = every[first_of : first_of + block]
                literals = self.numbers[starts[which][:, None] + np.arange(length)]
                self._add(found, which, literals, weights)
        return [function for function in found if function is not None]

    def _add(
        self, found: list[Function | None], which: NDArray[np.intp], literals: NDArray[np.int64], weights: Sequence[int]
    ) -> None:
        """Add the functions of clauses of one length. Clauses that name a variable twice are handled one by one."""
        ordered = np.sort(np.abs(literals), axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        for k in np.flatnonzero(twice).tolist():
            own = dict.fromkeys(literals[k].tolist())
            # an assignment that violates both of two opposite literals is none
            if len(own) == 1 or own.keys().isdisjoint([-literal for literal in own]):
                place = int(which[k])
                like = self._like(_signs(np.array([[*own]]))[0], weights[place])
                found[place] = like.over(tuple([abs(x) - 1 for x in own]))
        literals, places = literals[~twice], which[~twice].tolist()
        if not places:
            return
        signs = _signs(literals)
        if self.header.weighted:
            keys = list(zip(signs, map(weights.__getitem__, places), strict=True))
            tables_of = {key: _table_of(self._like(*key)) for key in dict.fromkeys(keys)}
            tables = map(tables_of.__getitem__, keys)
        else:  # all weights are equal, so the signs alone identify a table, and hash faster than pairs
            table_of = {each: _table_of(self._like(each, FORBIDDEN)) for each in dict.fromkeys(signs)}
            tables = map(table_of.__getitem__, signs)
        variables = (np.abs(literals) - 1).T.tolist()
        scopes = zip(*variables, strict=True) if variables else repeat((), len(places))
        for place, function in zip(places, many_functions(scopes, *zip(*tables, strict=True)), strict=True):
            found[place] = function

    def _like(self, signs: bytes, weight: int) -> Function:
        """Return a function that is worth something else where every variable is in the violated state.

        Those of clauses that differ in their variables alone share one array.
        """
        made = self.made.get((signs, weight))
        if made is None:
            self.words.allowance.take(2 * len(signs), "its clauses")
            made = self.made[signs, weight] = self._table([sign == _NEGATIVE for sign in signs], weight)
            vars(made)["distinct"] = True
            for array in (made.values, made.values if made.rows is None else made.rows):
                array.flags.writeable = False
        return made

    def _table(self, violated: list[bool], weight: int) -> Function:
        scope = tuple(range(len(violated)))
        default, value = (0, np.array([weight])) if self.header.weighted else (1.0, np.zeros(1))
        if len(scope) >= _ROWS_FROM:
            return row_function(scope, np.array([violated], dtype=np.uint8), value, default)
        values = np.full((2,) * len(scope), default)
        values[tuple(map(int, violated))] = value[0]
        return dense_function(scope, values)


def _table_of(function: Function) -> tuple[NDArray[Any], NDArray[Any] | None, int | float]:
    """Return the values, the rows and the default of a function."""
    return function.values, function.rows, function.default


def _signs(literals: NDArray[np.int64]) -> list[bytes]:
    """Return the signs of the literals of each clause, one byte per literal; no byte is 0, because NumPy's strings end
    at 0.
    """
    clauses, size = literals.shape
    signs: list[bytes] = np.where(literals < 0, _NEGATIVE, _POSITIVE).view(f"S{size}").ravel().tolist() if size else []
    return signs or [b""] * clauses


def _number(word: str) -> int:
    """Convert a word; only the first word of a clause may be something other than an integer.

    Raises
    ------
    ValueError
        If it is no number at all.
    """
    try:
        number = int(word)
    except ValueError:
        if word != "h":
            _weight_of(word)
        return FAR_INTEGER  # no literal is this large
    return max(-FAR_INTEGER, min(number, FAR_INTEGER))


def _weight_of(word: str) -> int | Decimal:
    """Convert a weight exactly.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        weight = int(word) if word.isdigit() else Decimal(word)
        positive = 0 < weight < float("inf")  # not defined of a NaN
    except InvalidOperation:
        raise ValueError(word) from None
    if not positive or "_" in word or not word.isascii():
        raise ValueError(word)
    return weight


_NUMBER = re.compile(r"[-+.0-9eE]+(?:/[-+.0-9eE]+)?")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?")
_LITERAL = re.compile(r"-?[0-9]{1,10}")
_CACHET = "a line 'w VARIABLE PROBABILITY' as Cachet has it"

Weights = dict[int, float]
"""Weights by literal."""


def weights_of(path: str, told: Sequence[CommentFacts], lines: Sequence[Line], weighted: bool, n_vars: int) -> Weights:
    """Read weights in one of three forms.

    ``c p weight 3 0.4 0`` weighs one literal (model counting competitions). ``w 3 0.4`` weighs a variable, and its
    opposite literal gets 1 minus the weight (Cachet; there, variables without a line have weight 1/2 for both
    literals). ``c weights`` gives both weights of all variables (miniC2D).

    Raises
    ------
    FormatError
        If they are malformed, contradict each other, or weigh only one literal of a variable.
    """
    spoken = [one for one in told if one.kind == "p weight"]
    listed = [one for one in told if one.kind == "weights"]
    kinds = [("c p weight", one.line) for one in spoken[:1]]
    kinds += [("w", one.number) for one in lines[:1]] + [("c weights", one.line) for one in listed[:1]]
    if kinds and weighted:
        raise FormatError(path, kinds[0][1], "weights of clauses", "a weight of a literal")
    if len(kinds) > 1:
        raise FormatError(path, kinds[1][1], f"weights as in the lines {kinds[0][0]!r}", f"a line {kinds[1][0]!r}")
    weights: Weights = {}
    lines_of: dict[int, int] = {}
    for line, literal, weight in _read(path, spoken, lines, listed, n_vars):
        lines_of.setdefault(literal, line)
        if weights.setdefault(literal, weight) != weight:
            raise FormatError(path, line, "one weight for each literal", f"another one of {literal}")
    for literal in weights:
        if -literal not in weights:
            both = f"weights of {abs(literal)} and {-abs(literal)}"
            raise FormatError(path, lines_of[literal], both, f"that of {literal}")
    for v in range(1, n_vars + 1) if lines else ():
        if v not in weights:
            weights[v] = weights[-v] = 0.5
    return weights


def weight_notes(lines: Sequence[Line], n_vars: int) -> Iterator[str]:
    """Yield a note about the weights of variables without a line in a file of Cachet."""
    if lines and (without := n_vars - len({int(line.words[1]) for line in lines})):
        yield (
            f"{without} of {n_vars} variables have no line 'w': both literals of such a variable weigh 1/2, as in "
            "Cachet"
        )


def weight_functions(weights: Weights) -> list[Function]:
    """Return a function for each variable whose literals have weights; the arrays are read-only parts of one array."""
    positive = [literal for literal in weights if literal > 0]
    table = np.array([(weights[-literal], weights[literal]) for literal in positive])
    table.flags.writeable = False
    return many_functions([(literal - 1,) for literal in positive], table)


def _with_unread(projection: Projection | None, weights: Weights, first: int) -> Projection | None:
    """Note the functions, from a number on, that weigh variables which are not counted."""
    if projection is None:
        return None
    weighed = [literal - 1 for literal in weights if literal > 0]
    others = {v for v in weighed if (weights[v + 1], weights[-v - 1]) != (1.0, 1.0)} - {*projection.variables}
    return replace(projection, unread=tuple(first + k for k, v in enumerate(weighed) if v in others))


def _read(
    path: str, spoken: Sequence[CommentFacts], lines: Sequence[Line], listed: Sequence[CommentFacts], n_vars: int
) -> Iterator[tuple[int, int, float]]:
    """Yield lines, literals and weights."""
    for one in spoken:
        yield (one.line, *_weight(path, one.line, one.words, n_vars))
    for line in lines:
        variable, probability = _cachet(path, line, n_vars)
        yield line.number, variable, 1.0 if probability is None else float(probability)
        yield line.number, -variable, 1.0 if probability is None else float(1 - probability)
    for one in listed:
        if len(one.words) != 2 * n_vars:
            raise one.fail(
                path, f"{2 * n_vars} weights, two for each variable, behind 'c weights'", f"{len(one.words)}"
            )
        for k, word in enumerate(one.words):
            yield one.line, (k // 2 + 1) * (-1) ** k, _amount(path, one.line, word)


def _weight(path: str, line: int, words: Sequence[str], n_vars: int) -> tuple[int, float]:
    """Read a literal and its weight."""
    if len(words) not in (2, 3) or words[2:] not in ((), ("0",)):
        raise FormatError(path, line, "a literal, its weight and 0", repr(shorten(" ".join(words))))
    if not _LITERAL.fullmatch(words[0]) or not 1 <= abs(int(words[0])) <= n_vars:
        raise FormatError(path, line, f"a literal from {-n_vars} to {n_vars}", repr(shorten(words[0])))
    return int(words[0]), _amount(path, line, words[1])


def _amount(path: str, line: int, word: str) -> float:
    try:
        over, _, under = word.partition("/")
        weight = float(over) / float(under or 1) if _NUMBER.fullmatch(word) else math.nan
    except (ValueError, ZeroDivisionError):
        weight = math.nan
    if not 0.0 <= weight < math.inf:
        raise FormatError(path, line, "a finite weight of at least 0", repr(shorten(word)))
    return weight


def _cachet(path: str, line: Line, n_vars: int) -> tuple[int, Decimal | None]:
    """Read a variable and the weight of its positive literal; None where both weigh 1."""
    words = line.words[1:]
    if len(words) == 3 and words[2] == "0":
        found = (
            "a weight line that ends with 0, as in the competition of 2020; write 'c p weight LITERAL WEIGHT 0' for "
            "both literals"
        )
        raise FormatError(path, line.number, _CACHET, found)
    if len(words) != 2:
        raise FormatError(path, line.number, _CACHET, repr(shorten(" ".join(line.words))))
    if not _LITERAL.fullmatch(words[0]) or not 1 <= int(words[0]) <= n_vars:
        raise FormatError(path, line.number, f"{_CACHET}, a variable from 1 to {n_vars}", repr(shorten(words[0])))
    probability = Decimal(words[1]) if _DECIMAL.fullmatch(words[1]) else None
    if probability is None or not (0 <= probability <= 1 or probability == -1):
        raise FormatError(path, line.number, f"{_CACHET}, from 0 to 1 or -1", repr(shorten(words[1])))
    return int(words[0]), None if probability == -1 else probability


# SATLIB's files end with a line of a percent sign and one of a zero.
_END = re.compile(rb"^%\s*(?:0\s*)?\Z", re.MULTILINE)


def read_dimacs(source: Source) -> Model:
    """Read a DIMACS file: ``p cnf``, the weighted ``p wcnf``, or the weighted without a header that MaxSAT has now.

    Variable 3 of the file is ``x3``, with the states 0 (false) and 1 (true). A formula is potentials, 0 where a clause
    is violated; weights of literals (``c p weight 3 0.4 0``, ``w 3 0.4``) are potentials too. Violated clauses of a
    weighted formula cost their weights, and are forbidden from the top on, or in lines that begin with ``h``.
    Variables that are counted alone (``c p show``, ``c ind``) are the model's projection.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed, weighs only one literal of a variable, or has lines of kinds that are not read.
    """
    stop = source.lettered
    told = read_comments(source, stop)
    source.blank(COMMENT, stop)
    if b"%" in source.data:
        # some old files end with a line of %
        source.blank(_END)
    header, weight_lines = read_lines(source, stop)
    words = WordStream(source.blank(READ, stop))
    clauses = WeightedClauses(words, header)
    n_vars = clauses.n_vars
    take_variables(words, n_vars)
    weights = weights_of(source.path, told, weight_lines, header.weighted, n_vars)
    take_functions(words, len(weights) // 2, len(weights) // 2)
    costs, decimals = clauses.weights()
    functions = clauses.functions(costs)
    projection = _with_unread(projection_of(source.path, told, n_vars), weights, len(functions))
    kind: Kind = "cost" if header.weighted else "markov"
    return Model(
        kind=kind,
        names=tuple(f"x{v}" for v in range(1, n_vars + 1)),
        dims=(2,) * n_vars,
        states=(None,) * n_vars,
        functions=fitting(kind, (2,) * n_vars, (*functions, *weight_functions(weights)), are_read_only=True),
        decimals=decimals,
        name=source.stem,
        notes=(
            *clauses.notes(),
            *weight_notes(weight_lines, n_vars),
            *notes_of(told, projection, n_vars, bool(weights)),
        ),
        projection=projection,
    )
