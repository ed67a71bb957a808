"""All engines: a row for each, in the order of their turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....tasks.steps.light_dataclass import dataclass
from ..question import Question
from .engine import Engine
from .engine_options import DEVICES, EARLY, GANAK, PLANNING, PROOFS, ROWS, SWEEP, WORKERS
from .request import QueryRequest
from .sweep_engine import SweepEngine

Make = Callable[[QueryRequest, SweepEngine], Engine]


@dataclass(frozen=True)
class EngineKind:
    """An engine as strategies name it.

    Parameters
    ----------
    name : str
    queries : frozenset of str
        What it answers.
    make : callable
        Makes it for a question, beside the sweep.
    way : str
        The engine's work as a clause, for notes about options that had no effect.
    heeds : frozenset of str
        Options that have an effect on it; see :mod:`~bucketflow.pipeline.answering.engines.engine_options`.
    keeps_order : bool
        Whether it may eliminate some variables after all others, as projected counts and marginal MAP have it.
    installed : callable
        Whether the package that it needs is installed.
    """

    name: str
    queries: frozenset[str]
    make: Make
    way: str
    heeds: frozenset[str] = frozenset()
    keeps_order: bool = False
    installed: Callable[[], bool] = lambda: True

    def answers(self, question: Question, method: str) -> bool:
        """Whether it may answer a question; an engine that is not installed answers if it is requested, by refusing."""
        if not (question.query in self.queries and (question.outer is None or self.keeps_order)):
            return False
        return self.installed() or method == self.name


def _early_rows(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .row_engines import EarlyRows

    return EarlyRows(request)


def _rows(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .row_engines import RowTrial

    return RowTrial(request, sweep)


def _search(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .sum_engines import SearchEngine

    return SearchEngine(request)


def _has_ganak() -> bool:
    from ....tasks.compiler.outside_process import folder_of

    return folder_of("pyganak") is not None


def _ganak(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .sum_engines import GanakEngine

    return GanakEngine(request)


def _diagrams(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .sum_engines import DiagramEngine

    return DiagramEngine(request)


def _circuit(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .circuit_engine import CircuitEngine

    return CircuitEngine(request)


def _outer_circuit(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .circuit_engine import OuterCircuitEngine

    return OuterCircuitEngine(request)


def _bounds(request: QueryRequest, sweep: SweepEngine) -> Engine:
    from .bounds_engine import BoundsEngine

    return BoundsEngine(request, sweep)


_SUMS: Final = frozenset(("partition", "count"))
_ALL: Final = frozenset(("optimum", "partition", "count", "marginals", "max-marginals"))
_TRACED: Final = "this process built a circuit from a search"
_SEED: Final = frozenset({"seed"})
ENGINES: Final = (
    EngineKind(EARLY, _ALL, _early_rows, "this process joined the sparse tables of the functions"),
    EngineKind(
        "bounds",
        frozenset(("optimum",)),
        _bounds,
        "bounds proved the optimum without a sweep",
        WORKERS | PROOFS | _SEED,
    ),
    EngineKind(
        "search", _SUMS, _search, "a search with cached components ran in this process", _SEED, keeps_order=True
    ),
    EngineKind(
        *(GANAK, _SUMS, _ganak, "Ganak counted in a process of its own", _SEED),
        keeps_order=True,
        installed=_has_ganak,
    ),
    EngineKind("circuit", frozenset(("marginals",)), _circuit, _TRACED, _SEED),
    EngineKind("outer circuit", frozenset(("mmap",)), _outer_circuit, _TRACED, _SEED, keeps_order=True),
    EngineKind("diagrams", _SUMS, _diagrams, "this process summed decision diagrams", _SEED),
    EngineKind(ROWS, _ALL, _rows, "this process joined sparse tables along the tree of a sweep", PLANNING),
    EngineKind(
        SWEEP,
        _ALL | {"mmap"},
        lambda _, sweep: sweep,
        "the sweep over all cells ran on the CPU",
        PLANNING | WORKERS | DEVICES,
        keeps_order=True,
    ),
)


class EnginesOf(dict[str, Engine]):
    """The engines that answer a question, by name, made when they are first asked for."""

    def __init__(self, request: QueryRequest) -> None:
        super().__init__()
        self.request, self.sweep = request, SweepEngine(request)
        self.kinds = {kind.name: kind for kind in ENGINES if kind.answers(request.question, request.effort.method)}

    def __missing__(self, name: str) -> Engine:
        self[name] = self.kinds[name].make(self.request, self.sweep)
        return self[name]
