"""Tables of rows before all cells: where making functions dense takes longer, and where few entries are possible."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import BudgetError
from ..prepared import ROWS_PER_SECOND, SHORT_PATIENCE, Prepared
from ..row_trials import before_all_cells, rows_refused, trial_beside
from ..running import Answer, answered
from .asking import Asking
from .engine import Stop, Unfinished
from .offers import Bid, Certainty, EnginePrice
from .sweep_engine import SweepEngine


def _tried(trial: Prepared, notes: list[str]) -> Answer | Unfinished:
    """Answer by rows within what the trial may take."""
    from ....tasks.rows.memory_account import RowsNoRoomError, TooMuchWorkError

    try:
        return answered(trial, None, None, notes)
    except (RowsNoRoomError, TooMuchWorkError, BudgetError) as error:
        ended = "took too long" if isinstance(error, TooMuchWorkError) else "did not fit memory"
        return Unfinished(f"they {ended}", True, f"by rows it was tried first, {trial.why_rows}, and {ended}")


@dataclass
class EarlyRows:
    """Rows where functions are large, for less work than making them dense takes, and for the time that is given."""

    asking: Asking
    trial: Prepared | None = None

    def bid(self) -> Bid:
        """Return what joins may take."""
        asking = self.asking
        if asking.effort.method not in ("auto", "rows") or not asking.question.is_large:
            return "functions are small" if asking.effort.method in ("auto", "rows") else "another way was asked for"
        self.trial = before_all_cells(asking.question, asking.resources, asking.seconds)
        if self.trial is None:
            return rows_refused(asking.resources, stored=False) or "functions have many rows"
        return EnginePrice(self.trial.most_work / ROWS_PER_SECOND, certainty="planned")

    def better_price(self, aim: Certainty) -> Bid:
        """Return the same."""
        return self.bid()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | Unfinished:
        """Join rows."""
        assert self.trial is not None
        ended = _tried(self.trial, [])
        return Unfinished(ended.why, hopeless=True) if isinstance(ended, Unfinished) else ended


@dataclass
class RowTrial:
    """Rows over the tree of a sweep that is planned, for a small part of what that takes."""

    asking: Asking
    sweep: SweepEngine

    def bid(self) -> Bid:
        """Return whether rows may be tried at all."""
        return rows_refused(self.asking.resources, self.asking.has_stored_plan) or EnginePrice()

    def better_price(self, aim: Certainty) -> Bid:
        """Return that nobody knows."""
        return EnginePrice()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | Unfinished:
        """Join as many rows as that allows."""
        work = seconds * ROWS_PER_SECOND
        trial = trial_beside(self.sweep.plan(), work if self.asking.patient else min(work, SHORT_PATIENCE))
        if trial is None:
            return Unfinished("too many rows are possible", hopeless=True)
        return _tried(trial, self.asking.notes)
