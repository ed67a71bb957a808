"""Decimal costs of files as int64 costs, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import LARGEST_DECIMALS, LARGEST_INT32
from ..models.model import FORBIDDEN
from .format_policy import STATE_BYTES
from .text.source import Allowance
from .text.tokens import Tokens, has_plain_digits

Number = int | Decimal
# A cost of 1e18 or more, before scaling, is meant as infinity, unless the file's own bound is higher.
_INFINITE_EXPONENT = LARGEST_DECIMALS
_EXACT = Context(prec=80)
_INTEGERS = re.compile(r"[-+0-9]*")


@dataclass(frozen=True, eq=False)
class StoredCosts:
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


def scaled(numbers: Sequence[Number], decimals: int, maximize: bool, bound: Number | None = None) -> NDArray[np.int64]:
    """Return numbers as stored costs: scaled, negated if maximised, ``FORBIDDEN`` if forbidden.

    Numbers of 10^18 and more are, unless they are better than the bound of the file.

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
    return np.array([_stored(number, decimals, sign, bound) for number in numbers], dtype=np.int64)


#: Text of the note if :func:`are_read_as_infinite`.
READ_AS_INFINITE = "are read as infinite, as in other programs: if they are finite, use a larger cost unit"


def are_read_as_infinite(
    numbers: Sequence[Number], default: Number | None, stored: NDArray[np.int64], bound: Number | None
) -> bool:
    """Whether finite numbers of 10^18 and more stand for infinity, where no bound forbids them.

    Parameters
    ----------
    numbers, default
        Costs of a function as the file gives them, and the cost of unlisted tuples.
    stored : ndarray
        The stored costs.
    bound : number, optional
        From where on totals are forbidden.
    """
    if bound is not None:
        return False
    suspects = numbers if (stored == FORBIDDEN).any() else ()
    exact = map(Decimal, suspects if default is None else (*suspects, default))
    return any(number.is_finite() and number.adjusted() >= _INFINITE_EXPONENT for number in exact)


#: What a message says of a number for which a function of this module raises a ValueError.
BEYOND = "a number outside this range"


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


class IrregularError(Exception):
    """Tables that must be read one by one."""


@dataclass(frozen=True, eq=False)
class CostCells:
    """The costs of many tables, converted together; each number that is not an integer is converted once.

    Parameters
    ----------
    numbers : ndarray of int64, or list of Decimal
        All integers, or the different numbers.
    places : ndarray of int, optional
        The index of each cost in ``numbers``; None if ``numbers`` are all costs.
    states : ndarray of int64
        Each number as a state, because tables may list tuples; -1 if it is not an integer.
    """

    numbers: NDArray[np.int64] | list[Decimal]
    places: NDArray[np.intp] | None
    states: NDArray[np.int64]

    @classmethod
    def of(cls, words: Sequence[str], allowance: Allowance) -> CostCells:
        """Convert the tokens of all costs, quoted or not, and of states.

        Raises
        ------
        IrregularError
            If a token is not a number, or an integer has more than 64 bits.
        BudgetError
            If memory does not hold the different numbers.
        """
        try:
            if _INTEGERS.fullmatch("".join(words)):
                whole = np.fromiter(map(int, words), np.int64, len(words))
                return cls(whole, None, whole)
            if any(word[0] == '"' for word in words):
                words = [word.strip('"') for word in words]
            distinct = dict.fromkeys(words)
            allowance.take(0, "its different costs", for_now=2 * STATE_BYTES * len(distinct))
            numbers = list(map(Decimal, distinct))
        except (ValueError, ArithmeticError):
            raise IrregularError from None
        if not has_plain_digits("".join(distinct)) or any(number.is_nan() for number in numbers):
            raise IrregularError
        order = dict(zip(distinct, range(len(numbers)), strict=True))
        places = np.fromiter(map(order.__getitem__, words), np.intp, len(words))
        digits = map(str.isdigit, distinct)
        pairs = zip(numbers, digits, strict=True)
        states = [int(number) if whole and number <= LARGEST_INT32 else -1 for number, whole in pairs]
        return cls(numbers, places, np.array(states, np.int64)[places])

    @property
    def decimals(self) -> int:
        """How many decimals the costs need."""
        return max(map(_places, self.numbers), default=0) if isinstance(self.numbers, list) else 0

    def scaled(self, decimals: int, maximize: bool, bound: Number | None) -> tuple[NDArray[np.int64], bool]:
        """Return the stored costs, and whether finite costs are read as infinite.

        Parameters
        ----------
        decimals, maximize, bound
            As :func:`scaled` takes them.

        Raises
        ------
        IrregularError
            If a number does not fit, or is infinitely good.
        """
        if isinstance(self.numbers, list):
            try:
                stored = scaled(self.numbers, decimals, maximize, bound)
            except ValueError:
                raise IrregularError from None
            return stored[self.places], are_read_as_infinite(self.numbers, None, stored, bound)
        factor, largest = 10**decimals, max(-int(self.numbers.min(initial=0)), int(self.numbers.max(initial=0)))
        if largest >= 10**_INFINITE_EXPONENT or largest * factor >= FORBIDDEN:
            raise IrregularError
        return self.numbers * (-factor if maximize else factor), False


def scaled_bound(bound: Number, decimals: int, maximize: bool) -> int | None:
    """Return from where on totals are forbidden, as stored; None if nowhere.

    Raises
    ------
    ValueError
        If it does not fit, or forbids everything.
    """
    exact, sign = Decimal(bound), -1 if maximize else 1
    if exact.is_finite() and _INFINITE_EXPONENT <= exact.adjusted() <= LARGEST_DECIMALS - decimals:
        value = sign * int(exact.scaleb(decimals, _EXACT))
        if 0 < value < FORBIDDEN:
            return value
    value = _stored(bound, decimals, sign, None)
    return None if value == FORBIDDEN else value


def _stored(number: Number, decimals: int, sign: int, bound: Number | None) -> int:
    exact = Decimal(number)
    if not exact:
        return 0
    better = bound is not None and (exact > bound if sign < 0 else exact < bound)
    if exact.is_infinite() or (exact.adjusted() >= _INFINITE_EXPONENT and not better):
        if (exact > 0) == (sign > 0):
            return FORBIDDEN
        raise ValueError("a cost that is not infinitely good")
    # first as it is: a number of a million digits takes minutes to become an integer
    value = FORBIDDEN if exact.adjusted() + decimals > LARGEST_DECIMALS else sign * int(exact.scaleb(decimals, _EXACT))
    if abs(value) >= FORBIDDEN:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return value
