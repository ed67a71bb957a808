"""HTTP on a loopback address: requests are checked before anything of them is read, answers stream line by line."""

from __future__ import annotations

import hmac
import json
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty
from socketserver import TCPServer
from threading import BoundedSemaphore
from typing import Any

from ..errors import BucketflowError
from .server_policy import ServerPolicy
from .service_queue import ClosedQueueError, FullQueueError, ServedRequest

Ask = Callable[[str, bytes], Any]
"""A context manager of a path and a body: what is asked, or a mapping that is the answer already."""
_LINES = "application/x-ndjson"
_STATUS = {FullQueueError: HTTPStatus.TOO_MANY_REQUESTS, ClosedQueueError: HTTPStatus.SERVICE_UNAVAILABLE}


class NoSuchPathError(BucketflowError):
    """A path that the server does not have."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is not taken."""

    status: HTTPStatus
    sentence: str


class HttpService(ThreadingHTTPServer):
    """Takes requests in threads of their own.

    Parameters
    ----------
    address : str
        Of this machine's loopback.
    port : int
        0 for any that is free.
    token : str
        That every request has to have.
    ask : callable
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: str, port: int, token: str, ask: Ask):
        self.token, self.ask = token, ask
        self._slots = BoundedSemaphore(ServerPolicy.current().connections)
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Take the port, without asking anybody for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def host(self) -> str:
        """Address and port, as in a URL."""
        name = self.server_name
        return f"[{name}]:{self.server_port}" if ":" in name else f"{name}:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a client, unless there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a client until it leaves."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left in between."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: HttpService

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(ServerPolicy.current().read_seconds)

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        most = ServerPolicy.current().body_bytes
        if not (length.isascii() and length.isdigit()):
            self._refuse(Refusal(HTTPStatus.LENGTH_REQUIRED, "a request has to say its Content-Length"))
        elif int(length) > most:
            sentence = f"a request may have {most:,} bytes, and this one has {int(length):,}; send several"
            self._refuse(Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence))
        else:
            self._answer(None)

    def _answer(self, body: bytes | None) -> None:
        if refusal := self._stranger():
            self._refuse(refusal)
            return
        if body is None:
            body = self.rfile.read(length := int(self.headers["Content-Length"]))
            if len(body) < length:  # the client left
                self.close_connection = True
                return
        try:
            with self.server.ask(self.path, body) as asked:
                if isinstance(asked, ServedRequest):
                    self._stream(asked)
                else:
                    self._whole(HTTPStatus.OK, asked)
        except NoSuchPathError as error:
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, str(error)))
        except BucketflowError as error:
            self._refuse(Refusal(_STATUS.get(type(error), HTTPStatus.BAD_REQUEST), str(error)))

    def _stranger(self) -> Refusal | None:
        """Refuse a page that came here by another name, and whoever has no token."""
        host = self.headers.get("Host", "")
        if host not in (self.server.host, f"localhost:{self.server.server_port}"):
            return Refusal(HTTPStatus.FORBIDDEN, f"the Host has to be {self.server.host}")
        given = self.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "the header Authorization has to be: Bearer, and the server's token"
            )
        return None

    def _refuse(self, refusal: Refusal) -> None:
        self.close_connection = True  # its body may not have been read
        self._whole(refusal.status, {"status": "refused", "message": refusal.sentence})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Say what is no HTTP, or no method of this server, as everything else is said."""
        self._refuse(Refusal(HTTPStatus(code), message or HTTPStatus(code).phrase))

    def _whole(self, status: HTTPStatus, told: Any) -> None:
        line = json.dumps(told).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(line)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(line)

    def _stream(self, request: ServedRequest) -> None:
        """Send lines as they are made; a client that went away is answered no further."""
        try:
            chunked = self.request_version != "HTTP/1.0"
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", _LINES)
            self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
            self.end_headers()
            while (part := self._next_part(request)) is not None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                self.wfile.flush()
                request.sent(part)
            self.wfile.write(b"0\r\n\r\n" if chunked else b"")
            self.wfile.flush()
        except OSError:
            request.cancel()
            self.close_connection = True

    def _next_part(self, request: ServedRequest) -> bytes | None:
        """Wait for the next line, and take those with it that are there already."""
        while True:
            try:
                line = request.lines.get(timeout=ServerPolicy.current().glance_seconds)
                break
            except Empty:
                if self._is_gone():
                    raise ConnectionResetError from None
        part = bytearray()
        while line is not None:
            part += line
            if request.lines.empty():
                return bytes(part)
            line = request.lines.get()
        if not part:
            return None
        request.lines.put(None)
        return bytes(part)

    def _is_gone(self) -> bool:
        looks = select.poll()
        looks.register(self.connection, select.POLLIN)
        return bool(looks.poll(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
