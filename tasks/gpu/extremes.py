"""Extremes of device tables that CuPy's own reductions would take with temporaries, or with one block of threads."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from . import arrays
from .kernels import kernel
from .tiling.device_limits import NOMINAL

_THREADS: Final = 256
_BLOCKS: Final = 8 * NOMINAL.processors
"""Threads of a block; and blocks at most, as many as a device holds at a time."""


def lowest_positive(values: Any, none: float) -> float:
    """Return the least positive entry; ``none`` if there is none."""
    return min(none, extremes_above(values, 0.0)[0])


def lowest_finite(logs: Any, none: float) -> float:
    """Return the least entry above -inf; ``none`` if there is none."""
    return min(none, extremes_above(logs, -math.inf)[0])


def extremes_above(values: Any, limit: float) -> tuple[float, float]:
    """Return the least and the greatest entry above a limit; infinity and minus infinity if there is none."""
    blocks = min(_BLOCKS, -(-values.size // _THREADS))
    parts = arrays.empty(2 * blocks, "float64")
    function = kernel("least", "min_plus", "float64", entry="extremes_above")
    function((blocks,), (_THREADS,), (values.reshape(-1), parts, np.int64(values.size), np.float64(limit)))
    least, greatest = parts.get().reshape(2, blocks)
    return float(least.min()), float(greatest.max())
