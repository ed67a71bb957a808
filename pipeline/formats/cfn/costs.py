"""Decimal costs as int64 costs, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from ...models.model import FORBIDDEN
from ..text.tokens import Tokens

Number = int | Decimal
MAX_DECIMALS = 18
# A cost of 1e18 or more, before scaling, is meant as infinity.
_INFINITE_EXPONENT = 18
_EXACT = Context(prec=80)
_INTEGERS = re.compile(r"[-+0-9]*")


@dataclass(frozen=True, eq=False)
class CostTable:
    """The stored costs of a function, ``FORBIDDEN`` where infinite; ``default`` is None for a full table."""

    values: NDArray[np.int64]
    default: int | None


def read_numbers(tokens: Tokens, part: list[str], place: Callable[[int], int]) -> Sequence[Number]:
    """Convert cost tokens, quoted or not, exactly; ``inf`` is a cost."""
    joined = "".join(part)
    if '"' in joined:
        part = [token.strip('"') for token in part]
        joined = "".join(part)
    if _INTEGERS.fullmatch(joined):
        return tokens.converted(part, int, "a cost", place)
    numbers = tokens.converted(part, Decimal, "a cost", place)
    for k, number in enumerate(numbers):
        if number.is_nan():
            raise tokens.fail(place(k), "a cost")
    return numbers


def decimal_places(numbers: Sequence[Number]) -> int:
    """Return how many decimals the numbers need."""
    distinct = {number for number in numbers if isinstance(number, Decimal)}
    return max(map(_places, distinct), default=0)


def _places(number: Decimal) -> int:
    if not number.is_finite() or not number:
        return 0
    _, digits, exponent = number.as_tuple()
    trailing = 0
    while digits[-1 - trailing] == 0:
        trailing += 1
    return max(0, -int(exponent) - trailing)


def scaled(numbers: Sequence[Number], decimals: int, maximize: bool) -> NDArray[np.int64]:
    """Return numbers as stored costs: scaled, negated if maximised, ``FORBIDDEN`` if forbidden.

    Raises
    ------
    ValueError
        If a number does not fit, or is infinitely good.
    """
    factor, sign = 10**decimals, -1 if maximize else 1
    integers = [number for number in numbers if isinstance(number, int)]
    if len(integers) == len(numbers):
        largest = max(map(abs, integers), default=0)
        if largest < 10**_INFINITE_EXPONENT and largest * factor < FORBIDDEN:
            return np.array([number * factor * sign for number in integers], dtype=np.int64)
    return np.array([_stored(number, decimals, sign) for number in numbers], dtype=np.int64)


def scaled_array(costs: NDArray[np.int64], decimals: int, maximize: bool) -> NDArray[np.int64]:
    """Return integers, ``FORBIDDEN`` among them, as stored costs.

    Raises
    ------
    ValueError
        If a number does not fit.
    """
    allowed = costs < FORBIDDEN
    factor = 10**decimals
    if int(np.abs(costs[allowed]).max(initial=0)) * factor >= FORBIDDEN:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return np.where(allowed, np.where(allowed, costs, 0) * (-factor if maximize else factor), FORBIDDEN)


def _stored(number: Number, decimals: int, sign: int) -> int:
    exact = Decimal(number)
    if not exact:
        return 0
    if exact.is_infinite() or exact.adjusted() >= _INFINITE_EXPONENT:
        if (exact > 0) == (sign > 0):
            return FORBIDDEN
        raise ValueError("a cost that is not infinitely good")
    value = sign * int(exact.scaleb(decimals, _EXACT))
    if abs(value) >= FORBIDDEN:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return value
