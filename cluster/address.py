"""Addresses of schedulers: written correctly, and a scheduler listens there."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

# How long to wait for a scheduler, and then for its first worker: both may have been started a moment ago.
PATIENCE_SECONDS = 15.0

_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class ClusterError(Exception):
    """No usable cluster at the given address."""


class ClusterLostError(ClusterError):
    """A cluster that went away in the middle of a run."""


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
    import socket

    place = host_and_port(address)
    end = time.monotonic() + (PATIENCE_SECONDS if patience_seconds is None else patience_seconds)
    while True:
        try:
            socket.create_connection(place, timeout=_ANSWER_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ClusterError(f"no Dask scheduler answers at {address} ({error.strerror or error})") from None
        time.sleep(_PAUSE_SECONDS)
