"""Gains of learnt launches on whole models: random networks of several kinds, run by the rules and by the learnt
launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import exp, log
from typing import Any, Final, Literal

import numpy as np

from ...tasks.learnt.learnt_launches import LaunchPolicy, Place
from ..formats.read import GivenModel, given_model
from ..machine.cpu import REPEATS
from ..models.model import Model
from ..models.random_dcops import Kind, generate

# If whole models run slower with learnt launches than with the rules by more than this share, launches are no
# longer chosen. The best of three runs differs by about this share from the best of three other runs.
_WHOLE_LOSS_SHARE: Final = 0.02

Query = Literal["optimum", "partition"]

_NETWORKS: Final[tuple[tuple[Kind, dict[str, Any]], ...]] = (
    ("grid", {"domain": 3}),
    ("grid", {"domain": 8}),
    ("random", {"domain": 2, "density": 0.3}),
    ("random", {"domain": 5, "density": 0.3}),
    ("scale-free", {"domain": 4, "links": 3}),
    ("coloring", {"domain": 3, "density": 0.2}),
)
"""Kinds of networks with step shapes that differ from the randomly drawn steps."""

_MOST_CELLS: Final[dict[Place, int]] = {"cpu": 1 << 27, "gpu": 1 << 36}
"""Of a sweep: some tenths of a second."""


@dataclass(frozen=True)
class WholeRun:
    """A sweep of a whole model by both.

    Parameters
    ----------
    model, query : str
    ruled, learnt : float
        Wall seconds of the sweep and of decoding by today's rules and as was learnt: the least of some runs in turn.
    """

    model: str
    query: Query
    ruled: float
    learnt: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures."""
        return asdict(self)


@dataclass(frozen=True)
class WholeModels:
    """Runs of whole models.

    Parameters
    ----------
    runs : tuple of WholeRun
    """

    runs: tuple[WholeRun, ...] = ()

    @property
    def gain(self) -> float:
        """Seconds by the rules over seconds as was learnt, of all runs together."""
        return sum(run.ruled for run in self.runs) / sum(run.learnt for run in self.runs) if self.runs else 1.0

    @property
    def mean_gain(self) -> float:
        """The same as a geometric mean over runs."""
        return exp(sum(log(run.ruled / run.learnt) for run in self.runs) / len(self.runs)) if self.runs else 1.0

    @property
    def worse(self) -> bool:
        """Whether the rules were faster, by more than runs of the same differ."""
        level = 1.0 - _WHOLE_LOSS_SHARE
        return self.mean_gain < level or self.gain < level

    def to_dict(self) -> dict[str, Any]:
        """Return plain figures."""
        return {"gain": self.gain, "mean_gain": self.mean_gain, "runs": [run.to_dict() for run in self.runs]}


def given_models(models: Sequence[GivenModel]) -> list[tuple[Model, Query]]:
    """Read models, and ask of each what it is for: the optimum of costs, the sum of all others.

    Raises
    ------
    ModelError
        If one cannot be read.
    BudgetError
        If no plan of it fits.
    """
    from ..api.solve import plan

    found: list[tuple[Model, Query]] = []
    for each in models:
        model = given_model(each)
        query: Query = "optimum" if model.kind == "cost" else "partition"
        plan(model, query, order_time=0.0)
        found.append((model, query))
    return found


def whole_networks(place: Place, seed: int = 0, most_cells: int | None = None) -> Iterator[tuple[Model, Query]]:
    """Yield random networks, each the largest of its kind with a sweep of at most ``most_cells`` cells, for both
    queries.
    """
    most = most_cells or _MOST_CELLS[place]
    for kind, options in _NETWORKS:
        largest: Model | None = None
        for variables in count(12, 3):
            model = generate(kind, variables=variables, seed=seed, **options).model
            if _cells(model) > most:
                break
            largest = model
        if largest is not None:
            yield largest, "optimum"
            yield _with_potentials(largest), "partition"


def _cells(model: Model) -> float:
    """Cells of a model's sweep; infinite where it fits no way."""
    from ..api.solve import plan
    from ..errors import BudgetError

    try:
        return plan(model, order_time=0.0, fit="refuse").cells
    except BudgetError:
        return float("inf")


def _with_potentials(model: Model) -> Model:
    """The Markov network whose potentials are exp(-cost / 100)."""
    functions = [
        replace(function, values=np.exp(function.values.astype(np.float64) / -100.0)) for function in model.functions
    ]
    return replace(model, kind="markov", functions=tuple(functions))


def compared_runs(
    models: Iterable[tuple[Model, Query]], place: Place, seconds: Callable[[Model, Query], float] | None = None
) -> WholeModels:
    """Run models alternately by the rules and by the launches stored for this machine.

    Parameters
    ----------
    seconds : callable, optional
        Runs one and returns its seconds; by default on the place.
    """
    run = seconds or (lambda model, query: _swept_seconds(model, query, place))
    runs = []
    for model, query in models:
        taken: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(REPEATS + 1):  # the first of each compiles
            for stored in (False, True):
                with LaunchPolicy.using(uses_stored=stored):
                    spent = run(model, query)
                if turn:
                    taken[stored].append(spent)
        runs.append(WholeRun(model.name or "", query, min(taken[False]), min(taken[True])))
    return WholeModels(tuple(runs))


def _swept_seconds(model: Model, query: Query, place: Place) -> float:
    from ..api.solve import solve

    answer = solve(model, query, method="dense", order_time=0.0, gpus=1 if place == "gpu" else None)
    return float(answer.seconds["run"] + answer.seconds.get("decode", 0.0))
