"""Addresses of schedulers: written correctly, and a scheduler listens there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

# Seconds of silence before a message tells the user the reason for waiting.
NOTICE_SECONDS = 1.0

_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")
# A scheduler that listens answers within this.
ANSWER_SECONDS = 5.0
# Seconds to wait for a scheduler, and then for its first worker: both may have been started a moment ago. A scheduler
# listens 2 seconds after its start; a worker may have to be placed on another machine first.
LISTENING_SECONDS = ANSWER_SECONDS
PATIENCE_SECONDS = 3 * ANSWER_SECONDS
# How often a process looks whether a task or a job ended, and whether its worker is still there.
GLANCE_SECONDS = 1.0
# A scheduler that answered before is gone if it does not answer within this.
GONE_SECONDS = 2.0
# How often a state that changes in another process is looked at or reported.
LOOK_SECONDS = 0.25


class ClusterError(Exception):
    """No usable cluster at the given address."""


class ClusterLostError(ClusterError):
    """A cluster that went away in the middle of a run."""


class WorkersDiedError(ClusterLostError):
    """Several workers died of one task, probably short of memory."""


@contextmanager
def connected(client: Any) -> Iterator[None]:
    """Raise one error if the scheduler of a client is gone; a client that knows it does not call the scheduler."""
    from concurrent.futures import CancelledError

    if client.status != "running":
        raise disconnected()
    try:
        yield
    except (CancelledError, OSError):
        raise disconnected() from None


def disconnected() -> ClusterLostError:
    """Return the error about a scheduler that went away."""
    return ClusterLostError("the connection to the scheduler was lost")


_listeners: list[Callable[[str], object]] = []


@contextmanager
def waiting_reported(report: Callable[[str], object]) -> Iterator[None]:
    """Call ``report`` with a sentence whenever this process waits for a scheduler or its workers, until the block ends.

    Parameters
    ----------
    report : callable
        Called from another thread.
    """
    _listeners.append(report)
    try:
        yield
    finally:
        _listeners.remove(report)


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Report what is waited for, if the block takes longer than a second."""

    def notify() -> None:
        for report in _listeners[-1:]:
            report(what)

    timer = threading.Timer(NOTICE_SECONDS, notify)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def host_and_port(address: str) -> tuple[str, int]:
    """Take the address of a scheduler apart, like ``tcp://host:8786``; ``tcp://`` may be left out.

    Raises
    ------
    ClusterError
        If it is no address.
    """
    scheme, mark, rest = address.partition("://")
    parts = urlsplit(f"//{rest if mark else address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or (mark and scheme not in _SCHEMES):
        raise ClusterError(f"no Dask scheduler can be at {address!r}: write its address like tcp://host:8786")
    return host, port


def verify_listening(address: str, patience_seconds: float | None = None) -> None:
    """Wait until a scheduler listens at its address, which takes no longer than a connection.

    Raises
    ------
    ClusterError
        If the address is malformed, or no scheduler listens within the time that one takes to start.
    """
    place = host_and_port(address)
    patience = LISTENING_SECONDS if patience_seconds is None else patience_seconds
    with waiting_for(
        f"no Dask scheduler answers at {address} yet; bucketflow keeps trying for {max(patience, ANSWER_SECONDS):g} s"
    ):
        wait_for_listening(address, place, time.monotonic() + patience)


def wait_for_listening(address: str, place: tuple[str, int], end: float) -> None:
    import socket

    while True:
        try:
            socket.create_connection(place, timeout=ANSWER_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ClusterError(unanswered(address, error.strerror or str(error))) from None
        time.sleep(LOOK_SECONDS)


def unanswered(address: str, why: str) -> str:
    """Return the sentence about a scheduler that does not answer."""
    host, port = host_and_port(address)
    return (
        f"no Dask scheduler answers at {address} ({why}); check that `dask scheduler --port {port}` runs on {host} and "
        "that no firewall blocks the connection"
    )
