"""What an engine is: it bids for a question, and answers it in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..running import Answer
from .offers import Bid, Certainty, EnginePrice

Stop = Callable[[], bool]
"""Whether to end: another engine was through first."""


@dataclass(frozen=True)
class Unfinished:
    """How a turn ended without an answer.

    Parameters
    ----------
    why : str
        In a few words, after "ended".
    hopeless : bool
        Whether more turns are of no use.
    note : str
        What the caller should know of it.
    advice : str
        What a refusal adds, where no other engine answers either.
    price : EnginePrice, optional
        What the engine is predicted to take from here, where it learnt that it takes longer than was predicted.
    """

    why: str
    hopeless: bool = False
    note: str = ""
    advice: str = ""
    price: EnginePrice | None = None


class Engine(Protocol):
    """One way to answer one question, which can be gone on with."""

    def bid(self) -> Bid:
        """Return what it is predicted to take, found with little work, or why it cannot answer."""
        ...

    def better_price(self, aim: Certainty) -> Bid:
        """Return a price that is as certain as that."""
        ...

    def run(self, seconds: float, stop: Stop) -> Answer | Unfinished:
        """Go on for about so many CPU seconds, infinite for as long as it takes.

        Raises
        ------
        BudgetError
            If it cannot answer within memory.
        """
        ...
