"""``serve``: a server of questions on this machine, until it is stopped or was idle for long enough."""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from ...storage.scratch import scratch_folder
from ..batches.batch_policy import BatchPolicy
from ..batches.manifest import read_lines
from ..errors import BucketflowError, BudgetError, ModelError, checks_keywords, format_bytes, shorten
from ..models.checks import integer
from ..options import Options, checked_number, parse_size
from ..public_names import public
from .http_service import HttpService, NoSuchPathError
from .inline_models import InlineModels
from .row_answers import RowAnswers
from .server_folder import ServerFolder, default_folder
from .server_policy import ServerPolicy
from .service_queue import ServedRequest, ServiceQueue

CommandRunner = Callable[[Mapping[str, Any], ServedRequest], None]
"""Runs a command that a client describes, and sends what it prints."""
_LOOPBACK = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}
_MOST_PORT = 65_535
# A question has at least so many bytes beside the models that are kept.
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How a server is asked, and within what; see :func:`serve`."""

    address: str = "127.0.0.1"
    port: int = 0
    memory: int | str | None = None
    time: float | None = None
    idle: float | None = None
    query: str = "optimum"

    def __post_init__(self) -> None:
        if self.address not in _LOOPBACK:
            known = ", ".join(_LOOPBACK)
            raise ModelError(
                f"a server answers this machine alone: its address is one of {known}, not {self.address!r}"
            )
        port = integer(self.port, "port", 0)
        if port > _MOST_PORT:
            raise ModelError(f"port is {port}; the largest is {_MOST_PORT}")
        object.__setattr__(self, "address", _LOOPBACK[self.address])
        for name, unit in (("time", "a number of seconds"), ("idle", "a number of minutes")):
            object.__setattr__(self, name, checked_number(name, getattr(self, name), unit))

    def question_bytes(self) -> tuple[int | None, int]:
        """Return the budget of a question, if a memory is given, and that of all models that are kept of each kind.

        Raises
        ------
        BudgetError
            If the memory is too little.
        """
        kept = BatchPolicy.current().kept_model_bytes
        if self.memory is None:
            return None, kept
        whole = parse_size(self.memory)
        kept = min(kept, whole // ServerPolicy.current().memory_parts)
        if whole - 2 * kept < _LEAST_BYTES:
            raise BudgetError(f"memory is {self.memory}, and a server needs at least {format_bytes(2 * _LEAST_BYTES)}")
        return whole - 2 * kept, kept


class QuestionServer:
    """Answers what clients ask, in the thread that calls :meth:`run`.

    Parameters
    ----------
    settings : ServerSettings
    folder : ServerFolder
        Where clients find it.
    run_command : callable, optional
        Runs commands for clients.
    """

    def __init__(self, settings: ServerSettings, folder: ServerFolder, run_command: CommandRunner | None = None):
        self.settings, self.folder, self._run_command = settings, folder, run_command
        self._question_bytes, self._kept_bytes = settings.question_bytes()
        self._queue = ServiceQueue(None if settings.idle is None else settings.idle * 60)
        options = Options(memory=self._question_bytes)
        self._answers = RowAnswers(options, settings.time, lambda: self._queue.closed)
        self._running: ServedRequest | None = None
        self._streaming = 0
        self._changed = threading.Condition()
        self._base = Path.cwd()

    def run(self, lock: FileIO | None = None, ready: Callable[[str], object] = lambda _: None) -> None:
        """Serve until it is stopped.

        Parameters
        ----------
        lock : file, optional
            The lock of the folder, where it is held already.
        ready : callable
            Called with the address when clients can ask.

        Raises
        ------
        BucketflowError
            If a server runs already, or none can run here.
        """
        with self._locked(lock), scratch_folder() as place, BatchPolicy.using(kept_model_bytes=self._kept_bytes):
            self._inline = InlineModels(place / "models")
            token = secrets.token_urlsafe(32)
            with self._listening(token) as service:
                url = f"http://{service.host}"
                with self.folder.announced(url, token):
                    ready(url)
                    self._work()
                self._wait_for_readers()

    @contextmanager
    def _locked(self, lock: FileIO | None) -> Iterator[None]:
        lock = lock or self.folder.lock()
        if lock is None:
            found = self.folder.address()
            where = f" at {found[0]}" if found else ""
            raise BucketflowError(f"a server runs already{where}; stop it with bucketflow serve --stop, or ask it")
        with lock:
            yield

    @contextmanager
    def _listening(self, token: str) -> Iterator[HttpService]:
        address, port = self.settings.address, self.settings.port
        try:
            service = HttpService(address, port, token, self.ask)
        except OSError as error:
            raise BucketflowError(f"cannot listen at port {port} of {address}: {error.strerror}") from None
        glance = ServerPolicy.current().glance_seconds
        thread = threading.Thread(target=service.serve_forever, args=[glance], name="http", daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            service.server_close()

    def _work(self) -> None:
        """Do one step after the other; what is interrupted has said so to its client."""
        for request, step in self._queue.steps():
            self._running = request
            try:
                step(request)
            except KeyboardInterrupt:
                if not (self._queue.closed or request.cancelled):
                    self.stop()
            except Exception as error:  # a bug ends no server
                failed = {"status": "failed", "message": f"{type(error).__name__}: {error}", "exit_code": 1}
                request.send(json.dumps(failed).encode() + b"\n")
            finally:
                self._running = None

    def stop(self) -> None:
        """Take no more requests, interrupt what runs, and end; from any thread."""
        self._queue.close()
        if request := self._running:
            request.interrupt()

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the server, where this is the main thread; the second ends the process."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def stop(number: int, _: object) -> None:
            signal.signal(number, signal.SIG_DFL)
            threading.Thread(target=self.stop, daemon=True).start()  # this thread may hold what stopping waits for

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait_for_readers(self) -> None:
        """Let clients read what is answered, for a while."""
        with self._changed:
            self._changed.wait_for(lambda: not self._streaming, ServerPolicy.current().ending_seconds)

    @contextmanager
    def ask(self, path: str, body: bytes) -> Iterator[ServedRequest | Mapping[str, Any]]:
        """Take a request of a client, until it is answered.

        Raises
        ------
        BucketflowError
            If it is none.
        """
        if path == "/questions" and body:
            with self._inline.request() as files:
                lines = _text_of(body).splitlines()
                rows = read_lines(lines, self._base, self.settings.query, files.save)
                with self._asked(ServedRequest(self._answers.steps(rows), len(rows))) as request:
                    yield request
        elif path == "/command" and body and self._run_command is not None:
            told, run = _described(body), self._run_command
            with self._asked(ServedRequest([lambda request: run(told, request)], 1)) as request:
                yield request
        elif path == "/stop":
            self._queue.close()
            yield {"status": "stopping", "questions": self._queue.waiting}
            self.stop()
        elif path == "/":
            yield {"status": "ok", "questions": self._queue.waiting, "pid": os.getpid()}
        else:
            raise NoSuchPathError(f"POST rows to /questions; there is nothing at {shorten(path)!r}")

    @contextmanager
    def _asked(self, request: ServedRequest) -> Iterator[ServedRequest]:
        self._queue.add(request)
        with self._changed:
            self._streaming += 1
        try:
            yield request
        finally:
            with self._changed:
                self._streaming -= 1
                self._changed.notify_all()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing further is to be answered."""
        return self._queue.closed


def _text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BucketflowError("the request is no text in UTF-8") from None


def _described(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise BucketflowError("the command is no JSON object")
    return told


@public
@checks_keywords
def serve(
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    query: str = "optimum",
    memory: int | str | None = None,
    time: float | None = None,
    idle: float | None = None,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Answer questions that programs of this machine send over HTTP, until ``bucketflow serve --stop``.

    Rows of a batch's list come as JSON lines, and lines of its results go back as they are found. Models stay parsed
    and compiled for further questions.

    Parameters
    ----------
    address : {"127.0.0.1", "localhost", "::1"}
        Of this machine; others are refused.
    port : int
        By default any that is free, which the file ``url`` in the folder ``server`` of the cache folder says. The file
        ``token`` beside it has what every request has to show.
    query : str
        Of rows that name none.
    memory : int or str, optional
        For everything together, in bytes or as ``"4GB"``: kept models get at most half of it, a question the rest. By
        default a question gets most of what is free.
    time : float, optional
        Seconds after which an optimum is left between its bounds, and another question is stopped.
    idle : float, optional
        Minutes without a question after which it ends.
    ready : callable
        Called with the address when it can be asked.

    Raises
    ------
    ModelError
        If an argument is none.
    BucketflowError
        If a server of this user runs already, or others could read its token.
    """
    settings = ServerSettings(address=address, port=port, memory=memory, time=time, idle=idle, query=query)
    server = QuestionServer(settings, default_folder())
    if threading.current_thread() is not threading.main_thread():
        server.run(ready=ready)
        return
    with server.stopped_by_signals():
        server.run(ready=ready)
