"""Expressions of XCSP 2.1 in functional notation, ``add(X0,mul(2,X1))``: parsed, bounded, evaluated on columns.

Integers are added, multiplied and compared. Only the operators listed here can be called. The range of an expression is
known before it is evaluated, so that no column overflows. Quotients are truncated, as in Java, and remainders have the
sign of the dividend. A part without influence may divide by zero: a branch that ``if`` does not take, or the parts
after a false part of ``and``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_DECIMAL, LARGEST_DECIMALS
from ...errors import shorten
from .expression_arithmetic import MAX_DEPTH, MAX_EXPONENT, MAX_LENGTH, ExpressionError

Kind = Literal["integer", "boolean"]
Range = tuple[int, int]
Column = NDArray[Any]
Columns = Mapping[str, Column]
"""Values by parameter, one an assignment; one value alone for all."""


_TOKEN = re.compile(r"\s*([A-Za-z_][\w.]*|[+-]?[0-9]+|[(),])")


@dataclass(frozen=True)
class ExpressionTerm:
    """A part of an expression.

    Parameters
    ----------
    kind : {"integer", "boolean"}
    bounds : callable
        Least and greatest value, given the ranges of the parameters.
    values : callable
        Its values on columns, and where they matter.
    size : int
        Of how many operators, numbers and parameters it is made.
    """

    kind: Kind
    bounds: Callable[[Mapping[str, Range]], Range]
    values: Callable[[Columns, Column], Column]
    size: int = 1


@dataclass(frozen=True)
class _Operator:
    """Argument and result kinds of an operator, its number of arguments (any number if ``most`` is None), and its
    computation.
    """

    takes: Kind
    gives: Kind
    least: int
    most: int | None
    bounds: Callable[[Sequence[Range]], Range]
    values: Callable[[Sequence[Column], Column], Column]


def parse_functional(text: str, parameters: Sequence[str], *, mixed: bool = False) -> ExpressionTerm:
    """Read an expression of integer parameters.

    With ``mixed``, as in XCSP3, truth values are 1 and 0 where numbers are expected, numbers but 0 are true, and there
    are more operators: ``imp``, ``dist``, ``sqr``, ``in(x,set(1,2))``, and ``eq`` of more than two.

    Raises
    ------
    ExpressionError
        If it is anything else.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{len(text)} characters, more than {MAX_LENGTH}")
    return _ExpressionParser(text, frozenset(parameters), mixed).whole()


class _ExpressionParser:
    """Reads tokens one after the other."""

    def __init__(self, text: str, parameters: frozenset[str], mixed: bool) -> None:
        self.tokens = list(_tokens(text))
        self.parameters, self.mixed = parameters, mixed
        self.at = self.depth = 0

    def whole(self) -> ExpressionTerm:
        term = self.term()
        if self.at < len(self.tokens):
            raise ExpressionError(f"{shorten(self.tokens[self.at])!r} behind an expression")
        return term

    def term(self) -> ExpressionTerm:
        """A number, a parameter, or an operator with its arguments."""
        token = self.next()
        if self.at < len(self.tokens) and self.tokens[self.at] == "(":
            return self.application(token)
        if token in ("true", "false"):
            return _constant(int(token == "true"), "boolean")
        if token.lstrip("+-").isdecimal() and token.isascii():
            if len(token) > LARGEST_DECIMALS:
                raise ExpressionError("a number of too many digits")
            return _constant(int(token), "integer")
        if token not in self.parameters:
            raise ExpressionError(f"{shorten(token)!r}, which is not a parameter")
        return ExpressionTerm("integer", lambda ranges: ranges[token], lambda columns, _: columns[token])

    def next(self) -> str:
        if self.at == len(self.tokens):
            raise ExpressionError("the end of an expression that is not complete")
        self.at += 1
        return self.tokens[self.at - 1]

    def application(self, name: str) -> ExpressionTerm:
        """Read the arguments of an operation and apply it.

        Parameters
        ----------
        name : str
            The operation.

        Raises
        ------
        ExpressionError
            If the expression is malformed or too deep.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"an expression of more than {MAX_DEPTH} levels")
        arguments: list[ExpressionTerm] = []
        while self.next() != ")":
            if self.tokens[self.at - 1] != ("," if arguments else "("):
                raise ExpressionError(f"{shorten(self.tokens[self.at - 1])!r} among the arguments of {shorten(name)}")
            arguments.append(self.term())
        self.depth -= 1
        if self.mixed and name == "set" and arguments:
            return _Choice("integer", lambda _: (0, 0), lambda _, where: where, 1, tuple(arguments))
        if self.mixed and name == "in" and len(arguments) == 2 and isinstance(arguments[1], _Choice):
            equal = [_applied("eq", [arguments[0], each]) for each in arguments[1].among]
            return equal[0] if len(equal) == 1 else _applied("or", equal)
        if any(isinstance(argument, _Choice) for argument in arguments):
            raise ExpressionError("a set that does not follow 'in'")
        # XCSP 2.1 and XCSP3 differ: only XCSP3 has booleans beside integers
        if not self.mixed:
            return _conditional(arguments) if name == "if" else _applied(name, arguments)
        if name == "if" and len(arguments) == 3:
            test, *both = arguments
            kind: Kind = "boolean" if all(each.kind == "boolean" for each in both) else "integer"
            return _conditional([_as(test, "boolean"), *(_as(each, kind) for each in both)])
        operator = (_OPERATORS | _MIXED).get(name)
        if operator is not None:
            arguments = [_as(each, operator.takes) for each in arguments]
        return _applied(name, arguments, _OPERATORS | _MIXED)


def _tokens(text: str) -> Iterator[str]:
    text, at = text.strip(), 0
    while at < len(text):
        if (found := _TOKEN.match(text, at)) is None:
            raise ExpressionError(f"{shorten(text[at:].strip())!r}, which is not an expression such as add(X,1)")
        yield found.group(1)
        at = found.end()


def _constant(value: int, kind: Kind) -> ExpressionTerm:
    column = np.array(value if kind == "integer" else bool(value))
    return ExpressionTerm(kind, lambda _: (value, value), lambda _, __: column)


@dataclass(frozen=True)
class _Choice(ExpressionTerm):
    """A set of expressions, which stands behind ``in`` only."""

    among: tuple[ExpressionTerm, ...] = ()


def _as(term: ExpressionTerm, kind: Kind) -> ExpressionTerm:
    """Return an expression as one of another kind: true is 1, and what is not 0 is true."""
    if term.kind == kind:
        return term
    if kind == "integer":
        return ExpressionTerm(kind, lambda _: (0, 1), lambda c, w: np.asarray(term.values(c, w)).astype(int), term.size)
    return ExpressionTerm(kind, lambda r: (term.bounds(r), (0, 1))[1], lambda c, w: term.values(c, w) != 0, term.size)


def _applied(
    name: str, arguments: Sequence[ExpressionTerm], operators: Mapping[str, _Operator] | None = None
) -> ExpressionTerm:
    operators = _OPERATORS if operators is None else operators
    operator = operators.get(name)
    if operator is None:
        known = ", ".join((*operators, "if"))
        raise ExpressionError(f"the unknown operator {shorten(name)!r} (known are {known})")
    if len(arguments) < operator.least or (operator.most is not None and len(arguments) > operator.most):
        raise ExpressionError(f"{name} of {len(arguments)} arguments")
    if any(argument.kind != operator.takes for argument in arguments):
        raise ExpressionError(f"{name} of an argument that is not of type {operator.takes}")

    def bounds(ranges: Mapping[str, Range]) -> Range:
        return _checked(operator.bounds([argument.bounds(ranges) for argument in arguments]))

    def values(columns: Columns, where: Column) -> Column:
        found: list[Column] = []
        for argument in arguments:
            found.append(argument.values(columns, where))
            if name in ("and", "or"):
                where = where & (found[-1] if name == "and" else ~found[-1])
        return operator.values(found, where)

    return ExpressionTerm(operator.gives, bounds, values, _size(arguments))


def _conditional(arguments: Sequence[ExpressionTerm]) -> ExpressionTerm:
    """``if(test,then,otherwise)``."""
    if len(arguments) != 3 or arguments[0].kind != "boolean" or arguments[1].kind != arguments[2].kind:
        raise ExpressionError("an if of anything but a boolean value and two of one kind")
    test, then, otherwise = arguments

    def bounds(ranges: Mapping[str, Range]) -> Range:
        test.bounds(ranges)
        both = then.bounds(ranges), otherwise.bounds(ranges)
        return min(low for low, _ in both), max(high for _, high in both)

    def values(columns: Columns, where: Column) -> Column:
        chosen = test.values(columns, where)
        return np.where(chosen, then.values(columns, where & chosen), otherwise.values(columns, where & ~chosen))

    return ExpressionTerm(then.kind, bounds, values, _size(arguments))


def _size(arguments: Sequence[ExpressionTerm]) -> int:
    return 1 + sum(argument.size for argument in arguments)


def _checked(found: Range) -> Range:
    if max(map(abs, found)) >= LARGEST_DECIMAL:
        raise ExpressionError(f"numbers that may reach {LARGEST_DECIMAL}")
    return found


def _of_corners(compute: Callable[[int, int], int]) -> Callable[[Sequence[Range]], Range]:
    """Return the bounds of an operation whose extremes are at the ends of both ranges, from the first argument to the
    last.
    """

    def bounds(ranges: Sequence[Range]) -> Range:
        found = ranges[0]
        for other in ranges[1:]:
            corners = [compute(one, two) for one, two in product(found, other)]
            found = _checked((min(corners), max(corners)))
        return found

    return bounds


def _folded(compute: Callable[[Column, Column], Column]) -> Callable[[Sequence[Column], Column], Column]:
    def values(columns: Sequence[Column], _: Column) -> Column:
        found = columns[0]
        for column in columns[1:]:
            found = compute(found, column)
        return found

    return values


def _largest(found: Range) -> int:
    return max(map(abs, found))


def _power_bounds(ranges: Sequence[Range]) -> Range:
    if ranges[1][1] > MAX_EXPONENT:
        raise ExpressionError(f"an exponent beyond {MAX_EXPONENT}")
    reached = max(1, _largest(ranges[0])) ** max(0, ranges[1][1])
    return -reached, reached


def _power(columns: Sequence[Column], where: Column) -> Column:
    base, exponent = columns
    if bool((where & (exponent < 0)).any()):
        raise ExpressionError("a negative exponent")
    return np.asarray(np.power(base, np.maximum(exponent, 0)))


def _divisor(columns: Sequence[Column], where: Column) -> Column:
    if bool((where & (columns[1] == 0)).any()):
        raise ExpressionError("a division by zero")
    return np.where(columns[1] == 0, 1, columns[1])


def _quotient(columns: Sequence[Column], where: Column) -> Column:
    divisor = _divisor(columns, where)
    return np.asarray((columns[0] - np.fmod(columns[0], divisor)) // divisor)


def _remainder(columns: Sequence[Column], where: Column) -> Column:
    return np.asarray(np.fmod(columns[0], _divisor(columns, where)))


def _symmetric(reached: int) -> Range:
    return -reached, reached


def _arithmetic(
    bounds: Callable[[Sequence[Range]], Range],
    values: Callable[[Sequence[Column], Column], Column],
    least: int = 2,
    most: int | None = 2,
) -> _Operator:
    return _Operator("integer", "integer", least, most, bounds, values)


def _truth(compute: Callable[[Column, Column], Column], takes: Kind, most: int | None = 2) -> _Operator:
    return _Operator(takes, "boolean", 2, most, lambda _: (0, 1), _folded(compute))


_OPERATORS = {
    "neg": _arithmetic(lambda r: (-r[0][1], -r[0][0]), lambda c, _: np.asarray(-c[0]), 1, 1),
    "abs": _arithmetic(lambda r: (0, _largest(r[0])), lambda c, _: np.asarray(np.abs(c[0])), 1, 1),
    "add": _arithmetic(_of_corners(lambda x, y: x + y), _folded(np.add), most=None),
    "sub": _arithmetic(_of_corners(lambda x, y: x - y), _folded(np.subtract)),
    "mul": _arithmetic(_of_corners(lambda x, y: x * y), _folded(np.multiply), most=None),
    "div": _arithmetic(lambda r: _symmetric(_largest(r[0])), _quotient),
    "mod": _arithmetic(lambda r: _symmetric(_largest(r[0])), _remainder),
    "pow": _arithmetic(_power_bounds, _power),
    "min": _arithmetic(_of_corners(min), _folded(np.minimum), most=None),
    "max": _arithmetic(_of_corners(max), _folded(np.maximum), most=None),
    "eq": _truth(np.equal, "integer"),
    "ne": _truth(np.not_equal, "integer"),
    "ge": _truth(np.greater_equal, "integer"),
    "gt": _truth(np.greater, "integer"),
    "le": _truth(np.less_equal, "integer"),
    "lt": _truth(np.less, "integer"),
    "and": _truth(np.logical_and, "boolean", most=None),
    "or": _truth(np.logical_or, "boolean", most=None),
    "xor": _truth(np.logical_xor, "boolean"),
    "iff": _truth(np.equal, "boolean"),
    "not": _Operator("boolean", "boolean", 1, 1, lambda _: (0, 1), lambda c, _: np.asarray(~c[0])),
}


def _all_equal(columns: Sequence[Column], _: Column) -> Column:
    found = columns[0] == columns[1]
    for column in columns[2:]:
        found = found & (columns[0] == column)
    return np.asarray(found)


#: Additional operators of XCSP3, and operators that take more arguments there.
_MIXED = {
    "imp": _truth(lambda x, y: np.asarray(~x | y), "boolean"),
    "xor": _truth(np.logical_xor, "boolean", most=None),
    "eq": _Operator("integer", "boolean", 2, None, lambda _: (0, 1), _all_equal),
    "dist": _arithmetic(
        lambda r: (0, max(abs(r[0][1] - r[1][0]), abs(r[1][1] - r[0][0]))), lambda c, _: np.asarray(np.abs(c[0] - c[1]))
    ),
    "sqr": _arithmetic(lambda r: (0, _largest(r[0]) ** 2), lambda c, _: np.asarray(c[0] * c[0]), 1, 1),
}
