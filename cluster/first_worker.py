"""Waiting for the first worker of a cluster that was just started, or for the reason why none comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .address import ClusterError
from .starting import last_sentence

# Deployers start workers in the background, where tornado logs what they raise.
_LOGGER = "tornado.application"
_GLANCE_SECONDS = 0.5
# Of the jobs that wait in a batch system, so many are named.
_MOST_JOBS = 3


class _Ear(logging.Handler):
    """Keeps what went wrong, a sentence each."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(last_sentence(error) if error else record.getMessage())


@contextmanager
def heard_failures() -> Iterator[Sequence[str]]:
    """Yield a list of what fails in the background meanwhile, which is not printed."""
    logger, ear = logging.getLogger(_LOGGER), _Ear()
    before = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [ear]
    try:
        yield ear.found
    finally:
        logger.propagate, logger.handlers = before


def wait_for_worker(cluster: Any, client: Any, name: str, patience_seconds: float, failures: Sequence[str]) -> None:
    """Wait for the first worker, for as long as one may still come.

    Parameters
    ----------
    cluster : distributed.deploy.Cluster
    client : distributed.Client
    name : str
        Of the cluster's class.
    patience_seconds : float
    failures : sequence of str
        What failed in the background so far.

    Raises
    ------
    ClusterError
        If none came, with the reason where one is known.
    """
    end = time.monotonic() + patience_seconds
    while True:
        left = end - time.monotonic()
        try:
            client.wait_for_workers(1, timeout=max(min(_GLANCE_SECONDS, left), 0.01))
            return
        except TimeoutError:
            if failures and not _is_under_way(cluster):
                raise ClusterError(f"{name} started no worker: {failures[-1]}") from None
        if left <= 0:
            raise ClusterError(f"{name} had no worker after {patience_seconds:g} s ('wait'){_why(cluster, failures)}")


def _is_under_way(cluster: Any) -> bool:
    """Whether a worker that was asked for may still come; clusters of other kinds do not say."""
    from distributed.core import Status

    workers = getattr(cluster, "workers", None)
    if not isinstance(workers, dict):
        return True
    states = (getattr(worker, "status", None) for worker in workers.values())
    return any(state in (Status.running, Status.starting) for state in states)


def _why(cluster: Any, failures: Sequence[str]) -> str:
    """What is known of workers that have not come: what failed last, or which jobs wait in a batch system."""
    if failures:
        return f": {failures[-1]}"
    workers = getattr(cluster, "workers", None)
    ids = [getattr(worker, "job_id", None) for worker in workers.values()] if isinstance(workers, dict) else []
    known = [str(each) for each in ids if each is not None][:_MOST_JOBS]
    return f": the batch system has not started job {', '.join(known)}" if known else ""
