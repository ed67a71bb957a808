"""Optima by the portfolio of provers, which sweeps what is left itself once that is cheaper."""

from __future__ import annotations

import math
from dataclasses import replace

from ....tasks.compiler.compile_limits import NotCompiledError
from ....tasks.compiler.working_time import working_seconds
from ....tasks.steps.light_dataclass import dataclass
from ...errors import BudgetError
from ...results.result import Result
from ..optimum import Task
from ..question import rounded, tables_fit
from ..run_folder import resumable
from ..running import Answer
from .engine import Stop, TurnEnded
from .engine_options import Certainty, EnginePrice, Estimate
from .request import QueryRequest
from .sweep_engine import SweepEngine


@dataclass
class BoundsEngine:
    """An optimum as bounds that close."""

    request: QueryRequest
    sweep: SweepEngine

    def estimate(self) -> Estimate:
        """Return whether there is memory for tables, and whether bounds can be exact."""
        request = self.request
        if request.effort.limited or request.effort.method != "auto":
            return EnginePrice()
        if not tables_fit(request.question, request.options):
            return "tables of the model do not fit memory"
        if rounded(request.question):
            return "only a sweep is exact for costs this large"
        return EnginePrice()

    def better_price(self, aim: Certainty) -> Estimate:
        """Return the same."""
        return self.estimate()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Let the provers take turns until one completes the proof, for ``seconds`` CPU seconds without the seconds of
        compilation.

        If ``seconds`` is finite, limited questions and questions with a run directory are not tried.

        Parameters
        ----------
        seconds : float
            CPU seconds without compilation; infinite if the provers run until they end.
        stop : callable
            Returns True once another engine has answered.

        Raises
        ------
        BudgetError
            If a forced method does not fit in memory, or if neither costs nor a sweep in time do.
        """
        request, folder = self.request, self.request.folder
        if glances := math.isfinite(seconds):
            if request.effort.limited or folder is not None:
                return TurnEnded("it runs until it ends")
            until, told = working_seconds() + seconds, stop
            stop = lambda: told() or working_seconds() > until  # noqa: E731
        if folder is not None:
            folder.keep_question(request.options, request.effort)
            if (before := folder.answered()) is not None:
                return before
        options = request.options if stop is bool else request.on_host().options
        if stop is not bool:
            options = replace(options, memory=request.resources.host_bytes - request.reserved_bytes)
        try:
            task = Task.of(request.question, options, request.effort, request.started, folder, request.policy)
        except BudgetError:
            if (swept := self._swept_in_time(stop)) is None:
                raise
            return swept
        task.stop, task.sweep = stop, None if glances else self._swept
        if glances and self.sweep.prepared is not None:
            # the planned sweep comes next, so this time slice does not sweep
            task.known.limits = replace(task.known.limits, swept_cells=0)
        with resumable(None if folder is None else folder.path):
            found = task.watched(request.progress).kept_result()
        if glances and (found is None or found.status == "bounded"):
            return TurnEnded(f"unproved: {task.interval}")
        if found is not None:
            return found
        if stop():
            return TurnEnded("another engine answered first", hopeless=True)
        if request.effort.method != "auto":
            raise BudgetError(
                f"the method {request.effort.method!r} does not fit memory; {task.interval}; give a larger --memory, "
                "or run "
                "with --time for the best answer within a given time"
            )
        self.sweep.in_folder = False
        advice = f"{task.interval}; run with --time for the best answer within a given time"
        return TurnEnded(f"unproved: {task.interval}", hopeless=True, advice=advice)

    def _swept_in_time(self, stop: Stop) -> Result | None:
        """Sweep if bounds have no memory but a sweep fits in memory and in the time; return None otherwise."""
        effort = self.request.effort
        if effort.method != "auto" or effort.upper_bound is not None:
            return None
        price = self.sweep.estimate()
        if not isinstance(price, EnginePrice) or price.seconds > self.request.seconds:
            return None
        return self._swept(stop)

    def _swept(self, stop: Stop) -> Result | None:
        """Sweep every cell until ``stop`` says so, without storing the plan. Return None if this is impossible."""
        self.sweep.in_folder = False
        try:
            found = self.sweep.run(math.inf, stop)
        except (BudgetError, NotCompiledError):
            return None
        return found if isinstance(found, Result) else None
