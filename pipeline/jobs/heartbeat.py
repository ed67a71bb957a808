"""How far a job is: its driver writes a pulse at every beat; commands read it, for one job or for many."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from ...cluster.driver import cluster_usage
from ...cluster.memory import peak_rss_bytes
from ...storage.files import Place
from ...storage.job_folder import JobDir
from ..errors import format_bytes, shown_number
from ..results.bounds import Number
from ..results.proof import plain_number
from ..results.remaining_time import ClosingBounds, ProgressEvent, SweptShare, duration, share_text
from .record import Record

# At every such beat the cluster is asked, and the log gets a line if the run went on.
_ASKED_BEATS: Final = 5


@dataclass
class Pulse:
    """Writes how far a run is, at every beat.

    Parameters
    ----------
    job : JobDir
    client : distributed.Client
    """

    job: JobDir
    client: Any
    _swept: SweptShare = field(default_factory=SweptShare)
    _bounds: tuple[Any, Any, str] | None = None
    _usage: tuple[int, int] = (0, 0)
    _beats: int = 0
    _said: tuple[Any, ...] = (0, 0, None)

    def __post_init__(self) -> None:
        """Begin with the last pulse, because the run continues where the earlier driver ended it."""
        before = self.job.read_pulse()
        self._swept = SweptShare(before.get("done", 0), before.get("planned", 0))
        self._bounds = before.get("bounds") and tuple(before["bounds"])

    def progress(self, event: ProgressEvent) -> None:
        """Record how far the run is, or the interval of an optimum and the present method."""
        if isinstance(event, SweptShare):
            self._swept = event
        elif isinstance(event, ClosingBounds):
            self._bounds = plain_number(event.lower), plain_number(event.upper), event.way

    def beat(self) -> None:
        """Write, now and then with a look at the cluster and a line of the log."""
        if self._beats % _ASKED_BEATS == 0:
            workers, peak = cluster_usage(self.client)
            self._usage = workers or self._usage[0], max(peak, self._usage[1], peak_rss_bytes())
        self._beats += 1
        self.job.write_pulse(self._facts())
        said = (self._swept.done, self._swept.planned, self._bounds)
        if self._beats % _ASKED_BEATS == 0 and said != self._said:
            self._said = said
            facts = self._facts()
            self.job.note("progress", **{name: facts[name] for name in ("done", "planned", "bounds") if facts[name]})

    def _facts(self) -> dict[str, Any]:
        workers, peak = self._usage
        return {
            "at": time.time(),
            "done": self._swept.done,
            "planned": self._swept.planned,
            "left": self._swept.seconds_left,
            "bounds": self._bounds and list(self._bounds),
            "workers": workers,
            "peak_bytes": peak,
        }


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Parameters
    ----------
    swept : SweptShare
        The seconds left are those when its driver last wrote.
    bounds : ClosingBounds
        The interval of an optimum, if bounds prove it, and the present method.
    workers : int
        Of the cluster.
    peak_bytes : int
        The most memory that one of them was seen to have.
    """

    swept: SweptShare = field(default_factory=SweptShare)
    bounds: ClosingBounds = field(default_factory=lambda: ClosingBounds(None, None, ""))
    workers: int = 0
    peak_bytes: int = 0

    @classmethod
    def of(cls, pulse: Mapping[str, Any], started: float) -> Progress:
        """Read a pulse."""
        left = pulse.get("left") if pulse.get("at", started) >= started else None  # not of an earlier start
        return cls(
            swept=SweptShare(pulse.get("done", 0), pulse.get("planned", 0), left),
            bounds=ClosingBounds(*(pulse.get("bounds") or (None, None, ""))),
            workers=pulse.get("workers", 0),
            peak_bytes=pulse.get("peak_bytes", 0),
        )


#: Names of jobs among the keys and the published names of a scheduler.
PREFIX: Final = "bucketflow-job-"


@dataclass(frozen=True)
class JobFacts:
    """The displayed facts of a job.

    Parameters
    ----------
    id, model, query, state, message, folder, scheduler : str
    share : float
        Part of its cells that is done, 0 to 1.
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
        """Return labelled lines; inapplicable facts are omitted."""
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
        return share_text(self.share, self.seconds_left if self.state == "running" else None)


def facts_of(folder: Place, record: Record, progress: Progress) -> JobFacts:
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
        share=1.0 if finished else progress.swept.share,
        seconds_left=progress.swept.seconds_left if running else None,
        since=record.started,
        running_seconds=max(until - record.started, 0.0) if record.started and until else 0.0,
        lower=progress.bounds.lower,
        upper=progress.bounds.upper,
        workers=progress.workers,
        peak_bytes=progress.peak_bytes,
        starts=record.starts,
    )
