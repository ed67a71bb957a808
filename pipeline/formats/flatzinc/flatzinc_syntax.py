"""The statements of a FlatZinc file: declarations of parameters and variables, constraints, and what is solved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ....tasks.steps.number_limits import LARGEST_DECIMAL
from ...errors import FormatError, shorten
from ..format_policy import OBJECT_BYTES, WORD_BYTES
from ..text.source import Source
from ..text.tokens import Tokens

Operand = int | tuple[int]
"""An integer (of booleans 0 or 1), or a variable by its index, in a tuple."""
Given = Any
"""An operand, a list of them, a set of integers as a range or frozenset, or the text of another constant."""
Values = range | frozenset[int]

_COMMENT = re.compile(rb'("[^"\n]*")|%[^\n]*')
_TOKEN = re.compile(
    r'"[^"\n]*"|[A-Za-z_]\w*|-?0(?:x[0-9A-Fa-f]+|o[0-7]+)|'
    r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|::|\.\.|\S"
)
_INTEGER = re.compile(r"-?(?:[0-9]+|0x[0-9A-Fa-f]+|0o[0-7]+)")
_FRACTION = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_BOOLEANS = {"false": 0, "true": 1}


@dataclass(frozen=True)
class FlatVariable:
    """A variable: where it is declared, its values (None if no bound is given), and whether it is a boolean."""

    at: int
    name: str
    values: Values | None
    boolean: bool = False


@dataclass(frozen=True)
class FlatConstraint:
    """A constraint: where it stands, its name, and what it is given."""

    at: int
    name: str
    given: tuple[Given, ...]


@dataclass
class FlatZincFile:
    """The content of a file, read from front to back.

    Parameters
    ----------
    source : Source
    """

    source: Source
    variables: list[FlatVariable] = field(default_factory=list)
    constraints: list[FlatConstraint] = field(default_factory=list)
    equal: list[tuple[int, Operand, Operand]] = field(default_factory=list)
    """Variables that are declared as another one, or as a constant, each with its place."""
    goal: str = ""
    objective: Operand = 0

    def __post_init__(self) -> None:
        self.tokens = Tokens(self.source.blank(_COMMENT), _TOKEN, WORD_BYTES)
        self.names: dict[str, Given] = {}
        at = 0
        while at < len(self.tokens):
            at = self._statement(at)
        if not self.goal:
            raise self.tokens.fail(len(self.tokens), "a statement 'solve'")

    def fail(self, at: int, expected: str, found: str | None = None) -> FormatError:
        """Return the error at a token."""
        return self.tokens.fail(at, expected, found)

    def _statement(self, at: int) -> int:
        """Read a statement and return the index behind it."""
        word = self.tokens.peek(at)
        if self.goal:
            raise self.fail(at, "the end of the file behind 'solve'")
        if word == "predicate":
            return self.tokens.find(";", at) + 1
        if word == "constraint":
            return self._constraint(at)
        return self._solve(at) if word == "solve" else self._declaration(at)

    def _constraint(self, at: int) -> int:
        name = self.tokens.peek(at + 1)
        if not _NAME.fullmatch(name):
            raise self.fail(at + 1, "the name of a constraint")
        given, behind = self._listed(self.tokens.expect(at + 2, "("), ")")
        self.constraints.append(FlatConstraint(at, name, tuple(given)))
        return self.tokens.expect(self._annotated(behind), ";")

    def _solve(self, at: int) -> int:
        at = self._annotated(at + 1)
        goal = self.tokens.peek(at)
        if goal not in ("satisfy", "minimize", "maximize"):
            raise self.fail(at, "satisfy, minimize or maximize")
        if goal != "satisfy":
            place = at + 1
            found, at = self._expression(place)
            if not isinstance(found, int | tuple):
                raise self.fail(place, "an integer variable to optimise")
            self.objective, at = found, at - 1
        self.goal = goal
        return self.tokens.expect(at + 1, ";")

    def _declaration(self, at: int) -> int:
        """Read the declaration of a parameter, a variable or an array.

        Parameters
        ----------
        at : int
            Index of its first token.

        Returns
        -------
        int
            Index of the token behind its semicolon.
        """
        tokens, array = self.tokens, self.tokens.peek(at) == "array"
        size: Given = None
        if array:
            sized = tokens.expect(at + 1, "[")
            size, at = (None, sized) if tokens.peek(sized) == "int" else self._expression(sized)
            if not isinstance(size, range) or size.start != 1:
                raise self.fail(sized, "the size of an array, such as 1..3")
            at = tokens.expect(tokens.expect(at, "]"), "of")
        variable = tokens.peek(at) == "var"
        start = at + variable
        if variable and (kind := self._unread_type(start)):
            raise self.fail(start, "variables that are integers or booleans", f"a variable of {kind}")
        values, at = self._type(start)
        name, place = tokens.peek(tokens.expect(at, ":")), at + 1
        if not _NAME.fullmatch(name) or name in self.names:
            raise self.fail(place, "a name of its own")
        at, given = self._annotated(place + 1), None
        if tokens.peek(at) == "=":
            given, at = self._expression(at + 1)
        if variable and not array:
            self._variable(FlatVariable(place, name, values, tokens.peek(start) == "bool"), given)
        # parameters and arrays need a value; a variable does not
        elif given is None:
            raise self.fail(at, f"'=' and what {shorten(name)!r} is")
        elif array and not isinstance(given, list):
            raise self.fail(place, f"a list of what the array {shorten(name)!r} holds")
        elif array and len(given) != len(size):
            raise self.fail(place, f"{len(size)} entries of the array {shorten(name)!r}", f"{len(given)}")
        else:
            self.names[name] = given
        return tokens.expect(at, ";")

    def _variable(self, variable: FlatVariable, given: Given) -> None:
        if variable.values is None and isinstance(given, tuple):
            variable = replace(variable, values=self.variables[given[0]].values)
        elif variable.values is None and isinstance(given, int):
            variable = replace(variable, values=range(given, given + 1))
        self.source.allowance.take(OBJECT_BYTES, "its variables")
        own = (len(self.variables),)
        self.names[variable.name] = own
        self.variables.append(variable)
        if given is not None:
            if not isinstance(given, int | tuple):
                raise self.fail(variable.at, f"an integer or a variable that {shorten(variable.name)!r} is")
            self.equal.append((variable.at, own, given))

    def _unread_type(self, at: int) -> str:
        """Return the name of a type whose variables are not supported, or an empty text."""
        word = self.tokens.peek(at)
        if _FRACTION.fullmatch(word) and not _INTEGER.fullmatch(word):
            return "float"
        return word if word in ("float", "set") else ""

    def _type(self, at: int) -> tuple[Values | None, int]:
        """Read a type and return its values, if they are bounded, and the index behind it."""
        word = self.tokens.peek(at)
        if word == "bool":
            return range(2), at + 1
        if word in ("int", "float"):
            return None, at + 1
        if word == "set":
            return self._type(self.tokens.expect(at + 1, "of"))
        values, behind = self._expression(at)
        if not isinstance(values, range | frozenset) or not values:
            raise self.fail(at, "a type: bool, int, float, a range such as 1..3 or a set that is not empty")
        return values, behind

    def _annotated(self, at: int) -> int:
        """Return the index behind annotations."""
        while self.tokens.peek(at) == "::":
            depth, at = 0, at + 1
            while self.tokens.peek(at) and (depth or self.tokens.peek(at) not in ("::", ";", "=")):
                depth += (self.tokens.peek(at) in _OPENING) - (self.tokens.peek(at) in _CLOSING)
                at += 1
                if not depth and self.tokens.peek(at) not in _OPENING:
                    break
        return at

    def _listed(self, at: int, closing: str) -> tuple[list[Given], int]:
        """Read expressions up to a bracket and return them and the index behind it."""
        found = []
        while self.tokens.peek(at) != closing:
            expression, at = self._expression(at)
            found.append(expression)
            if self.tokens.peek(at) != closing:
                at = self.tokens.expect(at, ",")
        return found, at + 1

    def _expression(self, at: int) -> tuple[Given, int]:
        """Read an expression and return it and the index behind it."""
        word = self.tokens.peek(at)
        if word == "[":
            return self._listed(at + 1, "]")
        if word == "{":
            members, behind = self._listed(at + 1, "}")
            if not all(isinstance(each, int) for each in members):
                raise self.fail(at, "a set of integers")
            return frozenset(members), behind
        if _INTEGER.fullmatch(word):
            low = self._integer(at)
            if self.tokens.peek(at + 1) != "..":
                return low, at + 1
            return range(low, self._integer(at + 2) + 1), at + 3
        if word in _BOOLEANS:
            return _BOOLEANS[word], at + 1
        if word[:1] == '"' or word[:1].isdigit() or word[:1] == "-":
            return word, at + 1
        return self._named(at)

    def _integer(self, at: int) -> int:
        word = self.tokens.peek(at)
        if "x" in word or "o" in word:
            number = int(word, 0) if _INTEGER.fullmatch(word) else LARGEST_DECIMAL + 1
            if abs(number) <= LARGEST_DECIMAL:
                return number
        return self.tokens.integer(at, "an integer", -LARGEST_DECIMAL, LARGEST_DECIMAL)

    def _named(self, at: int) -> tuple[Given, int]:
        """Read a name, or an entry of an array, which count from 1."""
        word = self.tokens.peek(at)
        if word not in self.names:
            raise self.fail(at, "an expression, or a name that is declared before")
        if self.tokens.peek(at + 1) != "[":
            return self.names[word], at + 1
        array = self.names[word]
        if not isinstance(array, list):
            raise self.fail(at, "an array before '['")
        return array[self.tokens.integer(at + 2, "an index", 1, len(array)) - 1], self.tokens.expect(at + 3, "]")


def operands_of(given: Given) -> Iterator[Operand]:
    """Yield the operands among the arguments of a constraint."""
    for each in given if isinstance(given, list | tuple) and not is_variable(given) else (given,):
        if isinstance(each, list):
            yield from operands_of(each)
        elif isinstance(each, int | tuple):
            yield each


def is_variable(given: Given) -> bool:
    """Whether something is a variable."""
    return isinstance(given, tuple) and len(given) == 1 and isinstance(given[0], int)
