"""The CPLEX LP format: linear and quadratic objectives, linear constraints, bounded integer variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from ...errors import shorten
from ...models.model import Model
from ..format_policy import OBJECT_BYTES, WORD_BYTES
from ..text.source import Source
from ..text.tokens import Tokens
from .linear_draft import Factor, LinearConstraint, LinearDraft, LinearTerm

_MANTISSA = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NAME = r"[A-Za-z!\"#$%&(),;?@_`'{}~][\w!\"#$%&(),.;?@`'{}~]*"
_TOKEN = re.compile(rf"[<>]=|=[<>]|->|[<>=\[\]^*/:+-]|{_MANTISSA}(?:[eE][+-]?[0-9]+)?|{_NAME}|\S")
_COMMENT = re.compile(rb"\\[^\n]*")
# Longer exponents are beyond what decimals compute with.
_NUMBER = re.compile(rf"{_MANTISSA}(?:[eE][+-]?[0-9]{{1,3}})?")
_WORD = re.compile(_NAME)
_RELATIONS = {"<": "<=", "<=": "<=", "=<": "<=", ">": ">=", ">=": ">=", "=>": ">=", "=": "="}
_MIRRORED = {"<=": ">=", ">=": "<=", "=": "="}
_OBJECTIVES = {"minimize": False, "minimise": False, "minimum": False, "min": False} | dict.fromkeys(
    ("maximize", "maximise", "maximum", "max"), True
)
_SECTIONS = {
    **dict.fromkeys(("st", "s.t.", "st.", "subject to", "such that"), "constraints"),
    **dict.fromkeys(("bounds", "bound"), "bounds"),
    **dict.fromkeys(("generals", "general", "gen", "integers", "integer", "int"), "integers"),
    **dict.fromkeys(("binaries", "binary", "bin"), "binaries"),
    "end": "end",
}
_REFUSED = {
    **dict.fromkeys(("semi-continuous", "semi", "semis"), "semi-continuous variables"),
    **dict.fromkeys(("sos", "sos1", "sos2"), "special ordered sets"),
    "pwlobj": "piecewise-linear objectives",
    **dict.fromkeys(("lazy constraints", "user cuts"), "lazy constraints and cuts"),
}
_PAIRS = ("subject to", "such that", "lazy constraints", "user cuts")
_INFINITE = ("inf", "infinity")
# '2e1' is 20, and '2 e1' is twice a variable: CPLEX has no such names.
_EXPONENT = re.compile(r"[eE][0-9]+\Z")


class _LpReader:
    def __init__(self, source: Source) -> None:
        tokens = Tokens(source.blank(_COMMENT), _TOKEN, WORD_BYTES)
        self.tokens = tokens
        self.draft = LinearDraft[int](source, lambda at, *what: tokens.fail(at, *what))
        self.bounds: dict[str, list[Decimal | None]] = {}
        self.whole: set[str] = set()
        self.places: dict[str, int] = {}

    def check_exponents(self) -> None:
        """Refuse a name such as e1 in a file with numbers such as 2e1, because a blank may be missing."""
        name = next(filter(_EXPONENT.fullmatch, self.places), None)
        numbers = (at for at, word in enumerate(self.tokens.items) if _NUMBER.fullmatch(word))
        written = (at for at in numbers if _EXPONENT.search(self.tokens.items[at]))
        if name is not None and (at := next(written, None)) is not None:
            found = f"{shorten(self.tokens.peek(at))!r}, and a variable {shorten(name)!r}"
            raise self.tokens.fail(at, "no names that may be exponents", found)

    def keyword(self, at: int) -> tuple[str, int]:
        """Return the section that begins at an index, and the index behind its name; nothing if none does."""
        words = [self.tokens.peek(k).lower() for k in (at, at + 1)]
        if " ".join(words) in _PAIRS:
            return " ".join(words), at + 2
        if words[0] == "semi" and words[1] == "-":
            return "semi", at + 3
        known = words[0] in _SECTIONS or words[0] in _REFUSED
        is_name = self.tokens.peek(at + 1) in (":", *_RELATIONS)
        return (words[0], at + 1) if known and not is_name else ("", at)

    def problem(self) -> None:
        """Read all sections."""
        tokens = self.tokens
        if (word := tokens.peek(0).lower()) not in _OBJECTIVES:
            raise tokens.fail(0, "Minimize or Maximize")
        self.draft.maximize = _OBJECTIVES[word]
        at = self._label(1)
        if not self.keyword(at)[0]:
            self.draft.objective, at = self.terms(at)
        while at < len(tokens):
            name, behind = self.keyword(at)
            if name in _REFUSED and (behind >= len(tokens) or self.keyword(behind)[0]):
                at = behind  # a section without entries
                continue
            if name in _REFUSED:
                found = f"{_REFUSED[name]}, which are not read"
                raise tokens.fail(at, "integer variables in linear constraints", found)
            section = _SECTIONS.get(name)
            if section is None:
                raise tokens.fail(at, "a section, such as Subject To, Bounds, Generals or End")
            at = behind
            if section == "end":
                break
            read = {"constraints": self._constraint, "bounds": self._bound}.get(section)
            while at < len(tokens) and not self.keyword(at)[0]:
                at = self._declared(at, section) if read is None else read(at)

    def _label(self, at: int) -> int:
        return at + 2 if self.tokens.peek(at + 1) == ":" else at

    def variable(self, at: int) -> str:
        """Return the name of a variable at an index."""
        name = self.tokens.peek(at)
        if not _WORD.fullmatch(name):
            raise self.tokens.fail(at, "the name of a variable")
        if name not in self.places:
            self.tokens.allowance.take(OBJECT_BYTES, "its variables")
            self.places[name] = at
            self.bounds[name] = [Decimal(0), None]
        return name

    def number(self, at: int) -> tuple[Decimal | None, int]:
        """Return a number with its sign, None for an infinite one, and the index behind it."""
        tokens, sign = self.tokens, 1
        while tokens.peek(at) in ("+", "-"):
            sign, at = -sign if tokens.peek(at) == "-" else sign, at + 1
        word = tokens.peek(at)
        if word.lower() in _INFINITE:
            return None, at + 1
        if not _NUMBER.fullmatch(word):
            raise tokens.fail(at, "a number")
        return sign * Decimal(word), at + 1

    def terms(self, at: int) -> tuple[list[LinearTerm], int]:
        """Read a sum of terms, and products in brackets, up to something else."""
        tokens, found = self.tokens, [LinearTerm(Decimal(0), ())][:0]
        while True:
            sign, start = Decimal(1), at
            while tokens.peek(at) in ("+", "-"):
                sign, at = -sign if tokens.peek(at) == "-" else sign, at + 1
            if tokens.peek(at) == "[":
                if found and at == start:
                    raise tokens.fail(at, "'+' or '-' between two terms")
                products, at = self._products(at + 1)
                found += [LinearTerm(sign * term.coefficient, term.factors) for term in products]
                continue
            coefficient: Decimal | None = None
            if _NUMBER.fullmatch(tokens.peek(at)):
                coefficient, at = Decimal(tokens.peek(at)), at + 1
                at += tokens.peek(at) == "*"
            factors: tuple[Factor, ...] = ()
            if not self.keyword(at)[0] and _WORD.fullmatch(tokens.peek(at)):
                factors, at = ((self.variable(at), False),), at + 1
            if coefficient is None and not factors:
                if at > start:
                    raise tokens.fail(at, "a term")
                return found, at
            if found and tokens.peek(start) not in ("+", "-"):
                raise tokens.fail(start, "'+' or '-' between two terms")
            tokens.allowance.take(OBJECT_BYTES, "its terms")
            found.append(LinearTerm(sign * (Decimal(1) if coefficient is None else coefficient), factors))

    def _products(self, at: int) -> tuple[list[LinearTerm], int]:
        """Read ``x ^ 2 + 3 x * y ]``, perhaps with ``/ 2`` behind it."""
        tokens, found = self.tokens, [LinearTerm(Decimal(0), ())][:0]
        while tokens.peek(at) != "]":
            if found and tokens.peek(at) not in ("+", "-"):
                raise tokens.fail(at, "'+' or '-' between two terms")
            sign = Decimal(1)
            while tokens.peek(at) in ("+", "-"):
                sign, at = -sign if tokens.peek(at) == "-" else sign, at + 1
            if _NUMBER.fullmatch(tokens.peek(at)):
                sign, at = sign * Decimal(tokens.peek(at)), at + 1
                at += tokens.peek(at) == "*"
            first = self.variable(at), False
            if tokens.peek(at + 1) == "^" and tokens.peek(at + 2) == "2":
                factors, at = (first, first), at + 3
            elif tokens.peek(at + 1) == "*":
                factors, at = (first, (self.variable(at + 2), False)), at + 3
            else:
                raise tokens.fail(at + 1, "'^ 2' or '*' in a product")
            found.append(LinearTerm(sign, factors))
        if tokens.peek(at + 1) != "/":
            return found, at + 1
        at = tokens.expect(at + 2, "2")
        return [LinearTerm(term.coefficient / 2, term.factors) for term in found], at

    def _relation(self, at: int) -> str:
        if self.tokens.peek(at) not in _RELATIONS:
            raise self.tokens.fail(at, "'<=', '>=' or '='")
        return _RELATIONS[self.tokens.peek(at)]

    def _constraint(self, start: int) -> int:
        """Read ``name: terms <= number``, or terms between two numbers."""
        tokens, at = self.tokens, self._label(start)
        before: tuple[str, Decimal] | None = None
        for found in self._left_number(at):
            before, at = found
        first = at
        terms, at = self.terms(at)
        if not any(term.factors for term in terms):
            raise tokens.fail(first, "a sum of variables")
        if before is not None:
            self.draft.constraints.append(LinearConstraint(start, terms, _MIRRORED[before[0]], before[1]))
            if tokens.peek(at) not in _RELATIONS:
                return at
        relation = self._relation(at)
        right, behind = self.number(at + 1)
        if right is None:
            raise tokens.fail(at + 1, "a number that is not infinite")
        if tokens.peek(behind) in ("+", "-", "->"):
            raise tokens.fail(behind, "a constraint with one number behind its relation")
        self.draft.constraints.append(LinearConstraint(start, terms, relation, right))
        return behind

    def _left_number(self, at: int) -> Iterator[tuple[tuple[str, Decimal], int]]:
        """Yield the number and relation that a constraint begins with, and the index behind them, if it does."""
        behind = at
        while self.tokens.peek(behind) in ("+", "-"):
            behind += 1
        if _NUMBER.fullmatch(self.tokens.peek(behind)) and self.tokens.peek(behind + 1) in _RELATIONS:
            number, behind = self.number(at)
            if number is not None:
                yield (self._relation(behind), number), behind + 1

    def _bound(self, at: int) -> int:
        """Read ``1 <= x <= 4``, ``x >= 1`` or ``x free``."""
        tokens = self.tokens
        signed = at
        while tokens.peek(signed) in ("+", "-"):
            signed += 1
        if _NUMBER.fullmatch(tokens.peek(signed)) or (
            tokens.peek(signed).lower() in _INFINITE and tokens.peek(signed + 1) in _RELATIONS
        ):
            number, at = self.number(at)
            relation = _MIRRORED[self._relation(at)]
            name = self.variable(at + 1)
            self._set(at, name, relation, number)
            if tokens.peek(at + 2) not in _RELATIONS:
                return at + 2
            at += 1
        name = self.variable(at)
        if tokens.peek(at + 1).lower() == "free":
            self.bounds[name] = [None, None]
            return at + 2
        relation = self._relation(at + 1)
        number, behind = self.number(at + 2)
        self._set(at, name, relation, number)
        return behind

    def _set(self, at: int, name: str, relation: str, number: Decimal | None) -> None:
        if relation in (">=", "="):
            self.bounds[name][0] = number
        if relation in ("<=", "="):
            self.bounds[name][1] = number
            if relation == "<=" and number is not None and number < 0 and self.bounds[name][0] == 0:
                raise self.tokens.fail(at, f"a lower bound of {shorten(name)!r} first, as its upper one is negative")

    def _declared(self, at: int, section: str) -> int:
        name = self.variable(at)
        self.whole.add(name)
        if section == "binaries":
            self.bounds[name] = [Decimal(0), Decimal(1)]
        return at + 1

    def domains(self) -> None:
        """Make the domain of every variable of its bounds."""
        for name, (low, high) in self.bounds.items():
            at = self.places[name]
            if name not in self.whole:
                found = f"{shorten(name)!r}, a continuous one"
                raise self.tokens.fail(at, "integer variables (Generals, Binaries)", found)
            if low is None or high is None:
                raise self.tokens.fail(at, f"both bounds of {shorten(name)!r}", "none from above or from below")
            ends = int(low.to_integral_value("ROUND_CEILING")), int(high.to_integral_value("ROUND_FLOOR"))
            if ends[0] > ends[1]:
                raise self.tokens.fail(at, f"bounds of {shorten(name)!r} with a whole number", f"{low} to {high}")
            self.draft.domains[name] = ends


def read_lp(source: Source) -> Model:
    """Read a problem in CPLEX's LP format: bounded integer variables, a linear or quadratic objective, constraints.

    Raises
    ------
    FormatError
        If the file is malformed, or has continuous or unbounded variables, or sections of other kinds.
    BudgetError
        If a domain or a constraint is too large.
    """
    reader = _LpReader(source)
    reader.problem()
    reader.check_exponents()
    reader.domains()
    if not reader.draft.domains:
        raise reader.tokens.fail(len(reader.tokens), "a problem with variables", "none")
    return reader.draft.model()
