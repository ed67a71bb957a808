"""What is shown of jobs, one or many."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..errors import format_bytes, shown_number
from ..results.bounds import Number
from .heartbeat import Progress
from .record import Record

#: Names of jobs among the keys and the published names of a scheduler.
PREFIX: Final = "bucketflow-job-"


@dataclass(frozen=True)
class JobFacts:
    """What is shown of a job.

    Parameters
    ----------
    id, model, query, state, message, folder, scheduler : str
    share : float
        Part of its bytes that is done, 0 to 1.
    seconds_left : float or None
        At the rate so far.
    since : float
        When it was last started, in seconds since 1970; 0 for not yet.
    running_seconds : float
        Since it was last started, until its end.
    lower, upper : number or None
        Bounds on an optimum.
    workers : int
    peak_bytes : int
        The most memory that a worker was seen to have.
    starts : int
    """

    id: str
    model: str
    query: str
    state: str
    message: str
    folder: str
    scheduler: str
    share: float
    seconds_left: float | None
    since: float
    running_seconds: float
    lower: Number | None
    upper: Number | None
    workers: int
    peak_bytes: int
    starts: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines for a person; what does not apply is left out."""
        rows = [("job", self.id), ("model", self.model), ("query", self.query), ("state", self.state)]
        rows += [("message", self.message)] if self.message else []
        rows += [("done", self.done())] if self.share or self.upper is not None or self.lower is not None else []
        if self.since:
            since = datetime.fromtimestamp(self.since, UTC).isoformat(sep=" ", timespec="seconds")
            rows.append(("running since", f"{since}, {duration(self.running_seconds)}"))
        if self.workers:
            rows.append(("workers", f"{self.workers}, the largest had {format_bytes(self.peak_bytes)}"))
        rows += [("starts", str(self.starts))] if self.starts > 1 else []
        return [*rows, ("directory", self.folder)]

    def done(self) -> str:
        """How far it is, in a few words."""
        if not self.share and (self.lower is not None or self.upper is not None):
            return f"at least {shown_number(self.lower)}, at most {shown_number(self.upper)}"
        left = f", {duration(self.seconds_left)} left" if self.seconds_left and self.state == "running" else ""
        return f"{self.share:.0%}{left}"


def facts_of(folder: Path, record: Record, progress: Progress) -> JobFacts:
    """Put together what is shown of a job."""
    running = record.state == "running"
    finished = record.state == "finished"
    until = time.time() if running else record.ended
    return JobFacts(
        id=record.id,
        model=record.model,
        query=record.query,
        state=f"{record.state}: resume" if record.state == "interrupted" else record.state,
        message=record.message,
        folder=str(folder),
        scheduler=record.scheduler,
        share=1.0 if finished else progress.share,
        seconds_left=progress.seconds_left if running else None,
        since=record.started,
        running_seconds=max(until - record.started, 0.0) if record.started and until else 0.0,
        lower=progress.lower,
        upper=progress.upper,
        workers=progress.workers,
        peak_bytes=progress.peak_bytes,
        starts=record.starts,
    )


def duration(seconds: float) -> str:
    """Write seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
