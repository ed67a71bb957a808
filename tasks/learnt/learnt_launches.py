"""The model of a machine's or a device's launches: which one a step gets, and what it then takes. Pure.

For a step and a launch, a model predicts the logarithm of the measured seconds over the seconds that the rules' prices
predict. The launch with the least time is chosen if it gains enough. The code that reads stored rates activates the
model; until then, or if nothing is stored, steps run by the current rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import inf, log
from typing import Any, Final, Literal

import numpy as np

from ..steps.light_dataclass import dataclass
from ..steps.lowering import Lowered
from ..steps.policy import Policy
from .predictors import Floats, Predictor, predictor_from
from .step_features import FEATURES, features_of


@dataclass(frozen=True)
class LaunchPolicy(Policy):
    """Whether a learnt launch replaces the rules' launch, and from which predicted gain on.

    Parameters
    ----------
    uses_stored : bool
        Whether stored models are used at all; tests do without, so that no machine's past decides about them.
    """

    uses_stored: bool = True


# Predicted share of a step's time that another launch must save: about the spread of repeated measurements.
_LEAST_GAIN_SHARE: Final = 0.1
# Kinds of steps whose choice is remembered.
_REMEMBERED_STEPS: Final = 4096

Place = Literal["cpu", "gpu"]
RULES: Final = "rules"
"""The launch that the rules choose."""


@dataclass(frozen=True)
class ChosenLaunch:
    """A launch of a step, and the logarithm of its seconds over the seconds that the current price predicts."""

    launch: str
    correction: float


@dataclass(frozen=True, eq=False)
class LearntLaunches:
    """The learnt models of steps in one place.

    Parameters
    ----------
    predictor : Predictor
        Of features and a column for each launch.
    low, high : ndarray of float64, shape (features,)
        Between which the features were that it was fitted to: beyond them it is asked for the nearest ones, and today's
        price alone grows on.
    launches : tuple of str
        That are chosen among, `RULES` first.
    chooses, predicts : bool
        Whether choices gained on held-out steps, and whether predictions were closer than today's prices.
    residuals : tuple of float
        Of the logarithm of seconds on held-out steps: the 5% and the 95% quantile.
    rates : mapping
        The rates by which today's prices were computed, for each semiring.
    least_cells : mapping
        Cells from which more threads (``threads``) or a device (``device``) pay, where that was learnt.
    """

    predictor: Predictor
    low: Floats
    high: Floats
    launches: tuple[str, ...]
    chooses: bool
    predicts: bool
    residuals: tuple[float, float]
    rates: Mapping[str, Mapping[str, float]]
    least_cells: Mapping[str, int]
    _known: dict[Lowered, ChosenLaunch] = field(default_factory=dict, repr=False)

    def corrections(self, steps: Sequence[Lowered]) -> Floats:
        """Predict ln(seconds / price) of steps, shape ``(steps, launches)``."""
        given = np.array([features_of(step) for step in steps], np.float64).reshape(len(steps), len(FEATURES))
        given = np.clip(given, self.low, self.high)
        return self.predictor(with_launches(given, len(self.launches))).reshape(len(steps), len(self.launches))

    def chosen(self, steps: Sequence[Lowered]) -> list[ChosenLaunch]:
        """Choose a launch for each step; all that are not known yet in one evaluation."""
        known = self._known
        new = [step for step in dict.fromkeys(steps) if step not in known]
        if new:
            if len(known) + len(new) > _REMEMBERED_STEPS:
                known.clear()
                new = list(dict.fromkeys(steps))
            for step, row in zip(new, self.corrections(new), strict=True):
                best = least_of(row) if self.chooses else 0
                known[step] = ChosenLaunch(self.launches[best], float(row[best]))
        return [known[step] for step in steps]


def least_of(row: Floats) -> int:
    """Return which launch has the least time, the rules' unless another one gains enough."""
    best = int(row.argmin())
    return best if row[best] < row[0] + log(1.0 - _LEAST_GAIN_SHARE) else 0


def with_launches(given: Floats, launches: int) -> Floats:
    """Repeat each row of features for each launch, with a column that says which."""
    rows = np.repeat(given, launches, axis=0)
    return np.concatenate([rows, np.tile(np.eye(launches), (len(given), 1))], axis=1)


def launches_from(stored: Mapping[str, Any]) -> LearntLaunches:
    """Make a model of stored numbers, and try it.

    Raises
    ------
    ValueError, KeyError, TypeError, IndexError
        If the numbers are not a model of these features.
    """
    if tuple(stored["features"]) != FEATURES:
        raise ValueError("the model was learnt from other features")
    low, high = (float(each) for each in stored["residuals"])
    made = LearntLaunches(
        predictor_from(stored["predictor"]),
        np.array(stored["low"], np.float64),
        np.array(stored["high"], np.float64),
        tuple(map(str, stored["launches"])),
        bool(stored["chooses"]),
        bool(stored["predicts"]),
        (low, high),
        {str(k): {str(n): float(x) for n, x in v.items()} for k, v in stored["rates"].items()},
        {str(k): int(v) for k, v in stored["least_cells"].items()},
    )
    tried = made.predictor(
        with_launches(np.clip(np.zeros((1, len(FEATURES))), made.low, made.high), len(made.launches))
    )
    if made.launches[0] != RULES or not (-inf < low <= high < inf) or not np.isfinite(tried).all():
        raise ValueError("the stored numbers are not a model")
    return made


_IN_FORCE: Final[dict[Place, LearntLaunches]] = {}


def put_in_force(place: Place, model: LearntLaunches | None) -> None:
    """Let a model choose from now on in this process, or the rules."""
    if model is None:
        _IN_FORCE.pop(place, None)
    else:
        _IN_FORCE[place] = model


def learnt(place: Place) -> LearntLaunches | None:
    """Return the model in force, if any."""
    return _IN_FORCE.get(place) if _IN_FORCE and LaunchPolicy.current().uses_stored else None


def launch_of(place: Place, lowered: Lowered) -> str:
    """Return the name of the launch that a step gets."""
    model = learnt(place)
    return RULES if model is None or not model.chooses else model.chosen([lowered])[0].launch


def learnt_least_cells(place: Place, what: str) -> int | None:
    """Return from how many cells something pays, where that was learnt."""
    model = learnt(place)
    return None if model is None else model.least_cells.get(what)
