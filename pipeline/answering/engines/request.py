"""A question on its way to an answer: the data that engines share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from ....tasks.steps.light_dataclass import dataclass
from ...errors import ModelError
from ...machine.resources import Resources
from ...options import Method, Options, ProofOptions
from ...preprocessing.preprocess import Network, fixed_value
from ..question import PROJECTED, Question, rounded
from ..run_folder import RunFolder
from ..running import Answer, Progress
from .engine_options import GANAK, SWEEP, EngineLimits
from .strategy_policy import POLICY, StrategyPolicy

if TYPE_CHECKING:
    from ..sums import SearchedSum

#: The engine that each method means, by query.
_METHODS: dict[str, dict[str, str]] = {
    "optimum": {"dense": SWEEP, "rows": "bounds", "diagram": "bounds", "search": "bounds"},
    "partition": {"dense": SWEEP, "diagram": "diagrams", "search": "search", "ganak": GANAK},
    "count": {"dense": SWEEP, "diagram": "diagrams", "search": "search", "ganak": GANAK},
}


def method_of(query: str, engine: str) -> str | None:
    """Return the method by which one engine alone answers a query; None where there is none."""
    found = [method for method, one in _METHODS.get(query, {}).items() if one == engine]
    return found[0] if len(found) == 1 and engine != SWEEP else None


Ask = Callable[[Question, Options, ProofOptions, Progress | None], Answer]
"""Answers another question."""


@dataclass
class QueryRequest:
    """A question, its options, and the notes collected on the way.

    Parameters
    ----------
    question : Question
    options : Options
    effort : ProofOptions
    progress : callable, optional
        Receives events: how far a sweep is, and both bounds on an optimum.
    folder : RunFolder, optional
    policy : StrategyPolicy
    ask : callable, optional
        Answers the question that is left once the inner variables of this one are eliminated.
    patient : bool
        Whether rows may be joined for about a minute where no plan of all cells fits.
    reserved_bytes : int
        Host memory used by a sweep beside this thread.
    """

    question: Question
    options: Options
    effort: ProofOptions = field(default_factory=ProofOptions)
    progress: Progress | None = None
    folder: RunFolder | None = None
    policy: StrategyPolicy = POLICY
    ask: Ask | None = None
    patient: bool = True
    started: float = field(default_factory=time.perf_counter)
    notes: list[str] = field(default_factory=list)
    reserved_bytes: int = 0

    @cached_property
    def network(self) -> Network:
        """The network that remains after preprocessing."""
        return self.question.reduced[0]

    @cached_property
    def clauses(self) -> SearchedSum:
        """The question as clauses, which a search and Ganak count."""
        from ..sums import SearchedSum

        return SearchedSum(self.question, self.options, self.network, self.started)

    @property
    def is_trivial(self) -> bool:
        """Whether nothing is left to eliminate."""
        return fixed_value(self.network) is None or not self.network.leaves

    @cached_property
    def resources(self) -> Resources:
        """Where it may run."""
        return Resources(self.options)

    @property
    def engine_limits(self) -> EngineLimits:
        """The options of the caller that decide which engines may answer."""
        query, method, options, effort = self.question.query, self.effort.method, self.options, self.effort
        if options.tasks == "steps" or options.keep_tables is not None:
            self._verify_swept("tasks 'steps'" if options.tasks == "steps" else "keep_tables")
            return EngineLimits(SWEEP)
        by_rows = options.representation == "rows" and method == "auto"
        if by_rows and not effort.limited:
            return EngineLimits(SWEEP)
        if self.is_trivial or query == "max-marginals" or (query in ("marginals", "mmap") and options.gpus is not None):
            return EngineLimits(SWEEP)
        plain = options.order == "auto" and options.tree == "refined" and options.fit == "auto"
        if query == "optimum":
            return self._of_optimum(plain)
        if method != "auto":
            return EngineLimits(self._engine_of(method))
        if self.has_stored_plan:
            return EngineLimits(SWEEP)
        return EngineLimits(about_sweeps=not plain or self.folder is not None)

    def _engine_of(self, method: Method) -> str:
        """Return the engine of a method.

        For projected queries the method applies to the model that remains after the other variables are eliminated, so
        the sweep comes first.
        """
        query = self.question.query
        if self.question.outer is None or (method in ("search", "ganak") and query in PROJECTED):
            return _METHODS[query][method]
        return SWEEP

    def _verify_swept(self, what: str) -> None:
        """Refuse what is about a sweep where what was asked for is none."""
        effort = self.effort
        if effort.method not in ("auto", "dense"):
            raise ModelError(f"{what}: the method {effort.method!r} runs no sweep; leave out one of the two")
        if effort.limited:
            raise ModelError(f"{what}: a search for bounds runs no sweep; leave out time, gap and upper_bound")

    def _of_optimum(self, plain: bool) -> EngineLimits:
        effort, method = self.effort, self.effort.method
        if effort.limited or method != "auto":
            if method == "dense" and not effort.limited:
                return EngineLimits(SWEEP)
            at_leisure = effort.time is None and effort.gap is None and method in ("auto", "dense")
            return EngineLimits(SWEEP if at_leisure and rounded(self.question) else "bounds")
        return EngineLimits(SWEEP) if not plain or self.has_stored_plan else EngineLimits()

    @property
    def has_stored_plan(self) -> bool:
        """Whether the run directory holds the plan of a sweep."""
        return self.folder is not None and self.folder.stored_plan is not None

    @property
    def seconds(self) -> float:
        """Wall seconds that were given."""
        return inf if self.effort.time is None else self.effort.time

    def on_host(self) -> QueryRequest:
        """The same without devices."""
        return replace(self, options=self.options.without_gpus())
