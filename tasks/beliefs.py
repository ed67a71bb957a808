"""Reading beliefs: a table of a belief as float64 numbers that no scale belongs to, and what it weighs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scaled import Scaled

Array = NDArray[Any]


def normalised(belief: Scaled) -> Array:
    """Return a belief's entries as probabilities; all zeros stay zeros."""
    values = belief.values
    if belief.logs:
        top = values.max()
        values = np.exp(values - top) if top > -math.inf else np.zeros_like(values)
    else:
        # the sum of tiny entries may be below the normal range
        values = values / (values.max() or 1.0)
    return values / (values.sum() or 1.0)


def above_least(belief: Array, infinity: float) -> Array:
    """Return energies or costs above the least of them, as float64; inf from ``infinity`` on."""
    return np.where(belief < infinity, belief - belief.min(), math.inf)
