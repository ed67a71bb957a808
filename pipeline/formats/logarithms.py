"""Entries that are natural logarithms, as in .LG files: potentials that doubles hold, and a factor beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..models.function import Function, dense_function
from .text.source import Source
from .text.tables import take_functions
from .text.tokens import Tokens

# Exponentials of numbers up to here, and their inverses, are normal numbers.
_MOST = 700.0
# Factors beside potentials are functions, each of at most that.
_MOST_SHIFT = 1e6
# No entry of a .uai is negative, and no exponent begins a number.
_NEGATIVE = re.compile(rb"(?<![0-9.eE])-(?:[0-9.]|inf)")


def holds_logarithms(source: Source) -> bool:
    """Whether entries are logarithms: by the name, or by negative ones where the name does not say .uai."""
    return source.suffix == ".lg" or (source.suffix != ".uai" and _NEGATIVE.search(source.data) is not None)


def exponentials(logs: NDArray[np.float64], shifts: bool) -> tuple[NDArray[np.float64], float]:
    """Return potentials, and the logarithm of a factor that belongs to all of them: 0 where doubles hold them without.

    Parameters
    ----------
    logs : ndarray
        Below infinity; minus infinity is the potential 0.
    shifts : bool
        Whether there may be a factor.

    Raises
    ------
    ValueError
        If doubles do not hold them; the message says what is expected.
    """
    finite = logs[logs > -math.inf]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if low >= -_MOST and high <= _MOST:
        return np.exp(logs), 0.0
    most = _MOST_SHIFT if shifts else _MOST
    if max(-low, high) > most:
        raise ValueError(f"natural logarithms from {-most:.0f} to {most:.0f}")
    if high - low > 2 * _MOST:
        raise ValueError(f"natural logarithms of a table within {2 * _MOST:.0f} of each other")
    shift = (low + high) / 2
    return np.exp(logs - shift), shift


def factors(tokens: Tokens, log: float) -> Iterator[Function]:
    """Yield functions of no variables whose product has this natural logarithm; none for 0."""
    count = math.ceil(abs(log) / _MOST)
    take_functions(tokens, count, 0)
    for _ in range(count):
        yield dense_function((), np.array(math.exp(log / count)))
