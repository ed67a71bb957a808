"""Requests that are not answered yet: they take turns, are bounded, and can be interrupted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Lock
from typing import Final

from ...tasks.steps.policy import Policy
from ..batches.deadline import Deadline
from ..errors import BucketflowError

# Seconds after which a client that is refused may ask again.
RETRY_SECONDS: Final = 1
# Most bytes of a head.
HEAD_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class ServerPolicy(Policy):
    """Limits of the server; measured with ``tests/bench/batches.py --server``.

    Parameters
    ----------
    queued_questions : int
        Most questions that wait, of all clients together: some 100 MB of rows.
    body_bytes : int
        Most bytes of one request: a model of this size as text is large.
    unsent_bytes : int
        A client that does not read its answers gets no further ones beyond so many bytes.
    connections : int
        Most requests with a valid token at a time: each has a socket and a few kB. As many connections without a valid
        token yet; the oldest one is refused when one more arrives. As many connections wait to be accepted.
    waiting_bytes : int
        Most bytes of the bodies of all requests without an answer.
    inline_bytes : int
        Bytes on disk of models that came as text, which are kept for further questions.
    counted_models : int
        Models whose questions are counted, a hundred bytes each; a model that was asked before these is a new one.
    head_seconds : float
        Time for a whole head of a request: local clients send it in milliseconds.
    read_seconds : float
        Time for a whole body of a request, for reading a part of the answer, and between two requests.
    glance_seconds : float
        How often the answering thread looks whether a client that did not read its answers reads again.
    """

    queued_questions: int = 10_000
    body_bytes: int = 1 << 26
    unsent_bytes: int = 1 << 24
    connections: int = 2048
    waiting_bytes: int = 1 << 28
    inline_bytes: int = 1 << 28
    counted_models: int = 1 << 16
    head_seconds: float = 5.0
    read_seconds: float = 60.0
    glance_seconds: float = 0.25


Step = Callable[["ServedRequest"], None]
"""A part of a request, which sends lines to its client."""


class FullQueueError(BucketflowError):
    """The maximum number of questions is waiting."""


class ClosedQueueError(BucketflowError):
    """The server stops."""


class ServedRequest:
    """A request of a client.

    Parameters
    ----------
    steps : iterable of callable
        The work to do, in order.
    questions : int
        How many they answer, which the queue counts until the last step is done.
    notify : callable
        Called from the answering thread when there are new lines.
    """

    def __init__(self, steps: Iterable[Step], questions: int, notify: Callable[[], object] = lambda: None):
        self._notify = notify
        self.steps = deque(steps)
        self.questions = questions
        self.lines: SimpleQueue[bytes | None] = SimpleQueue()
        self.cancelled: bool = False
        self.interrupted: bool = False
        self._lock = Lock()
        self._unsent_bytes = 0
        self._running: Deadline | None = None

    def send(self, line: bytes) -> None:
        """Send a line to the client."""
        with self._lock:
            self._unsent_bytes += len(line)
        self.lines.put(line)
        self._notify()

    def end(self) -> None:
        """Tell the client that no further line comes."""
        self.lines.put(None)
        self._notify()

    def taken(self) -> tuple[bytes, bool]:
        """Return all lines that wait to be sent, joined, and whether they are the last ones."""
        part = bytearray()
        while not self.lines.empty():
            if (line := self.lines.get()) is None:
                return bytes(part), True
            part += line
        return bytes(part), False

    def sent(self, line: bytes) -> None:
        """Note that the client has a line."""
        with self._lock:
            self._unsent_bytes -= len(line)

    @property
    def is_read(self) -> bool:
        """Whether the client reads its answers: else they would fill the memory."""
        return self._unsent_bytes < ServerPolicy.current().unsent_bytes

    @contextmanager
    def running(self, seconds: float | None) -> Iterator[None]:
        """Let what is done in this block be interrupted: after some seconds, or where the request is cancelled."""
        deadline = Deadline(seconds)
        with deadline.running():
            with self._lock:
                self._running = None if self.cancelled else deadline
            try:
                yield
            finally:
                with self._lock:
                    self._running = None

    def cancel(self) -> None:
        """Interrupt it if it runs, and do nothing further of it."""
        self.cancelled = True
        self.interrupt()

    def interrupt(self) -> None:
        """Interrupt what runs of it."""
        with self._lock:
            deadline = self._running
            self._running = None
        if deadline is not None:
            self.interrupted = True
            deadline.pass_now()


class ServiceQueue:
    """Requests that wait, which threads share: one step of each in turn.

    Parameters
    ----------
    idle_seconds : float, optional
        Idle seconds after which the queue ends.
    """

    def __init__(self, idle_seconds: float | None):
        self._idle_seconds = idle_seconds
        self._requests: deque[ServedRequest] = deque()
        self._questions = 0
        self._changed = Condition()
        self.closed: bool = False

    def add(self, request: ServedRequest) -> None:
        """Let a request wait for its turn.

        Raises
        ------
        FullQueueError
        ClosedQueueError
        """
        most = ServerPolicy.current().queued_questions
        with self._changed:
            if self.closed:
                raise ClosedQueueError("the server is stopping; try again when a server is running")
            if self._questions + request.questions > most:
                raise FullQueueError(
                    f"{self._questions:,} questions are waiting, and {request.questions:,} more would exceed the "
                    "maximum of "
                    f"{most:,}; send fewer at a time, or try again later"
                )
            self._questions += request.questions
            self._requests.append(request)
            self._changed.notify_all()

    def steps(self) -> Iterator[tuple[ServedRequest, Step]]:
        """Yield steps as they come, until the queue is closed and empty, or was idle for long enough."""
        while (request := self._next()) is not None:
            if request.steps and not request.cancelled:
                yield request, request.steps.popleft()
            if request.steps and not request.cancelled:
                with self._changed:
                    self._requests.append(request)
            else:
                with self._changed:
                    self._questions -= request.questions
                request.end()

    def _next(self) -> ServedRequest | None:
        """Wait for a request whose client reads its answers, or is gone."""
        begin = time.monotonic()
        with self._changed:
            while True:
                for request in self._requests:
                    if request.is_read or request.cancelled or self.closed:
                        self._requests.remove(request)
                        return request
                left = None if self._idle_seconds is None else begin + self._idle_seconds - time.monotonic()
                if not self._requests and (self.closed or (left is not None and left <= 0)):
                    self.closed = True
                    return None
                self._changed.wait(ServerPolicy.current().glance_seconds if self._requests else left)

    def close(self) -> None:
        """Take no more requests."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many questions are not answered yet."""
        return self._questions
