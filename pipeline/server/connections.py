"""Limits on the connections of the server, separately for callers with and without a valid token."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from threading import Lock
from typing import Any

from .server_policy import HEAD_BYTES, ServerPolicy


class RefusedRequestError(Exception):
    """A request that is answered by a status and one sentence.

    Parameters
    ----------
    status : HTTPStatus
    sentence : str
    """

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence

    def __str__(self) -> str:
        return self.sentence


class Connections:
    """The open connections of a server, in three groups.

    A new connection is *unproven* until it sends a head with a valid token. Then it is *busy* while a request runs and
    *idle* between requests. Unproven connections have a limit of their own, so they never displace proven ones. If a
    group is full, the oldest unproven or idle connection is closed in favour of the new connection.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._unproven: dict[socket.socket, None] = {}
        self._idle: dict[socket.socket, None] = {}
        self._busy: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> None:
        """Count a new connection as unproven."""
        with self._lock:
            if len(self._unproven) >= ServerPolicy.current().unproven_connections:
                _close_oldest(self._unproven)
            self._unproven[connection] = None

    def remove(self, connection: socket.socket) -> None:
        """Forget a connection that ends."""
        with self._lock:
            self._unproven.pop(connection, None)
            self._idle.pop(connection, None)

    @contextmanager
    def busy(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection as busy with one request; it is idle when the block ends.

        Raises
        ------
        RefusedRequestError
            If as many other requests run as the server takes.
        ConnectionResetError
            If the connection was closed in favour of a newer one.
        """
        with self._lock:
            if connection not in self._unproven and connection not in self._idle:
                raise ConnectionResetError
            known = len(self._busy) + len(self._idle) + (connection in self._unproven)
            if known > (most := ServerPolicy.current().connections):
                others = {other: None for other in self._idle if other is not connection}
                if not others:
                    sentence = f"{most} clients are being answered, the most at a time; ask again later"
                    raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
                self._idle.pop(_close_oldest(others))
            self._unproven.pop(connection, None)
            self._idle.pop(connection, None)
            self._busy.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(connection)
                self._idle[connection] = None


def _close_oldest(connections: dict[socket.socket, None]) -> socket.socket:
    """Close the connection that waits longest; its thread reads the end of the stream."""
    oldest = next(iter(connections))
    del connections[oldest]
    with suppress(OSError):
        oldest.shutdown(socket.SHUT_RDWR)
    return oldest


class DeadlineReader(io.RawIOBase):
    """Bytes of a connection that have to arrive before a deadline.

    A timeout of the socket alone limits the silence between two bytes, so a client could send a head for hours.

    Parameters
    ----------
    connection : socket
    """

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._ends, self._what = 0.0, ""
        self._next: tuple[float, str] | None = None
        self._left: int | None = None

    def expect_head(self, idle_seconds: float | None) -> None:
        """Expect the head of a request.

        Parameters
        ----------
        idle_seconds : float, optional
            How long the client may wait before the first byte; without it the head's deadline starts now.
        """
        policy = ServerPolicy.current()
        self._left, self._next = HEAD_BYTES, None
        self._begin(policy.head_seconds, "head")
        if idle_seconds is not None:
            self._next = policy.head_seconds, "head"
            self._begin(idle_seconds, "")

    def expect_body(self, seconds: float) -> None:
        """Expect the body of a request."""
        self._left = self._next = None
        self._begin(seconds, "body")

    def _begin(self, seconds: float, what: str) -> None:
        self._ends, self._what, self._seconds = time.monotonic() + seconds, what, seconds

    def readable(self) -> bool:
        """Return True: this stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; return their number, 0 at the end of the stream.

        Parameters
        ----------
        buffer : writable buffer
        """
        if self._left is not None and self._left <= 0:
            raise RefusedRequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the head of a request may have {HEAD_BYTES:,} bytes, and this head has more",
            )
        before = self._connection.gettimeout()
        try:
            if (remaining := self._ends - time.monotonic()) <= 0:
                raise TimeoutError
            self._connection.settimeout(remaining)
            count = self._connection.recv_into(buffer)
        except TimeoutError:
            # an idle connection may simply be closed
            if not self._what:
                raise ConnectionResetError from None
            sentence = f"the {self._what} of a request has to arrive within {self._seconds:g} s"
            raise RefusedRequestError(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
        finally:
            self._connection.settimeout(before)
        if self._next is not None:
            self._begin(*self._next)
            self._next = None
        if self._left is not None:
            self._left -= count
        return count
