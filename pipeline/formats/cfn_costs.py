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


@dataclass(frozen=True, eq=False)
class CostTable:
    """The stored costs of a function, ``INFINITE`` where forbidden; ``default`` is None for a full table."""

    values: NDArray[np.int64]
    default: int | None

    def range(self, limit: int = INFINITE) -> tuple[int, int] | None:
        """Return the least and the largest cost below a limit, or None if there is none."""
        values = self.values[self.values < min(limit, INFINITE)]
        ends = [int(values.min()), int(values.max())] if values.size else []
        if self.default is not None and self.default < min(limit, INFINITE):
            ends.append(self.default)
        return (min(ends), max(ends)) if ends else None

    def forbids(self) -> bool:
        """Return whether any cost is infinite."""
        return self.default == INFINITE or bool((self.values == INFINITE).any())

    def settled(self, limit: int, top: int, shift: int) -> CostTable:
        """Return the table with the top for costs of at least the limit, and the others shifted."""
        limit = min(limit, INFINITE)
        values = np.where(self.values >= limit, top, self.values + shift)
        if self.default is None:
            return CostTable(values, None)
        return CostTable(values, top if self.default >= limit else self.default + shift)


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


def settle(tables: list[CostTable], bound: int | None) -> tuple[list[CostTable], int | None]:
    """Choose the top and rewrite the tables such that a cost of at least the top is forbidden.

    The bound limits the total only: beside negative costs, a single cost may exceed it. So constants are
    moved between functions until every cost that is part of some total below the bound is itself below
    the bound. Where there is no room for that, the top is raised and forbids infinite costs only.

    Returns
    -------
    tables : list of CostTable
        Where one table stood several times, so do the results.
    top : int or None
        None when there is neither a bound nor an infinite cost.

    Raises
    ------
    ValueError
        If the top does not fit.
    """
    if bound is not None:
        lows = [min(0, (table.range() or (0, 0))[0]) for table in tables]
        # The least total with some cost in it is that cost - low + sum(lows).
        least = sum(lows)
        limits = [min(INFINITE, bound - least + low) for low in lows]
    else:
        limits = [INFINITE] * len(tables)
    ranges = [table.range(limit) for table, limit in zip(tables, limits, strict=True)]
    shifts = None if bound is None else _shifts(ranges, bound)
    top = bound
    if shifts is None:
        shifts = [0] * len(tables)
        top = 1 + sum(max(0, found[1]) for found in ranges if found is not None)
        if top > INFINITE:
            raise ValueError(f"costs with a sum below {INFINITE}")
        if not any(map(CostTable.forbids, tables)) and bound is None:
            return tables, None
    done: dict[tuple[int, int], CostTable] = {}
    for table, limit, shift in zip(tables, limits, shifts, strict=True):
        if (id(table), shift) not in done:
            done[id(table), shift] = table.settled(limit, top or 0, shift)
    return [done[id(table), shift] for table, shift in zip(tables, shifts, strict=True)], top


def _shifts(ranges: list[tuple[int, int] | None], bound: int) -> list[int] | None:
    """Return constants to add to each function, of sum 0, that bring every cost below the bound."""
    room = [0 if found is None else bound - 1 - found[1] for found in ranges]
    owed = -sum(r for r in room if r < 0)
    if owed > sum(r for r in room if r > 0):
        return None
    shifts = []
    for r in room:
        shift = min(r, owed) if r > 0 else r
        owed -= max(shift, 0)
        shifts.append(shift)
    return shifts
