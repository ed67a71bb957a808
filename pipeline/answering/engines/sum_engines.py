"""Sums and counts without a sweep: by search for models of clauses, and on decision diagrams."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

from ....tasks.compiler.code_cache import seconds_to_compile
from ...errors import BudgetError
from ..model_counting import SearchedSum
from ..running import Answer
from ..sums import DiagramSum
from .asking import Asking
from .engine import Stop, Unfinished
from .offers import Bid, Certainty, EnginePrice

#: Nominal speeds of one core: uses of literals that a search looks at, 5 and 10 * 10^7 of two counts, and edges of
#: diagrams, in a second.
_WORK_PER_SECOND, _EDGES_PER_SECOND = 2.0**24 / 0.3, 2.0**21 / 0.2
#: A turn that takes this many times its nominal time is ended by the clock.
_SLOWER = 1.25
#: Loops of both, and CPU seconds that compiling them takes.
_SEARCHING = ("tasks.counting.loops", "count", 20.0)
_ELIMINATING = ("tasks.diagrams.sum_product_loops", "merge", 20.0)


def _unknown(module: str, function: str, compiling_seconds: float) -> EnginePrice:
    return EnginePrice(compiling_seconds=seconds_to_compile(module, function, compiling_seconds))


def searching_price() -> EnginePrice:
    """Return the known part of a search's price: the seconds of compiling its loops."""
    return _unknown(*_SEARCHING)


def late_after(seconds: float, stop: Stop) -> Stop:
    """Return a function that ends a turn: because another engine answered, or by the clock on a slow machine."""
    until = time.thread_time() + _SLOWER * seconds
    return lambda: stop() or time.thread_time() > until


@dataclass
class _SumEngine(ABC):
    """Common parts of both engines."""

    asking: Asking

    @cached_property
    def diagrams(self) -> DiagramSum:
        """The elimination on diagrams, which knows how a count is put together."""
        asking = self.asking
        question = asking.question.chained if asking.effort.method == "diagram" else asking.question
        return DiagramSum(question, asking.options, question.reduced[0], asking.started)

    @abstractmethod
    def bid(self) -> Bid:
        """Return the price of compiling loops, or the reason why the engine cannot answer."""

    def better_price(self, aim: Certainty) -> Bid:
        """Return the same: nobody knows more."""
        return self.bid()

    def _keep_question(self) -> None:
        """Keep how it is asked in a run directory."""
        if self.asking.folder is not None:
            self.asking.folder.keep_question(self.asking.options, self.asking.effort)


class SearchEngine(_SumEngine):
    """Components of clauses, counted once."""

    @cached_property
    def search(self) -> SearchedSum:
        """The search as far as it got."""
        asking = self.asking
        return SearchedSum(asking.question, asking.options, asking.network, asking.started)

    def bid(self) -> Bid:
        """Return whether the model is clauses or mostly zero."""
        if self.asking.effort.method == "search":
            return EnginePrice()
        if not self.search.suits:
            return "the model neither consists of clauses nor is mostly zero"
        return searching_price() if self.diagrams.sums_all else "sums of finite costs may reach top"

    def run(self, seconds: float, stop: Stop = bool) -> Answer | Unfinished:
        """Go on with the search."""
        from ....tasks.counting.count import CountNoRoomError

        self._keep_question()
        if self.asking.effort.method == "search":
            return self._forced()
        self.search.reserved_bytes = self.asking.reserved_bytes
        try:
            found = self.search.run(_WORK_PER_SECOND * seconds, late_after(seconds, stop))
        except CountNoRoomError:
            return Unfinished("it does not fit memory", hopeless=True)
        return Unfinished("its work was done") if found is None else found

    def _forced(self) -> Answer:
        if not self.diagrams.sums_all:
            query = self.asking.question.query
            raise BudgetError(f"the {query} cannot be computed by search: sums of finite costs may reach top")
        return self.search.forced()


class DiagramEngine(_SumEngine):
    """Bucket elimination on decision diagrams."""

    def bid(self) -> Bid:
        """Return whether there is memory for tables of the model."""
        if self.asking.effort.method == "diagram":
            return EnginePrice()
        if not self.diagrams.fits:
            return "tables of the model do not fit memory"
        return self._unpriced if self.diagrams.sums_all else "sums of finite costs may reach top"

    @property
    def _unpriced(self) -> EnginePrice:
        """The seconds of compiling loops, and how turns compare with those of a search."""
        asking = self.asking
        charged = asking.policy.lengths["diagrams"].charged if max(asking.network.dims, default=1) <= 2 else 1.0
        return replace(_unknown(*_ELIMINATING), charged=charged)

    def run(self, seconds: float, stop: Stop = bool) -> Answer | Unfinished:
        """Go on with the elimination."""
        self._keep_question()
        if self.asking.effort.method == "diagram":
            return self.diagrams.forced()
        self.diagrams.reserved_bytes = self.asking.reserved_bytes
        edges = _EDGES_PER_SECOND * seconds if math.isfinite(seconds) else math.inf
        found = self.diagrams.run(edges, late_after(seconds, stop))
        if found is None:
            # from the first sum on it is known what the others take: then it has a price, by which others have turns
            left = EnginePrice(self.diagrams.seconds_left, certainty="planned")
            price = left if left.known else self._unpriced
            return Unfinished(f"they {self.diagrams.failure}", hopeless=self.diagrams.hopeless, price=price)
        return found
