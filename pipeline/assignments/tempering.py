"""Draws below a cost, by rejection from a colder distribution: at which temperature most are kept.

The goal is to draw from the weights ``exp(-w * cost)`` of assignments below a cost. Draws of a larger weight ``v`` are
accepted with probability ``exp((v - w) * (cost - last))``, where ``last`` is the greatest allowed cost. Accepted draws
have the distribution of ``w`` (von Neumann 1951). A larger ``v`` puts more draws below the cost, but lowers the
acceptance of each draw. The number of accepted draws is greatest where the mean cost is about ``last``; bisection finds
this ``v``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.sweep_policy import SweepPolicy

# Sweeps at colder and colder temperatures, each four times as cold, until draws are below the cost in the mean, and
# between the last two of them.
_TEMPERING_SWEEPS: Final = 20
_HALVING_SWEEPS: Final = 2

Array = NDArray[Any]


def kept_shares(totals: Array, weight: float, wanted: float, last: int) -> Array:
    """Return with which probability each draw is kept.

    Parameters
    ----------
    totals : ndarray of int64
        Costs of the draws.
    weight, wanted : float
        The weight of the draws, and the target weight, which is at most as large.
    last : int
        The greatest cost allowed.
    """
    over = totals - last  # as integers: floats do not hold costs above 2**53
    return np.where(over <= 0, np.exp((weight - wanted) * np.minimum(over, 0).astype(np.float64)), 0.0)


def colder_weight(wanted: float, last: int, scale: float, totals_of: Callable[[float], Array]) -> tuple[float, bool]:
    """Return a weight from whose draws many are kept, and whether any draw was below the cost.

    Parameters
    ----------
    wanted : float
    last : int
        The greatest cost allowed.
    scale : float
        The greatest cost that is possible, above the least one: where a search for weights begins.
    totals_of : callable
        Returns costs of some draws of a weight; each call is a sweep.
    """
    policy = SweepPolicy.current()
    best, share = wanted, -1.0

    def is_below(weight: float) -> bool:
        """Whether a weight's draws are below the cost in the mean; the best weight so far is remembered."""
        nonlocal best, share
        totals = totals_of(weight)
        kept = float(kept_shares(totals, weight, wanted, last).mean())
        if kept > share:
            best, share = weight, kept
        return float(totals.mean()) <= last

    if is_below(wanted) or share >= policy.enough_kept:
        return best, share > 0
    warm, cold = wanted, max(2.0 * wanted, 1.0 / max(scale, 1.0))
    for _ in range(_TEMPERING_SWEEPS):
        if is_below(cold):
            break
        warm, cold = cold, 4.0 * cold
    for _ in range(_HALVING_SWEEPS):
        middle = sqrt(warm * cold) if warm > 0 else cold / 2
        if is_below(middle):
            cold = middle
        else:
            warm = middle
    return best, share > 0
