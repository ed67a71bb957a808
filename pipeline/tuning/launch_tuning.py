"""``tune``: learn the best launch of a step and its seconds from measured steps; keep the result if it is no worse."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from math import log2
from typing import Any, Final

import numpy as np

from ...tasks.learnt.learnt_launches import RULES
from ...tasks.learnt.predictors import Predictor, predictor_from, stored_predictor
from ...tasks.learnt.step_features import FEATURES
from ...tasks.steps.lowering import SMALL_CELLS
from ..errors import BucketflowError, ModelError, checks_keywords
from ..formats.read import GivenModel
from ..machine.learnt_rates import keep_launches
from ..models.checks import integer
from ..plans.prediction import rates_key
from ..public_names import public
from ..trees.costs import Rates
from .drawn_steps import sampled_steps
from .held_out import LaunchScore, StepTable, cross_validated, residuals_of, score, step_table
from .regressions import REGRESSIONS, need_scikit_learn
from .step_benches import CpuBench, GpuBench, MeasuredStep, StepBench, measured_steps
from .whole_models import WholeModels, compared_runs, given_models, whole_networks

# Launches among which a model chooses, the rules' launches included: a prediction is made for each.
_MOST_LAUNCHES: Final = 4

# Minimum number of steps for a conclusion; maximum bytes of stored numbers, which every query must read.
FEWEST_STEPS: Final = 40
_MOST_STORED_BYTES: Final = 1 << 19
# Share of the steps that is held out. The others are fitted to, and the kinds are compared on them in folds.
_TEST_SHARE: Final = 0.2
# What steps have: log2 of the cells, and bytes of their tables.
_CPU_LOG2, _CPU_BYTES = (log2(SMALL_CELLS) + 0.1, 23.0), 1 << 27
_GPU_LOG2, _GPU_BYTES = (14.0, 30.0), 4 << 30
# Maximum ratio of residual sums of squares to the present prices' for an improvement that is not accidental.
_CLOSER: Final = 0.9
# By how much ln seconds must be less for another kind of regression to be better at choosing.
_LEVEL: Final = 0.005


@public
@dataclass(frozen=True)
class Tuning:
    """The launches learnt on this machine or device.

    Parameters
    ----------
    device : str
        The name under which its rates are kept.
    place : str
        ``cpu`` or ``gpu``.
    steps, held_out : int
        Numbers of measured steps, and of the steps not used for fitting.
    launches : tuple of str
        That are chosen among.
    scores : tuple of LaunchScore
        On the steps held out: today's rules first, then each kind of regression.
    winner : str
        Of the regressions, by cross-validation on the steps that are fitted to.
    stored : bool
        Whether it is used from now on.
    chooses, predicts : bool
        Whether it chooses launches, and predicts seconds.
    interval : tuple of float
        Between which shares of the predicted seconds nine of ten steps held out were.
    least_cells : dict
        Cells from which ``threads`` or the ``device`` pay, where that gained.
    text : str
        The decision, in a sentence.
    path : str
        Where it is kept.
    whole : WholeModels
        Whole models by the rules and as was learnt, where that differs.
    """

    device: str
    place: str
    steps: int
    held_out: int
    launches: tuple[str, ...]
    scores: tuple[LaunchScore, ...]
    winner: str
    stored: bool
    chooses: bool
    predicts: bool
    interval: tuple[float, float]
    least_cells: dict[str, int]
    text: str
    path: str
    whole: WholeModels = field(default_factory=WholeModels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures."""
        return {
            **asdict(self),
            "scores": [each.to_dict() for each in self.scores],
            "whole": self.whole.to_dict() if self.whole.runs else None,
        }


@public
@checks_keywords
def tune(
    *,
    gpus: int | None = None,
    minutes: float = 3.0,
    threads: int | None = None,
    seed: int = 0,
    models: Sequence[GivenModel] = (),
    on_step: Callable[[int, float], None] | None = None,
) -> Tuning:
    """Learn which launch a step should have on this machine, and what it takes, from steps that are measured.

    Steps of the examples' plans and random ones are run by every launch that they can have; regressions of ln seconds
    are fitted to most of them and compared on the others. The best one is kept beside the measured rates where it is
    no worse than today's rules on steps that it never saw, nor on whole models; plans then follow it.

    Parameters
    ----------
    gpus : int, optional
        1 to learn launches of this machine's GPU; by default, launches of its CPU cores.
    minutes : float
        To measure steps for; fitting and whole models take some seconds more.
    threads : int, optional
        With which steps are compared beside one; by default all cores that this process may use.
    seed : int
        Seed of the random steps, of the held-out set, and of random models.
    models : sequence of Model, path or name of an example
        The whole models, which nothing is fitted to: optima of costs, sums of the others. By default random networks.
    on_step : callable, optional
        Called with the number of measured steps and the seconds that were spent.

    Returns
    -------
    Tuning

    Raises
    ------
    ModelError
        If an option makes no sense, scikit-learn is missing, or too few steps were measured.
    BudgetError
        If a model fits in no plan.
    BucketflowError
        If the GPU is missing.
    """
    if gpus not in (None, 1) or isinstance(gpus, bool):
        raise ModelError(f"gpus is {gpus!r}; launches are learnt on one GPU (1) or on the CPU cores (None)")
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes < float("inf"):
        raise ModelError(f"minutes is {minutes!r}; it must be a number of minutes, more than 0")
    several = len(os.sched_getaffinity(0)) if threads is None else integer(threads, "threads", 1)
    seed = integer(seed, "seed", 0)
    need_scikit_learn()
    judges = given_models(models)
    from ...tasks.compiler.code_cache import impatient
    from ..queries.arithmetic import SEMIRINGS

    bench: StepBench
    if gpus is None:
        bench, (least, most), most_bytes = CpuBench(several), _CPU_LOG2, _CPU_BYTES
    else:
        bench, (least, most), most_bytes = _gpu_bench(), _GPU_LOG2, _GPU_BYTES
    told = on_step or (lambda count, spent: None)
    # measured loops must be compiled before, whatever --time would allow
    with impatient():
        for semiring in SEMIRINGS:
            bench.rates(semiring)
        steps = sampled_steps(least, most, seed, SEMIRINGS, most_bytes)
        found = measured_steps(bench, steps, 60.0 * minutes, on_step=told)
    return judged(bench, found, seed, lambda: compared_runs(judges or whole_networks(bench.place, seed), bench.place))


def judged(bench: StepBench, steps: Sequence[MeasuredStep], seed: int, compared: Callable[[], WholeModels]) -> Tuning:
    """Keep the learnt results; launches and thresholds only if whole models are not slower with them."""
    fits = _fits(bench, steps, seed)
    found = _kept(bench, fits)
    if not (found.chooses or found.least_cells):
        return found
    whole = compared()
    if not whole.worse:
        return replace(found, whole=whole)
    found = _kept(bench, fits, may_choose=False)
    return replace(found, whole=whole, text=f"{found.text}; whole models were slower with the learnt launches")


def _gpu_bench() -> GpuBench:
    """Return the bench of this machine's GPU.

    Raises
    ------
    BucketflowError
        If it, or CuPy, is missing.
    """
    from ...cluster.address import ClusterError
    from ...cluster.gpus import count_gpus

    try:
        count_gpus(1)
    except ClusterError as error:
        raise BucketflowError(str(error)) from None
    return GpuBench()


def learnt_from(bench: StepBench, steps: Sequence[MeasuredStep], seed: int = 0) -> Tuning:
    """Fit, compare and keep the best regression of measured steps, or the rules.

    Raises
    ------
    ModelError
        If there are too few steps, or scikit-learn is missing.
    """
    return _kept(bench, _fits(bench, steps, seed))


@dataclass(frozen=True)
class _Fits:
    """Regressions of measured steps.

    Parameters
    ----------
    steps : sequence of MeasuredStep
    seen, unseen : list of MeasuredStep
        The steps that regressions are fitted to, and the held-out steps.
    launches : tuple of str
    table, test : StepTable
        Fits on all steps, and on the held-out steps.
    predictors : dict of str to Predictor
    winner : str
    """

    steps: Sequence[MeasuredStep]
    seen: list[MeasuredStep]
    unseen: list[MeasuredStep]
    launches: tuple[str, ...]
    table: StepTable
    test: StepTable
    predictors: dict[str, Predictor]
    winner: str


def _fits(bench: StepBench, steps: Sequence[MeasuredStep], seed: int) -> _Fits:
    """Fit and compare all kinds of regressions.

    Raises
    ------
    ModelError
        If there are too few steps, or scikit-learn is missing.
    """
    if len(steps) < FEWEST_STEPS:
        raise ModelError(f"{len(steps)} steps were measured, {FEWEST_STEPS} are needed: give more minutes")
    need_scikit_learn()
    fitted, held = _split(len(steps), seed)
    launches = worthwhile(bench.launches, [steps[i] for i in fitted])
    table = step_table(steps, launches)
    winner = chosen_by(cross_validated(table.part(fitted), REGRESSIONS, seed))
    predictors = fitted_kinds(table.part(fitted), seed)
    seen, unseen = [steps[i] for i in fitted], [steps[i] for i in held]
    return _Fits(steps, seen, unseen, launches, table, table.part(held), predictors, winner)


def _kept(bench: StepBench, fits: _Fits, may_choose: bool = True) -> Tuning:
    """Keep the best regression, or the rules.

    Parameters
    ----------
    may_choose : bool
        Whether it may choose launches, threads and devices, or only predict seconds.
    """
    steps, launches, table, test = fits.steps, fits.launches, fits.table, fits.test
    winner, best = fits.winner, fits.predictors[fits.winner]
    ruled = score("today's rules", None, test)
    chooses, predicts = _gains(best, test, may_choose)
    least_cells = _least_cells(bench, fits.seen, fits.unseen) if may_choose else {}
    low, high = np.quantile(residuals_of(best, test, chooses), [0.05, 0.95])
    model = {
        "features": list(FEATURES),
        "predictor": stored_predictor(best),
        "low": table.features.min(axis=0).tolist(),
        "high": table.features.max(axis=0).tolist(),
        "launches": list(launches),
        "chooses": chooses,
        "predicts": predicts,
        "residuals": [float(low), float(high)],
        "rates": _rates(bench, steps),
        "least_cells": least_cells,
        "regression": winner,
        "steps": len(steps),
    }
    small = len(json.dumps(model)) <= _MOST_STORED_BYTES
    # a regression that neither chooses nor predicts better than the rules is not kept
    stored = small and bool(chooses or predicts or least_cells)
    path = keep_launches(bench.name, model if stored else None)
    return Tuning(
        device=bench.name,
        place=bench.place,
        steps=len(steps),
        held_out=len(fits.unseen),
        launches=launches,
        scores=(ruled, *(score(name, each, test) for name, each in fits.predictors.items())),
        winner=winner,
        stored=stored,
        chooses=stored and chooses,
        predicts=stored and predicts,
        interval=(float(np.exp(low)), float(np.exp(high))),
        least_cells=least_cells if stored else {},
        text=_decided(winner, small, chooses, predicts, least_cells),
        path=str(path),
    )


def _split(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the steps to fit to, and to hold out."""
    order = np.random.default_rng(seed).permutation(count).tolist()
    first = round((1 - _TEST_SHARE) * count)
    return order[:first], order[first:]


def worthwhile(launches: Sequence[str], steps: Sequence[MeasuredStep]) -> tuple[str, ...]:
    """The rules and a few launches beside them that would gain the most together, in the mean of ln seconds."""
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


def fitted_kinds(table: StepTable, seed: int) -> dict[str, Predictor]:
    """Fit every kind; the compared predictors are those that would be stored."""
    rows, values = table.rows
    return {kind.name: predictor_from(stored_predictor(kind.fit(rows, values, seed))) for kind in REGRESSIONS}


def chosen_by(scores: Mapping[str, LaunchScore]) -> str:
    """Return the name of the best regression by its cross-validated scores."""
    return min(scores, key=lambda name: _rank(scores[name]))


def _rank(found: LaunchScore) -> tuple[float, float]:
    """Less is better: ln seconds of the choices in levels, then how far predictions are off."""
    return -round(float(np.log(found.mean_gain)) / _LEVEL), found.residual_squares


def _gains(predictor: Predictor, test: StepTable, may_choose: bool) -> tuple[bool, bool]:
    """Whether a predictor chooses no worse than the rules, and predicts better than today's prices."""
    found = score("", predictor, test)
    chooses = may_choose and found.gain > 1 and found.mean_gain > 1
    ours = float((residuals_of(predictor, test, chooses) ** 2).sum())
    return chooses, ours < _CLOSER * float((residuals_of(None, test) ** 2).sum())


def _least_cells(bench: StepBench, seen: Sequence[MeasuredStep], held: Sequence[MeasuredStep]) -> dict[str, int]:
    """Cells from which threads or the device pay: a power of two, kept where it is faster than the rule it replaces."""
    from ...tasks.sweeps.sweep import THREADED_CELLS

    today: dict[str, Callable[[MeasuredStep], int]] = {"threads": lambda step: THREADED_CELLS}
    if bench.place == "gpu":
        today["device"] = _device_rule(bench)
    found = {}
    for what, rule in today.items():
        given, test = ([s for s in steps if what in s.two_ways] for steps in (seen, held))
        if len(given) < FEWEST_STEPS // 2 or not test:
            continue
        least = min(step.lowered.cells for step in given).bit_length() - 1
        cut = min((1 << k for k in range(least, 31)), key=partial(_spent_from, given, what))
        if _spent_from(test, what, cut) < _spent(test, what, rule):
            found[what] = cut
    return found


def _device_rule(bench: StepBench) -> Callable[[MeasuredStep], int]:
    """From how many cells on a step runs on the device today."""
    from ...tasks.sweeps.device_sweep import LEAST_CELLS
    from ..machine.device import cached_device_rates, least_device_cells
    from ..queries.arithmetic import SEMIRINGS

    known = {rates_key(s): (s, cached_device_rates(s)) for s in SEMIRINGS}
    least = {key: least_device_cells(s, rates) for key, (s, rates) in known.items() if rates is not None}
    return lambda step: least.get(rates_key(step.lowered.semiring), LEAST_CELLS)


def _spent(steps: Sequence[MeasuredStep], what: str, least: Callable[[MeasuredStep], int]) -> float:
    """Return the mean of ln seconds if steps from a number of cells on use the second method."""
    taken = [each.two_ways[what][each.lowered.cells >= least(each)] for each in steps]
    return float(np.log(taken).mean())


def _spent_from(steps: Sequence[MeasuredStep], what: str, cells: int) -> float:
    return _spent(steps, what, lambda step: cells)


def _rates(bench: StepBench, steps: Sequence[MeasuredStep]) -> dict[str, dict[str, float]]:
    """The rates that prices were computed by, for each semiring that was measured."""
    semirings = {rates_key(each.lowered.semiring): each.lowered.semiring for each in steps}
    return {key: _figures(bench.rates(semiring)) for key, semiring in semirings.items()}


def _figures(rates: Rates) -> dict[str, float]:
    return {f.name: getattr(rates, f.name) for f in fields(rates)}


def _decided(winner: str, small: bool, chooses: bool, predicts: bool, least_cells: Mapping[str, int]) -> str:
    """Return a text about the rules used from now on."""
    if not small:
        return f"the present rules are kept: the numbers of {winner} need too much memory"
    if not (chooses or predicts or least_cells):
        return (
            f"the present rules are kept: on held-out steps, {winner} was better neither at choosing nor at predicting"
        )
    launches = f"launches are chosen by {winner}" if chooses else "launches follow the present rules"
    seconds = f"seconds are predicted by {winner}" if predicts else "seconds are predicted by the present rates"
    cells = [f"{what} from 2^{log2(least):.0f} cells on" for what, least in least_cells.items()]
    return "; ".join([launches, seconds, *cells])
