"""Marginal MAP between two bounds, where its sums are too large: mini-buckets sum the inner variables out.

Large buckets of inner variables are split into weighted mini-buckets (Liu and Ihler, Bounding the partition function
using Hölder's inequality, ICML 2011; for marginal MAP, JMLR 2013). The result is a model over the outer variables with
values at least as large as the sums. Its optimum is an upper bound. The sum with the optimum's states observed is a
lower bound. Mini-buckets grow until the bounds meet or the time is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.compiler.compile_limits import NotCompiledError, compiled_until
from ....tasks.steps.number_limits import CELL_BYTES, SAME_SHARE
from ...cost_networks.cost_network import CostTable
from ...errors import BudgetError, ModelError
from ...minibuckets.loss_search import LossSearch
from ...minibuckets.mixed_bound import MixedBound
from ...minibuckets.partition import Partition, Scope, Size, partition
from ...models.bayesian_networks import modes_along
from ...models.findings import most_log10
from ...models.function import Function
from ...models.model import Model
from ...options import ProofOptions
from ...orders.depth_first import depth_first_order
from ...orders.effort import BOTH_WAYS_STEP_CELLS
from ...preprocessing.leaf_tables import energy_leaves, in_scopes
from ...preprocessing.preprocess import fixed_value
from ...preprocessing.wide_tables import with_links
from ...results.bounds import relative_gap
from ...results.proof import Proof
from ...results.remaining_time import ClosingBounds
from ...results.result import Result
from ..question import Question, question_of, spare_bytes
from .circuit_engine import MaximizedCircuit
from .model_left import OuterFunctions, options_of_left, sum_observed
from .outer_search import OuterSearch, outer_search
from .request import QueryRequest
from .strategy_policy import POLICY, OuterPolicy

# An optimum of one round takes at most this part of the time that is left; the first one, of all variables,
# takes that part. So does each look for better states, after each round.
_OPTIMUM_SHARE: Final = 0.3
_FIRST_SHARE: Final = 0.1
# The passes of one size take at most this part of it.
_PASSING_SHARE: Final = 0.4
# Passes in a row with little gain that end the passes. A size starts only if there is time for this many passes.
_VAIN_PASSES: Final = 6
_LEAST_PASSES: Final = 3
# Part of the time in which mini-buckets grow, and the part of it for searches below the bound of each size.
# Afterwards one search continues below the best bound.
_BOUNDING_SHARE: Final = 0.6
_SEARCHING_SHARE: Final = 0.2
# The search's loops are waited for in this part of the time that is left.
_COMPILING_SHARE: Final = 0.5
# Seconds of a search's first round; each round takes twice as long as the last. Half of a round evaluates the
# states that the search prefers, and looks for better states near the best.
_FIRST_SEARCH_SECONDS: Final = 0.3
# Without a time limit, the last climbs end after this many failures in a row.
_VAIN_CLIMBS: Final = 10

# Of each cell there is the functions' table and the join, of the largest bucket what is worked with too.
_COPIES: Final = 2
_WORKING: Final = 4
Array = NDArray[Any]


@dataclass
class InnerBounds:
    """Both bounds on marginal MAP, and the best states so far.

    Parameters
    ----------
    request : QueryRequest
    why : str
        Why its sums are not exact.
    """

    request: QueryRequest
    why: str
    best: Result | None = None
    upper: float = math.inf
    above: str = "mini-buckets"
    possible: bool = True
    history: list[tuple[float, float | None, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        question = self.request.question
        self.network = question.reduced[0]
        self.outer = OuterFunctions(question, self.network)
        self.names = frozenset([question.model.names[v] for v in self.outer.outer])
        self._uncompiled = ""
        self._cell_seconds, self._sums = 0.0, dict[tuple[int, bytes], float]()
        seconds = POLICY.patience_seconds if self.request.effort.time is None else self.request.effort.time
        self._end = self.request.started + seconds
        self.until = self.request.started + _BOUNDING_SHARE * seconds

    def run(self) -> Result:
        """Let mini-buckets grow, and return the bounds on the best value.

        Raises
        ------
        BudgetError
            If even the smallest do not fit memory.
        """
        self._begin()
        if self.is_close or self._has_circuit():
            return self._found()
        tightest: LossSearch | None = None
        for split, count in self._splits():
            if tightest is not None and (self._is_late or self.is_close or not self._has_time(split)):
                break
            mixed = self._passes(split)
            if not self.possible:
                return self._found()
            search = LossSearch(mixed, self._search, self._sums, self._memory // 8)
            if self.best is None:  # no states have been possible so far
                self._take_best(_OPTIMUM_SHARE)
            self._climb(_FIRST_SHARE, start=mixed.decoded())
            if not self.is_close:
                states: dict[str, str | int] | None = None
                with self._if_compiled():
                    states = self._improve(self.outer.model(self._functions(*mixed.left(count))))
                start = None if states is None else self._places(states)
                self._climb(_FIRST_SHARE, start=start)
            self._search_losses(search, _SEARCHING_SHARE)
            tightest = search if tightest is None or search.bound <= tightest.bound else tightest
            if search.finished:  # its messages are dropped, because larger mini-buckets follow
                self.until = self._end
            if all(len(bucket) < 2 for bucket in split.buckets[:count]) or not self.possible:
                break
        if tightest is None:
            raise BudgetError(f"even the smallest mini-buckets do not fit memory, and {self.why}")
        self.until = self._end
        self._search_losses(tightest, 1.0)
        if not self.is_close:
            self._climb(1.0, endless=self.request.effort.time is not None)
        return self._found()

    def _has_circuit(self) -> bool:
        """Whether a search of clauses that decides outer variables first is soon through; it has the best states."""
        circuit = MaximizedCircuit(self.request)
        estimate, seconds = circuit.estimate(), OuterPolicy.current().circuit_share * (self.until - time.perf_counter())
        if isinstance(estimate, str) or estimate.compiling_seconds > seconds:
            return False
        with suppress(BudgetError), self._if_compiled():
            found = circuit.run(seconds)
            if isinstance(found, Result):
                self.possible, self.best, self.above = found.status != "infeasible", found, "circuit"
                self.upper = -math.inf if found.log10 is None else found.log10
                return True
        return False

    def _search_losses(self, search: LossSearch, share: float) -> None:
        """Look for the states that lose least of a bound, for a part of the time that is left."""
        now = time.perf_counter()
        until, compiling = now + share * (self.until - now), _COMPILING_SHARE * (self._end - now)
        if not self.possible or self.is_close or now > until:
            return
        with self._if_compiled(), compiled_until(compiling):
            search.compile()
        seconds = _FIRST_SEARCH_SECONDS
        with self._if_compiled(), compiled_until(0.0):
            while self.possible and time.perf_counter() < until and not (search.finished or self.is_close):
                self._search_round(search, min(until, time.perf_counter() + seconds))
                seconds *= 2

    @contextmanager
    def _if_compiled(self) -> Iterator[None]:
        """Skip work that needs loops not compiled in time; the results known by then must suffice."""
        try:
            yield
        except NotCompiledError as error:
            self._uncompiled = str(error)

    def _search_round(self, search: LossSearch, until: float) -> None:
        """Go on with a search; then try states that it thinks best, and climb, for as long."""
        now = time.perf_counter()
        promising = search.run(self._most_lost(search.mixed), (now + until) / 2)
        if search.lost == math.inf:
            self.possible = False
            return
        self._bound((search.bound + self._constant) / math.log(10), "AND/OR search")
        if promising:
            self._try_states(search.best_states(), until)

    def _most_lost(self, mixed: MixedBound) -> float:
        """Return the largest loss against the bound that still beats the incumbent."""
        if self.best is None or self.best.log10 is None:
            return math.inf
        below = mixed.best + self._constant - self.best.log10 * math.log(10)
        return below - SAME_SHARE / 2 * (1 + abs(self.best.log10))

    def _try_states(self, states: dict[int, int], until: float) -> None:
        """Take states, or better ones near them, if they are better than the best; climb from the best ones then."""
        search = self._search
        if search is None:
            self._take_places(states)
            return
        found = search.climbed(states, lambda: time.perf_counter() > until, 1)
        if self.best is None or search.value(found) > search.value(self._best_places) + SAME_SHARE:
            self._take_places(found)
        if not self.is_close:
            self._climb_until(until, None)

    def _splits(self) -> Iterator[tuple[Partition, int]]:
        """Yield mini-buckets of growing size that fit in memory, with the number of buckets of inner variables."""
        dims, scopes = self.network.dims, self.network.scopes
        order = depth_first_order(dims, scopes, seed=self.request.options.seed)
        inner = [v for v in order if self.outer.is_inner((v,))]
        split = (*inner, *[v for v in order if not self.outer.is_inner((v,))])
        before = -1
        for bits in OuterPolicy.current().bits:
            found = partition(dims, scopes, split, Size(cells=1 << bits))
            if _COPIES * CELL_BYTES * (found.cells + _WORKING * found.largest) > self._memory // 4:
                return
            if found.cells > before:
                yield found, len(inner)
            before = found.cells

    def _has_time(self, split: Partition) -> bool:
        """Whether there is time for some passes, which take as long for each cell as they did before."""
        left = self.until - time.perf_counter()
        return _LEAST_PASSES * _pass_cells(split) * self._cell_seconds < _PASSING_SHARE * left

    def _passes(self, split: Partition) -> MixedBound:
        """Take the bound of mini-buckets, made better while there is time for that."""
        start, passes = time.perf_counter(), 1
        until = start + _PASSING_SHARE * max(self.until - start, 0.0)

        def late() -> bool:
            nonlocal passes
            passes += 1
            return time.perf_counter() > until

        mixed = MixedBound(split, self._costs, self.search_variables)
        above = mixed.improve(late, _VAIN_PASSES)
        self._cell_seconds = (time.perf_counter() - start) / passes / _pass_cells(split)
        self.possible = above > -math.inf
        if self.possible:
            self._bound((above + self._constant) / math.log(10))
        return mixed

    @cached_property
    def _costs(self) -> list[CostTable]:
        """Logarithms of the leaf tables."""
        energies = zip(self.network.scopes, in_scopes(self.network, energy_leaves), strict=True)
        return [CostTable(scope, -table) for scope, table in energies]

    @cached_property
    def _constant(self) -> float:
        """Natural logarithm of the constant factor outside the leaf tables."""
        network, fixed = self.network, fixed_value(self.network)
        assert fixed is not None
        summed = [len(network.domains[v]) for v in network.free if v not in self.outer.place]
        return math.fsum([float(fixed), *map(math.log, summed)])

    def _functions(self, messages: Sequence[tuple[Scope, Array]], scale: float) -> Iterator[Function]:
        kept = [f for leaf in self.network.leaves if not self.outer.is_inner(leaf.scope) for f in leaf.functions]
        yield from map(self.outer.kept, kept)
        for scope, logs in messages:
            yield from self.outer.of_logs(scope, logs)
        yield from self.outer.states()
        yield from self.outer.constants(kept, scale)

    @property
    def _is_late(self) -> bool:
        return time.perf_counter() > self.until

    @property
    def is_close(self) -> bool:
        """Whether the bounds are as close as requested, or equal up to the rounding of logarithms."""
        if self.best is None or self.best.log10 is None or math.isinf(self.upper):
            return False
        gap = self.request.effort.gap
        near = self.upper - self.best.log10 <= 2 * SAME_SHARE * (1 + abs(self.upper))
        return near or (gap is not None and relative_gap(self.best.log10, self.upper) <= gap)

    def _optimum(self, question: Question, part: float) -> Result:
        """Return an optimum, or the best that a part of the time finds."""
        request = self.request
        assert request.ask is not None
        seconds = max(part * (self.until - time.perf_counter()), 0.1)
        effort = ProofOptions(method=request.effort.method, time=seconds)
        found = request.ask(question, options_of_left(request.options), effort, None)
        assert isinstance(found, Result)
        return found

    def _begin(self) -> None:
        """Begin with the states of a best assignment of all variables: their sum is above 0; no sum is above all."""
        asked = self.request.question
        most = most_log10(asked.model, asked.soft.values(), {*self.outer.outer, *asked.hard})
        if most is not None:
            self.upper, self.above = most + SAME_SHARE, "the total"
            modes = modes_along(asked.model.functions, asked.model.dims, asked.hard)
            self._take_states({asked.model.names[v]: asked.model.label(v, modes[v]) for v in self.outer.outer})
        self._take_best(_FIRST_SHARE)
        self._climb(_FIRST_SHARE)

    def _take_best(self, share: float) -> None:
        """Take the states of the best assignment of all variables that a part of the time finds."""
        asked = self.request.question
        with suppress(BudgetError, ModelError), self._if_compiled():  # hidden chance has no best states
            found = self._optimum(Question(with_links(asked.model), "optimum", asked.hard, asked.soft), share)
            self._take_states({name: state for name, state in (found.assignment or {}).items() if name in self.names})

    def _take_states(self, states: dict[str, str | int]) -> None:
        """Take the sum of some states, if it is found."""
        if states:
            with suppress(BudgetError):
                self._take(sum_observed(self.request, states), states)

    @cached_property
    def search_variables(self) -> frozenset[int]:
        """Outer variables of the network, by its own numbers."""
        return frozenset([local for v, local in self.network.local.items() if v in self.outer.place])

    @cached_property
    def _memory(self) -> int:
        """Bytes that may be used beside what the question holds."""
        return spare_bytes(self.request.question, self.request.options)

    @cached_property
    def _search(self) -> OuterSearch | None:
        """The search for better states; None if a single sum takes too long for it."""
        network = self.network
        outer = sorted(self.search_variables)
        return outer_search(network, outer, self._memory // 2, self.request.options.seed)

    def _climb(self, share: float, *, endless: bool = False, start: dict[int, int] | None = None) -> None:
        """Look for better states than some, or than the best ones, for a part of the time that is left."""
        now = time.perf_counter()
        if self.possible and not self.is_close and now <= self.until:
            vain = None if endless else _VAIN_CLIMBS
            self._climb_until(now + share * (self.until - now), vain, start)

    def _climb_until(self, until: float, vain: int | None, start: dict[int, int] | None = None) -> None:
        """Search for better states until the time ``until``, or until ``vain`` climbs in a row have failed."""
        if (search := self._search) is None:
            return
        begin = self._best_places if start is None else start
        with self._if_compiled():
            found = search.climbed(begin, lambda: time.perf_counter() > until, vain)
            if self.best is None or start is not None or found != begin:
                self._take_places(found)

    @property
    def _best_places(self) -> dict[int, int]:
        """The best states, or the first ones where none are known."""
        best = None if self.best is None else self.best.assignment
        return dict.fromkeys(self.search_variables, 0) if best is None else self._places(best)

    def _places(self, states: Mapping[str, str | int]) -> dict[int, int]:
        """Return states by their places in the network's domains."""
        model, network, places = self.request.question.model, self.network, {}
        for v in self.search_variables:
            variable = network.variables[v]
            state = model.state_index(variable, states[model.names[variable]])
            places[v] = int(np.searchsorted(network.domains[variable], state))
        return places

    def _take_places(self, places: dict[int, int]) -> None:
        """Take the sum of states that are given by their places in the network's domains."""
        model, network = self.request.question.model, self.network
        states = {model.names[v]: model.label(v, int(network.domains[v][0])) for v in self.outer.outer}
        for v, place in places.items():
            variable = network.variables[v]
            states[model.names[variable]] = model.label(variable, int(network.domains[variable][place]))
        self._take_states(states)

    def _improve(self, model: Model) -> dict[str, str | int] | None:
        """Take the optimum of a model that is worth at least the sums, and the sum of its states; return these."""
        found = self._optimum(question_of(model, "optimum"), _OPTIMUM_SHARE)
        self.possible = found.status != "infeasible"
        above = found.proof.upper if found.proof is not None else found.log10
        if found.assignment is not None:
            self._take_states(found.assignment)
        if above is not None:
            self._bound(float(above))
        return found.assignment

    def _bound(self, above: float, by: str = "mini-buckets") -> None:
        """Take an upper bound, if it is the least so far, and tell of both."""
        request, outward = self.request, above + SAME_SHARE * (1 + abs(above))
        if outward < self.upper:
            self.upper, self.above = outward, by
        lower = None if self.best is None else self.best.log10
        self.history.append((time.perf_counter() - request.started, lower, self.upper))
        if request.progress is not None:
            request.progress(ClosingBounds(lower, self.upper, by))

    def _take(self, summed: Result, states: dict[str, str | int]) -> None:
        """Remember states whose sum is the greatest so far."""
        if summed.log10 is None or (self.best and self.best.log10 is not None and summed.log10 <= self.best.log10):
            return
        self.best = Result("mmap", "bounded", log10=summed.log10, assignment=states)

    def _found(self) -> Result:
        """Return the best states, and what the optimum is between."""
        if not self.possible:
            return Result("mmap", "infeasible")
        found = self.best or Result("mmap", "bounded")
        lower, gap = found.log10, self.request.effort.gap
        upper = self.upper if lower is None else max(self.upper, lower)
        # bounds that differ only by rounding outwards are equal
        closed = lower is not None and upper - lower <= 2 * SAME_SHARE * (1 + abs(upper))
        spent = time.perf_counter() - self.request.started
        proof = Proof(
            method=self.above if closed else "none",
            lower=lower,
            upper=lower if closed else upper if math.isfinite(upper) else None,
            gap=0.0 if closed else relative_gap(lower, upper) if lower is not None else None,
            tried={"mini-buckets": spent},
            removed={},
            least_total=0,
            unit=1,
            gap_given=gap,
            history=tuple(self.history),
        )
        notes = [f"the sum is bounded, not exact: {self.why}"]
        if self._uncompiled:
            notes.append(f"a search was skipped: {self._uncompiled}; bucketflow warm compiles loops ahead")
        seconds = {"run": spent}
        return replace(
            found, status="optimal" if closed else "bounded", proof=proof, notes=tuple(notes), seconds=seconds
        )


def _pass_cells(split: Partition) -> int:
    """Return the cost of a pass in cells, including the fixed cost of each mini-bucket."""
    return split.cells + BOTH_WAYS_STEP_CELLS * (1 + sum(map(len, split.buckets)))
