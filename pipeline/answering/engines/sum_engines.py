"""Sums and counts without a sweep: by search for models of clauses, by Ganak, and on decision diagrams.

Ganak is a counter of clauses by other authors, from an optional package (Soos and Meel, CAV 2025).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Final

from ....cluster.memory import peak_rss_bytes
from ....cluster.version import install_hint
from ....tasks.compiler.code_cache import seconds_to_compile
from ....tasks.compiler.outside_process import folder_of
from ....tasks.counting.ganak import GanakError, GanakProcess
from ....tasks.steps.light_dataclass import dataclass
from ...errors import BudgetError, InternalError
from ...queries.formula import SEARCHED_PER_SECOND, Formula
from ..question import spare_bytes
from ..running import Answer
from ..sums import DiagramSum, SearchedSum
from .engine import Stop, TurnEnded
from .engine_options import GANAK, Certainty, EnginePrice, Estimate
from .request import QueryRequest

#: Nominal speed of one core: edges of diagrams in a second.
_EDGES_PER_SECOND = 2.0**21 / 0.2
# Sums are scaled so that their upper bound is this power of two: floats hold what is 2^2000 times smaller.
_HIGHEST_BIT: Final = 1000
# A sum below this power of two may have lost digits in the last conversion to a float.
_LOWEST_BIT: Final = -_HIGHEST_BIT
# Ganak recognises components by hashes of this many bits, and handles fewer components in a CPU second.
_HASH_BITS, _COMPONENTS_PER_SECOND = 128, 1e8
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
    """Common parts of these engines."""

    request: QueryRequest

    @property
    def sums_all(self) -> bool:
        """Whether every assignment counts that no function forbids by itself."""
        return self.request.question.count_plan.sums_all

    @abstractmethod
    def estimate(self) -> Estimate:
        """Return the price of compiling loops, or the reason why the engine cannot answer."""

    def better_price(self, aim: Certainty) -> Estimate:
        """Return the same: nobody knows more."""
        return self.estimate()

    def _charged(self, engine: str) -> float:
        """Return how many seconds a second of an engine of clauses counts; fewer if the model is a file of clauses."""
        formula = self.request.clauses.formula
        return self.request.policy.lengths[engine].charged if formula is not None and formula.pure else 1.0

    def _keep_question(self) -> None:
        """Keep how it is asked in a run directory."""
        if self.request.folder is not None:
            self.request.folder.keep_question(self.request.options, self.request.effort)


class SearchEngine(_SumEngine):
    """Components of clauses, counted once."""

    @property
    def search(self) -> SearchedSum:
        """The search as far as it got."""
        return self.request.clauses

    def estimate(self) -> Estimate:
        """Return whether the model is clauses or mostly zero."""
        if self.request.effort.method == "search":
            return EnginePrice()
        if not self.search.suits:
            return "the model neither consists of clauses nor is mostly zero"
        if not self.sums_all:
            return "sums of finite costs may reach top"
        return replace(searching_price(), charged=self._charged("search"))

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Go on with the search."""
        from ....tasks.counting.count import CountNoRoomError

        self._keep_question()
        if self.request.effort.method == "search":
            return self._forced()
        self.search.reserved_bytes = self.request.reserved_bytes
        try:
            found = self.search.run(SEARCHED_PER_SECOND * seconds, late_after(seconds, stop))
        except CountNoRoomError:
            return TurnEnded("it does not fit memory", hopeless=True)
        return TurnEnded("its work was done") if found is None else found

    def _forced(self) -> Answer:
        if not self.sums_all:
            query = self.request.question.query
            raise BudgetError(f"the {query} cannot be computed by search: sums of finite costs may reach top")
        return self.search.forced()


class DiagramEngine(_SumEngine):
    """Bucket elimination on decision diagrams."""

    @cached_property
    def diagrams(self) -> DiagramSum:
        """The elimination as far as it got."""
        request = self.request
        question = request.question.chained if request.effort.method == "diagram" else request.question
        return DiagramSum(question, request.options, question.reduced[0], request.started)

    def estimate(self) -> Estimate:
        """Return whether there is memory for tables of the model."""
        if self.request.effort.method == "diagram":
            return EnginePrice()
        if not self.diagrams.fits:
            return "tables of the model do not fit memory"
        return self._unpriced if self.sums_all else "sums of finite costs may reach top"

    @property
    def _unpriced(self) -> EnginePrice:
        """The seconds of compiling loops, and how turns compare with those of a search."""
        request = self.request
        charged = request.policy.lengths["diagrams"].charged if max(request.network.dims, default=1) <= 2 else 1.0
        return replace(_unknown(*_ELIMINATING), charged=charged)

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Go on with the elimination."""
        self._keep_question()
        if self.request.effort.method == "diagram":
            return self.diagrams.forced()
        self.diagrams.reserved_bytes = self.request.reserved_bytes
        edges = _EDGES_PER_SECOND * seconds if math.isfinite(seconds) else math.inf
        found = self.diagrams.run(edges, late_after(seconds, stop))
        if found is None:
            # from the first sum on it is known what the others take: then it has a price, by which others have turns
            left = EnginePrice(self.diagrams.seconds_left, certainty="planned")
            price = left if left.known else self._unpriced
            return TurnEnded(f"they {self.diagrams.failure}", hopeless=self.diagrams.hopeless, price=price)
        return found


@dataclass
class GanakEngine(_SumEngine):
    """Components of clauses, counted by Ganak in time slices."""

    def estimate(self) -> Estimate:
        """Return whether Ganak is installed, and the model is clauses or mostly zero.

        It has no price, as its time cannot be predicted. Tables of many weights become many clauses, for which it takes
        several times as long as a sweep: there it makes no offer.
        """
        forced = self.request.effort.method == GANAK
        if folder_of("pyganak") is None:
            return f"Ganak is not installed: {install_hint('counters')}"
        clauses = self.request.clauses
        if not (forced or clauses.suits):
            return "the model neither consists of clauses nor is mostly zero"
        if clauses.formula is None:
            return "the model's functions give too many clauses; leave out --method ganak"
        if not self.sums_all:
            return "sums of finite costs may reach top"
        return EnginePrice(charged=self._charged(GANAK))

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Go on with the count.

        Raises
        ------
        BudgetError
            If Ganak was requested and ends without a count.
        """
        self._keep_question()
        planned = time.perf_counter()
        try:
            found = self._process.run(seconds, stop)
        except GanakError as error:
            vars(self).pop("_process")  # a further turn starts anew, within the memory of that turn
            if self.request.effort.method == GANAK:
                raise BudgetError(f"Ganak ended without an answer: {error}; try a larger --memory") from None
            return TurnEnded(f"it ended without an answer: {error}", hopeless=True)
        if found is None:
            return TurnEnded("another engine answered first" if stop() else "its time slice was over")
        return self._answer(found, planned)

    def close(self) -> None:
        """End its process."""
        if "_process" in vars(self):
            self._process.close()

    def _answer(self, found: float, planned: float) -> Answer | TurnEnded:
        """Check a count or a sum against its bound, and return the answer with the probability that it is wrong."""
        weighted = _Weighted.of(self._formula)
        if isinstance(found, int):
            result = self.request.clauses.result_of(found, 0.0)
        elif 0.0 < found < 2.0**_LOWEST_BIT:
            return TurnEnded("the sum is too small for a float", hopeless=True)
        else:
            mantissa, exponent = math.frexp(found)
            log = math.log(mantissa) + math.log(2.0) * (exponent - weighted.shift) if found else -math.inf
            if log > weighted.log_bound + 1e-9 * max(1.0, abs(weighted.log_bound)):
                raise InternalError("the sum of weights exceeds the product of their sums")
            result = self.request.clauses.result_of(0, log + weighted.log_scale if found else log)
        wrong = (_COMPONENTS_PER_SECOND * max(self._process.seconds, 1.0)) ** 2 * 2.0**-_HASH_BITS
        note = (
            f"Ganak counted; it recognises known components by hashes of {_HASH_BITS} bits, and is wrong with a "
            f"probability below {wrong:.0e}"
        )
        seconds = {"plan": planned - self.request.started, "run": time.perf_counter() - planned}
        return replace(result, notes=(note,), seconds=seconds, peak_rss_bytes=peak_rss_bytes())

    @property
    def _formula(self) -> Formula:
        formula = self.request.clauses.formula
        assert formula is not None
        return formula

    @cached_property
    def _process(self) -> GanakProcess:
        request, formula = self.request, self._formula
        clauses = [[_dimacs(literal) for literal in clause] for clause in formula.clauses]
        counted = [k + 1 for k, v in enumerate(formula.owners) if v not in formula.hidden]
        n, weights, seed = len(formula.owners), None, request.options.seed
        memory = max(spare_bytes(request.question, request.options) - request.reserved_bytes, 0)
        if request.network.query == "partition":
            weighted = _Weighted.of(formula)
            weights = dict(weighted.weights)
            for factor in weighted.factors:  # a variable that is always true carries a constant factor
                n += 1
                clauses.append([n])
                counted.append(n)
                weights |= {n: factor, -n: 1.0}
        return GanakProcess(n, clauses, counted, weights, memory, seed)


@dataclass(frozen=True)
class _Weighted:
    """Weights whose sum over all assignments is 1 for each variable, and the factors that are taken out.

    Parameters
    ----------
    weights : dict of int to float
        Of literals, as DIMACS has them.
    log_scale : float
        Natural logarithm of the product of all factors.
    log_bound : float
        Natural logarithm of the largest possible sum of these weights.
    shift : int
        The sum is multiplied by two to this power.
    """

    weights: dict[int, float]
    log_scale: float
    log_bound: float
    shift: int

    @classmethod
    def of(cls, formula: Formula) -> _Weighted:
        """Scale the weights of a formula."""
        weights, logs = dict[int, float](), []
        variables = {literal >> 1 for literal in formula.weights}
        for v in sorted(variables):
            true, false = (formula.weights.get(2 * v + side, 1.0) for side in (0, 1))
            weights |= {v + 1: true / (true + false), -v - 1: false / (true + false)}
            logs.append(math.log(true + false))
        free = sum(owner not in formula.hidden for v, owner in enumerate(formula.owners) if v not in variables)
        return cls(weights, math.fsum(logs), free * math.log(2.0), _HIGHEST_BIT - free)

    @property
    def factors(self) -> list[float]:
        """Powers of two whose product is the whole factor."""
        step = math.copysign(_HIGHEST_BIT, self.shift)
        whole, rest = divmod(abs(self.shift), _HIGHEST_BIT)
        return [2.0**step] * whole + ([math.ldexp(1.0, int(math.copysign(rest, self.shift)))] if rest else [])


def _dimacs(literal: int) -> int:
    """Return a literal as DIMACS has it."""
    return -(literal >> 1) - 1 if literal & 1 else (literal >> 1) + 1
