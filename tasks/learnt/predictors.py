"""Regressions as stored numbers, evaluated with NumPy alone. Pure.

The code that fitted a predictor is not needed any more: a tree is five arrays, a support-vector regression its vectors
and weights, a polynomial its exponents and coefficients. Zheng & Mengshoel (2013, "Optimizing parallel belief
propagation in junction trees using regression") compare the same kinds for the launch parameters of GPU kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..steps.light_dataclass import dataclass

Floats = NDArray[np.float64]


class Predictor(Protocol):
    """Numbers that tell a value for each row of features."""

    def __call__(self, rows: Floats) -> Floats:
        """Predict for an array of shape ``(rows, features)``, of dtype float64."""
        ...


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted regression trees (Friedman 2001), all nodes in one array each.

    Parameters
    ----------
    feature, left, right : ndarray of int64
        Of each node; the children of a leaf are the leaf itself.
    threshold, value : ndarray of float64
        Rows with at most the threshold go left; the value that a leaf adds.
    roots : ndarray of int64
    depth : int
        Of the deepest tree.
    base : float
        The initial value of all rows.
    """

    feature: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    threshold: Floats
    value: Floats
    roots: NDArray[np.int64]
    depth: int
    base: float

    def __call__(self, rows: Floats) -> Floats:
        """Walk down all trees at once."""
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        row = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            at = np.where(rows[row, self.feature[at]] <= self.threshold[at], self.left[at], self.right[at])
        return np.asarray(self.base + self.value[at].sum(axis=1), np.float64)


@dataclass(frozen=True, eq=False)
class SupportVectors:
    """Support-vector regression with the kernel ``exp(-gamma |a - b|²)`` of standardised features.

    Parameters
    ----------
    mean, scale : ndarray of float64, shape (features,)
    vectors : ndarray of float64, shape (vectors, features)
    weights : ndarray of float64, shape (vectors,)
    gamma, base : float
    """

    mean: Floats
    scale: Floats
    vectors: Floats
    weights: Floats
    gamma: float
    base: float

    def __call__(self, rows: Floats) -> Floats:
        """Compare every row with every vector."""
        given = (rows - self.mean) / self.scale
        apart = (given**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2 * given @ self.vectors.T
        return np.asarray(self.base + np.exp(-self.gamma * np.maximum(apart, 0.0)) @ self.weights, np.float64)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A sum of products of at most two standardised features.

    Parameters
    ----------
    mean, scale : ndarray of float64, shape (features,)
    pairs : ndarray of int64, shape (terms, 2)
        Features of each product; the number of features stands for 1.
    weights : ndarray of float64, shape (terms,)
    base : float
    """

    mean: Floats
    scale: Floats
    pairs: NDArray[np.int64]
    weights: Floats
    base: float

    def __call__(self, rows: Floats) -> Floats:
        """Multiply and add."""
        return np.asarray(self.base + terms((rows - self.mean) / self.scale, self.pairs) @ self.weights, np.float64)


def terms(given: Floats, pairs: NDArray[np.int64]) -> Floats:
    """Return the products of pairs of columns; the column after the last is 1."""
    wide, pairs = np.concatenate([given, np.ones((len(given), 1))], axis=1), pairs.reshape(-1, 2)
    return np.asarray(wide[:, pairs[:, 0]] * wide[:, pairs[:, 1]], np.float64)


_KINDS: Final = {"trees": Trees, "support vectors": SupportVectors, "polynomial": Polynomial}
_WHOLE: Final = ("feature", "left", "right", "roots", "pairs")
# Digits that are stored of a number: far more than a measurement has.
_DIGITS: Final = 7


def stored_predictor(predictor: Any) -> dict[str, Any]:
    """Return the numbers of a predictor as plain lists."""
    (kind,) = (name for name, known in _KINDS.items() if isinstance(predictor, known))
    return {"kind": kind, **{name: _plain(value) for name, value in vars(predictor).items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()] if value.dtype.kind == "f" else value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def predictor_from(stored: Mapping[str, Any]) -> Predictor:
    """Make a predictor of stored numbers.

    Raises
    ------
    ValueError, KeyError, TypeError, IndexError
        If they are not what `stored_predictor` returns.
    """
    given = {name: value for name, value in stored.items() if name != "kind"}
    arrays = {
        name: np.array(value, np.int64 if name in _WHOLE else np.float64) if isinstance(value, list) else value
        for name, value in given.items()
    }
    made: Any = _KINDS[stored["kind"]](**arrays)
    found: Predictor = made
    return found
