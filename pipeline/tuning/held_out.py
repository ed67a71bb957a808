"""How good a way of choosing launches is on steps that it was not fitted to: the measures, the gain, the residuals.

The measures follow Zheng & Mengshoel (2013): the residual sum of squares of ln seconds, the squared deviance of the
chosen launches' ln seconds from the best launches', and how often the best launch is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...tasks.learnt.learnt_launches import least_of, with_launches
from ...tasks.learnt.predictors import Floats, Predictor
from ...tasks.learnt.step_features import features_of
from .regressions import FOLDS, Regression
from .step_benches import MeasuredStep


@dataclass(frozen=True)
class LaunchScore:
    """The performance of a predictor on some steps.

    Parameters
    ----------
    name : str
    residual_squares : float
        Sum of squares of ln(measured / predicted) of the launches chosen.
    squared_deviance : float
        Sum of squares of ln(seconds of the launch chosen / seconds of the best one).
    miss_rate : float
        Share of the steps whose best launch is not chosen.
    gain : float
        Seconds of the rules' launches divided by the seconds of the chosen launches.
    mean_gain : float
        The same as a geometric mean over steps.
    of_best : float
        Seconds of the chosen launches divided by the seconds of the best ones.
    """

    name: str
    residual_squares: float
    squared_deviance: float
    miss_rate: float
    gain: float
    mean_gain: float
    of_best: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures."""
        return asdict(self)


@dataclass(frozen=True)
class StepTable:
    """Measured steps as arrays.

    Parameters
    ----------
    features : ndarray, shape (steps, features)
    prices : ndarray, shape (steps,)
    seconds : ndarray, shape (steps, launches)
        The launches that are chosen among, the rules' first.
    best : ndarray, shape (steps,)
        Seconds of the best launch of all that were measured.
    """

    features: Floats
    prices: Floats
    seconds: Floats
    best: Floats

    @property
    def corrections(self) -> Floats:
        """ln(seconds / price), which is what is learnt."""
        return np.log(self.seconds / self.prices[:, None])

    @property
    def rows(self) -> tuple[Floats, Floats]:
        """Features with a column for each launch, and what is learnt of each row."""
        return with_launches(self.features, self.seconds.shape[1]), self.corrections.reshape(-1)

    def part(self, which: Sequence[int]) -> StepTable:
        """Return some of the steps."""
        at = list(which)
        return StepTable(self.features[at], self.prices[at], self.seconds[at], self.best[at])


def step_table(steps: Sequence[MeasuredStep], launches: Sequence[str]) -> StepTable:
    """Put measured steps into arrays."""
    return StepTable(
        np.array([features_of(each.lowered) for each in steps]),
        np.array([each.price for each in steps]),
        np.array([[each.seconds[launch] for launch in launches] for each in steps]),
        np.array([min(each.seconds.values()) for each in steps]),
    )


def cross_validated(table: StepTable, kinds: Sequence[Regression], seed: int) -> dict[str, LaunchScore]:
    """Score kinds of regressions by cross-validation: each step is judged by a fit that never saw it.

    Parameters
    ----------
    table : StepTable
    kinds : sequence of Regression
    seed : int
        Seed of the folds and of the fits.
    """
    order = np.random.default_rng(seed).permutation(len(table.prices))
    predicted = {kind.name: np.zeros(table.seconds.shape) for kind in kinds}
    for held in np.array_split(order, FOLDS):
        rows, values = table.part(np.setdiff1d(order, held).tolist()).rows
        for kind in kinds:
            predicted[kind.name][held] = predicted_corrections(kind.fit(rows, values, seed), table.part(held.tolist()))
    return {name: score_of(name, each, table) for name, each in predicted.items()}


def predicted_corrections(predictor: Predictor | None, table: StepTable) -> Floats:
    """Predict ln(seconds / price) of each launch; today's prices know no launches."""
    shape = table.seconds.shape
    if predictor is None:
        return np.zeros(shape)
    return predictor(with_launches(table.features, shape[1])).reshape(shape)


def choices_of(predicted: Floats, chooses: bool = True) -> list[int]:
    """Return the number of the launch that each step gets."""
    return [least_of(row) if chooses else 0 for row in predicted]


def residuals_of(predictor: Predictor | None, table: StepTable, chooses: bool = True) -> Floats:
    """ln(measured / predicted) of the launches chosen."""
    return _residuals(predicted_corrections(predictor, table), table, chooses)


def _residuals(predicted: Floats, table: StepTable, chooses: bool) -> Floats:
    steps, chosen = np.arange(len(table.prices)), choices_of(predicted, chooses)
    return np.asarray((table.corrections - predicted)[steps, chosen], np.float64)


def score(name: str, predictor: Predictor | None, table: StepTable, chooses: bool = True) -> LaunchScore:
    """Compare the choices of a predictor, or of the present rules, with the measurements."""
    return score_of(name, predicted_corrections(predictor, table), table, chooses)


def score_of(name: str, predicted: Floats, table: StepTable, chooses: bool = True) -> LaunchScore:
    """Compare the choices by predicted ln(seconds / price), shape ``(steps, launches)``, with the measurements."""
    chosen = table.seconds[np.arange(len(table.prices)), choices_of(predicted, chooses)]
    ruled, apart = table.seconds[:, 0], np.log(chosen / table.best)
    return LaunchScore(
        name,
        float((_residuals(predicted, table, chooses) ** 2).sum()),
        float((apart**2).sum()),
        float((apart > 0).mean()),
        float(ruled.sum() / chosen.sum()),
        float(np.exp(np.log(ruled / chosen).mean())),
        float(chosen.sum() / table.best.sum()),
    )
