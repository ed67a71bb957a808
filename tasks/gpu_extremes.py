"""Extremes of device tables that CuPy's own reductions cannot take in one pass without temporaries."""

from __future__ import annotations

from functools import cache
from typing import Any

from .gpu import cupy


@cache
def _least(condition: str) -> Any:
    return cupy().ReductionKernel(
        "T x, T none", "T y", f"({condition}) ? x : none", "min(a, b)", "y = a", "1.0 / 0.0", "least"
    )


def lowest_positive(values: Any, none: float) -> float:
    """Return the least positive entry; ``none`` if there is none."""
    return min(none, float(_least("x > 0")(values, values.dtype.type(none))))


def lowest_finite(logs: Any, none: float) -> float:
    """Return the least entry above -inf; ``none`` if there is none."""
    return min(none, float(_least("x > -1.0 / 0.0")(logs, logs.dtype.type(none))))
