"""A job as its user holds it: nothing but its run directory, asked anew every time; and forgetting ended jobs."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any, TypeVar

from ...cluster import driver
from ...cluster.address import GLANCE_SECONDS
from ...cluster.connect import Link
from ...storage.faults import file_fault
from ...storage.files import Place
from ...storage.locks import PAUSE_SECONDS
from ...storage.object_store import ObjectPath
from ...storage.run_folder import JobDir, job_folders, stored_bounds, stored_plan, stored_result
from ..answering.run_folder import resumable
from ..api.stored_runs import move_model, stored_question
from ..drawings.html import Html, labelled
from ..drawings.shown import aligned
from ..errors import BucketflowError, ModelError, StoppedError, checks_keywords, public, size_option
from ..local_paths import folder_path
from ..machine.resources import connected
from ..models.model import Model
from ..options import parse_size, verify_synchronous
from ..results.posteriors import Marginals, marginals_before
from ..results.result import Result, answered_before
from .driver import hand_over, new_key
from .record import DONE, ENDED, PREFIX, JobFacts, Progress, Record, State, facts_of, read_record, write_record

T = TypeVar("T")


@public
class Job:
    """A run that a cluster drives by itself.

    Parameters
    ----------
    folder : path
        Its run directory.
    client : distributed.Client, optional
        Of its cluster; by default a connection is opened where one is needed.

    Examples
    --------
    >>> import bucketflow
    >>> from distributed import Client
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     job = bucketflow.submit("satellite", client=client, workdir="run")
    ...     answer = job.result(timeout=60)
    >>> bucketflow.Job("run").status
    'finished'
    """

    def __init__(self, folder: str | PathLike[str] | ObjectPath, client: Any = None):
        verify_synchronous(client)
        self.folder: Place = folder_path(folder)
        self._dir = JobDir(self.folder)
        self._client = client

    @property
    def record(self) -> Record:
        """The stored record of the job."""
        return read_record(self._dir)

    @property
    def id(self) -> str:
        """Its name."""
        return self.record.id

    @property
    def status(self) -> State:
        """How it stands: waiting, running, finished, cancelled, interrupted or failed.

        Where neither its worker nor the cluster knows it any more, it was interrupted.
        """
        return self.standing().state

    def standing(self) -> Record:
        """Return the record, with the state that is true now."""
        with Link(self._client) as link:
            return self._standing(link)

    def _standing(self, link: Link) -> Record:
        record = self.record
        if record.state in DONE:
            return record
        if self._dir.is_claimed():
            return record if record.state == "running" else record.begun("")
        if link.asked(record.scheduler, lambda client: driver.is_known(client, record.key)):
            return record if record.state == "waiting" else record.again(record.scheduler, record.key)
        record = self.record  # it may have ended while the cluster was asked
        if record.state in ENDED:
            return record
        return record.at_end("interrupted", self._why(record, link), 4)

    def _why(self, record: Record, link: Link) -> str:
        def why(client: Any) -> str:
            told = driver.announced_as(client, PREFIX + record.id).get("why")
            return told or self._explained(driver.failure_of(client, record.key))

        return link.asked(record.scheduler, why) or f"the cluster at {record.scheduler} no longer knows it"

    def _explained(self, failure: str) -> str:
        """Return why the cluster gave the job up; after deaths of workers, with a smaller budget that may help."""
        if not failure.startswith("KilledWorker"):
            return failure
        plan = stored_plan(self.folder)["plan"]
        less = size_option(plan["peak_bytes"] // 2) if plan else "SIZE"
        died = "several workers died of the task that drives it, probably short of memory"
        return f"{died}; bucketflow resume {self.folder} --memory {less}"

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress.of(self._dir.read_pulse(), self.record.started)

    @property
    def facts(self) -> JobFacts:
        """Everything that is shown of it."""
        return facts_of(self.folder, self.standing(), self.progress)

    def log(self) -> list[dict[str, Any]]:
        """Return what happened: one mapping a line, with ``time`` and ``event``."""
        return self._dir.notes()

    def wait(self, timeout: float | None = None, seen: Callable[[Job], None] | None = None) -> Record:
        """Wait until no task works on it any more; ``seen`` is called at every look.

        Raises
        ------
        TimeoutError
            After this many seconds.
        """
        with Link(self._client) as link:
            return self._ended(link, timeout, seen)

    def _ended(self, link: Link, timeout: float | None, seen: Callable[[Job], None] | None = None) -> Record:
        end = None if timeout is None else time.monotonic() + timeout
        pause = PAUSE_SECONDS
        while True:
            record = self._standing(link)
            if seen is not None:
                seen(self)
            if record.state in ENDED:
                return record
            left = pause if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {record.id} is {record.state}")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, GLANCE_SECONDS)

    def result(self, timeout: float | None = None, model: Model | None = None) -> Result | Marginals:
        """Wait for the answer.

        Parameters
        ----------
        timeout : float, optional
            Seconds.
        model : Model, optional
            The job's, where it is in memory already.

        Raises
        ------
        TimeoutError
            If there is no answer yet.
        StoppedError
            If the job was cancelled or interrupted.
        BucketflowError
            If it failed, with its own sentence and exit code.
        """
        self.finished(timeout)
        stored, asked = self.answer(), None
        if model is None:
            _, asked = stored_question(self.folder)
            model = asked.model
        if "marginals" in stored:
            return marginals_before(stored, model, max_marginals=self.record.query == "max-marginals")
        return answered_before(stored, model, None, stored["seconds"].get("plan", 0.0))

    def finished(self, timeout: float | None = None) -> None:
        """Wait until there is an answer; raises what :meth:`result` does."""
        record = self.wait(timeout)
        if record.state == "failed":
            failure = BucketflowError(record.message)
            failure.exit_code = record.exit_code
            raise failure
        if record.state != "finished":
            why = f" ({record.message})" if record.message else ""
            again = "" if "bucketflow resume" in why else f"; bucketflow resume {self.folder}"
            raise StoppedError(f"job {record.id} was {record.state}{why}{again}")

    def answer(self) -> dict[str, Any]:
        """Return the answer as ``--json`` prints it; for an unproved optimum, the bounds."""
        found = stored_result(self.folder) or stored_bounds(self.folder)
        if found is None:
            raise StoppedError(f"the answer in {self.folder} is damaged; bucketflow resume {self.folder}")
        return {name: what for name, what in found.items() if name != "steps"}

    def cancel(self) -> State:
        """Stop it within seconds, so that it can be resumed; return its state then.

        Raises
        ------
        BucketflowError
            If its cluster cannot be asked.
        """
        asked = ""
        with Link(self._client) as link:
            while (record := self._standing(link)).state not in ENDED:
                if record.key != asked:  # another task drives it where a worker died just now
                    asked = self._asked_to_stop(record, link)
                with suppress(TimeoutError):
                    return self._ended(link, GLANCE_SECONDS).state
        return record.state

    def _asked_to_stop(self, record: Record, link: Link) -> str:
        client = link.client(record.scheduler)
        if client is None:
            raise BucketflowError(f"no Dask scheduler answers at {record.scheduler} to cancel job {record.id}")
        driver.ask_to_stop(client, record.key)
        self._dir.note("cancelling", key=record.key)
        return record.key

    def ask_scheduler(self, address: str, question: Callable[[Any], T]) -> T | None:
        """Return what a question finds with a client of a scheduler; None if the scheduler is gone."""
        with Link(self._client) as link:
            return link.asked(address, question)

    def resume(
        self,
        *,
        scheduler: str | None = None,
        client: Any = None,
        memory: int | str | None = None,
        model: str | PathLike[str] | None = None,
    ) -> Job:
        """Hand it to its cluster, or to another one, again.

        Parameters
        ----------
        memory : int or str, optional
            With less memory than its plan needs, the job is planned again.
        model : path, optional
            The model's file, if it has moved; all workers must see it.

        Raises
        ------
        BucketflowError
            If it is not stopped, or no cluster can take it.
        """
        if memory is not None:
            # a size that is no size is refused before a cluster is reached
            parse_size(memory)
        record = self.standing()
        if record.state in ("waiting", "running"):
            raise BucketflowError(f"job {record.id} is {record.state} at {record.scheduler}")
        if record.state == "finished":
            return self
        with resumable(self.folder), connected(client, scheduler or record.scheduler) as opened:
            again = record.again(opened.scheduler.address, new_key(record.id))
            if model is not None:
                move_model(self.folder, model)
                again = replace(again, model=stored_question(self.folder)[1].model.source)
            if memory is not None:
                again = replace(again, options={**again.options, "memory": memory})
            write_record(self._dir, again)
            hand_over(opened, self._dir)
        return Job(self.folder, client)

    def __await__(self) -> Generator[Any, None, Result | Marginals]:
        return asyncio.to_thread(self.result).__await__()

    def __repr__(self) -> str:
        return aligned(self.facts.rows())

    def _repr_html_(self) -> str:
        facts = self.facts
        done = f"<progress value='{facts.share:.4f}' max='1' aria-label='fraction done'>{facts.share:.0%}</progress>"
        return Html(labelled(facts.rows()) + done)._repr_html_()


# Finding jobs: in a folder of run directories, or among the jobs of a scheduler.


@public
@checks_keywords
def jobs(place: str | PathLike[str] | None = None, *, scheduler: str | None = None, client: Any = None) -> list[Job]:
    """Return the jobs in a folder of run directories, or the jobs of a scheduler.

    Raises
    ------
    ModelError
        If there is no such folder.
    BucketflowError
        If no scheduler answers.

    Examples
    --------
    >>> import bucketflow
    >>> from distributed import Client
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     job = bucketflow.submit("satellite", client=client, workdir="runs/first")
    ...     answer = job.result(timeout=60)
    >>> [job.status for job in bucketflow.jobs("runs")]
    ['finished']
    """
    if place is not None:
        try:
            folders = job_folders(folder_path(place))
        except OSError as error:
            raise ModelError(
                f"{place} is not a folder of run directories: {file_fault(error, str(place), noun='folder')}"
            ) from None
        return [Job(folder, client) for folder in folders]
    if scheduler is None and client is None:
        raise ModelError("give a folder of run directories, or a --scheduler, to list its jobs")
    with connected(client, scheduler, with_workers=False) as opened:
        known = driver.announced(opened, PREFIX)
    return [Job(found["folder"], client) for found in known.values()]


def find_job(name: str, scheduler: str | None = None) -> Job:
    """Return the job of a run directory, or of an id that a scheduler knows.

    Raises
    ------
    BucketflowError
        If there is none.
    """
    if JobDir(folder_path(name)).holds_job():
        return Job(name)
    if scheduler is None:
        raise BucketflowError(f"{name} is not the run directory of a job; to find one by its id, give its --scheduler")
    for job in jobs(scheduler=scheduler):
        if JobDir(job.folder).holds_job() and job.id == name:
            return job
    raise BucketflowError(
        f"the scheduler at {scheduler} knows no job {name!r} whose run directory is seen here; "
        "it forgets a job that ended: name such a job by its run directory"
    )


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_age(text: str) -> float:
    """Return the seconds of a text such as ``30d``, ``12h`` or ``90m``.

    Raises
    ------
    ModelError
        If the text has no such form.

    Examples
    --------
    >>> parse_age("30d"), parse_age("1.5h")
    (2592000.0, 5400.0)
    """
    parts = _AGE.fullmatch(text.strip())
    if parts is None:
        raise ModelError(f"{text!r} is not an age; write for example 30d, 12h or 90m")
    return float(parts[1]) * _SECONDS[parts[2]]


def forget(name: str, scheduler: str | None = None) -> str:
    """Forget an ended job, and return its id.

    Parameters
    ----------
    name : str
        The run directory, or an id that the scheduler knows.
    scheduler : str, optional
        The scheduler that knows the id; of a run directory, the scheduler of the job by default.

    Raises
    ------
    BucketflowError
        If there is no such job, or the job has not ended.
    """
    if JobDir(folder_path(name)).holds_job():
        return forget_job(Job(name), scheduler)
    if scheduler is None:
        raise BucketflowError(
            f"{name} is not the run directory of a job; to name a job by its id, give its --scheduler"
        )
    with connected(None, scheduler, with_workers=False) as client:
        known = driver.announced(client, PREFIX).get(PREFIX + name)
        if known is None:
            raise BucketflowError(f"the scheduler at {scheduler} knows no job {name!r}")
        if not JobDir(folder_path(known["folder"])).holds_job():
            driver.withdraw(client, PREFIX + name)
            return name
    return forget_job(Job(known["folder"]), scheduler)


def forget_job(job: Job, scheduler: str | None = None) -> str:
    """Remove a job from its scheduler, if that still runs, and from its run directory; return its id.

    Raises
    ------
    BucketflowError
        If the job has not ended.
    """
    record = job.standing()
    if record.state not in ENDED:
        raise BucketflowError(f"job {record.id} is {record.state}; cancel it first: bucketflow cancel {job.folder}")

    def withdraw(client: Any) -> bool:
        driver.withdraw(client, PREFIX + record.id, record.key)
        return True

    job.ask_scheduler(scheduler or record.scheduler, withdraw)
    JobDir(job.folder).remove()
    return record.id


def prune(seconds: float, place: str | None = None, scheduler: str | None = None) -> list[str]:
    """Forget the jobs that ended before a time, and return their ids.

    Parameters
    ----------
    seconds : float
        Age of the youngest job that is forgotten, since its end.
    place : str, optional
        A folder of run directories.
    scheduler : str, optional
        By default, and without ``place``, the jobs that this scheduler knows.

    Raises
    ------
    BucketflowError
        If the folder or the scheduler is missing.
    """
    latest, forgotten = time.time() - seconds, []
    for job in jobs(place, scheduler=scheduler):
        if not JobDir(job.folder).holds_job():
            continue  # its directory is not visible here: it is forgotten by its id
        record = job.record
        if record.state in ENDED and record.ended <= latest:
            forgotten.append(forget_job(job, scheduler))
    return forgotten
