"""Measures of information between distributions, in bits (Shannon 1948; Cover and Thomas 2006, chapter 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def entropy_bits(table: Array) -> float:
    """Return the entropy of a distribution of any shape."""
    positive = table[table > 0.0]
    return max(0.0, -float(np.dot(positive, np.log2(positive))))


def summed_to(table: Array, axes: Sequence[int]) -> Array:
    """Sum a distribution over all axes but some, which keep their order."""
    return np.asarray(table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes)))


def mutual_bits(table: Array, first: Sequence[int], second: Sequence[int], given: Sequence[int]) -> float:
    """Return the mutual information of two sets of axes given a third, all distinct: I(A; B | C)."""
    parts = (*first, *given), (*second, *given), (*first, *second, *given), tuple(given)
    own = [entropy_bits(summed_to(table, part)) for part in parts]
    return max(0.0, own[0] + own[1] - own[2] - own[3])


def conditional_table(table: Array, given: int) -> Array:
    """Divide a joint by its sums over all but the first axes; NaN where what is given is impossible."""
    sums = table.sum(axis=tuple(range(given, table.ndim)), keepdims=True)
    return np.asarray(np.divide(table, sums, out=np.full(table.shape, np.nan), where=sums > 0.0))


def gained_bits(weights: Array, posteriors: Array) -> float:
    """Return how much a variable says of another one: their mutual information.

    Parameters
    ----------
    weights : ndarray, shape (states,)
        Distribution of the one.
    posteriors : ndarray, shape (states, others)
        That of the other, given each state of the one; any numbers where a state has no weight.
    """
    possible = weights > 0.0
    joint = weights[possible, None] * posteriors[possible]
    return mutual_bits(joint, (0,), (1,), ())


def divergence_bits(first: Array, second: Array) -> float:
    """Return the divergence of a distribution from another one of the same states; infinite where that excludes one."""
    held = first > 0.0
    if (second[held] <= 0.0).any():
        return math.inf
    return max(0.0, float(np.dot(first[held], np.log2(first[held] / second[held]))))
