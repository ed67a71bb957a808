"""An assignment from mini-buckets: variables are assigned in the reverse of the order, each to its best bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....tasks.gpu.arrays import is_device
from ..network import States
from .joins import BucketTable
from .mini_buckets import MiniBuckets


def greedy_states(found: MiniBuckets, dims: Sequence[int]) -> States:
    """Assign every variable to the state whose bound is least, given those that are assigned; the first of equals.

    Optimal if no bucket was split, else a heuristic that may end at a forbidden assignment. Needs the tables that
    :func:`~.mini_buckets.eliminate` keeps.
    """
    states = [0] * len(dims)
    for v in reversed(found.order):
        if found.buckets[v]:
            bounds = sum(_row(table, states, dims) for table in found.buckets[v])
            states[v] = int(np.argmin(bounds))
    return tuple(states)


def _row(table: BucketTable, states: Sequence[int], dims: Sequence[int]) -> Any:
    """Return the costs of each state of a table's last variable, the others being assigned."""
    at, d = 0, dims[table.scope[-1]]
    for v in table.scope[:-1]:
        at = at * dims[v] + states[v]
    row = table.costs[at * d : (at + 1) * d]
    return row.get() if is_device(row) else row
