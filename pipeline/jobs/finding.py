"""Finding jobs: in a folder of run directories, or among those that a scheduler was given."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from ...cluster import coordination
from ...storage.folders.jobdir import JobDir, job_folders
from ..errors import BucketflowError, ModelError
from ..resources import connected
from .job import Job
from .listing import PREFIX


def jobs(place: str | PathLike[str] | None = None, *, scheduler: str | None = None, client: Any = None) -> list[Job]:
    """Return the jobs of a folder of run directories, or those that a scheduler was given.

    Raises
    ------
    ModelError
        If there is no such folder.
    BucketflowError
        If no scheduler answers.
    """
    if place is not None:
        try:
            folders = job_folders(Path(place))
        except OSError as error:
            raise ModelError(f"{place} is not a folder of run directories: {error.strerror or error}") from None
        return [Job(folder, client) for folder in folders]
    if scheduler is None and client is None:
        raise ModelError("whose jobs: give a folder of run directories, or a --scheduler")
    with connected(client, scheduler, with_workers=False) as opened:
        known = coordination.announced(opened, PREFIX)
    return [Job(found["folder"], client) for found in known.values()]


def find_job(name: str, scheduler: str | None = None) -> Job:
    """Return the job of a run directory, or of an id that a scheduler knows.

    Raises
    ------
    BucketflowError
        If there is none.
    """
    if JobDir(Path(name)).holds_job():
        return Job(name)
    if scheduler is None:
        raise BucketflowError(f"{name} is not the run directory of a job; to find one by its id, give its --scheduler")
    for job in jobs(scheduler=scheduler):
        if JobDir(job.folder).holds_job() and job.id == name:
            return job
    raise BucketflowError(f"the scheduler at {scheduler} was given no job {name!r} whose run directory is seen here")
