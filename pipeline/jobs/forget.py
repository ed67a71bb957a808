"""Forgetting jobs: a scheduler and a run directory keep nothing of a job, and the answer of the run stays."""

from __future__ import annotations

import re
import time
from typing import Any

from ...cluster import driver
from ...storage.job_folder import JobDir
from ..errors import BucketflowError, ModelError
from ..local_paths import folder_path
from ..machine.resources import connected
from .heartbeat import PREFIX
from .job import Job, jobs
from .record import ENDED

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
