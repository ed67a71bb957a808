"""``serve``: a server of questions, until it is stopped or was idle for long enough."""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import FileIO
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ...storage.files import write_whole
from ...storage.locks import scratch_folder
from ..batches.manifest import read_lines
from ..batches.models import BatchPolicy
from ..errors import BucketflowError, BudgetError, ModelError, checks_keywords, format_bytes, public, shorten
from ..models.checks import integer
from ..options import Options, checked_number, parse_size
from .row_answers import RowAnswers
from .server_folder import ServerFolder, check_installed, default_folder, read_token
from .service_queue import ServedRequest, ServerPolicy, ServiceQueue
from .web_app import ServerMetrics

# Models that came as text: files that the server keeps while questions need them, and as many others as have room.


class InlineModels:
    """Files of texts, by their content, which threads share.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._needed: Counter[str] = Counter()
        self._lock = Lock()

    @contextmanager
    def request(self) -> Iterator[InlineFiles]:
        """Yield what keeps texts for as long as the block lasts."""
        files = InlineFiles(self)
        try:
            yield files
        finally:
            self._release(files.paths)

    def save(self, text: str, suffix: str) -> str:
        """Return the path of a file with a text, which is needed from now on.

        Raises
        ------
        BucketflowError
            If it cannot be written.
        """
        content = text.encode(errors="surrogatepass")
        path = self._folder / f"{sha256(content).hexdigest()[:32]}{suffix}"
        with self._lock:
            self._needed[str(path)] += 1
            if str(path) not in self._sizes and not write_whole(path, content):
                raise BucketflowError(f"the text of a model cannot be stored in {self._folder}")
            self._sizes[str(path)] = len(content)
            self._sizes.move_to_end(str(path))
        return str(path)

    def _release(self, paths: Sequence[str]) -> None:
        """Remove the files that were not needed for longest, where there are too many bytes."""
        with self._lock:
            self._needed.subtract(paths)
            spare = sum(self._sizes.values()) - ServerPolicy.current().inline_bytes
            for path in [path for path in self._sizes if not self._needed[path]]:
                if spare <= 0:
                    break
                spare -= self._sizes.pop(path)
                del self._needed[path]
                Path(path).unlink(missing_ok=True)


class InlineFiles:
    """Files of the texts of one request."""

    def __init__(self, models: InlineModels):
        self._models = models
        self.paths: list[str] = []

    def save(self, text: str, suffix: str) -> str:
        """Return the path of a file with a text."""
        self.paths.append(path := self._models.save(text, suffix))
        return path


# Of a memory that is given, models and compiled models may each take one part in this many.
_MEMORY_PARTS: Final = 4

CommandRunner = Callable[[Mapping[str, Any], ServedRequest], None]
"""Runs a command that a client describes, and sends what it prints."""
_LOOPBACK = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}
# Where this machine reaches a server that listens at all of its addresses.
_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Minimum bytes of a question beside the cached models.
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
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if self.address not in _LOOPBACK and not (self.token_file and self.tls_cert):
            known = ", ".join(_LOOPBACK)
            raise ModelError(
                f"other machines reach a server at {shorten(self.address)} only with --token-file, --tls-cert and "
                f"--tls-key; for this machine alone the address is one of {known}"
            )
        if self.tls is not None:
            check_certificate(*self.tls)
        port = integer(self.port, "port", 0)
        if port >= 1 << 16:
            raise ModelError(f"port is {port}; the largest is 65535")
        object.__setattr__(self, "address", _LOOPBACK.get(self.address, self.address))
        for name, unit in (("time", "a number of seconds"), ("idle", "a number of minutes")):
            object.__setattr__(self, name, checked_number(name, getattr(self, name), unit))

    @property
    def tls(self) -> tuple[str, str] | None:
        """The files of the certificate and of its key; a file with both may stand for the two."""
        if self.tls_cert is None:
            return None
        return self.tls_cert, self.tls_key or self.tls_cert

    def question_bytes(self) -> tuple[int | None, int]:
        """Return the budget of a question, if a memory is given, and the budget of all cached models of each kind.

        Raises
        ------
        BudgetError
            If the memory is too little.
        """
        kept = BatchPolicy.current().kept_model_bytes
        if self.memory is None:
            return None, kept
        whole = parse_size(self.memory)
        kept = min(kept, whole // _MEMORY_PARTS)
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
        self._metrics = ServerMetrics()
        count = self._metrics.count_question
        self._answers = RowAnswers(options, settings.time, lambda: self._queue.closed, count)
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
            given = self.settings.token_file
            token = secrets.token_urlsafe(32) if given is None else read_token(given)
            with self._listening(token) as (url, local_url):
                with self.folder.announced(local_url, token, self.settings.tls_cert):
                    ready(url)
                    self._work()
                self._wait_for_readers()

    @contextmanager
    def _locked(self, lock: FileIO | None) -> Iterator[None]:
        check_installed("serve")
        lock = lock or self.folder.lock()
        if lock is None:
            found = self.folder.address()
            where = f" at {found[0]}" if found else ""
            raise BucketflowError(
                f"a server is already running{where}; stop it with bucketflow serve --stop, or send questions to it"
            )
        with lock:
            yield

    @contextmanager
    def _listening(self, token: str) -> Iterator[tuple[str, str]]:
        """Listen, and yield the URL for other machines and the URL for this machine."""
        from .asgi_server import AsgiServer
        from .web_app import WebApp

        address, port, tls = self.settings.address, self.settings.port, self.settings.tls
        app = WebApp(token, self.ask, self.state, self.begin_stop, self._metrics)
        try:
            service = AsgiServer(app, address, port, tls)
        except OSError as error:
            raise BucketflowError(f"cannot listen at port {port} of {address}: {error.strerror}") from None
        app.prove = service.prove
        urls = [_url(tls is not None, name, service.port) for name in (address, _ALL.get(address, address))]
        if address in _LOOPBACK.values():
            app.hosts = (urls[0].partition("//")[2], f"localhost:{service.port}")
        service.start(self.stop)
        try:
            yield urls[0], urls[1]
        finally:
            service.close()

    def _work(self) -> None:
        """Run one step after another; an interrupted step has already reported to its client."""
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
        """Let clients read what is answered, as long as a client may take to send a head."""
        with self._changed:
            self._changed.wait_for(lambda: not self._streaming, ServerPolicy.current().head_seconds)

    def state(self) -> dict[str, Any]:
        """Return the state of the server: `ok` or `stopping`, and the number of waiting questions."""
        status = "stopping" if self._queue.closed else "ok"
        return {"status": status, "questions": self._queue.waiting, "pid": os.getpid()}

    def begin_stop(self) -> dict[str, Any]:
        """Stop the server, and return its last state."""
        waiting = self._queue.waiting
        self.stop()
        return {"status": "stopping", "questions": waiting}

    @contextmanager
    def ask(self, path: str, body: bytearray, notify: Callable[[], object]) -> Iterator[ServedRequest]:
        """Queue the questions of a client until they are answered.

        Parameters
        ----------
        path : {"/questions", "/command"}
        body : bytearray
        notify : callable
            Called from the answering thread when lines of the answer are ready.

        Raises
        ------
        BucketflowError
            If the body holds no questions.
        """
        if not body:
            raise BucketflowError("the request has no questions")
        if path == "/questions":
            with self._inline.request() as files:
                lines = _text_of(body).splitlines()
                rows = read_lines(lines, self._base, self.settings.query, files.save)
                with self._asked(ServedRequest(self._answers.steps(rows), len(rows), notify)) as request:
                    yield request
        elif self._run_command is not None:
            told, run = _described(body), self._run_command
            with self._asked(ServedRequest([lambda request: run(told, request)], 1, notify)) as request:
                yield request
        else:
            raise BucketflowError("this server runs no commands; POST rows to /questions")

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


def check_certificate(certificate: str, key: str) -> None:
    """Check that two files hold a certificate and its key.

    Raises
    ------
    ModelError
        If they do not.
    """
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{certificate} and {key} hold no certificate with its key in PEM: {reason}") from None


def _url(is_secure: bool, name: str, port: int) -> str:
    host = f"[{name}]" if ":" in name else name
    return f"http{'s' * is_secure}://{host}:{port}"


def _text_of(body: bytearray) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BucketflowError("the request is not UTF-8 text") from None


def _described(body: bytearray) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise BucketflowError("the command is not a JSON object")
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
    token_file: str | PathLike[str] | None = None,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Answer questions that programs send over HTTP, until ``bucketflow serve --stop``.

    Questions are rows of a batch's list as JSON lines. Answers are lines of its results, sent as soon as they are
    computed. Models stay parsed and compiled for further questions.

    Parameters
    ----------
    address : str
        The address to listen at. By default only programs of this machine reach the server. For other addresses, such
        as ``"0.0.0.0"``, a token file and a certificate are required.
    port : int
        0 chooses a free port. The file ``url`` in the folder ``server`` of the cache folder has the address, and the
        file ``token`` beside it has the token that every request has to show.
    query : str
        Of rows that name none.
    memory : int or str, optional
        Memory for everything together, in bytes or as ``"4GB"``: cached models get at most half of it, a question the
        rest. By default a question gets most of the free memory.
    time : float, optional
        Seconds after which an optimum is left between its bounds, and another question is stopped.
    idle : float, optional
        Minutes without a question after which it ends.
    token_file : path, optional
        A file with the token. By default each server draws a token of its own.
    tls_cert, tls_key : path, optional
        The files of a certificate and of its key in PEM; one file may have both. The server then speaks HTTPS.
    ready : callable
        Called with the address when it can be asked.

    Raises
    ------
    ModelError
        If an argument is none.
    BucketflowError
        If a server of this user runs already, others could read its token, or the extra ``serve`` is not installed.
    """
    files = {"token_file": token_file, "tls_cert": tls_cert, "tls_key": tls_key}
    given = {name: None if path is None else fspath(path) for name, path in files.items()}
    settings = ServerSettings(address=address, port=port, memory=memory, time=time, idle=idle, query=query, **given)
    server = QuestionServer(settings, default_folder())
    if threading.current_thread() is not threading.main_thread():
        server.run(ready=ready)
        return
    with server.stopped_by_signals():
        server.run(ready=ready)
