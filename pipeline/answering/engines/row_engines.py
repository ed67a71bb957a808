"""Tables of rows before all cells: where making functions dense takes longer, and where few entries are possible."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from ....cluster.pool import SerialPool
from ....tasks.steps.light_dataclass import dataclass
from ...errors import BudgetError
from ..prepared import ROWS_PER_SECOND, SHORT_PATIENCE, Prepared
from ..row_trials import all_cells_seconds, before_all_cells, rows_refused, sampled_seconds, trial_beside
from ..running import Answer, run_of, tried_in
from .engine import Stop, TurnEnded
from .engine_options import ROWS, Certainty, EnginePrice, Estimate
from .request import QueryRequest
from .sweep_engine import SweepEngine

_LOG: Final = logging.getLogger(__name__)


def _tried(trial: Prepared, request: QueryRequest, notes: list[str]) -> Answer | TurnEnded:
    """Answer by rows within what the trial may take."""
    from ....tasks.rows.memory_account import RowsNoRoomError, TooMuchWorkError

    try:
        return tried_in(request.folder, trial, notes)
    except (RowsNoRoomError, TooMuchWorkError, BudgetError) as error:
        return _unfinished(trial, "took too long" if isinstance(error, TooMuchWorkError) else "did not fit memory")


def _unfinished(trial: Prepared, ended: str) -> TurnEnded:
    return TurnEnded(f"they {ended}", True, f"sparse tables were tried first ({trial.why_rows}), but they {ended}")


@dataclass
class EarlyRows:
    """Rows where functions are large, for less work than making them dense takes, and for the time that is given."""

    request: QueryRequest
    trial: Prepared | None = None

    def estimate(self) -> Estimate:
        """Return the price of the joins."""
        request = self.request
        if request.effort.method not in ("auto", "rows") or not request.question.is_large:
            return (
                "functions are small" if request.effort.method in ("auto", "rows") else "another method was requested"
            )
        self.trial = before_all_cells(request.question, request.resources, request.seconds)
        if self.trial is None:
            return rows_refused(request.resources, stored=False) or "functions have many rows"
        return EnginePrice(self.trial.most_work / ROWS_PER_SECOND, certainty="planned")

    def better_price(self, aim: Certainty) -> Estimate:
        """Return the same."""
        return self.estimate()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Join rows."""
        assert self.trial is not None
        ended = _tried(self.trial, self.request, [])
        return TurnEnded(ended.why, hopeless=True) if isinstance(ended, TurnEnded) else ended


@dataclass
class RowTrial:
    """Sparse tables over the tree of a planned sweep, for a small part of the sweep's predicted time."""

    request: QueryRequest
    sweep: SweepEngine
    expected: float | None = None

    def estimate(self) -> Estimate:
        """Return whether rows may be tried at all."""
        return rows_refused(self.request.resources, self.request.has_stored_plan) or EnginePrice()

    def better_price(self, aim: Certainty) -> Estimate:
        """Return an unknown price."""
        return EnginePrice()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Join as many rows as that allows.

        If samples expect more, the turn ends with a price, so that other engines get their time first.
        """
        lengths, whole = self.request.policy.lengths[ROWS], self.sweep.plan().plan
        swept = 0.0 if whole is None else all_cells_seconds(whole)
        least = lengths.part * swept
        longest = max(lengths.priced_part, lengths.part) * swept * ROWS_PER_SECOND
        most = longest if self.request.patient else min(longest, SHORT_PATIENCE)
        trial = trial_beside(self.sweep.plan(), most)
        if trial is None:
            return TurnEnded("its sparse tables may have too many rows", hopeless=True)
        from ....tasks.rows.memory_account import RowsNoRoomError

        if (expected := self.expected) is None:
            try:
                expected = self.expected = self._expected(trial, least)
            except (RowsNoRoomError, BudgetError):
                return _unfinished(trial, "did not fit memory")
            why = f"{expected:.2g} s are expected"
            if expected > lengths.price_margin * least and expected * ROWS_PER_SECOND > most:
                return TurnEnded(why, hopeless=True)
            if expected > least:
                return TurnEnded(why, price=EnginePrice(expected, certainty="planned"))
        allowed = min(max(least, lengths.price_margin * expected), max(seconds, least))
        trial = replace(trial, most_work=min(allowed * ROWS_PER_SECOND, most))
        return _tried(trial, self.request, self.request.notes)

    def _expected(self, trial: Prepared, seconds: float) -> float:
        """Return the seconds of a trial, estimated from samples.

        If sampling would take too long, return the allowed seconds.
        """
        lengths, plan = self.request.policy.lengths[ROWS], trial.plan
        assert plan is not None
        if not lengths.priced_part or len(plan.steps) * lengths.step_seconds > seconds:
            return seconds
        found = sampled_seconds(trial, replace(run_of(trial, SerialPool()), compiled=False, device=False))
        _LOG.info("rows: %.3g s expected from samples; all cells %.3g s", found, seconds / lengths.part)
        return found
