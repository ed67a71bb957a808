"""The interface of an engine: it estimates its time for a question, and answers in time slices.

Engines work in time slices, or in a second thread that ends when ``stop`` says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import Generic, Protocol, TypeVar, runtime_checkable

from ....tasks.compiler.working_time import thread_seconds
from ....tasks.steps.light_dataclass import dataclass
from ..running import Answer
from .engine_options import Certainty, EnginePrice, Estimate

Stop = Callable[[], bool]
"""Returns whether to end, because another engine answered first."""


@dataclass(frozen=True)
class TurnEnded:
    """How a time slice ended without an answer.

    Parameters
    ----------
    why : str
        In a few words, after "ended".
    hopeless : bool
        Whether more time slices are of no use.
    note : str
        A note for the caller.
    advice : str
        Text added to a refusal, if no other engine answers either.
    price : EnginePrice, optional
        A new price from here on, if the engine learnt that it takes longer than predicted.
    """

    why: str
    hopeless: bool = False
    note: str = ""
    advice: str = ""
    price: EnginePrice | None = None


class Engine(Protocol):
    """One way to answer one question, which can be gone on with."""

    def estimate(self) -> Estimate:
        """Return the predicted price, found with little work, or the reason why the engine cannot answer."""
        ...

    def better_price(self, aim: Certainty) -> Estimate:
        """Return a price that is as certain as that."""
        ...

    def run(self, seconds: float, stop: Stop) -> Answer | TurnEnded:
        """Run for about ``seconds`` CPU seconds; infinite means until the end.

        Raises
        ------
        BudgetError
            If it cannot answer within memory.
        """
        ...


@runtime_checkable
class ClosingEngine(Protocol):
    """An engine with a process that has to be ended."""

    def close(self) -> None:
        """End the process."""
        ...


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
