"""Limits of the types of numbers, the roundings that follow from them, and sums of floats in a fixed order. Pure.

None of the limits is tuned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Final

CELL_BYTES: Final = 8
"""Bytes of a cell: a float64 or an int64."""
EXACT_INTEGER: Final = 1 << sys.float_info.mant_dig
"""Floats hold every integer up to this one."""
LARGEST_INT32: Final = 2**31 - 1
"""Also the largest prime of 31 bits."""
LARGEST_DECIMALS: Final = len(str(1 << 63)) - 1
"""Every number of this many decimal digits fits in 64 bits."""
LARGEST_DECIMAL: Final = 10**LARGEST_DECIMALS
FAR_INTEGER: Final = 1 << 62
"""Stands for infinity among int64: twice as much still fits, and no finite number comes near."""
WORD_ONES: Final = (1 << 64) - 1
"""All bits of a word of 64 bits."""
LARGEST_EXPONENT: Final = 700.0
"""Exponentials of numbers up to this one, and their inverses, are normal floats."""
LEAST_FACTOR: Final = 1e-290
"""Products of positive floats below this one may have lost their last bits."""
SAME_SHARE: Final = 1e-9
"""Floats that differ by at most this share come from the same number: sums of many terms round by less."""
OUTWARD_SHARE: Final = 4 * sys.float_info.epsilon
"""Moves a float that a few operations rounded safely to one side."""
HASH_FACTOR: Final = 0x5851F42D4C957F2D
"""Multiplier of a linear congruential generator of 64 bits (Knuth's MMIX)."""


def ordered_sum(values: Iterable[float]) -> float:
    """Add floats from left to right, rounding after each, as NumPy's ``cumsum`` and ``bincount`` do.

    The built-in ``sum`` does so before Python 3.12. Later versions compensate what rounding loses, and their last bit
    can differ.
    """
    return reduce(add, values, 0.0)
