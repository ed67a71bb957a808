"""Joint states by their worth, best first, and how many assignments below a step attain what it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring
from ..steps.step import Step

Array = NDArray[Any]


def two_best(worth: Array) -> tuple[int, int]:
    """Return the best joint state and the second, the first of equals; -1 where there is one only."""
    first = int(worth.argmin())
    parts = ((worth[:first], 0), (worth[first + 1 :], first + 1))
    others = [int(part.argmin()) + start for part, start in parts if len(part)]
    return first, min(others, key=lambda place: worth[place], default=-1)


def ranked(worth: Array, rank: int) -> int:
    """Return the joint state of a rank, counted from 0: by worth, the first of equals in C order."""
    limit = np.partition(worth, rank)[rank]
    places = np.flatnonzero(worth <= limit)
    return int(places[np.argsort(worth[places], kind="stable")[rank]])


def optimal_counts(
    step: Step, tables: Mapping[int, Array], counts: Mapping[int, Array], sizes: Sequence[int], semiring: Semiring
) -> Array:
    """Return for each entry of a step's output how many assignments below attain it; 0 where it is forbidden.

    Parameters
    ----------
    tables : mapping of int to ndarray
        Min-plus tables of integers, the step's own among them.
    counts : mapping of int to ndarray
        What this returned for those inputs that are messages.

    Returns
    -------
    ndarray, float64, flat
    """
    scope = list(dict.fromkeys([*step.axes, *(v for axes in step.input_axes for v in axes)]))
    shape = [sizes[v] for v in scope]
    total: Array = np.zeros(shape, semiring.dtype)
    times: Array = np.ones(shape)
    for node, axes in zip(step.inputs, step.input_axes, strict=True):
        total = np.minimum(total + _spread(tables[node], axes, scope, sizes), semiring.zero)
        if node in counts:
            times *= _spread(counts[node], axes, scope, sizes)
    best = _spread(tables[step.node], step.axes, scope, sizes)
    times[(total != best) | (total >= semiring.zero)] = 0.0
    return np.asarray(times.sum(axis=tuple(range(len(step.axes), len(scope)))).reshape(-1))


def _spread(table: Array, axes: Sequence[int], scope: Sequence[int], sizes: Sequence[int]) -> Array:
    """Return a flat table with an axis for each variable of a scope; one cell along those it lacks."""
    places = [axes.index(v) for v in scope if v in axes]
    shaped = table.reshape([sizes[v] for v in axes]).transpose(places)
    return shaped.reshape([sizes[v] if v in axes else 1 for v in scope])
