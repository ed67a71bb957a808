"""The measurements of ours, made through the public functions: optima, bounds, propagations, agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

from ..agents.dpop import dpop
from ..api.bound import bound
from ..api.solve import load, plan, solve
from ..compiled.compiled import Compiled, compile_model
from ..errors import ModelError
from ..machine.rates import REPEATS
from ..models.bayesian_networks import EVEN
from ..models.dcop import Dcop
from ..models.model import Model
from ..models.random_dcops import generate
from ..trees.layouts import JunctionTreeSizes
from .papers import Instances, PaperRow, Way

# Short calls are repeated for up to this many seconds, at most this often; the best one counts.
_REPEAT_SECONDS = 1.0
# Widths are of orders that are searched for this many CPU seconds, and need no memory.
_ORDER_SECONDS, _ANY_MEMORY = 0.5, "1000000TB"
# Messages are measured for this many times half of the limit: several hundred steps are needed.
_LAUNCHES_FOR: Final = 15
# The answer of a problem without any possible assignment.
INFEASIBLE: Final = "infeasible"


@dataclass(frozen=True)
class Measurement:
    """A way to measure a row.

    Parameters
    ----------
    way : Way
    row : PaperRow
    path : Path or None
        The instance; None where it is random.
    gpus : str or None
        Number of GPUs.
    seconds : float or None
        Limit of growing bounds.
    count : int
        Number of random problems.
    folder : Path or None
        All instances.
    """

    way: Way
    row: PaperRow
    path: Path | None = None
    gpus: str | None = None
    seconds: float | None = None
    count: int = 1
    folder: Path | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of the public function."""
        return {**self.way.options, **({"gpus": self.gpus} if self.way.gpu else {})}

    @property
    def problems(self) -> list[Dcop]:
        """The random problems of the row: one for each seed."""
        drawn = self.way.problem or self.row.problem
        return [generate(**drawn, seed=seed) for seed in range(self.count)]


@dataclass(frozen=True)
class Measured:
    """The result of a measurement.

    Parameters
    ----------
    figures : mapping of str to object
        By name; ``seconds`` are wall seconds.
    answers : tuple
        The proven optimum of each problem.
    bounds : tuple of (lower, upper)
        Of the optimum of each problem; None where there is none.
    right : bool or None
        Whether a check of the measurement by itself held; None if it has no such check.
    on_device : bool
        Whether a GPU computed the answer. Where cores are faster they answer, although GPUs are allowed.
    """

    figures: Mapping[str, Any]
    answers: tuple[Any, ...] = ()
    bounds: tuple[tuple[Any, Any], ...] = ()
    right: bool | None = None
    on_device: bool = False


def prepared(asked: Measurement) -> Sequence[Callable[[], Measured]]:
    """Read or draw the problems of a measurement; return a call for each."""
    if asked.way.gpu:
        _start_device()
    if asked.way.experiment == "launches":
        return [_launches(asked)]
    if asked.way.experiment == "agents":
        return [partial(_agents, each, asked) for each in asked.problems]
    models = [each.model for each in asked.problems] if asked.path is None else [_instance(asked.path, asked.row)]
    if asked.way.experiment == "propagation":
        return [_propagation(each, asked) for each in models]
    return [partial(EXPERIMENTS[asked.way.experiment], each, asked) for each in models]


def _instance(path: Path, row: PaperRow) -> Model:
    """Read an instance.

    Raises
    ------
    ModelError
        If it has another number of variables than the paper prints: another model under the same name.
    """
    model, printed = load(str(path)), row.published.get("n")
    if isinstance(printed, int) and printed != len(model.dims):
        raise ModelError(f"{path} has {len(model.dims)} variables, but the instance of the paper has {printed}")
    return model


def mean_of(found: Sequence[Measured]) -> Measured:
    """Combine measurements of several random problems: means of numbers that all have, and all answers and bounds."""
    if len(found) == 1:
        return found[0]
    figures: dict[str, Any] = {}
    for name in found[0].figures:
        values = [each.figures.get(name) for each in found]
        if all(isinstance(value, int | float) for value in values):
            figures[name] = float(np.mean(np.array(values, np.float64)))
        elif None not in values:
            figures[name] = ", ".join(dict.fromkeys(map(str, values)))
    return Measured(
        {**figures, "drawn": len(found)},
        tuple(answer for each in found for answer in each.answers),
        tuple(pair for each in found for pair in each.bounds),
        None if found[0].right is None else all(each.right for each in found),
        all(each.on_device for each in found),
    )


def _start_device() -> None:
    """Start the GPU, so that no measurement includes its start."""
    from ...tasks.gpu.kernels import cupy

    cupy().cuda.Device().synchronize()


def _best(call: Callable[[], Any]) -> tuple[float, Any]:
    """Call once, and again while that is quick; return the least seconds and the first result."""
    begin = start = perf_counter()
    found = call()
    best = perf_counter() - start
    for _ in range(REPEATS - 1):
        if perf_counter() - begin > _REPEAT_SECONDS:
            break
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best, found


def _optimum(model: Model, asked: Measurement) -> Measured:
    """Prove an optimum, by the engine and on the tree of the way's options."""
    seconds, found = _best(lambda: solve(model, **asked.options))
    engine = found.tried[-1].engine if found.tried else "preparation"
    swept = found.plan is not None and (found.proof is None or found.proof.method in ("dense", "rows"))
    on_device = bool(swept and found.plan is not None and found.plan.device)
    answer = INFEASIBLE if found.status == "infeasible" else found.value
    figures = {"answer": answer, "by": engine, "seconds": seconds, "drawn": 1}
    proven = (answer,) if found.status in ("optimal", "infeasible") else ()
    return Measured(figures, proven, on_device=on_device)


def _bound(model: Model, asked: Measurement) -> Measured:
    """Bound an optimum by mini-buckets of at most z variables, or by growing mini-buckets until the time ends."""
    time = asked.seconds if asked.row.z is None else None
    start = perf_counter()
    found = bound(model, z=asked.row.z, time=time, **asked.options)
    seconds = perf_counter() - start
    figures: dict[str, Any] = {"lower": found.lower, "upper": found.upper, "seconds": seconds}
    figures["size"] = found.rounds[-1].size if found.rounds else None
    answer, lower, upper = asked.row.answer, found.lower, found.upper
    if lower is not None and answer is not None:
        figures["quality"] = float(lower) / answer if answer else 1.0
    if lower is not None and upper is not None:
        figures["ratio"] = float(lower) / float(upper) if upper else 1.0
    return Measured(figures, (), ((lower, upper),), on_device=_used_gpus(asked, found.notes))


def _tree(model: Model, asked: Measurement) -> Measured:
    """Return the sizes of the junction tree."""
    seconds, found = _best(lambda: plan(model, "marginals", tree="junction"))
    return Measured({"seconds": seconds, **_sizes(found.junction_tree)})


def _width(model: Model, asked: Measurement) -> Measured:
    """Return the induced width of elimination by buckets, however large the tables would be."""
    found = plan(model, tree="bucket", order_time=_ORDER_SECONDS, memory=_ANY_MEMORY)
    return Measured({"width": found.width})


def _sizes(tree: JunctionTreeSizes) -> dict[str, Any]:
    cliques, separators = tree.cliques, tree.separators
    names = {"most": cliques.most_cells, "mean": round(cliques.mean_cells), "least": cliques.least_cells}
    more = {"separator": separators.most_cells, "mean separator": round(separators.mean_cells)}
    return {"cliques": cliques.count, **names, **more, "least separator": separators.least_cells}


def _propagation(model: Model, asked: Measurement) -> Callable[[], Measured]:
    """Compile a model, with its kernels; return the call that sends all messages and reads all posteriors."""
    start = perf_counter()
    compiled = compile_model(model, background=False, **asked.options)
    preprocessing = perf_counter() - start
    compiled.marginals()  # kernels are compiled here, which no published figure includes

    def propagate() -> Any:
        compiled.reset()
        return compiled.marginals()

    def call() -> Measured:
        seconds, found = _best(propagate)
        figures: dict[str, Any] = {"seconds": seconds, "preprocessing": preprocessing}
        if compiled.plan is not None:
            figures |= _sizes(compiled.plan.junction_tree)
        if (graph := _graph_seconds(compiled)) is not None:
            figures["graph"] = graph
        sums = np.array([table.sum() for table in found.values()])
        right = abs(found.log10_evidence) <= EVEN and np.all(abs(sums - 1) <= EVEN)
        on_device = compiled.plan is not None and compiled.plan.device
        return Measured(figures, right=bool(right), on_device=on_device)

    return call


def _graph_seconds(compiled: Compiled) -> float | None:
    """Return the device's seconds of all messages and posteriors, without transfers; None without a device."""
    if compiled.device is None:
        return None
    single = compiled.device._device._single
    if single is None:
        return None
    from ..machine.device import _on_device

    return _on_device(lambda: single.graph.launch(single.stream), single.stream)


def _agents(problem: Dcop, asked: Measurement) -> Measured:
    """Solve a problem by its agents; seconds are of all agents together, one after the other."""
    found = [dpop(problem, z=asked.row.z, **asked.options) for _ in range(2)]
    metrics = min((each.metrics for each in found), key=lambda each: each.computing_seconds)
    figures = {"seconds": metrics.computing_seconds, "agent width": metrics.width, "load": metrics.network_load}
    figures |= {"messages": metrics.total_messages, "agents": metrics.agents}
    answer = INFEASIBLE if found[0].status == "infeasible" else found[0].value
    proven = (answer,) if found[0].status in ("optimal", "infeasible") else ()
    return Measured(figures, proven, on_device=_used_gpus(asked, found[0].notes))


def _launches(asked: Measurement) -> Callable[[], Measured]:
    """Measure launches of messages for some times the limit; return the call that has the result."""
    from .message_launches import NETWORKS, measure_launches

    instances = Instances(asked.folder)
    found = [path for name in NETWORKS if (path := instances.path(f"bn/{name}.bif", f"bn/{name}.net"))]
    if not found:
        raise ModelError(f"no network of {', '.join(NETWORKS)}; they would be files such as bn/water.bif")
    figures = measure_launches(found, gpu=asked.way.gpu, seconds=_LAUNCHES_FOR * (asked.seconds or 2.0))
    return lambda: Measured(figures, on_device=asked.way.gpu)


def _used_gpus(asked: Measurement, notes: Iterable[str]) -> bool:
    """Whether GPUs were allowed, and no note says that the option had no effect."""
    unused = [note.partition(" had no effect")[0] for note in notes if " had no effect" in note]
    return asked.way.gpu and not any("gpus" in options for options in unused)


EXPERIMENTS: Final[Mapping[str, Callable[[Model, Measurement], Measured]]] = {
    **{"optimum": _optimum, "bound": _bound, "tree": _tree, "width": _width}
}
