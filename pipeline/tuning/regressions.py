"""Fitting: scikit-learn's regressions of measured steps, each handed over as plain numbers that NumPy evaluates.

The kinds follow Zheng & Mengshoel (2013, "Optimizing parallel belief propagation in junction trees using regression"):
support-vector regression with radial basis functions, and polynomials by least squares and by the lasso. Boosted trees
and fixed thresholds are additional kinds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np

from ...cluster.version import install_hint
from ...tasks.learnt.predictors import Floats, Polynomial, Predictor, SupportVectors, Trees, terms
from ...tasks.learnt.step_features import FEATURES
from ..errors import ModelError

Fit = Callable[[Floats, Floats, int], Predictor]

_TREES: Final = 120
_TREE_DEPTH: Final = 4
_LEARNING_RATE: Final = 0.1
FOLDS: Final = 5
# Of support-vector regression, after Cherkassky & Ma (2004): errors below a few hundredths of ln seconds are noise.
_EPSILON, _COST = 0.08, 10.0


@dataclass(frozen=True)
class Regression:
    """A kind of regression, and how it is fitted to rows of features, values and a seed."""

    name: str
    fit: Fit


def need_scikit_learn() -> None:
    """Refuse in one sentence where nothing can be fitted.

    Raises
    ------
    ModelError
    """
    if find_spec("sklearn") is None:
        raise ModelError(f"learning launches needs scikit-learn: {install_hint('tune')}")


def _standard(rows: Floats) -> tuple[Floats, Floats]:
    """Return the mean and scale of each column; a constant column is not scaled."""
    scale = rows.std(axis=0)
    return rows.mean(axis=0), np.where(scale > 0, scale, 1.0)


def support_vectors(rows: Floats, values: Floats, seed: int) -> SupportVectors:
    """Fit support-vector regression with radial basis functions."""
    from sklearn.svm import SVR

    mean, scale = _standard(rows)
    given = (rows - mean) / scale
    gamma = 0.5 / rows.shape[1]
    made = SVR(C=_COST, epsilon=_EPSILON, gamma=gamma).fit(given, values)
    return SupportVectors(
        mean, scale, np.asarray(made.support_vectors_), made.dual_coef_[0], gamma, float(made.intercept_[0])
    )


def _expanded(rows: Floats) -> tuple[Floats, Floats, Any, Floats]:
    mean, scale = _standard(rows)
    columns = rows.shape[1]
    pairs = np.array([p for p in combinations_with_replacement(range(columns + 1), 2) if p != (columns, columns)])
    return mean, scale, pairs, terms((rows - mean) / scale, pairs)


def least_squares(rows: Floats, values: Floats, seed: int) -> Polynomial:
    """Fit a polynomial of degree two by least squares: the lasso with λ = 0."""
    mean, scale, pairs, given = _expanded(rows)
    base = float(values.mean())
    weights = np.linalg.lstsq(given - given.mean(axis=0), values - base, rcond=1e-6)[0]
    return Polynomial(mean, scale, pairs, weights, base - float(given.mean(axis=0) @ weights))


def lasso(rows: Floats, values: Floats, seed: int) -> Polynomial:
    """Fit a polynomial of degree two by the lasso, with the largest λ within one standard error of the best.

    The error is estimated by cross-validation (Hastie, Tibshirani & Friedman 2009, §7.10).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso, LassoCV

    mean, scale, pairs, given = _expanded(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crossed = LassoCV(cv=FOLDS, eps=1e-3, max_iter=2000, tol=1e-3).fit(given[order], values[order])
        errors, spread = crossed.mse_path_.mean(axis=1), crossed.mse_path_.std(axis=1) / np.sqrt(FOLDS)
        best = int(errors.argmin())
        penalty = float(max(crossed.alphas_[errors <= errors[best] + spread[best]]))
        made = Lasso(alpha=penalty, max_iter=5000, tol=1e-3).fit(given, values)
    used = np.flatnonzero(made.coef_)
    return Polynomial(mean, scale, pairs[used], made.coef_[used], float(made.intercept_))


def boosted_trees(rows: Floats, values: Floats, seed: int) -> Trees:
    """Fit gradient-boosted regression trees (Friedman 2001), as arrays that need no scikit-learn.

    Parameters
    ----------
    rows : float array, shape (samples, features)
    values : float array, shape (samples,)
        Natural logarithms of seconds.
    seed : int
    """
    from sklearn.ensemble import GradientBoostingRegressor

    made = GradientBoostingRegressor(
        n_estimators=_TREES, max_depth=_TREE_DEPTH, learning_rate=_LEARNING_RATE, subsample=0.8, random_state=seed
    ).fit(rows, values)
    parts = [each.tree_ for each in made.estimators_[:, 0]]
    roots = np.cumsum([0, *(part.node_count for part in parts)])[:-1]
    feature, left, right, threshold, value = [], [], [], [], []
    for root, part in zip(roots, parts, strict=True):
        leaf, own = part.children_left < 0, np.arange(part.node_count)
        feature.append(np.where(leaf, 0, part.feature))
        # leaves point to themselves, so that all rows take the same number of steps
        left.append(root + np.where(leaf, own, part.children_left))
        right.append(root + np.where(leaf, own, part.children_right))
        threshold.append(np.where(leaf, 0.0, part.threshold))
        value.append(_LEARNING_RATE * part.value[:, 0, 0])
    return Trees(
        np.concatenate(feature),
        np.concatenate(left),
        np.concatenate(right),
        np.concatenate(threshold),
        np.concatenate(value),
        roots,
        max(part.max_depth for part in parts),
        float(made.init_.constant_.ravel()[0]),
    )


def thresholds(rows: Floats, values: Floats, seed: int) -> Trees:
    """Fit one number of cells, below and above which each launch has a mean of its own."""
    logs, launches = rows[:, 0], rows[:, len(FEATURES) :].argmax(axis=1)
    number = rows.shape[1] - len(FEATURES)

    def means(side: Any) -> list[float]:
        whole = float(values[side].mean()) if side.any() else 0.0
        own = [side & (launches == launch) for launch in range(number)]
        return [float(values[each].mean()) if each.any() else whole for each in own]

    def error(cut: float) -> float:
        found = 0.0
        for side in (logs <= cut, logs > cut):
            found += float(((values - np.array(means(side))[launches])[side] ** 2).sum())
        return found

    cut = min(np.unique(np.quantile(logs, np.linspace(0.05, 0.95, 40))).tolist(), key=error)
    return _threshold_tree(cut, means(logs <= cut), means(logs > cut))


def _threshold_tree(cut: float, below: Sequence[float], above: Sequence[float]) -> Trees:
    """Build a tree that splits by cells, then finds the launch, one column after another.

    Parameters
    ----------
    cut : float
        log2 of cells where the launch changes.
    below, above : sequence of float
        Mean of each launch on both sides.
    """
    feature, left, right, threshold, value = [0], [0], [0], [cut], [0.0]

    def chain(side: Sequence[float]) -> int:
        first = len(feature)
        for launch, mean in enumerate(side):
            at = len(feature)
            last = launch == len(side) - 1
            feature.append(0 if last else len(FEATURES) + launch)
            threshold.append(0.0 if last else 0.5)
            # the indicator of the launch is 1: read its mean; otherwise go to the next launch
            left.append(at if last else at + 2)
            right.append(at if last else at + 1)
            value.append(mean if last else 0.0)
            if not last:
                feature.append(0)
                threshold.append(0.0)
                left.append(at + 1)
                right.append(at + 1)
                value.append(mean)
        return first

    left[0], right[0] = chain(below), chain(above)
    whole = np.array([0])
    return Trees(
        np.array(feature),
        np.array(left),
        np.array(right),
        np.array(threshold),
        np.array(value),
        whole,
        len(below) + 1,
        0.0,
    )


REGRESSIONS: Final = (
    Regression("fixed thresholds", thresholds),
    Regression("support vectors", support_vectors),
    Regression("lasso, λ = 0", least_squares),
    Regression("lasso, one standard error", lasso),
    Regression("boosted trees", boosted_trees),
)
"""The regressions that are fitted and compared."""
