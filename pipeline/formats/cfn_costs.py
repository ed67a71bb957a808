"""Decimal costs with a bound as int64 costs with a top."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from .tokens import Tokens

Number = int | Decimal
INFINITE = 2**62
MAX_DECIMALS = 18
# A cost of 1e18 or more, before scaling, is meant as infinity.
_INFINITE_EXPONENT = 18
_EXACT = Context(prec=80)
_INTEGERS = re.compile(r"[-+0-9]*")


@dataclass
class CostTable:
    """The stored costs of a function, ``INFINITE`` where forbidden; ``default`` is None for a full table."""

    values: NDArray[np.int64]
    default: int | None

    def finite(self) -> NDArray[np.int64]:
        """Return all costs that are not forbidden."""
        values = self.values if self.default is None else np.append(self.values, self.default)
        return values[values < INFINITE]


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
    """Return numbers as stored costs: scaled, negated if maximised, ``INFINITE`` if forbidden.

    Raises
    ------
    ValueError
        If a number does not fit, or is infinitely good.
    """
    factor, sign = 10**decimals, -1 if maximize else 1
    integers = [number for number in numbers if isinstance(number, int)]
    if len(integers) == len(numbers):
        largest = max(map(abs, integers), default=0)
        if largest < 10**_INFINITE_EXPONENT and largest * factor < INFINITE:
            return np.array([number * factor * sign for number in integers], dtype=np.int64)
    return np.array([_stored(number, decimals, sign) for number in numbers], dtype=np.int64)


def _stored(number: Number, decimals: int, sign: int) -> int:
    exact = Decimal(number)
    if not exact:
        return 0
    if exact.is_infinite() or exact.adjusted() >= _INFINITE_EXPONENT:
        if (exact > 0) == (sign > 0):
            return INFINITE
        raise ValueError("a cost that is not infinitely good")
    value = sign * int(exact.scaleb(decimals, _EXACT))
    if abs(value) >= INFINITE:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return value


def settle(tables: list[CostTable], bound: int | None) -> int | None:
    """Choose the top and rewrite the tables, in place, such that a cost of at least the top is forbidden.

    The bound limits the total only: beside negative costs, a single cost may exceed it. So constants are
    moved between functions until every cost that is part of some total below the bound is itself below
    the bound. Where there is no room for that, the top is raised and forbids infinite costs only.

    Returns
    -------
    int or None
        The top; None when nothing is forbidden.
    """
    finite = [table.finite() for table in tables]
    if bound is not None:
        gain = sum(min(0, int(costs.min())) for costs in finite if costs.size)
        for table, costs in zip(tables, finite, strict=True):
            low = min(0, int(costs.min())) if costs.size else 0
            # The cheapest total with this cost in it is cost - low + gain.
            _forbid(table, bound - gain + low)
        shifts = _shifts([table.finite() for table in tables], bound)
        if shifts is not None:
            for table, shift in zip(tables, shifts, strict=True):
                _replace_infinite(table, bound, shift)
            return bound
        finite = [table.finite() for table in tables]
    if all(_all_finite(table) for table in tables):
        return None
    top = 1 + sum(max(0, int(costs.max())) for costs in finite if costs.size)
    for table in tables:
        _replace_infinite(table, top, 0)
    return top


def _shifts(finite: list[NDArray[np.int64]], bound: int) -> list[int] | None:
    """Return constants to add to each function, of sum 0, that bring every cost below the bound."""
    room = [bound - 1 - int(costs.max()) if costs.size else 0 for costs in finite]
    owed = -sum(r for r in room if r < 0)
    if owed > sum(r for r in room if r > 0):
        return None
    shifts = []
    for r in room:
        shift = min(r, owed) if r > 0 else r
        owed -= max(shift, 0)
        shifts.append(shift)
    return shifts


def _all_finite(table: CostTable) -> bool:
    return len(table.finite()) == len(table.values) + (table.default is not None)


def _forbid(table: CostTable, limit: int) -> None:
    table.values = np.where(table.values >= limit, INFINITE, table.values)
    if table.default is not None and table.default >= limit:
        table.default = INFINITE


def _replace_infinite(table: CostTable, top: int, shift: int) -> None:
    if top > INFINITE:
        raise ValueError(f"costs with a sum below {INFINITE}")
    table.values = np.where(table.values >= INFINITE, top, table.values + shift)
    if table.default is not None:
        table.default = top if table.default >= INFINITE else table.default + shift
