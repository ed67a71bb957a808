"""Reading beliefs: a table of a belief as float64 numbers that no scale belongs to, and what it weighs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.number_limits import FAR_INTEGER
from .scaled import Scaled

Array = NDArray[Any]


def normalised(belief: Scaled) -> Array:
    """Return a belief's entries as probabilities; all zeros stay zeros."""
    return weighed(belief)[1]


def weighed(belief: Scaled) -> tuple[float, Array]:
    """Return ln of the sum of a belief, -inf for zero, and its entries as probabilities."""
    values = belief.values
    top = float(values.max())
    if top == (-math.inf if belief.logs else 0.0):
        return -math.inf, np.zeros_like(values)
    # the sum of tiny entries may be below the normal range
    values = np.exp(values - top) if belief.logs else values / top
    total = float(values.sum())
    return belief.log_scale + (top if belief.logs else math.log(top)) + math.log(total), values / total


def above_least(belief: Array, infinity: float) -> tuple[Any, Array]:
    """Return the least energy or cost, and all of them above it: float64, or int64 where costs are integers.

    From ``infinity`` on an entry is infinite: inf, or ``FAR_INTEGER``.
    """
    exact = belief.dtype.kind == "i"
    beyond = FAR_INTEGER if exact else math.inf
    least = belief.min()
    if least >= infinity:
        return beyond, np.full(belief.shape, beyond)
    if exact:
        return int(least), np.where(belief < infinity, belief.astype(np.int64) - int(least), beyond)
    return float(least), np.where(belief < infinity, belief - least, math.inf)
