"""The questions that tables of papers are about, asked through the public functions, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeVar

import numpy as np

from ..agents.dpop import dpop
from ..api.bound import bound
from ..api.solve import load, solve
from ..compiled.compiled import Compiled, compile_model
from ..models.dcop import Dcop
from ..models.model import Model
from ..models.random_dcops import generate
from .papers import Kind, PaperRow

Where = Literal["cpu", "core", "gpu"]
"""All cores and any way of answering; one core and elimination alone, as a sequential program; GPUs."""

T = TypeVar("T")

# Short calls are repeated until this much time is over, at most so often; the best counts.
_REPEAT_SECONDS, _REPEATS = 1.0, 5
# Rows of published networks sum to 1 up to the digits that they have.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Asked:
    """Where a question is asked.

    Parameters
    ----------
    where : Where
    gpus : str or None
        How many, for GPUs.
    seconds : float or None
        Limits of growing bounds.
    """

    where: Where
    gpus: str | None = None
    seconds: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of the public functions."""
        if self.where == "gpu":
            return {"gpus": self.gpus}
        return {"threads": 1} if self.where == "core" else {}


@dataclass(frozen=True)
class Measured:
    """What was measured of an answer.

    Parameters
    ----------
    seconds : float
        Wall seconds.
    figures : mapping of str to object
        By column.
    right : bool or None
        Whether the answer is right; None if the right answer is unknown.
    on_device : bool
        Whether a GPU computed the answer. Where cores are faster they answer, although GPUs are allowed.
    """

    seconds: float
    figures: Mapping[str, Any] = field(default_factory=dict)
    right: bool | None = None
    on_device: bool = False


def prepared(kind: Kind, row: PaperRow, path: Path | None, asked: Asked) -> Callable[[], Measured]:
    """Read or draw the problem of a row; return the function that answers its query."""
    if kind == "agents":
        drawn = generate(**row.problem)
        return partial(_agents, drawn, row, asked)
    assert path is not None
    model = load(str(path))
    if kind == "propagation":
        compiled = compile_model(model, **asked.options)
        compiled.marginals()  # kernels are compiled here, which no published figure has
        return partial(_propagation, compiled)
    return partial(_EXPERIMENTS[kind], model, row, asked)


def _best(call: Callable[[], T]) -> tuple[float, float, T]:
    """Call once, and again while that is quick; return seconds of the best and the first, and what that found."""
    start = perf_counter()
    found = call()
    first = best = perf_counter() - start
    for _ in range(_REPEATS - 1):
        if perf_counter() - start > _REPEAT_SECONDS:
            break
        begun = perf_counter()
        call()
        best = min(best, perf_counter() - begun)
    return best, first, found


def _optimum(model: Model, row: PaperRow, asked: Asked) -> Measured:
    """An optimum: by any way that proves it, or by sweeping dense tables on one core."""
    method: Any = "dense" if asked.where == "core" else "auto"
    seconds, first, found = _best(lambda: solve(model, method=method, **asked.options))
    way = found.tried[-1].engine if found.tried else "preparation"
    right = None if row.answer is None else found.status == "optimal" and found.value == row.answer
    swept = found.plan is not None and (found.proof is None or found.proof.method == "dense")
    on_device = swept and found.plan is not None and found.plan.device
    return Measured(seconds, {"answer": found.value, "by": way, "first": first}, right, on_device)


def _bound(model: Model, row: PaperRow, asked: Asked) -> Measured:
    """Both bounds by mini-buckets of at most z variables, or that grow while time lasts; the last are the best."""
    time = asked.seconds if row.z is None else None
    start = perf_counter()
    found = bound(model, z=row.z, time=time, **asked.options)
    seconds = perf_counter() - start
    figures: dict[str, Any] = {"lower": found.lower, "upper": found.upper}
    figures["size"] = found.rounds[-1].size if found.rounds else None
    if row.answer and found.lower is not None:
        figures["quality"] = float(found.lower) / row.answer
    on_device = _heeds_gpus(asked, found.notes)
    if row.answer is None or found.lower is None:
        return Measured(seconds, figures, None, on_device)
    right = found.lower <= row.answer and (found.upper is None or row.answer <= found.upper)
    return Measured(seconds, figures, right, on_device)


def _propagation(compiled: Compiled) -> Measured:
    """All messages of a compiled model and all posteriors, without evidence: each sums to 1, and so do all together."""

    def propagate() -> Any:
        compiled.reset()
        return compiled.marginals()

    seconds, _, found = _best(propagate)
    plan = compiled.plan
    figures = {} if plan is None else {"tables": len(plan.up), "table": plan.cost.largest_table_cells}
    sums = np.array([table.sum() for table in found.values()])
    total = found.log10_evidence
    right = bool(abs(total) < _ROUNDING and np.all(abs(sums - 1) < _ROUNDING))
    return Measured(seconds, figures, right, plan is not None and plan.device)


def _agents(dcop: Dcop, row: PaperRow, asked: Asked) -> Measured:
    """Agents that solve a problem, checked by one solver that sees all of it.

    Seconds are of all agents together, one after the other; simulated ones as if each were a computer.
    """
    found = dpop(dcop, z=row.z, **asked.options)
    again = dpop(dcop, z=row.z, **asked.options)
    metrics = min(found.metrics, again.metrics, key=lambda each: each.computing_seconds)
    figures: dict[str, Any] = {"order": found.order, "width": metrics.width, "load": metrics.network_load}
    figures |= {"simulated": metrics.simulated, "messages": metrics.total_messages, "agents": metrics.agents}
    best, on_device = solve(dcop.model).value, _heeds_gpus(asked, found.notes)
    if row.z is None:
        return Measured(metrics.computing_seconds, figures, found.value == best, on_device)
    if best and found.bound is not None:
        figures["quality"] = float(found.bound / best)
    right = best is None or (found.bound is not None and found.bound <= best)
    right = right and (found.value is None or (best is not None and best <= found.value))
    return Measured(metrics.computing_seconds, figures, right, on_device)


def _heeds_gpus(asked: Asked, notes: Iterable[str]) -> bool:
    """Whether GPUs were allowed, and no note says that the option had no effect."""
    unused = [note.partition(" had no effect")[0] for note in notes if " had no effect" in note]
    return asked.where == "gpu" and not any("gpus" in options for options in unused)


_EXPERIMENTS: Mapping[Kind, Callable[[Model, PaperRow, Asked], Measured]] = {
    "optimum": _optimum,
    "bound": _bound,
}
