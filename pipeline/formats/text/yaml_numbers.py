"""Numbers of YAML that remember how they were written."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

# Python's hash of a number is a remainder of 61 bits: numbers of more digits can be chosen to have the same one.
_LONG_DIGITS = 18


class Written(float):
    """A number that remembers its decimals: a table's entries are exactly as they are written."""

    exact: Decimal

    def __new__(cls, value: float, text: str) -> Written:
        """Take the decimals of a text, unless that is another notation of YAML's."""
        written = super().__new__(cls, value)
        try:
            written.exact = Decimal(text)
        except InvalidOperation:
            written.exact = Decimal(repr(value))
        return written

    def __eq__(self, other: object) -> bool:
        return self.exact == other.exact if isinstance(other, Written) else float(self) == other

    def __hash__(self) -> int:
        return hash(self.exact)


def is_long(key: Any) -> bool:
    """Whether a number has so many digits that a dictionary may take long to find it among others made for that."""
    if isinstance(key, Written):
        _, digits, exponent = key.exact.as_tuple()
        return isinstance(exponent, int) and len(digits) + abs(exponent) > _LONG_DIGITS
    return isinstance(key, int) and abs(key) >= 10**_LONG_DIGITS
