"""The stored facts of a job: the query, its options, and its state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from ...storage.files import Place
from ...storage.job_folder import JobDir
from ...storage.spec import StorageError
from ..errors import IncompatibleRunError
from ..models.option_rows import OPTION_ROWS
from ..options import Options, ProofOptions

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
