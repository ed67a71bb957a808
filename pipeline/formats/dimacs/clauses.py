"""Clauses of DIMACS files as functions, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import FAR_INTEGER, LARGEST_DECIMALS, LARGEST_INT32
from ...errors import FormatError, shorten
from ...models.function import Function, dense_function, many_functions, row_function
from ...models.model import FORBIDDEN
from ..decimal_costs import decimal_places
from ..format_policy import FormatPolicy
from ..text.source import check_deadline
from ..text.tables import take_functions
from ..text.tokens import WordStream
from .lines import Header

# Clauses of fewer variables are arrays of all their cells.
_ROWS_FROM = 3
_EXACT = Context(prec=80)

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
        for length in np.unique(lengths).tolist():
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
                scope, signs = tuple([abs(x) - 1 for x in own]), bytes([x < 0 for x in own])
                found[place] = self._like(signs, weights[place]).over(scope)
        literals, places = literals[~twice], which[~twice].tolist()
        if not places:
            return
        size, negative = literals.shape[1], (literals < 0).tobytes()
        patterns = [negative[k : k + size] for k in range(0, len(negative), size)] if size else [b""] * len(places)
        keys = list(zip(patterns, map(weights.__getitem__, places), strict=True))
        alike = {key: self._like(*key) for key in dict.fromkeys(keys)}
        kinds = {key: (function.values, function.rows, function.default) for key, function in alike.items()}
        fields = zip(*map(kinds.__getitem__, keys), strict=True)
        scopes = map(tuple, (np.abs(literals) - 1).tolist())
        for place, function in zip(places, many_functions(scopes, *fields), strict=True):
            found[place] = function

    def _like(self, violated: bytes, weight: int) -> Function:
        """Return a function that is worth something else where every variable is in the violated state.

        Those of clauses that differ in their variables alone share one array.
        """
        made = self.made.get((violated, weight))
        if made is None:
            self.words.allowance.take(2 * len(violated), "its clauses")
            made = self.made[violated, weight] = self._table(violated, weight)
            vars(made)["distinct"] = True
            for array in (made.values, made.values if made.rows is None else made.rows):
                array.flags.writeable = False
        return made

    def _table(self, violated: bytes, weight: int) -> Function:
        scope = tuple(range(len(violated)))
        default, value = (0, np.array([weight])) if self.header.weighted else (1.0, np.zeros(1))
        if len(scope) >= _ROWS_FROM:
            return row_function(scope, np.array([list(violated)], dtype=np.uint8), value, default)
        values = np.full((2,) * len(scope), default)
        values[tuple(violated)] = value[0]
        return dense_function(scope, values)


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
