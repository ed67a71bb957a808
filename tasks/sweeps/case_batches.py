"""Sums of products for many cases at once: tables with a last axis of cases, each case with its own scale.

The bounds that prove a step safe are the bounds of :mod:`.scaled`, over all cases together. When they are no longer
sufficient, every case is scaled to maximum 1 by itself. A case whose own range is still too wide is set aside, and is
computed alone on the path that cannot underflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.dense import run
from ..steps.number_limits import ordered_sum
from ..steps.step import Step
from .scaled import LOWEST, Scaled, in_range

Array = NDArray[Any]


@dataclass(frozen=True)
class CaseTable:
    """A table whose true entries are ``values * exp(log_scale)``.

    Parameters
    ----------
    values : ndarray, float64, flat
        Cells × cases, or cells where the table is the same in all cases.
    log_scale : ndarray, shape (cases,) or ()
    low, high : float
        Every non-zero entry of ``values`` has its ln in this range.
    varies : bool
        Whether there is an axis of cases.
    """

    values: Array
    log_scale: Array
    low: float
    high: float
    varies: bool


def for_all_cases(table: Scaled) -> CaseTable:
    """Wrap a table in natural values that is the same in all cases."""
    return CaseTable(table.values, np.asarray(table.log_scale), table.low, table.high, False)


class CaseProduct:
    """The algebra of :class:`CaseTable`.

    Parameters
    ----------
    sizes : tuple of int
        Domain sizes by variable, the number of cases last.
    compiled : bool

    Attributes
    ----------
    endangered : ndarray of bool, shape (cases,)
        Cases whose results mean nothing: they have to be computed alone.
    """

    def __init__(self, sizes: tuple[int, ...], compiled: bool = True) -> None:
        self.compiled = compiled
        self.endangered = np.zeros(sizes[-1], dtype=bool)
        self._logs = [math.log(n) for n in sizes[:-1]]
        self._cases = sizes[-1]

    def step(self, step: Step, tables: Sequence[CaseTable], threads: int) -> CaseTable:
        """Return the output of ``step``."""
        gone = {v for axes in step.input_axes for v in axes}.difference(step.axes)
        summed = ordered_sum(self._logs[v] for v in gone)
        if not in_range(tables, summed):
            tables = [self._tamed(table, LOWEST / len(tables)) for table in tables]
        values = run(step.lowered, [t.values for t in tables], threads=threads, compiled=self.compiled)
        scale = tables[0].log_scale
        for table in tables[1:]:
            scale = scale + table.log_scale
        low, high = ordered_sum(t.low for t in tables), ordered_sum(t.high for t in tables) + summed
        return CaseTable(values, scale, low, high, any(t.varies for t in tables))

    def _tamed(self, table: CaseTable, lowest: float) -> CaseTable:
        """Scale each case to maximum 1 and set aside the cases that still reach below ``exp(lowest)``."""
        values = table.values.reshape(-1, self._cases if table.varies else 1)
        top = values.max(axis=0)
        top = np.where(top > 0.0, top, 1.0)
        # before the division: an entry that is zero after it may have been positive
        lows = np.log(np.minimum(np.min(values, axis=0, where=values > 0.0, initial=np.inf), top)) - np.log(top)
        bad = lows < lowest
        values = values / top
        values[:, bad] = 0.0
        self.endangered |= bad
        scale = table.log_scale + (np.log(top) if table.varies else math.log(top[0]))
        return CaseTable(values.reshape(-1), scale, float(lows[~bad].min(initial=0.0)), 0.0, table.varies)


def log_totals(root: CaseTable) -> Array:
    """Return ln of a table with one cell a case, shape (cases,) or (1,); -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(root.values) + root.log_scale)


def posteriors(belief: CaseTable, cases: int) -> Array:
    """Return normalised beliefs, shape (cells, cases); all zeros stay zeros."""
    values = belief.values.reshape(-1, cases if belief.varies else 1)
    # the sum of tiny entries may be below the normal range
    top = values.max(axis=0)
    values = values / np.where(top > 0.0, top, 1.0)
    total = values.sum(axis=0)
    return np.asarray(np.broadcast_to(values / np.where(total > 0.0, total, 1.0), (len(values), cases)))
