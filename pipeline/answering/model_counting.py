"""Counts and sums of clauses and nearly deterministic models: a search that caches components."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ...cluster.memory import peak_rss_bytes
from ...tasks.steps.light_dataclass import dataclass
from ..errors import BudgetError, InternalError
from ..options import Options
from ..preprocessing.preprocess import Network, fixed_value
from ..queries.formula import Formula, UnfitError, formula_of, formula_orders, has_mixed_tables, simplified
from ..results.proof import SearchWork
from ..results.result import Result
from .question import Question
from .question_sizes import spare_bytes

if TYPE_CHECKING:
    from ...tasks.counting.count import Count, Counted

# Assumed roundings of a sum of products for each variable and each function.
_ROUNDINGS = 8


@dataclass
class SearchedSum:
    """A question about a sum or a count, answered by a search that can be resumed."""

    question: Question
    options: Options
    network: Network
    started: float
    reserved_bytes: int = 0

    @cached_property
    def formula(self) -> Formula | None:
        """The model as clauses; None if there are too many clauses, or if their weights are too far from 1."""
        try:
            return simplified(formula_of(self.network, self.question.weighted, self._hidden))
        except UnfitError:
            return None

    @property
    def _hidden(self) -> frozenset[int]:
        """The network's variables that are not counted."""
        outer = self.question.outer
        return frozenset() if outer is None else frozenset([k for v, k in self.network.local.items() if v not in outer])

    def run(self, work: float, stop: Callable[[], bool] = bool) -> Result | None:
        """Continue until the answer is found, ``work`` is used up, or ``stop`` returns True.

        Return None if there is no answer yet.

        Raises
        ------
        CountNoRoomError
            If it does not fit memory.
        """
        return self._run(self._count.work + work, stop)

    @property
    def suits(self) -> bool:
        """Whether the model is clauses or mostly zero."""
        return not self._unsuited and self.formula is not None and self.formula.suits

    @cached_property
    def _unsuited(self) -> bool:
        return has_mixed_tables(self.network, self.question.weighted)

    def forced(self) -> Result:
        """Return the answer, with no limit except memory.

        Raises
        ------
        BudgetError
            If it does not fit memory, or the model makes too many clauses.
        """
        from ...tasks.counting.count import CountNoRoomError

        query = self.question.query
        if self.formula is None:
            raise BudgetError("the model's functions give too many clauses for a search; leave out --method search")
        try:
            found = self._run(math.inf, bool)
        except CountNoRoomError:
            raise BudgetError(f"the {query} does not fit memory; give a larger --memory") from None
        assert found is not None
        return found

    def _run(self, most_work: float, stop: Callable[[], bool]) -> Result | None:
        planned = time.perf_counter()
        self._count.limit(max(self._memory_bytes - self.reserved_bytes, 0))
        found = self._count.run(most_work, stop)
        if found is None:
            return None
        seconds = {"plan": planned - self.started, "run": time.perf_counter() - planned}
        return replace(self._result(found), seconds=seconds, peak_rss_bytes=peak_rss_bytes())

    @cached_property
    def _count(self) -> Count:
        from ...tasks.counting.count import Count

        assert self.formula is not None
        return Count(formula_orders(self.formula, self.network, self.options.seed), self._memory_bytes)

    @property
    def _free_states(self) -> int:
        """Number of joint states of the counted variables without functions."""
        network, outer = self.network, self.question.outer
        return math.prod([len(network.domains[v]) for v in network.free if outer is None or v in outer])

    @cached_property
    def _memory_bytes(self) -> int:
        """Memory at the beginning of the count."""
        return spare_bytes(self.question, self.options)

    def _result(self, found: Counted) -> Result:
        network, formula = self.network, self.formula
        assert formula is not None
        counting = network.query == "count"
        roundings = 0 if counting else _ROUNDINGS * (len(formula.owners) + len(network.model.functions))
        work = SearchWork(len(formula.clauses), found.nodes, found.hits, found.forgotten, roundings * 2.0**-53)
        return replace(self.result_of(found.value, found.log), search=work)

    def result_of(self, value: int, log: float) -> Result:
        """Return the answer to the question, given the count or the sum of the formula.

        Parameters
        ----------
        value : int
            The number of models that are counted, for a count.
        log : float
            Natural logarithm of the sum of their weights, for a sum; -inf for 0.

        Raises
        ------
        InternalError
            If there are more models than joint states.
        """
        network, formula = self.network, self.formula
        assert formula is not None
        if network.query == "count":
            if value > math.prod([n for v, n in enumerate(network.dims) if v not in formula.hidden]):
                raise InternalError("the count exceeds the number of all assignments")
            return Result("count", "ok", value=value * self._free_states)
        if log == -math.inf:
            return Result("partition", "infeasible")
        fixed = fixed_value(network)
        assert fixed is not None
        log = math.fsum([fixed, math.log(self._free_states), formula.log_scale, log])
        return Result("partition", "ok", log10=log / math.log(10))
