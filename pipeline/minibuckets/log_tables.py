"""Sums of powers of logarithmic tables, with -inf for impossible assignments and one axis for each variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost_networks.cost_network import CostTable
from .bucket_policy import SHORT_STATES
from .joins import reduced
from .partition import Scope

Array = NDArray[Any]


def powered(logs: Array, axes: tuple[int, ...], weight: float) -> Array:
    """Return logarithms of sums of powers ``1 / weight``, to the power ``weight``, over some axes; maxima for 0."""
    if not axes:
        return logs
    most = SHORT_STATES
    top = reduced(np.maximum, logs, axes, most)
    if not weight:
        return top
    low = np.where(top == -np.inf, 0.0, top)
    scaled = logs - low.reshape([1 if axis in axes else n for axis, n in enumerate(logs.shape)])
    scaled /= weight
    sums: Array = np.log(reduced(np.add, np.exp(scaled, out=scaled), axes, most))
    sums *= weight
    sums += low
    return sums


def conditional_entropy(belief: Array, top: float, weight: float) -> float:
    """Return the entropy of the last variable given the others, under a belief."""
    joint = np.exp((belief - top) / weight)
    rest = joint.sum(axis=-1, keepdims=True)
    return -float(np.sum(np.where(joint > 0, joint * np.log(joint / rest), 0.0)))


def spread_over(table: Array, scope: Scope, wide: Scope) -> Array:
    """Return a table with additional axes of length 1 for the missing variables of a wider scope, in the same order."""
    sizes = dict(zip(scope, table.shape, strict=True))
    return table.reshape([sizes.get(v, 1) for v in wide])


def laid_along(table: CostTable, scope: Scope) -> Array:
    """Return a table's values with its variables in the order of a scope."""
    return np.transpose(table.costs, [table.scope.index(v) for v in scope])
