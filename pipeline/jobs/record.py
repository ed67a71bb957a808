"""The stored facts of a job: the query, its options, its state, and the pulse of the process that drives it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ...cluster.driver import cluster_usage
from ...cluster.memory import peak_rss_bytes
from ...storage.faults import StorageError
from ...storage.files import Place
from ...storage.run_folder import JobDir
from ..errors import IncompatibleRunError, format_bytes, shown_number
from ..models.query import OPTION_ROWS
from ..options import Options, ProofOptions
from ..results.bounds import Number
from ..results.proof import plain_number
from ..results.remaining_time import ClosingBounds, ProgressEvent, SweptShare, duration, share_text

State = Literal["waiting", "running", "finished", "cancelled", "interrupted", "failed"]
#: Final states of a task; an interrupted task may be restarted by the cluster itself.
DONE = ("finished", "cancelled", "failed")
#: States in which no task works on a job any more.
ENDED = (*DONE, "interrupted")

# Options that a job does not store, because each start names its place again.
_ANEW = ("client", *(row.name for row in OPTION_ROWS.values() if not row.stored))


@dataclass(frozen=True)
class Record:
    """A job.

    Parameters
    ----------
    id : str
    model, query : str
        The file, and what is asked of it.
    scheduler : str
        Address of the cluster.
    key : str
        Of the task that drives the run; another one whenever the job is started again.
    options, effort : mapping
        How to plan and run, and how an optimum is proved.
    price : mapping of str to str
        The cost of the plan, as ``plan`` shows it.
    state : str
    message : str
        The error, in one sentence.
    exit_code : int
        The exit code of the command line for it.
    starts : int
        How often the task was started.
    submitted, started, ended : float
        Seconds since 1970; 0 for not yet.
    worker : str
        Address of the worker that drives the run.
    receipts : int
        Of finished chunks, when it was last started.
    """

    id: str
    model: str
    query: str
    scheduler: str
    key: str
    options: Mapping[str, Any]
    effort: Mapping[str, Any]
    price: Mapping[str, str] = field(default_factory=dict)
    state: State = "waiting"
    message: str = ""
    exit_code: int = 0
    starts: int = 0
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    worker: str = ""
    receipts: int = 0

    def begun(self, worker: str) -> Record:
        """The job as it is driven by a worker."""
        return replace(self, state="running", starts=self.starts + 1, started=time.time(), worker=worker)

    def at_end(self, state: State, message: str = "", exit_code: int = 0) -> Record:
        """The job as it is when no task works on it any more."""
        return replace(self, state=state, message=message, exit_code=exit_code, ended=time.time())

    def again(self, scheduler: str, key: str) -> Record:
        """The job as it waits to be started once more."""
        return replace(self, scheduler=scheduler, key=key, state="waiting", message="", exit_code=0, ended=0.0)

    def to_options(self, folder: Place, client: Any) -> Options:
        """Return the options of its run with a client."""
        return Options(client=client, workdir=folder, **self.options)

    def to_effort(self) -> ProofOptions:
        """Return how an optimum is proved."""
        return ProofOptions(**self.effort)


def kept_options(options: Options) -> dict[str, Any]:
    """Return the options that a job stores."""
    order = options.order if isinstance(options.order, str) else list(options.order)
    kept = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _ANEW}
    return {**kept, "order": order}


def kept_effort(effort: ProofOptions) -> dict[str, Any]:
    """Return the proof options that a job stores."""
    bound = effort.upper_bound
    return {**asdict(effort), "upper_bound": None if bound is None else str(bound)}


def read_record(job: JobDir) -> Record:
    """Read the record of a job.

    Raises
    ------
    IncompatibleRunError
        If there is none.
    """
    try:
        stored = job.read()
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    known = {f.name for f in fields(Record)}
    return Record(**{name: value for name, value in stored.items() if name in known})


def write_record(job: JobDir, record: Record) -> None:
    """Replace the record, and note a change of state in the log."""
    job.write(asdict(record))
    facts = {"message": record.message} if record.message else {}
    job.note(record.state, key=record.key, worker=record.worker, **facts)


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
