"""How far a run is: the events of progress, and the time that remains at the measured rate. Pure.

An event is a share of swept cells or rows, bounds that close, or an iteration. Each has a text for a person, and one
callback receives all of them.

The remaining time of a run with N cells, of which n were swept in s seconds since the first cells were counted, is

    (N - done) (s + w P) / (n + w N),

where P are the predicted seconds and w is a small weight: at first the prediction, soon the measured rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ...tasks.compiler.working_time import compiling_seconds
from ...tasks.steps.light_dataclass import dataclass
from ..errors import shown_number
from .bounds import Number, relative_gap

# The prediction counts as much as the measurement of this share of the cells.
_PREDICTED_SHARE: Final = 0.01


@dataclass(frozen=True)
class SweptShare:
    """How far a run is.

    Parameters
    ----------
    done, planned : int
        Cells; with sparse tables, rows at most.
    seconds_left : float, optional
        None if they are unknown.
    """

    done: int = 0
    planned: int = 0
    seconds_left: float | None = None

    @property
    def share(self) -> float:
        """Part of the cells that is done, 0 to 1."""
        return self.done / self.planned if self.planned else 0.0

    def text(self) -> str:
        """Return share and remaining time, as every display shows them."""
        return share_text(self.share, self.seconds_left)


@dataclass(frozen=True)
class ClosingBounds:
    """Both bounds on an optimum, None where one is not known yet, and the method that closes them."""

    lower: Number | None
    upper: Number | None
    way: str

    def text(self) -> str:
        """Return both bounds and how far they are apart, as a part of the larger one; or only what is tried."""
        if self.lower is None and self.upper is None:
            return self.way
        gap = "" if self.lower is None or self.upper is None else f", gap {relative_gap(self.lower, self.upper):.3g}"
        return f"{self.way}: at least {shown_number(self.lower)}, at most {shown_number(self.upper)}{gap}"


@dataclass(frozen=True)
class Iteration:
    """A finished iteration of a fit, and the log-likelihood after it."""

    number: int
    log_likelihood: float

    def text(self) -> str:
        """Return both numbers."""
        return f"iteration {self.number:,}: log-likelihood {self.log_likelihood:.8g}"


ProgressEvent = SweptShare | ClosingBounds | Iteration
OnProgress = Callable[[ProgressEvent], None]
"""Receives the events of a run."""


class SweptCells:
    """Adds up the swept cells of a run, and reports how far it is.

    Parameters
    ----------
    tell : callable
    planned : int
        Cells of the run.
    predicted : float, optional
        Seconds. Without a prediction, the remaining time is unknown until cells were swept.
    clock : callable, optional
        Returns seconds, by default without those that compiling took.
    """

    def __init__(
        self,
        tell: Callable[[SweptShare], None],
        planned: int,
        predicted: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._tell, self._planned, self._predicted = tell, planned, predicted
        self._clock = clock or _working_seconds
        self._done = self._shown = 0
        # Cells of earlier runs, and when this run counted its first cells: workers start before that.
        self._before: int | None = None
        self._begun: tuple[float, int] | None = None

    def __call__(self, cells: int) -> None:
        """Count more cells; those of the first report were done before, or in no time."""
        self._done = min(self._done + cells, self._planned)
        self._show(self._done)

    def underway(self, cells: int) -> None:
        """Report cells that workers swept since the first report, also in tasks that have not ended."""
        if self._before is not None:
            self._show(min(self._before + cells, self._planned))

    def _show(self, done: int) -> None:
        self._shown = max(self._shown, done)
        if self._before is None:
            self._before = done
        elif self._begun is None and done > self._before:
            self._begun = self._clock(), done
        start, first = self._begun or (self._clock(), self._shown)
        swept, seconds = float(self._shown - first), self._clock() - start
        if self._predicted is not None:
            swept, seconds = swept + _PREDICTED_SHARE * self._planned, seconds + _PREDICTED_SHARE * self._predicted
        left = (self._planned - self._shown) * seconds / swept if swept else None
        self._tell(SweptShare(self._shown, self._planned, left))


def _working_seconds() -> float:
    return time.monotonic() - compiling_seconds()


def share_text(share: float, seconds_left: float | None) -> str:
    """Return a share in percent, and the remaining time."""
    return f"{share:.0%}" + (f", {duration(seconds_left)} left" if seconds_left else "")


def duration(seconds: float) -> str:
    """Write seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
