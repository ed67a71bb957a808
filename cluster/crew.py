"""Long tasks on workers that exchange messages with the process that started them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from .address import ANSWER_SECONDS, LOOK_SECONDS, connected
from .dask_pool import PATIENCE_SECONDS, DaskPool, fetching
from .pool import TaskLabel

#: Seconds without a message after which a member ends. The run waits half as long for a lost worker.
_ALONE_SECONDS = 2 * PATIENCE_SECONDS
#: Seconds after which the word is said again, as a sign of life.
_SAID_SECONDS = 8 * LOOK_SECONDS


class WorkerCrew:
    """Long tasks on the workers of a pool; one whose worker died begins anew on another.

    Words and messages are what msgpack knows: numbers, strings, lists of them.

    Parameters
    ----------
    pool : DaskPool
    """

    def __init__(self, pool: DaskPool) -> None:
        self._pool, self._name = pool, f"crew-{uuid.uuid4().hex[:12]}"
        self._tasks: dict[str, tuple[Any, Any]] = {}
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._beats, self._said, self._said_at = 0, None, 0.0
        self._slots, self._counted_at = 0, -_SAID_SECONDS
        with connected(pool.client):
            self._word, self._told = _word(self._name, pool.client), _told(self._name, pool.client)
        self.say(None)

    @property
    def slots(self) -> int:
        """How many tasks workers run at the same time, asked now and then."""
        if time.monotonic() - self._counted_at > _SAID_SECONDS:
            self._slots, self._counted_at = sum(self._pool.slots().values()), time.monotonic()
        return self._slots

    @property
    def at_work(self) -> int:
        """How many tasks have not ended."""
        return len(self._tasks)

    def start(self, key: Any, function: Callable[..., Any], *args: Any) -> None:
        """Start ``function(member, *args)`` on a worker, with the :class:`Member` by which it hears and tells."""
        with connected(self._pool.client):
            label = TaskLabel(f"prove-{len(self._tasks) + 1}", "proof")
            future = self._pool.submit(function, Member(self._name), *args, label=label)
        self._tasks[future.key] = key, future
        future.add_done_callback(self._done.put)

    def say(self, word: Any) -> None:
        """Let all members hear the latest word; call it often, as it is a sign of life too."""
        if self._beats and word == self._said and time.monotonic() - self._said_at < _SAID_SECONDS:
            return
        self._beats += 1
        with connected(self._pool.client):
            self._word.set([self._beats, word])
        self._said, self._said_at = word, time.monotonic()

    def heard(self) -> list[Any]:
        """Return the messages of members since the last call."""
        with connected(self._pool.client):
            found: list[Any] = self._told.get(batch=True)
        return found

    def ended(self) -> list[tuple[Any, Any]]:
        """Return the keys of tasks that ended since the last call, each with its result or its exception."""
        found: list[tuple[Any, Any]] = []
        while True:
            try:
                future = self._done.get_nowait()
            except Empty:
                return found
            key, _ = self._tasks.pop(future.key)
            if future.status == "finished":
                found.append((key, fetching(future).result(timeout=ANSWER_SECONDS)))
            else:
                found.append((key, future.exception() if future.status == "error" else RuntimeError(future.status)))
            future.release()

    def close(self) -> None:
        """Let all members end, without waiting for them."""
        if self._pool.client.status != "running":
            return
        try:
            self._word.set([self._beats + 1])
            for _, future in self._tasks.values():
                future.cancel()
        except (OSError, TimeoutError):
            return  # they notice themselves that this process is gone
        finally:
            self._tasks.clear()
            self._told.close()


def _word(name: str, client: Any) -> Any:
    from distributed import Variable

    return Variable(name, client=client)


def _told(name: str, client: Any) -> Any:
    from distributed import Queue

    return Queue(name, client=client)


@dataclass
class Member:
    """The side of a crew's task: it receives and sends messages."""

    name: str
    alone: bool = False
    _beat: int = 0
    _word: Any = None
    _heard_at: float = 0.0
    _looked_at: float = 0.0

    def heard(self) -> Any:
        """Return the latest word; ``alone`` is true from when there is none any more."""
        now = time.monotonic()
        if not self.alone and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at, self._heard_at = now, self._heard_at or now
            self._look(now)
            self.alone = self.alone or now - self._heard_at > _ALONE_SECONDS
        return self._word

    def _look(self, now: float) -> None:
        from distributed import get_client

        try:
            beat, *word = _word(self.name, get_client()).get(timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return
        if beat != self._beat:
            self._beat, self._heard_at = beat, now
        if word:
            self._word = word[0]
        else:
            self.alone = True

    def tell(self, message: Any) -> None:
        """Tell the process that started the crew."""
        from distributed import get_client

        if not self.alone:
            try:
                _told(self.name, get_client()).put(message, timeout=ANSWER_SECONDS)
            except (OSError, TimeoutError):
                self.alone = True
