"""The least costs of wide functions in NumPy, for searches that run in the interpreter."""

from __future__ import annotations

import numpy as np

from .state import AXIS, DIM, FROM, INF, MOVED, OF, START, STRIDE, TABLE, TO, WORK, Array


def least_costs(s: Array, entries: Array, f: int, kept: int) -> None:
    """Find the least cost of a function with each value of one of its variables; see :func:`.costs.least_costs`."""
    memory, table = np.asarray(s), np.asarray(entries)
    cells, moved = np.array([s[f + TABLE]], np.int64), np.zeros(1, np.int64)
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        if axis != kept:
            start, stop = s[s[axis + OF] + START], s[s[axis + OF] + START] + s[s[axis + OF] + DIM]
            values = np.flatnonzero(memory[start:stop] < INF)
            cells = np.add.outer(cells, values * s[axis + STRIDE]).reshape(-1)
            moved = np.add.outer(moved, memory[s[axis + MOVED] + values]).reshape(-1)
    d = s[s[kept + OF] + DIM]
    sums = table[np.add.outer(cells, s[kept + STRIDE] * np.arange(d))] - moved[:, None]
    memory[s[WORK] : s[WORK] + d] = sums.min(axis=0, initial=INF)
