"""Sums and counts without tables of all cells: on decision diagrams, or by a search that caches components.

The search answers counts and sums of clauses and of nearly deterministic models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ...cluster.memory import peak_rss_bytes
from ...tasks.steps.light_dataclass import dataclass
from ..errors import BudgetError, InternalError
from ..options import Options
from ..orders.depth_first import cells_of_buckets, depth_first_order, rearranged
from ..orders.effort import OrderPolicy
from ..orders.min_fill import min_fill_order
from ..preprocessing.preprocess import Network, fixed_value
from ..queries.arithmetic import Arithmetic, arithmetic_for
from ..queries.formula import Formula, QueryPolicy, UnfitError, formula_of, formula_orders, has_mixed_tables, simplified
from ..results.proof import DiagramWork, SearchWork
from ..results.result import Result
from .question import Question, spare_bytes, tables_fit

if TYPE_CHECKING:
    from ...tasks.counting.count import Count, Counted
    from ..queries.counting import CountResidue
    from ..queries.sum_diagrams import DiagramBudget, SumElimination, Table, Total


_MORE_LEFT: Final = 2.0


@dataclass
class DiagramSum:
    """A question about a sum or a count, as an elimination on decision diagrams that can be gone on with.

    Parameters
    ----------
    question : Question
    options : Options
    network : Network
    started : float
        When the question was asked, by the clock of ``time.perf_counter``.
    reserved_bytes : int
        Memory used by others.
    join_part : float
        They are hopeless where a large join has more than this part of its dense cells.
    kept_part : float
        Part of the memory for diagrams that wait for the next turn, because a sweep may need the rest.

    Attributes
    ----------
    failure : str
        The reason why the last turn failed.
    hopeless : bool
        Whether further turns cannot help.
    """

    question: Question
    options: Options
    network: Network
    started: float
    reserved_bytes: int = 0
    join_part: float = 1 / 16
    kept_part: float = 1 / 16
    failure: str = ""
    hopeless: bool = False
    turns: int = 0
    _sums: _Sums | None = None

    def run(self, edges: float, stop: Callable[[], bool] = bool) -> Result | None:
        """Continue with ``edges`` more edges; return None if they do not suffice.

        The first turn takes the order that is found at once. A better one is searched for before the second, which
        begins anew, and only what is too much in that order is hopeless.
        """
        self.turns += 1
        order = self._first_order if self.turns == 1 else self._order
        found = self._result(order, {"edges": edges, "part": self.join_part, "stop": stop})
        self.hopeless = self.hopeless and self.turns > 1
        return found

    def forced(self) -> Result:
        """Return the answer, with no limit except memory.

        Raises
        ------
        BudgetError
            If that does not suffice.
        """
        found = self._result(self._order, {})
        if found is None:
            raise BudgetError(f"decision diagrams of the {self.question.query} {self.failure}")
        return found

    @property
    def seconds_left(self) -> float:
        """CPU seconds that the rest is predicted to take, of a count once its sum in floats is there; else infinite."""
        return math.inf if self._sums is None else self._sums.seconds_left

    @property
    def held_bytes(self) -> int:
        """Bytes of the diagrams that wait for the next turn."""
        return 0 if self._sums is None else self._sums.held

    @property
    def memory_bytes(self) -> int:
        """Memory for diagrams in addition to the model and to a sweep on a device."""
        return max(spare_bytes(self.question, self.options) - self.reserved_bytes, 0)

    @property
    def fits(self) -> bool:
        """Whether there is memory for tables of the model."""
        return tables_fit(self.question, self.options)

    @cached_property
    def _first_order(self) -> tuple[int, ...]:
        dims, scopes = self.network.dims, self.network.scopes
        return rearranged(dims, scopes, min_fill_order(dims, scopes, self.options.seed))

    @cached_property
    def _order(self) -> tuple[int, ...]:
        dims, scopes = self.network.dims, self.network.scopes
        # so long that its loops are compiled: the search can reduce the cells by many orders of magnitude
        return depth_first_order(dims, scopes, seconds=OrderPolicy.current().compiled_seconds, seed=self.options.seed)

    def _result(self, order: tuple[int, ...], limits: dict[str, Any]) -> Result | None:
        """Sum by decision diagrams within limits. Return None if the limits do not suffice; ``failure`` then says why.

        Parameters
        ----------
        order : tuple of int
            Elimination order of the network's variables.
        limits : dict
            Fields of ``DiagramBudget``: edges and CPU seconds. Empty for an attempt without limits.
        """
        from ...tasks.diagrams.min_plus import DiagramStoppedError, NoRoomError
        from ...tasks.diagrams.sum_product import VanishedError
        from ..queries.sum_diagrams import DiagramBudget, EdgesSpentError

        planned = time.perf_counter()
        budget = DiagramBudget(self.memory_bytes, **limits)
        # only a sum that ran out of edges or time can be resumed: after an exception a table is missing
        sums, self._sums = self._sums, None
        if sums is None or sums.order != order:
            sums = _Sums(self.network, order, budget)
        sums.work = budget
        began = time.thread_time()
        try:
            found = self._found(sums)
        except (EdgesSpentError, DiagramStoppedError):
            self.failure = "take more time"
            sums.seconds += time.thread_time() - began
            if sums.held <= self.kept_part * self.memory_bytes:
                self._sums = sums
            return None
        except NoRoomError:
            dense = "are too large for memory, or hardly smaller than tables"
            self.failure, self.hopeless = dense if limits else "do not fit memory; give more --memory", True
            return None
        except VanishedError:
            self.failure = "have products that are too small for floats; run with --method dense"
            self.hopeless = True
            return None
        seconds = {"plan": planned - self.started, "run": time.perf_counter() - planned}
        return replace(found, seconds=seconds, peak_rss_bytes=peak_rss_bytes())

    def _found(self, sums: _Sums) -> Result:
        total, scale = sums.in_floats(arithmetic_for(self.network))
        query = self.network.query
        if query == "count":
            return self._count(sums, total, total.log + scale)
        if total.log == -math.inf:
            return Result("partition", "infeasible", diagram=sums.work_done(total))
        fixed = fixed_value(self.network)
        assert fixed is not None
        log = math.fsum([fixed, math.log(self.network.free_states), scale, total.log])
        return Result("partition", "ok", log10=log / math.log(10), diagram=sums.work_done(total))

    def _count(self, sums: _Sums, total: Total, bound: float) -> Result:
        if bound == -math.inf:
            return Result("count", "ok", value=0, diagram=sums.work_done(total))
        counting = self.question.count_plan
        primes = counting.primes(bound)
        sums.most = 1 + len(primes) * counting.points
        value = counting.combined(primes, bound, sums.residue)
        return Result("count", "ok", value=value * self.network.free_states, diagram=sums.work_done(total))


@dataclass
class _Sums:
    """Sums over all assignments of a network, in one order.

    Finished sums are cached, with the progress of the last sum.

    Parameters
    ----------
    network : Network
    order : tuple of int
    work : DiagramBudget
        Of each sum.

    Attributes
    ----------
    seconds : float
        CPU seconds of the turns that are over.
    most : int
        How many sums there are, 0 until that is known.
    """

    network: Network
    order: tuple[int, ...]
    work: DiagramBudget

    def __post_init__(self) -> None:
        self.scales: list[float] = []
        self.totals: dict[tuple[int, int], Total] = {}
        self.opened: dict[tuple[int, int], SumElimination] = {}
        self.seconds, self.most = 0.0, 0

    @property
    def held(self) -> int:
        """Bytes of diagrams that wait to be gone on with."""
        return sum(each.held for each in self.opened.values())

    @property
    def seconds_left(self) -> float:
        """Remaining CPU seconds.

        For a count: the remaining sums, each with as many edges as the first. For a single sum: the remaining cells of
        its buckets, at its present pace.
        """
        if not self.most:
            return self._seconds_of_one
        first = self.totals[0, 0].edges
        done = sum(each.edges for each in self.totals.values()) + sum(each.edges for each in self.opened.values())
        return self.seconds * max(self.most * first - done, 0) / max(done, 1)

    @property
    def _seconds_of_one(self) -> float:
        """CPU seconds that are left of one sum; infinite where too little of it is done to tell."""
        first, policy = self.opened.get((0, 0)), QueryPolicy.current()
        if first is None or self.network.query == "count":
            return math.inf
        part = self._done[first.eliminated]
        return _MORE_LEFT * self.seconds * (1.0 - part) / part if part >= policy.telling_part else math.inf

    @cached_property
    def _done(self) -> list[float]:
        """Return the fraction of all bucket cells that is joined after each number of eliminated variables."""
        cells = cells_of_buckets(self.network.dims, self.network.scopes, self.order)
        done = [*accumulate([cells[v] for v in self.order], initial=0.0)]
        return [each / done[-1] for each in done]

    def work_done(self, total: Total) -> DiagramWork:
        """Describe what was done, from the first sum."""
        return DiagramWork(len(self.totals), total.edges, total.nodes, total.error)

    def in_floats(self, arithmetic: Arithmetic[Any]) -> tuple[Total, float]:
        """Return the sum of an arithmetic in floats, and the logarithm of its scale."""
        found = self._total(lambda: self._floats(arithmetic), 0)
        return found, math.fsum(self.scales)

    def _floats(self, arithmetic: Arithmetic[Any]) -> Iterator[Table]:
        from ...tasks.diagrams.sum_product import VanishedError

        for leaf in self.network.leaves:
            table = arithmetic.leaf(leaf, leaf.scope)
            if table.logs:
                raise VanishedError
            self.scales.append(table.log_scale)
            yield leaf.scope, table.values.reshape([self.network.dims[v] for v in leaf.scope])

    def residue(self, residue: CountResidue) -> list[int]:
        """Return the sum modulo a prime at the only point of an arithmetic."""
        dims, leaves, point = self.network.dims, self.network.leaves, int(residue.points[0])
        tables = ((t.scope, residue.leaf(t, t.scope).reshape([dims[v] for v in t.scope])) for t in leaves)
        return [self._total(lambda: tables, residue.semiring.modulus, point).residue]

    def _total(self, tables: Callable[[], Iterator[Table]], modulus: int, point: int = 0) -> Total:
        """Return a sum; where it is interrupted, it is gone on with when it is asked for again."""
        from ..queries.sum_diagrams import SumElimination

        key = modulus, point
        if key not in self.totals:
            if key not in self.opened:
                self.opened[key] = SumElimination(self.network.dims, tables(), self.order, modulus)
            self.totals[key] = self.opened[key].run(self.work)
            del self.opened[key]
        return self.totals[key]


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
