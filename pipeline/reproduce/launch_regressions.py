"""Regressions of message launches, after Zheng & Mengshoel (2013): the features, the fits, and the paper's measures.

A regression predicts ln(seconds / predicted seconds) of a message and a launch. The kinds are those of the paper:
support vectors with radial basis functions (SVR), and polynomials of degree two by least squares and by the lasso.
Fixed thresholds and boosted trees are additional kinds. The measures are the paper's too: the residual sum of squares,
the squared deviance of the chosen launches' ln seconds from the best launches', and how often the best is missed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import log, log2, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...cluster.version import install_hint
from ...tasks.steps.lowering import Lowered
from ..errors import ModelError

Floats = NDArray[np.float64]
Predict = Callable[[Floats], Floats]
"""From rows of features to values."""
Fit = Callable[[Floats, Floats, int], Predict]
"""From rows of features, values and a seed to a prediction."""

RULES: Final = "rules"
"""The launch that bucketflow chooses."""
FEWEST_STEPS: Final = 40
"""Measured messages that a conclusion needs."""
_FOLDS: Final = 5
# Share of a message's predicted seconds that another launch must save: about the spread of repeated measurements.
_LEAST_GAIN_SHARE: Final = 0.1
# Launches among which a regression chooses, the rules' launch included: a prediction is made for each.
_MOST_LAUNCHES: Final = 4
# By how much ln seconds must be less for another launch, or another kind of regression, to be better.
_LEVEL: Final = 0.005
# Inputs with at least one in this many of a message's cells are large: each of their cells is read a few times.
_LARGE_SHARE: Final = 16

_FEATURES: Final = (
    *("log2 cells", "log2 output", "log2 largest input", "log2 second input", "log2 moved bytes", "log2 bytes a value"),
    *("log2 inputs", "log2 eliminated", "log2 innermost", "log2 inner elimination", "axes", "large inputs"),
    *("inputs across", "broadcast inputs", "product", "log2 shortest side", "sums", "floats"),
)


def features_of(lowered: Lowered) -> tuple[float, ...]:
    """Describe a message by its sizes and layout: a number for each of `_FEATURES`.

    Parameters
    ----------
    lowered : Lowered
    """
    axes, cells, sizes = lowered.axes, lowered.cells, lowered.input_cells
    itemsize = lowered.semiring.itemsize
    ranked = sorted(sizes, reverse=True)
    gone = axes.eliminated
    innermost = axes.sizes[-1] if axes.sizes and axes.out[-1] else 1
    product = lowered.product
    groups = (product.rows, product.columns, product.depth) if product else ()
    shortest = min([prod([axes.sizes[axis] for axis in group]) for group in groups], default=1)
    lasts = [strides[-1] if strides else 0 for strides in axes.strides]
    return (
        # sizes as logarithms, because times are products of powers of them
        log2(max(cells, 1)),
        log2(max(lowered.out_cells, 1)),
        log2(max(ranked[0], 1)),
        log2(max(ranked[1], 1)) if len(ranked) > 1 else 0.0,
        log2((sum(sizes) + lowered.out_cells) * itemsize),
        log2(itemsize),
        log2(len(sizes)),
        log2(max(cells // max(lowered.out_cells, 1), 1)),
        log2(innermost),
        log2(axes.sizes[gone - 1]) if gone else 0.0,
        float(len(axes.sizes)),
        float(sum([size * _LARGE_SHARE >= cells for size in sizes])),
        float(sum([stride > 1 for stride in lasts])),
        float(sum([stride == 0 for stride in lasts])),
        float(product is not None),
        log2(max(shortest, 1)),
        float(lowered.semiring.name != "min_plus"),
        float(lowered.semiring.dtype.startswith("float")),
    )


def need_scikit_learn() -> None:
    """Refuse in one sentence where nothing can be fitted.

    Raises
    ------
    ModelError
    """
    if find_spec("sklearn") is None:
        raise ModelError(f"regressions of launches need scikit-learn: {install_hint('sklearn')}")


def _thresholds(rows: Floats, values: Floats, seed: int) -> Predict:
    """Fit one number of cells, below and above which each launch has a mean of its own."""
    shape = len(_FEATURES)
    logs, launches = rows[:, 0], rows[:, shape:].argmax(axis=1)

    def means(side: NDArray[np.bool_]) -> Floats:
        whole = float(values[side].mean()) if side.any() else 0.0
        own = [side & (launches == launch) for launch in range(rows.shape[1] - shape)]
        return np.array([float(values[each].mean()) if each.any() else whole for each in own])

    def error(cut: float) -> float:
        sides = (logs <= cut, logs > cut)
        return sum(float(((values - means(side)[launches])[side] ** 2).sum()) for side in sides)

    cut = min(np.unique(np.quantile(logs, np.linspace(0.05, 0.95, 40))).tolist(), key=error)
    below, above = means(logs <= cut), means(logs > cut)

    def predict(rows: Floats) -> Floats:
        launches = rows[:, shape:].argmax(axis=1)
        return np.asarray(np.where(rows[:, 0] <= cut, below[launches], above[launches]), np.float64)

    return predict


def _support_vectors(rows: Floats, values: Floats, seed: int) -> Predict:
    """Fit support-vector regression with radial basis functions."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    # Cherkassky & Ma (2004): errors below a few hundredths of ln seconds are noise
    vectors = SVR(C=10.0, epsilon=0.08, gamma=0.5 / rows.shape[1])
    return _predict(make_pipeline(StandardScaler(), vectors).fit(rows, values))


def _predict(fitted: Any) -> Predict:
    return lambda rows: np.asarray(fitted.predict(rows), np.float64)


def _expanded(rows: Floats) -> tuple[Predict, Floats]:
    """Return products of at most two standardised features: as a function of rows, and those of the given rows."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    made = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False)).fit(rows)
    return (lambda rows: np.asarray(made.transform(rows), np.float64)), made.transform(rows)


def _least_squares(rows: Floats, values: Floats, seed: int) -> Predict:
    """Fit a polynomial of degree two by least squares: the lasso with λ = 0."""
    expand, given = _expanded(rows)
    middle, base = given.mean(axis=0), float(values.mean())
    weights = np.linalg.lstsq(given - middle, values - base, rcond=1e-6)[0]
    return lambda rows: np.asarray(base + (expand(rows) - middle) @ weights, np.float64)


def _lasso(rows: Floats, values: Floats, seed: int) -> Predict:
    """Fit a polynomial of degree two by the lasso, with the largest λ within one standard error of the best.

    The error is estimated by cross-validation (Hastie, Tibshirani & Friedman 2009, §7.10).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso, LassoCV

    expand, given = _expanded(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crossed = LassoCV(cv=_FOLDS, eps=1e-3, max_iter=2000, tol=1e-3).fit(given[order], values[order])
        errors, spread = crossed.mse_path_.mean(axis=1), crossed.mse_path_.std(axis=1) / np.sqrt(_FOLDS)
        best = int(errors.argmin())
        penalty = float(max(crossed.alphas_[errors <= errors[best] + spread[best]]))
        made = Lasso(alpha=penalty, max_iter=5000, tol=1e-3).fit(given, values)
    return lambda rows: np.asarray(made.predict(expand(rows)), np.float64)


def _boosted_trees(rows: Floats, values: Floats, seed: int) -> Predict:
    """Fit gradient-boosted regression trees (Friedman 2001)."""
    from sklearn.ensemble import GradientBoostingRegressor

    trees = GradientBoostingRegressor(
        n_estimators=120, max_depth=4, learning_rate=0.1, subsample=0.8, random_state=seed
    )
    return _predict(trees.fit(rows, values))


REGRESSIONS: Final[Mapping[str, Fit]] = {
    "fixed thresholds": _thresholds,
    "support vectors": _support_vectors,
    "lasso, λ = 0": _least_squares,
    "lasso, one standard error": _lasso,
    "boosted trees": _boosted_trees,
}
"""The regressions that are fitted and compared."""


@dataclass(frozen=True)
class MeasuredMessage:
    """A message, the seconds that bucketflow predicts, and the measured seconds of each launch."""

    lowered: Lowered
    price: float
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class LaunchScore:
    """The paper's measures of a regression on messages that it was not fitted to.

    Parameters
    ----------
    residual_squares : float
        Sum of squares of ln(measured / predicted) of the launches chosen.
    squared_deviance : float
        Sum of squares of ln(seconds of the launch chosen / seconds of the best launch).
    miss_rate : float
        Share of the messages whose best launch is not chosen.
    gain, mean_gain : float
        Seconds of the rules' launches over seconds of the chosen launches: in sum, and as a geometric mean.
    """

    residual_squares: float
    squared_deviance: float
    miss_rate: float
    gain: float
    mean_gain: float


@dataclass(frozen=True)
class LaunchTable:
    """Measured messages as arrays.

    Parameters
    ----------
    features : ndarray, shape (messages, features)
    prices : ndarray, shape (messages,)
    seconds : ndarray, shape (messages, launches)
        The launches among which regressions choose, the rules' launch first.
    best : ndarray, shape (messages,)
        Seconds of the best launch of all that were measured.
    """

    features: Floats
    prices: Floats
    seconds: Floats
    best: Floats

    @property
    def corrections(self) -> Floats:
        """ln(seconds / price): the values that regressions learn."""
        return np.log(self.seconds / self.prices[:, None])

    def rows(self, some: NDArray[np.int64]) -> Floats:
        """Return the features of some messages once for each launch, with a column for each launch."""
        launches = self.seconds.shape[1]
        repeated = np.repeat(self.features[some], launches, axis=0)
        return np.concatenate([repeated, np.tile(np.eye(launches), (len(some), 1))], axis=1)

    def score(self, predicted: Floats) -> LaunchScore:
        """Compare the choices by predicted corrections, shape (messages, launches), with the measurements."""
        messages = np.arange(len(self.prices))
        chosen = predicted.argmin(axis=1)
        # the rules' launch, unless another launch gains enough
        gains = predicted.min(axis=1) < predicted[:, 0] + log(1.0 - _LEAST_GAIN_SHARE)
        chosen = np.where(gains, chosen, 0)
        seconds, ruled = self.seconds[messages, chosen], self.seconds[:, 0]
        apart = np.log(seconds / self.best)
        return LaunchScore(
            float(((self.corrections - predicted)[messages, chosen] ** 2).sum()),
            float((apart**2).sum()),
            float((apart > 0).mean()),
            float(ruled.sum() / seconds.sum()),
            float(np.exp(np.log(ruled / seconds).mean())),
        )


def launch_table(steps: Sequence[MeasuredMessage], launches: Sequence[str]) -> LaunchTable:
    """Put measured messages into arrays."""
    return LaunchTable(
        np.array([features_of(each.lowered) for each in steps]),
        np.array([each.price for each in steps]),
        np.array([[each.seconds[launch] for launch in launches] for each in steps]),
        np.array([min(each.seconds.values()) for each in steps]),
    )


def cross_validated(table: LaunchTable, kinds: Mapping[str, Fit], seed: int) -> dict[str, LaunchScore]:
    """Score regressions by cross-validation: each message is judged by a fit that never saw it.

    Parameters
    ----------
    table : LaunchTable
    kinds : mapping of str to Fit
    seed : int
        Seed of the folds and of the fits.
    """
    order = np.random.default_rng(seed).permutation(len(table.prices))
    predicted = {name: np.zeros(table.seconds.shape) for name in kinds}
    for held in np.array_split(order, _FOLDS):
        seen = np.setdiff1d(order, held)
        rows, values = table.rows(seen), table.corrections[seen].reshape(-1)
        for name, fit in kinds.items():
            found = fit(rows, values, seed)(table.rows(held))
            predicted[name][held] = found.reshape(len(held), -1)
    return {name: table.score(each) for name, each in predicted.items()}


def worthwhile(launches: Sequence[str], steps: Sequence[MeasuredMessage]) -> tuple[str, ...]:
    """Return the rules and a few launches that would gain the most beside them, in the mean of ln seconds."""
    logs = {launch: np.log([each.seconds[launch] for each in steps]) for launch in launches}
    chosen, least = [RULES], logs[RULES]
    while len(chosen) < _MOST_LAUNCHES:
        left = [launch for launch in launches if launch not in chosen]
        if not left:
            break
        best = min(left, key=lambda launch: float(np.minimum(least, logs[launch]).mean()))
        if np.minimum(least, logs[best]).mean() >= least.mean() - _LEVEL:
            break
        chosen.append(best)
        least = np.minimum(least, logs[best])
    return tuple(chosen)


def chosen_by(scores: Mapping[str, LaunchScore]) -> str:
    """Return the regression with the largest mean gain, in levels; among equals, the one with the least residuals."""
    return min(scores, key=lambda n: (-round(float(np.log(scores[n].mean_gain)) / _LEVEL), scores[n].residual_squares))
