"""Sums of floats that have the same bits on every version of Python. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add


def ordered_sum(values: Iterable[float]) -> float:
    """Add floats from left to right, rounding after each, as NumPy's ``cumsum`` and ``bincount`` do.

    The built-in ``sum`` does so before Python 3.12. Later versions compensate what rounding loses, and their last bit
    can differ.
    """
    return reduce(add, values, 0.0)
