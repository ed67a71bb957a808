"""Operations allowed in expressions: operators and functions of numbers with bounded results."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ...errors import shorten
from ...models.dcop import AMOUNT_DIGITS

Value = Any
"""Values of literals and variables: int, float, bool, str, or a tuple of them."""

_MAX_BITS = 1024
_MAX_DIGITS = 30
MAX_LETTERS = 256
MAX_EXPONENT = 64
MAX_LENGTH = 10_000
"""Characters of an expression."""
MAX_DEPTH = 150
"""Levels of an expression."""


class ExpressionError(Exception):
    """An expression that is not allowed; its text describes the place as a phrase."""


def number(value: Value) -> Value:
    """Return a value that is a number."""
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"arithmetic with {shown(value)}")


def shown(value: Value) -> str:
    """Return a value in few words; a tuple may hold many."""
    return f"a tuple of {len(value)} values" if isinstance(value, tuple) else shorten(repr(value))


def bounded(value: Value) -> Value:
    """Return a value of a kind and size that may be computed with; the size of tuples is known before they are made."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ExpressionError(f"an integer of more than {_MAX_BITS} bits")
    if isinstance(value, str) and len(value) > MAX_LETTERS:
        raise ExpressionError(f"a text of more than {MAX_LETTERS} characters")
    if isinstance(value, bool | int | float | str | tuple):
        return value
    raise ExpressionError(f"a value of type {type(value).__name__}")


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(exponent) > MAX_EXPONENT:
            raise ExpressionError(f"an exponent beyond {MAX_EXPONENT}")
        if (base.bit_length() - 1) * exponent >= _MAX_BITS:
            raise ExpressionError(f"an integer of more than {_MAX_BITS} bits")
    return base**exponent


def _round(value: Value, digits: Value = None) -> Value:
    if digits is not None and not (type(digits) is int and abs(digits) <= _MAX_DIGITS):
        raise ExpressionError(f"a number rounded to {shown(digits)} digits")
    return round(number(value)) if digits is None else round(number(value), digits)


def _converted(kind: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        if isinstance(value, str) and len(value) > AMOUNT_DIGITS:
            raise ExpressionError("a number of too many digits")
        return kind(value)

    return convert


def _sum(items: Value) -> Value:
    total: Value = 0
    for item in items:
        total = bounded(total + number(item))
    return total


def exact(value: Value) -> int | Decimal:
    """Return a computed number as a cost."""
    computed = number(value)
    if isinstance(computed, int):
        return int(computed)
    if math.isnan(computed):
        raise ExpressionError("a value that is not a number")
    return Decimal(repr(round(computed, 9)))  # nine decimals of a cost that is computed with decimals


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": lambda value: abs(number(value)),
    "min": min,
    "max": max,
    "sum": _sum,
    "round": _round,
    "pow": lambda base, exponent: _power(number(base), number(exponent)),
    "len": len,
    "any": any,
    "all": all,
    "int": _converted(int),
    "float": _converted(float),
    "bool": bool,
}
OPERATORS: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Value, Value], Value]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
SIGNS: dict[type[ast.unaryop], Callable[[Value], Value]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
