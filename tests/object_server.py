"""A real S3 server on this machine, and a proxy before it that lets requests fail."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest

from bucketflow.storage import object_store
from tests.clusters import free_port

#: What tests that need the server are marked with.
needs_server = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("obstore", "moto", "flask"))),
    reason="an S3 server for tests needs obstore and moto: pip install obstore 'moto[server]'",
)
Fault = Callable[[str, str], str | None]
"""Takes the method and the path of a request, and returns how it fails: "503", "drop", "lose", or None."""

_SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.requests.append((self.command, self.path))
            how = self.server.fault(self.command, self.path)
        if how == "503":
            self._send(503, [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if how == "drop":
            self.close_connection = True
            return
        connection = HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            if how == "lose":
                self.close_connection = True
                return
            dropped = {"connection", "transfer-encoding", "content-length", "server", "date"}
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in dropped]
            self._send(answer.status, kept, content, answer.getheader("Content-Length"))
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length if length and self.command == "HEAD" else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behind: int):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault = lambda method, path: None

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that were killed."""


@dataclass
class Bucket:
    """A bucket of the server, whose requests pass the proxy.

    Parameters
    ----------
    url : str
        The URL of the bucket, with ``/`` at its end.
    environment : dict of str to str
        Where processes find the server.
    """

    url: str
    environment: dict[str, str]
    _proxy: _Proxy
    _started: int = field(default=0)

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The methods and paths of all requests so far."""
        return self._proxy.requests[self._started :]

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Let requests fail until the block ends."""
        self._proxy.fault = fault
        try:
            yield
        finally:
            self._proxy.fault = lambda method, path: None


@contextmanager
def served() -> Iterator[Callable[[], Bucket]]:
    """Start the server; yield what makes a bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        proxy = _Proxy(port)
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            _wait(port)
            yield lambda: _bucket(proxy)
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
            server.kill()


def _wait(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/").close()
            return
        except OSError:
            assert time.monotonic() < end, "the S3 server does not start"
            time.sleep(0.05)


def _bucket(proxy: _Proxy) -> Bucket:
    name, address = f"bucket-{uuid4().hex[:12]}", f"http://127.0.0.1:{proxy.server_address[1]}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT")).close()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
    }
    return Bucket(f"s3://{name}/", environment, proxy, len(proxy.requests))


@pytest.fixture(scope="session")
def buckets() -> Iterator[Callable[[], Bucket]]:
    """Start an S3 server."""
    with served() as make:
        yield make


@pytest.fixture
def bucket(buckets: Callable[[], Bucket], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Make a bucket that this process and those that it starts find."""
    made = buckets()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    object_store._opened.cache_clear()
    return made
