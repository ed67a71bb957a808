"""The interface of an engine: it estimates its time for a question, and answers in time slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

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
