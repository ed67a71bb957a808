"""uvicorn in a thread: one event loop serves all connections, and each connection has deadlines and limits."""

from __future__ import annotations

import json
import logging
import resource
import socket
import threading
from asyncio import TimerHandle, Transport, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .service_queue import HEAD_BYTES, RETRY_SECONDS, ServerPolicy

# Files and sockets that the answers themselves may open.
_SPARE_FILES = 256

_access = logging.getLogger("bucketflow.access")
# uvicorn warns of each bad request, by which strangers would fill the log; the access log has them.
_errors = logging.getLogger("bucketflow.http")
_errors.setLevel(logging.ERROR)


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the head, for the body and for each part of the answer.

    uvicorn itself waits without end for the rest of a head. A connection is *unproven* until the application accepts
    its token. Unproven connections have a limit of their own, so strangers never displace callers with a token: the
    oldest unproven connection is refused when one more arrives.
    """

    def __init__(self, unproven: dict[Any, GuardedProtocol], **settings: Any):
        super().__init__(**settings)
        self.logger = _errors
        self._unproven = unproven
        self._deadline: TimerHandle | None = None
        self._write_deadline: TimerHandle | None = None
        self._expected, self._is_refused = "", False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Count the connection as unproven, and expect its first head."""
        super().connection_made(transport)
        if len(self._unproven) >= open_limit(ServerPolicy.current().connections):
            oldest = self._unproven.pop(next(iter(self._unproven)))
            oldest.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections without a token are open; try again")
        self._unproven[self.client] = self
        self._expect("head", ServerPolicy.current().head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._expect("", None)
        self.resume_writing()
        self._unproven.pop(self.client, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes; the first byte of a head starts its deadline."""
        if self._is_refused:
            return
        if self.conn.their_state is h11.IDLE and self._deadline is None:
            self._expect("head", ServerPolicy.current().head_seconds)
        super().data_received(data)

    def handle_events(self) -> None:
        """Start requests whose heads are complete; then their bodies have a deadline until they are complete."""
        super().handle_events()
        if self.conn.their_state is h11.SEND_BODY:
            if self._expected != "body":
                self._expect("body", ServerPolicy.current().read_seconds)
        elif self.conn.their_state is not h11.IDLE:
            self._expect("", None)

    def pause_writing(self) -> None:
        """Wait for a client that does not read its answer, for a while."""
        super().pause_writing()
        self._write_deadline = self.loop.call_later(ServerPolicy.current().read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()

    def refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer with a status and one sentence, unless an answer has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"status": "refused", "message": sentence}).encode() + b"\n"
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                headers["Retry-After"] = str(RETRY_SECONDS)
            head = h11.Response(status_code=status, headers=[*headers.items()], reason=status.phrase)
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        client = self.client[0] if self.client else ""
        _access.info("refused: %s", sentence, extra={"facts": {"client": client, "status": int(status)}})
        self._expect("", None)
        if not self.transport.can_write_eof():
            self.transport.close()
        elif not self._is_refused:
            # Closing a connection with unread bytes would discard the answer.
            self.transport.write_eof()
            self.loop.call_later(ServerPolicy.current().head_seconds, self.transport.abort)
        self._is_refused = True

    def send_400_response(self, msg: str) -> None:
        """Refuse bad HTTP as all requests are refused."""
        self.refuse(HTTPStatus.BAD_REQUEST, msg)

    def _expect(self, part: str, seconds: float | None) -> None:
        """Expect a part of a request within some seconds, or nothing."""
        self._expected = part
        if self._deadline is not None:
            self._deadline.cancel()
        sentence = f"the {part} of a request must arrive within {seconds:g} s" if part else ""
        late = partial(self.refuse, HTTPStatus.REQUEST_TIMEOUT, sentence)
        self._deadline = None if seconds is None else self.loop.call_later(seconds, late)


class AsgiServer(uvicorn.Server):
    """Serves an application on a socket, in a thread of its own.

    Parameters
    ----------
    app : callable
        The ASGI application.
    address : str
    port : int
        0 for any free port.
    tls : tuple of str, optional
        The files of the certificate and of its key.
    """

    def __init__(self, app: Any, address: str, port: int, tls: tuple[str, str] | None):
        """Bind the socket and configure uvicorn; nothing is accepted yet.

        Parameters
        ----------
        app : ASGI application
        address : str
            IPv4 or IPv6 address.
        port : int
            0 chooses a free port.
        tls : (str, str), optional
            Paths of certificate and key.
        """
        policy = ServerPolicy.current()
        self._unproven: dict[Any, GuardedProtocol] = {}
        secured: dict[str, Any] = dict(zip(("ssl_certfile", "ssl_keyfile"), tls, strict=True)) if tls else {}
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=ServerPolicy.current().connections,
            timeout_keep_alive=int(policy.read_seconds),
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES,
            **secured,
        )
        config.load()
        super().__init__(config)
        _allow_files()
        self._socket = socket.create_server(
            (address, port),
            family=socket.AF_INET6 if ":" in address else socket.AF_INET,
            backlog=ServerPolicy.current().connections,
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit it
        self.port: int = self._socket.getsockname()[1]
        self._up = threading.Event()

    def prove(self, client: Any) -> None:
        """Note that the client has shown a valid token."""
        self._unproven.pop(client, None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; a TLS handshake has the deadline of a head."""
        state = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        make = partial(GuardedProtocol, self._unproven, **state)
        tls = self.config.ssl
        seconds = ServerPolicy.current().head_seconds if tls else None
        make_server = partial(get_running_loop().create_server, ssl=tls, ssl_handshake_timeout=seconds)
        self.servers = [await make_server(make, sock=self._socket, backlog=self.config.backlog)]
        self.started = True
        self._up.set()

    def start(self, ended: Callable[[], object]) -> None:
        """Serve in a thread; call a function when the thread ends."""

        def work() -> None:
            try:
                self.run()
            finally:
                self._up.set()
                ended()

        self._thread = threading.Thread(target=work, name="http", daemon=True)
        self._thread.start()
        self._up.wait()

    def close(self) -> None:
        """End all connections and the thread."""
        self.should_exit = True
        self._thread.join()
        self._socket.close()


def open_limit(most: int) -> int:
    """Return how many connections of a kind may be open: at most `most`, and a third of the files of this process."""
    return max(min(most, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES) // 3), 1)


def _allow_files() -> None:
    """Let this process open as many sockets as the system allows it, up to the limits of the server."""
    policy = ServerPolicy.current()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * policy.connections + _SPARE_FILES
    if 0 <= soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
