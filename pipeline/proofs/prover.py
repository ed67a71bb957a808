"""The interface of a prover: one kind of search for an optimum, which takes turns and resumes where it stopped.

A new prover is a class with a few methods in a module of :mod:`.provers`, and a line of :mod:`.prover_registry`. Most
have a search (:class:`ProofSearch`) that is laid out for the network and goes on in each turn: for these
:class:`SearchProver` says what a turn is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypeVar

from ..cost_networks.cost_network import CostNetwork, States
from .incumbent import Incumbent
from .limits import OnBounds, Outcome


class ProofSearch(Protocol):
    """A search for the least total of one network below a cut-off, which goes on where it was stopped.

    Attributes
    ----------
    memory_bytes
        Limit of the held memory; set before each run.
    """

    memory_bytes: float

    @property
    def hopeless(self) -> bool:
        """Whether going on would not help, or what it takes does not fit."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two runs."""
        ...

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        ...

    def run(self, stop: Callable[[], bool], on_bounds: OnBounds, on_states: Callable[[States], None], /) -> Outcome:
        """Continue until the proof is complete, continuing is useless, or ``stop`` says so."""
        ...


class Prover(ABC):
    """A search for an optimum in turns that shares an incumbent with other provers.

    Parameters
    ----------
    incumbent : Incumbent
        Shared by all provers.

    Attributes
    ----------
    hopeless : bool
        Whether another turn would be of no use, as far as is known.
    """

    #: Whether it says itself when it is hopeless; else a turn that ends early, without a proof, says so.
    tells_its_end: ClassVar[bool] = True
    #: Whether another order makes it begin anew.
    follows_order: ClassVar[bool] = False

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent: Incumbent = incumbent
        self.hopeless: bool = False

    @abstractmethod
    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Go on for about ``seconds`` CPU seconds, until ``out_of_time`` at the latest; None if the turn was not used.

        The result belongs to the incumbent's small network and pruning value.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that are held between two turns."""

    @abstractmethod
    def forget(self) -> None:
        """Begin anew in the next turn, as the network changed (or the order, if it follows that)."""

    def close(self) -> None:  # noqa: B027 - most provers have nothing to end
        """Let go of whatever outlives the memory of this process, such as a process of its own."""

    def foresees_end(self, closing: float) -> bool:
        """Whether another turn is known to complete the proof soon, or to find much better totals.

        ``closing`` is the part of the gap that it closes if it goes on like the last one.
        """
        return False

    def narrowed(self) -> CostNetwork | None:
        """Return a smaller network that stands for the present one, once; None if it knows of none."""
        return None


S = TypeVar("S", bound=ProofSearch)


class SearchProver(Prover, Generic[S]):
    """A prover with a search that is laid out in its first turn."""

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self.search: S | None = None

    @abstractmethod
    def lay_out(self) -> S | None:
        """Begin a search of the incumbent's network; None if that does not fit, or is of no use."""

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Go on with the search of the last turn."""
        self.search = self.search or self.lay_out()
        if self.search is None:
            self.hopeless = True
            return None
        self.search.memory_bytes = self.room
        self.teach(self.search)
        outcome = self.search.run(out_of_time, self.incumbent.raise_lower, self.see)
        self.hopeless = self.search.hopeless
        self.leave_memory(self.search)
        return outcome

    @property
    def room(self) -> int:
        """Bytes that the search may hold."""
        return self.incumbent.memory_bytes + self.nbytes

    def teach(self, search: S) -> None:
        """Tell the search what others found."""
        search.learn(self.incumbent.upper)

    def see(self, states: States) -> None:
        """Take an assignment that the search reports."""
        self.incumbent.offer(states)

    def leave_memory(self, search: S) -> None:
        """Let go after a turn of as much as others need."""

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two turns."""
        return 0 if self.search is None else self.search.nbytes

    def forget(self) -> None:
        """Lay out another search in the next turn."""
        self.search = None
