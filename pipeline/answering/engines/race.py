"""An engine that runs in a thread beside those of this one, and ends when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..running import Answer
from .engine import Stop, Unfinished

#: Waiting is interrupted so often, for Ctrl-C.
_GLANCE_SECONDS = 0.1


@dataclass
class Racer:
    """A run in a thread of its own.

    Parameters
    ----------
    work : callable
        Runs until it has an answer, or what it is given says that another engine was through first.

    Attributes
    ----------
    seconds : float
        CPU seconds of its thread, once it ended.
    """

    work: Callable[[Stop], Answer | Unfinished]
    seconds: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)
    _told: threading.Event = field(default_factory=threading.Event)
    _outcome: Answer | Unfinished | None = None
    _error: BaseException | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="bucketflow-race", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self.work(self._told.is_set)
        except BaseException as error:  # raised again where the outcome is asked for
            self._error = error
        finally:
            self.seconds = time.thread_time()
            self.ended.set()

    @property
    def has_answer(self) -> bool:
        """Whether it ended with an answer."""
        return self.ended.is_set() and self._outcome is not None and not isinstance(self._outcome, Unfinished)

    def outcome(self) -> Answer | Unfinished:
        """Wait for what it found.

        Raises
        ------
        BaseException
            What the run raised.
        """
        while not self.ended.wait(_GLANCE_SECONDS):
            pass
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def close(self) -> None:
        """End it, and wait until nothing of it is left: folders, pools, and memory of its device."""
        self._told.set()
        self._thread.join()
