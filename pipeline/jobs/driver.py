"""The task that drives a run on a cluster: it needs the run directory, and no process that waits for it."""

from __future__ import annotations

import traceback
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...cluster import driver
from ...cluster.address import ClusterError
from ...cluster.connect import verify_workers
from ...cluster.driver import Driver, worker_address
from ...storage import ledger
from ...storage.faults import StorageError
from ...storage.locks import LEASE_SECONDS
from ...storage.run_folder import JobDir
from ..answering.answer_question import solved
from ..api.stored_runs import stored_question
from ..errors import BucketflowError, StoppedError
from ..local_paths import folder_path
from .record import DONE, PREFIX, Pulse, Record, read_record, write_record

if TYPE_CHECKING:
    from ..answering.running import Answer

_OUT_OF_MEMORY = "out of memory on the worker that drives the run; give a smaller --memory, so that the plan uses less"


def drive(folder: str, key: str) -> str:
    """Task: run, or continue, the job of a run directory; return the state that it ended in."""
    job = JobDir(folder_path(folder))
    # a worker that lost its scheduler may hold the run until its lease ends
    with job.claimed(LEASE_SECONDS):
        record = read_record(job)
        if record.key != key or record.state in DONE:
            return record.state  # a task that Dask repeats, or that was replaced
        finished = len(ledger.load(job.run / "tables"))
        if record.state == "running" and finished > record.receipts:
            return _handed_on(job, replace(record, receipts=finished))
        record = replace(record.begun(worker_address()), receipts=finished)
        if not _kept(job, record):
            return "interrupted"
        ended = _Run(job, record).ended()
        if not _kept(job, ended):
            return "interrupted"
        if ended.state in DONE:
            _withdraw(ended)
        return ended.state


def _withdraw(record: Record) -> None:
    """Remove a job that ended from the scheduler; its run directory says how it ended."""
    from distributed import get_client

    with suppress(OSError):  # the scheduler is gone, and with it what it knew
        driver.withdraw(get_client(), PREFIX + record.id, record.key)


def _kept(job: JobDir, record: Record) -> bool:
    """Write the record; on a full disk tell the scheduler instead why the job does not go on."""
    try:
        write_record(job, record)
    except StorageError as error:
        from distributed import get_client

        _announce(get_client(), job, record, record.message or f"{error}; free some space and resume")
        return False
    return True


def _handed_on(job: JobDir, record: Record) -> str:
    """Start another task in place of this one, if its worker died after some progress.

    Dask gives up a task whose workers died several times, as it may have killed them. Then nothing more was done.
    """
    from distributed import get_client

    again = record.again(record.scheduler, new_key(record.id))
    _start(get_client(), job, again)  # it waits for our lock
    write_record(job, again)
    return again.state


class _Run:
    """A run under way, and how it ends."""

    def __init__(self, job: JobDir, record: Record):
        self._job, self._record = job, record
        self._ended = record.at_end("interrupted", "the worker that drives the run ended it")
        self._pulse: Pulse | None = None
        self._driver = Driver(record.key, self._beat)

    def ended(self) -> Record:
        """Run, and return the record of how it ended."""
        self._driver.run(self._run)
        self._beat()
        return self._ended

    def _beat(self) -> None:
        if self._pulse is not None:
            self._pulse.beat()

    def _run(self, client: Any) -> None:
        """Answer in a thread of its own; any failure is stored in the record."""
        try:
            self._pulse = Pulse(self._job, client)
            verify_workers(client)
            found = self._answer(client)
            half = self._driver.stopped and getattr(found, "status", "") == "bounded"
            self._ended = self._cancelled() if half else self._record.at_end("finished")
        except KeyboardInterrupt:
            self._ended = self._cancelled()
        except StoppedError as error:
            stopped = self._driver.stopped
            self._ended = self._cancelled() if stopped else self._record.at_end("interrupted", str(error), 4)
        except BucketflowError as error:
            self._fail(client, str(error), error.exit_code)
        except (ClusterError, StorageError) as error:
            self._fail(client, str(error), 2)
        except MemoryError:
            self._fail(client, _OUT_OF_MEMORY, 3)
        except Exception as error:
            self._job.note("unexpected", traceback=traceback.format_exc())
            self._fail(client, f"{type(error).__name__}: {error}", 1)

    def _fail(self, client: Any, message: str, code: int) -> None:
        """Fail, unless it is the cluster that went away: then another worker, or a later start, goes on."""
        lost = client.status != "running"
        self._ended = self._record.at_end("interrupted" if lost else "failed", message, 4 if lost else code)

    def _cancelled(self) -> Record:
        return self._record.at_end("cancelled", "", 4)

    def _answer(self, client: Any) -> Answer:
        assert self._pulse is not None
        record, pulse = self._record, self._pulse
        options = record.to_options(self._job.run, client)
        _, question = stored_question(self._job.run)
        return solved(question, options, record.to_effort(), pulse.progress)


def new_key(name: str) -> str:
    """Return a key for the task of a job, of the kind ``job``: Dask takes equal keys for the same work."""
    return f"job-{name.replace('-', '_')}-{uuid.uuid4().hex[:8]}"


def hand_over(client: Any, job: JobDir) -> None:
    """Start the task of a job, and let clients of the scheduler know where it is."""
    record = read_record(job)
    _announce(client, job, record)
    _start(client, job, record)


def _announce(client: Any, job: JobDir, record: Record, why: str = "") -> None:
    told = {"folder": str(job.run.absolute()), "model": record.model, "why": why}
    driver.announce(client, PREFIX + record.id, told)


def _start(client: Any, job: JobDir, record: Record) -> None:
    folder, priority = str(job.run.absolute()), int(record.options["priority"])
    driver.start(client, record.key, drive, folder, record.key, priority=priority, model=record.model)
