"""HTTP on a loopback address: the head of a request is checked before its body is read; answers stream by line."""

from __future__ import annotations

import hmac
import io
import json
import select
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty
from socketserver import TCPServer
from typing import Any

from ..errors import BucketflowError, shorten
from .connections import Connections, DeadlineReader, RefusedRequestError
from .server_policy import ServerPolicy
from .service_queue import ClosedQueueError, FullQueueError, ServedRequest

Ask = Callable[[str, bytes], Any]
"""A context manager of a path and a body: what is asked, or a mapping that is the answer already."""
_LINES = "application/x-ndjson"
# These paths need no free slot: they take no time, and a server with too many clients has to be stoppable.
_ALWAYS_ANSWERED = ("/", "/stop")
# More digits than any length of a body has; Python refuses to read thousands of digits.
_MOST_DIGITS = 18
_STATUS = {FullQueueError: HTTPStatus.TOO_MANY_REQUESTS, ClosedQueueError: HTTPStatus.SERVICE_UNAVAILABLE}


class NoSuchPathError(BucketflowError):
    """A path that the server does not have."""


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
    request_queue_size = 128

    def __init__(self, address: str, port: int, token: str, ask: Ask):
        self.token, self.ask = token, ask
        self.connections = Connections()
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
        """Answer a client in a thread of its own."""
        self.connections.add(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.connections.remove(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a client until it leaves."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left in between."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # of a line without a version: answers to HTTP/0.9 would have no status
    disable_nagle_algorithm = True
    wbufsize = -1
    server: HttpService
    raw_requestline: bytes

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(ServerPolicy.current().read_seconds)
        self._reader = DeadlineReader(self.connection)
        self.rfile.close()
        self.rfile = io.BufferedReader(self._reader)
        self._is_proven = False

    def handle_one_request(self) -> None:
        self._reader.expect_head(ServerPolicy.current().read_seconds if self._is_proven else None)
        self.requestline, self.request_version, self.command = "", self.protocol_version, ""
        try:
            super().handle_one_request()
        except RefusedRequestError as error:
            self._refuse(error)
        except OSError:  # the client left, or was closed in favour of another
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        self._check_head()
        return bool(super().handle_expect_100())

    def parse_request(self) -> bool:
        if len(self.raw_requestline.split()) == 2:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a request line has to end with HTTP/1.0 or HTTP/1.1")
        return super().parse_request()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = self._check_head()
        self._is_proven = True
        always = self.path in _ALWAYS_ANSWERED
        with nullcontext() if always else self.server.connections.busy(self.connection):
            self._reader.expect_body(ServerPolicy.current().read_seconds)
            body = self.rfile.read(length) if length else b""
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
                raise RefusedRequestError(HTTPStatus.NOT_FOUND, str(error)) from None
            except BucketflowError as error:
                status = _STATUS.get(type(error), HTTPStatus.BAD_REQUEST)
                raise RefusedRequestError(status, str(error)) from None

    def _check_head(self) -> int:
        """Return the length of the body, 0 of a GET without one.

        Raises
        ------
        RefusedRequestError
            If the host or the token is another, or the length is missing, wrong or too large.
        """
        lengths = {text.strip() for text in self.headers.get_all("Content-Length", [])}
        if "Transfer-Encoding" in self.headers:
            sentence = "a request has to say its Content-Length; a Transfer-Encoding is not read"
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, sentence)
        if not lengths and self.command != "GET":
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "a request has to say its Content-Length")
        text = lengths.pop() if lengths else "0"
        if lengths or not (text.isascii() and text.isdigit()):
            sentence = f"the Content-Length has to be one whole number, not {shorten(text)!r}"
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, sentence)
        digits, most = text.lstrip("0") or "0", ServerPolicy.current().body_bytes
        if len(digits) > _MOST_DIGITS or int(digits) > most:
            size = f"{int(digits):,}" if len(digits) <= _MOST_DIGITS else f"a number of {len(digits):,} digits"
            sentence = f"a request may have {most:,} bytes, and this one has {size}; send several"
            raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
        self._check_caller()
        return int(digits)

    def _check_caller(self) -> None:
        """Refuse a page that came here by another name, and callers without the token."""
        host = self.headers.get("Host", "")
        if host not in (self.server.host, f"localhost:{self.server.server_port}"):
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, f"the Host has to be {self.server.host}")
        given = self.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            sentence = "the header Authorization has to be: Bearer, and the server's token"
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, sentence)

    def _refuse(self, refusal: RefusedRequestError) -> None:
        """Answer with a status and a sentence, and close the connection, as its body may not have been read."""
        self.close_connection = True
        with suppress(OSError):
            self._whole(refusal.status, {"status": "refused", "message": refusal.sentence})
            self.wfile.flush()
            self._read_rest()

    def _read_rest(self) -> None:
        """Read what the client still sends: closing a connection with unread bytes would discard the answer."""
        self.connection.shutdown(socket.SHUT_WR)
        ends = time.monotonic() + ServerPolicy.current().head_seconds
        while (remaining := ends - time.monotonic()) > 0:
            self.connection.settimeout(remaining)
            if not self.connection.recv(1 << 16):
                return

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse bad HTTP, and methods that this server does not have, as all requests are refused."""
        raise RefusedRequestError(HTTPStatus(code), shorten(message or HTTPStatus(code).phrase))

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
