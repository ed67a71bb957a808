"""Optima by the portfolio of provers, which sweeps what is left itself once that is cheaper."""

from __future__ import annotations

import math
from dataclasses import replace

from ....records import dataclass
from ....tasks.compiler.compile_limits import NotCompiledError
from ....tasks.compiler.working_time import working_seconds
from ...errors import BudgetError
from ...results.result import Result
from ..optimum import Task
from ..question_sizes import rounded, tables_fit
from ..run_folder import resumable
from ..running import Answer
from .asking import Asking
from .engine import Stop, Unfinished
from .offers import Bid, Certainty, EnginePrice
from .sweep_engine import SweepEngine


@dataclass
class BoundsEngine:
    """An optimum as bounds that close."""

    asking: Asking
    sweep: SweepEngine

    def bid(self) -> Bid:
        """Return whether there is memory for tables, and whether bounds can be exact."""
        asking = self.asking
        if asking.effort.limited or asking.effort.method != "auto":
            return EnginePrice()
        if not tables_fit(asking.question, asking.options):
            return "tables of the model do not fit memory"
        if rounded(asking.question):
            return "only a sweep is exact for costs this large"
        return EnginePrice()

    def better_price(self, aim: Certainty) -> Bid:
        """Return an unknown price."""
        return EnginePrice()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | Unfinished:
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
        asking, folder = self.asking, self.asking.folder
        if glances := math.isfinite(seconds):
            if asking.effort.limited or folder is not None:
                return Unfinished("it runs until it ends")
            until, told = working_seconds() + seconds, stop
            stop = lambda: told() or working_seconds() > until  # noqa: E731
        if folder is not None:
            folder.keep_question(asking.options, asking.effort)
            if (before := folder.answered()) is not None:
                return before
        options = asking.options if stop is bool else asking.on_host().options
        if stop is not bool:
            options = replace(options, memory=asking.resources.host_bytes - asking.reserved_bytes)
        try:
            task = Task.of(asking.question, options, asking.effort, asking.started, folder, asking.policy)
        except BudgetError:
            if (swept := self._swept_in_time(stop)) is None:
                raise
            return swept
        task.stop, task.sweep = stop, None if glances else self._swept
        with resumable(None if folder is None else folder.path):
            found = task.watched(asking.watch).kept_result()
        if glances and (found is None or found.status == "bounded"):
            return Unfinished(f"unproved: {task.interval}")
        if found is not None:
            return found
        if stop():
            return Unfinished("another engine answered first", hopeless=True)
        if asking.effort.method != "auto":
            raise BudgetError(
                f"the method {asking.effort.method!r} does not fit memory; {task.interval}; give a larger --memory, "
                "or run "
                "with --time for the best answer within a given time"
            )
        self.sweep.in_folder = False
        advice = f"{task.interval}; run with --time for the best answer within a given time"
        return Unfinished(f"unproved: {task.interval}", hopeless=True, advice=advice)

    def _swept_in_time(self, stop: Stop) -> Result | None:
        """Sweep if bounds have no memory but a sweep fits in memory and in the time; return None otherwise."""
        effort = self.asking.effort
        if effort.method != "auto" or effort.upper_bound is not None:
            return None
        price = self.sweep.bid()
        if not isinstance(price, EnginePrice) or price.seconds > self.asking.seconds:
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
