"""Work in a second thread, mostly an engine's work, that ends when ``stop`` says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import Generic, TypeVar

from ....tasks.compiler.working_time import thread_seconds
from ....tasks.steps.light_dataclass import dataclass
from .engine import Stop, TurnEnded

T = TypeVar("T")

#: Waiting is interrupted so often, for Ctrl-C.
_GLANCE_SECONDS = 0.1


@dataclass
class Racer(Generic[T]):
    """A run in a thread of its own.

    Parameters
    ----------
    work : callable
        Runs until it has an answer, or until its argument returns that another engine answered first or the caller has
        gone.

    Attributes
    ----------
    seconds : float
        CPU seconds of its thread, once it ended.
    """

    work: Callable[[Stop], T]
    seconds: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)
    _told: threading.Event = field(default_factory=threading.Event)
    _outcome: T | None = None
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
            self.seconds = thread_seconds()
            self.ended.set()

    @property
    def has_answer(self) -> bool:
        """Whether it ended with an answer."""
        return self.ended.is_set() and self._outcome is not None and not isinstance(self._outcome, TurnEnded)

    def outcome(self) -> T:
        """Wait for the result of the thread.

        Raises
        ------
        BaseException
            The exception of the thread.
        """
        while not self.ended.wait(_GLANCE_SECONDS):
            pass
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._outcome  # type: ignore[return-value]  # of a run that raised nothing

    def close(self) -> None:
        """End it, and wait until nothing of it is left: folders, pools, and memory of its device."""
        self._told.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
