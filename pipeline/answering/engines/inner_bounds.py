"""Marginal MAP between two bounds, where its sums are too large: mini-buckets sum the inner variables out.

Buckets of inner variables that are too large are split, by weights (Liu and Ihler, Bounding the partition function
using Hölder's inequality, ICML 2011; of marginal MAP, JMLR 2013). What is left is a model over the outer variables that
is worth at least the sums: its optimum is an upper bound, and the sum with its states observed a lower one.
Mini-buckets grow until both agree, or the time is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from ...cost_networks.cost_network import CostTable
from ...errors import BudgetError, ModelError
from ...minibuckets.joins import BucketTable, ordered
from ...minibuckets.log_sums import inner_sums
from ...minibuckets.partition import Partition, Size, partition
from ...models.bayesian_networks import modes_along
from ...models.findings import most_log10
from ...models.function import Function
from ...models.model import Model
from ...options import ProofOptions
from ...orders.depth_first import depth_first_order
from ...preprocessing.leaf_tables import energy_leaves, in_scopes
from ...preprocessing.preprocess import Leaf
from ...preprocessing.wide_tables import with_links
from ...results.bounds import relative_gap
from ...results.proof import Proof
from ...results.result import Result
from ..question import Question, question_of
from ..question_sizes import spare_bytes
from .asking import Asking
from .left_question import options_of_left, sum_observed
from .model_left import OuterFunctions
from .outer_search import OuterSearch, outer_search
from .strategy_policy import OuterPolicy

# Optima of products, as logarithms, are moved outwards by this part, and a bound so close to a sum is that sum.
_OUTWARD: Final = 1e-9
_ITEM_BYTES: Final = 8


@dataclass
class InnerBounds:
    """Both bounds on marginal MAP, and the best states so far.

    Parameters
    ----------
    asking : Asking
    why : str
        Why its sums are not exact.
    """

    asking: Asking
    why: str
    best: Result | None = None
    upper: float = math.inf
    above: str = "mini-buckets"
    possible: bool = True
    history: list[tuple[float, float | None, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        question = self.asking.question
        self.network = question.reduced[0]
        self.outer = OuterFunctions(question, self.network)
        self.names = frozenset([question.model.names[v] for v in self.outer.outer])
        self.until = self.asking.started + (
            OuterPolicy.current().seconds if self.asking.effort.time is None else self.asking.effort.time
        )

    def run(self) -> Result:
        """Let mini-buckets grow, and return what the best is between.

        Raises
        ------
        BudgetError
            If even the smallest do not fit memory.
        """
        self._begin()
        if self.is_close:
            return self._found()
        before = -1
        for split, count in self._splits():
            cells = sum(mini.cells for bucket in split.buckets[:count] for mini in bucket)
            if cells == before:
                continue
            if before >= 0 and (self._is_late or self.is_close):
                break
            before = cells
            if (model := self._model_above(split, count)) is None:
                break
            self._improve(model)
            self._climb(OuterPolicy.current().climbing_share)
            if all(len(bucket) < 2 for bucket in split.buckets[:count]) or not self.possible:
                break
        if before < 0:
            raise BudgetError(f"even the smallest mini-buckets do not fit memory, and {self.why}")
        if not self.is_close:
            self._climb(1.0, endless=self.asking.effort.time is not None)
        return self._found()

    def _splits(self) -> Iterator[tuple[Partition, int]]:
        """Yield mini-buckets of growing size that fit memory, and how many buckets are those of inner variables."""
        dims, scopes = self.network.dims, [leaf.scope for leaf in self._leaves]
        order = depth_first_order(dims, self.network.scopes, seed=self.asking.options.seed)
        inner = [v for v in order if self.outer.is_inner((v,))]
        split = (*inner, *[v for v in order if not self.outer.is_inner((v,))])
        memory = spare_bytes(self.asking.question, self.asking.options)
        for bits in OuterPolicy.current().bits:
            found = partition(dims, scopes, split, Size(cells=1 << bits))
            if found.kept_bytes > memory // 2:
                return
            yield found, len(inner)

    @property
    def _leaves(self) -> list[Leaf]:
        """Those that have an inner variable."""
        return [leaf for leaf in self.network.leaves if self.outer.is_inner(leaf.scope)]

    def _model_above(self, split: Partition, count: int) -> Model | None:
        """Return a model over the outer variables that is worth at least the sums; None if it is late."""
        inner = replace(self.network, leaves=tuple(self._leaves))
        energies = zip(inner.scopes, in_scopes(inner, energy_leaves), strict=True)
        costs = [CostTable(scope, -table) for scope, table in energies]
        tables = [BucketTable(s, ordered(t, s)) for t, s in zip(costs, split.scopes, strict=False)]
        late = (lambda: self._is_late) if self.history else bool
        made = inner_sums(tables, split, count, threads=self.asking.resources.threads, stop=late)
        if made is None:
            return None
        messages, scale = made
        return self.outer.model(self._functions(messages, scale))

    def _functions(self, messages: list[BucketTable], scale: float) -> Iterator[Function]:
        kept = [f for leaf in self.network.leaves if not self.outer.is_inner(leaf.scope) for f in leaf.functions]
        yield from map(self.outer.kept, kept)
        for message in messages:
            yield from self.outer.of_logs(message.scope, message.costs)
        yield from self.outer.states()
        yield from self.outer.constants(kept, scale)

    @property
    def _is_late(self) -> bool:
        return time.perf_counter() > self.until

    @property
    def is_close(self) -> bool:
        """Whether the bounds are as close as was asked, or the same as far as logarithms tell."""
        if self.best is None or self.best.log10 is None or math.isinf(self.upper):
            return False
        gap = self.asking.effort.gap
        near = self.upper - self.best.log10 <= 2 * _OUTWARD * (1 + abs(self.upper))
        return near or (gap is not None and relative_gap(self.best.log10, self.upper) <= gap)

    def _optimum(self, question: Question) -> Result:
        """Return an optimum, or the best that a part of the time finds."""
        asking = self.asking
        assert asking.ask is not None
        seconds = max(OuterPolicy.current().optimum_share * (self.until - time.perf_counter()), 0.1)
        effort = ProofOptions(method=asking.effort.method, time=seconds)
        found = asking.ask(question, options_of_left(asking.options), effort, None, None)
        assert isinstance(found, Result)
        return found

    def _begin(self) -> None:
        """Begin with the states of a best assignment of all variables: their sum is above 0; no sum is above all."""
        asked = self.asking.question
        most = most_log10(asked.model, asked.soft.values())
        if most is not None:
            self.upper, self.above = most + _OUTWARD, "the total"
            modes = modes_along(asked.model.functions, asked.model.dims, asked.hard)
            self._take_states({asked.model.names[v]: asked.model.label(v, modes[v]) for v in self.outer.outer})
        with suppress(BudgetError, ModelError):  # hidden chance has no best states
            found = self._optimum(Question(with_links(asked.model), "optimum", asked.hard, asked.soft))
            self._take_states({name: state for name, state in (found.assignment or {}).items() if name in self.names})
        self._climb(OuterPolicy.current().climbing_share)

    def _take_states(self, states: dict[str, str | int]) -> None:
        """Take the sum of some states, if it is found."""
        if states:
            with suppress(BudgetError):
                self._take(sum_observed(self.asking, states), states)

    @cached_property
    def _search(self) -> OuterSearch | None:
        """What looks for better states; None where a sum takes too long for that."""
        network = self.network
        outer = [local for v, local in network.local.items() if v in self.outer.place]
        memory = spare_bytes(self.asking.question, self.asking.options) // 2
        return outer_search(network, outer, memory, self.asking.options.seed)

    def _climb(self, share: float, endless: bool = False) -> None:
        """Look for better states than the best ones, for a part of the time that is left, or until that is in vain."""
        search, now = self._search, time.perf_counter()
        if search is None or not self.possible or self.is_close or now > self.until:
            return
        model, network, until = self.asking.question.model, self.network, now + share * (self.until - now)
        start = dict.fromkeys(search.outer, 0)
        if self.best is not None and self.best.assignment is not None:
            for v in search.outer:
                variable = network.variables[v]
                state = model.state_index(variable, self.best.assignment[model.names[variable]])
                start[v] = int(np.searchsorted(network.domains[variable], state))
        found = search.climbed(
            start, lambda: time.perf_counter() > until, None if endless else OuterPolicy.current().vain_climbs
        )
        if self.best is None or found != start:
            states = {model.names[v]: model.label(v, int(network.domains[v][0])) for v in self.outer.outer}
            for v, place in found.items():
                variable = network.variables[v]
                states[model.names[variable]] = model.label(variable, int(network.domains[variable][place]))
            self._take_states(states)

    def _improve(self, model: Model) -> None:
        """Take the optimum of a model that is worth at least the sums, and the sum of its states."""
        asking, found = self.asking, self._optimum(question_of(model, "optimum"))
        self.possible = found.status != "infeasible"
        above = found.proof.upper if found.proof is not None else found.log10
        if above is not None:
            outward = float(above) + _OUTWARD * (1 + abs(float(above)))
            if outward < self.upper:
                self.upper, self.above = outward, "mini-buckets"
        if found.assignment is not None:
            self._take_states(found.assignment)
        lower = None if self.best is None else self.best.log10
        self.history.append((time.perf_counter() - asking.started, lower, self.upper))
        if asking.watch is not None:
            asking.watch(lower, self.upper, "mini-buckets")

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
        lower, gap = found.log10, self.asking.effort.gap
        upper = self.upper if lower is None else max(self.upper, lower)
        closed = lower is not None and upper - lower <= 2 * _OUTWARD * (1 + abs(upper))
        spent = time.perf_counter() - self.asking.started
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
        note = f"the sums are bounded: {self.why}"
        seconds = {"run": spent}
        return replace(found, status="optimal" if closed else "bounded", proof=proof, notes=(note,), seconds=seconds)
