"""Pseudo-Boolean problems: .opb with an objective, and .wbo with constraints that may be violated at a cost."""

from __future__ import annotations

import re
from decimal import Decimal

from ...errors import shorten
from ...models.model import Model
from ..format_policy import OBJECT_BYTES, WORD_BYTES
from ..text.source import Source
from ..text.tokens import Tokens
from .linear_draft import Factor, LinearConstraint, LinearDraft, LinearTerm
from .wide_sums import RELATIONS

_MANTISSA = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NAME = r"~?[A-Za-z_][^\s;~<>=!*]*"
# A name ends at a blank, a relation, ';', '~' or '*'. A sign ends only names such as x1, if a coefficient with its
# variable follows: 'x1-2x2' is two terms, but 'up-2x2' may be one name, and is refused. So is '2e1x4', which may be
# 20 x4 or 2 e1x4, and '1_0', which is 10 to some programs.
_TOKEN = re.compile(
    r"(?:min|max|soft)\s*:|[;\[\]*]|[<>!]=|=|"
    rf"{_MANTISSA}_[0-9]\S*|"
    rf"{_MANTISSA}(?:(?=[\s;\]*~A-DF-Za-df-z_]|\Z)|[eE][+-]?[0-9]{{1,3}}(?=[\s;\]*]|\Z)|(?=[eE](?![+-]?[0-9])))|"
    rf"{_MANTISSA}[eE][+-]?[0-9]+\S*|"
    rf"~?[A-Za-z][0-9]+(?=[+-](?:[0-9]+\.?[0-9]*|\.[0-9]+)\s*\*?\s*[~A-Za-z_])|"
    rf"[+-]|{_NAME}|\S"
)
_COMMENT = re.compile(rb"^[ \t]*\*[^\n]*", re.MULTILINE)
_HEADER = re.compile(r"\*\s*#variable=\s*([0-9]+)(?:\s+#constraint=\s*([0-9]+))?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
# As of 1e3, which may be meant for 1 times a variable e3.
_EXPONENT = re.compile(r"[eE][0-9]+\Z")
_VARIABLE = re.compile(r"~?[A-Za-z_]\S*")
_SIGN = re.compile(r"[+-]")
_JOINED = re.compile(r"(?:[A-Za-z][0-9]+){2,}")
_PART = re.compile(r"[A-Za-z][0-9]+")
_NUMBERED = re.compile(r"x([1-9][0-9]*)")


class _OpbReader:
    def __init__(self, source: Source) -> None:
        self.head = source.head(1 << 12)
        self.tokens = tokens = Tokens(source.blank(_COMMENT), _TOKEN, WORD_BYTES)
        self.draft = LinearDraft[int](source, lambda at, *what: tokens.fail(at, *what))
        self.stars = "*" in tokens.text
        self.places: dict[str, int] = {}
        self.exponent_at: int | None = None

    def problem(self) -> None:
        """Read the objective and all constraints."""
        at, first = 0, True
        while at < len(self.tokens):
            word = "".join(self.tokens.items[at].split())
            if word in ("min:", "max:"):
                if not first:
                    raise self.tokens.fail(at, "the objective before all constraints")
                self.draft.maximize = word == "max:"
                self.draft.objective, at = self.terms(at + 1)
                at = self.tokens.expect(at, ";")
            elif word == "soft:":
                at = self._top(at + 1)
            else:
                at = self._constraint(at)
            first = False
        self._refuse_joined()

    def _refuse_joined(self) -> None:
        """Refuse names that may be two words without a blank: 'x1x2' beside x1, x2 or x3, and e3 beside 1e3."""
        single = [_NUMBERED.fullmatch(name) is not None for name in self.places if not _JOINED.fullmatch(name)]
        numbered = bool(single) and all(single)
        for name, at in self.places.items():
            parts = _PART.findall(name) if _JOINED.fullmatch(name) else []
            if parts and all(part in self.places or (numbered and part[0] == "x") for part in parts):
                raise self.tokens.fail(at, "a blank between the variables of a product", repr(shorten(name)))
            if self.exponent_at is not None and _EXPONENT.fullmatch(name):
                found = f"{shorten(self.tokens.peek(self.exponent_at))!r}, and a variable {shorten(name)!r}"
                raise self.tokens.fail(self.exponent_at, "a blank between a number and a variable", found)

    def _top(self, at: int) -> int:
        """Read from where on the sum of violations is forbidden, if anywhere."""
        if self.tokens.peek(at) != ";":
            self.draft.top, at = self.number(at), at + 1
        return self.tokens.expect(at, ";")

    def number(self, at: int) -> Decimal:
        """Return the number at an index."""
        if not _NUMBER.fullmatch(self.tokens.peek(at)):
            raise self.tokens.fail(at, "a number")
        return Decimal(self.tokens.items[at])

    def terms(self, at: int) -> tuple[list[LinearTerm], int]:
        """Read terms until a token is no term; a term without a number has the coefficient 1.

        Parameters
        ----------
        at : int
            Index of the first token.

        Returns
        -------
        list of LinearTerm, int
            The terms, and the index of the token behind them.
        """
        tokens, found = self.tokens, [LinearTerm(Decimal(0), ())][:0]
        while True:
            start, coefficient = at, Decimal(1)
            if tokens.peek(at) in ("+", "-"):
                coefficient, at = Decimal(f"{tokens.peek(at)}1"), at + 1
            if _NUMBER.fullmatch(word := tokens.peek(at)):
                if "e" in word or "E" in word:
                    self.exponent_at = at
                coefficient, at = coefficient * Decimal(word), at + 1
                at = self._star(at) if self.stars else at
            factors: list[Factor] = []
            starred: list[bool] = []
            while _VARIABLE.fullmatch(word := tokens.peek(at)):
                name = word.removeprefix("~")
                if name not in self.draft.domains:
                    if _SIGN.search(name):
                        raise tokens.fail(at, "a name without '+' and '-', or a blank before the sign")
                    tokens.allowance.take(OBJECT_BYTES, "its variables")
                    self.draft.domains[name] = 0, 1
                    self.places[name] = at
                factors.append((name, word != name))
                at += 1
                if self.stars:
                    behind = self._star(at)
                    starred.append(behind > at)
                    at = behind
            if starred and len({*starred[:-1]}) > 1:  # the last variable has no star
                raise tokens.fail(start, "'*' between all variables of a product or none; a remark has its own line")
            if at == start:
                return found, at
            # "3e2" followed by nothing may be the number 300 or a missing variable
            if not factors and (exponent := _EXPONENT.search(tokens.peek(at - 1))):
                raise tokens.fail(at - 1, f"a variable after a number, with a space before it if it is {exponent[0]}")
            tokens.allowance.take(OBJECT_BYTES, "its terms")
            found.append(LinearTerm(coefficient, tuple(factors)))

    def _star(self, at: int) -> int:
        """Return the index behind a '*', which may stand before a variable (PB evaluation of 2005)."""
        if self.tokens.peek(at) != "*":
            return at
        if not _VARIABLE.fullmatch(self.tokens.peek(at + 1)):
            raise self.tokens.fail(at + 1, "a variable after '*'")
        return at + 1

    def _constraint(self, start: int) -> int:
        tokens, at, cost = self.tokens, start, None
        if tokens.peek(at) == "[":
            cost, at = self.number(at + 1), tokens.expect(at + 2, "]")
            if cost < 0:
                raise tokens.fail(start + 1, "a cost of at least 0")
        terms, at = self.terms(at)
        if tokens.peek(at) not in RELATIONS:
            raise tokens.fail(at, f"a term, or one of {', '.join(RELATIONS)}")
        relation, right = tokens.items[at], self.number(at + 1)
        self.draft.constraints.append(LinearConstraint(start, terms, relation, right, cost))
        return tokens.expect(at + 2, ";")


def read_opb(source: Source) -> Model:
    """Read a pseudo-Boolean problem (.opb), or one whose constraints may be violated at a cost (.wbo).

    Terms may have complements (``~x1``), products of literals, and ``*`` as in 2005 (``2*x1``). Variables keep the
    order of the file. If all names are x1, x2 and so on, the model has all variables that the header counts.

    Raises
    ------
    FormatError
        If the file is malformed.
    BudgetError
        If a product or a constraint is too large.
    """
    reader = _OpbReader(source)
    reader.problem()
    draft = reader.draft
    if any(c.cost is not None for c in draft.constraints) and draft.objective:
        raise reader.tokens.fail(0, "an objective or constraints with costs", "both")
    _number(draft, reader.head)
    return draft.model()


def _number(draft: LinearDraft[int], head: str) -> None:
    """Sort numbered variables, add variables that only the header counts, and note errors of the header."""
    numbers = [_NUMBERED.fullmatch(name) for name in draft.domains]
    header = _HEADER.search(head)
    if header is None:
        return
    if header[2] is not None and (said := int(header[2])) != len(draft.constraints):
        draft.notes.append(f"the header says {said} constraints, the file has {len(draft.constraints)}")
    if not all(numbers):
        if int(header[1]) != len(draft.domains):
            draft.notes.append(f"the header says {int(header[1])} variables, the file has {len(draft.domains)}")
        return
    count, seen = int(header[1]), {int(found[1]) for found in numbers if found}
    if count < max(seen, default=0):
        draft.notes.append(f"the header says {count} variables, the file has x{max(seen)}")
        return
    draft.source.allowance.take(OBJECT_BYTES * count, f"{shorten(header[1])} variables")
    draft.domains = {f"x{k}": (0, 1) for k in range(1, count + 1)}
    if free := count - len(seen):
        draft.notes.append(f"{free} of the {count} variables in the header are in no constraint: they are free")
