"""Sums and counts on decision diagrams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cluster.memory import peak_rss_bytes
from ...tasks.steps.semiring import mod_sum_product
from ..errors import BudgetError, InternalError
from ..options import Options
from ..orders.depth_first import depth_first_order, rearranged
from ..orders.min_fill import min_fill_order
from ..preprocessing.preprocess import Network, fixed_value
from ..queries.arithmetic import Arithmetic, arithmetic_for
from ..queries.counting import (
    CountEstimate,
    CountResidue,
    Spectrum,
    combine,
    enough_primes,
    powers_of,
    prefix_sum,
    root_of_unity,
)
from ..results.proof import DiagramWork
from ..results.result import Result
from .counts import spectrum_of
from .question import Question
from .question_sizes import spare_bytes, tables_fit

if TYPE_CHECKING:
    from ..queries.sum_diagrams import DiagramBudget, Table, Total

# Their order is searched for nominally so many seconds, for which the search is compiled if it has to be: without it
# linkage_16 has 2^47 cells, with it 2^27.
_ORDER_SECONDS = 0.5
# They are hopeless where a large join has more than this part of its dense cells.
_JOIN_PART = 1 / 16
# Logarithms of a count and of its sum in floats agree to this.
_AGREES = 1e-6


@dataclass
class DiagramSum:
    """A question about a sum or a count, as an elimination on decision diagrams; ``failure`` is what it failed for."""

    question: Question
    options: Options
    network: Network
    started: float
    failure: str = ""
    hopeless: bool = False
    turns: int = 0
    reserved_bytes: int = 0

    def run(self, edges: float, stop: Callable[[], bool] = bool) -> Result | None:
        """Begin anew with so many edges; None if that does not suffice.

        The first turn takes the order that is found at once. It is searched for before the second, and only what is
        too much in that order is hopeless.
        """
        self.turns += 1
        order = self._first_order if self.turns == 1 else self._order
        found = self._result(order, {"edges": edges, "part": _JOIN_PART, "stop": stop})
        self.hopeless = self.hopeless and self.turns > 1
        return found

    def forced(self) -> Result:
        """Answer, whatever it takes but memory.

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
    def memory_bytes(self) -> int:
        """What diagrams may take beside the model, and beside a sweep on a device."""
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
        return depth_first_order(dims, scopes, seconds=_ORDER_SECONDS, seed=self.options.seed)

    @cached_property
    def _arithmetic(self) -> Arithmetic[Any]:
        return arithmetic_for(self.network)

    @cached_property
    def _spread(self) -> Spectrum | None:
        """How a count is put together where costs may add up to ``top``."""
        if not isinstance(self._arithmetic, CountEstimate):
            return None
        fixed = fixed_value(self.network)
        assert fixed is not None
        return spectrum_of(self.network, self._arithmetic, int(fixed))

    @property
    def sums_all(self) -> bool:
        """Whether nothing is possible that costs as much as what is forbidden."""
        return self._spread is None

    def _result(self, order: tuple[int, ...], limits: dict[str, Any]) -> Result | None:
        """Answer within limits; None if they do not suffice."""
        from ...tasks.diagrams.min_plus import DiagramStoppedError, NoRoomError
        from ...tasks.diagrams.sum_product import VanishedError
        from ..queries.sum_diagrams import DiagramBudget, EdgesSpentError

        planned = time.perf_counter()
        try:
            found = self._found(order, DiagramBudget(self.memory_bytes, **limits))
        except (EdgesSpentError, DiagramStoppedError):
            self.failure = "take more time"
            return None
        except NoRoomError:
            self.failure, self.hopeless = "do not fit memory; give more --memory", True
            return None
        except VanishedError:
            self.failure = "meet products that are too small for floats; run with --method dense"
            self.hopeless = True
            return None
        seconds = {"plan": planned - self.started, "run": time.perf_counter() - planned}
        return replace(found, seconds=seconds, peak_rss_bytes=peak_rss_bytes())

    def _found(self, order: tuple[int, ...], work: DiagramBudget) -> Result:
        sums = _Sums(self.network, order, work)
        total, scale = sums.in_floats(self._arithmetic)
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
        assert isinstance(self._arithmetic, CountEstimate)
        points = self._spread.points if self._spread else 1
        residue = sums.residue
        primes = enough_primes(bound, points)
        value = combine([(residue(self._arithmetic, prime, self._spread), prime) for prime in primes])
        log = math.log(value) if value else -math.inf
        if log > bound + _AGREES or (self._spread is None and log < bound - _AGREES):
            raise InternalError("the residues of the count contradict each other")
        return Result("count", "ok", value=value * self.network.free_states, diagram=sums.work_done(total))


@dataclass
class _Sums:
    """Sums over all assignments of a network, in one order, and how many there were."""

    network: Network
    order: tuple[int, ...]
    work: DiagramBudget
    count: int = 0

    def work_done(self, total: Total) -> DiagramWork:
        """Describe what was done, from the first sum."""
        return DiagramWork(self.count, total.edges, total.nodes, total.error)

    def in_floats(self, arithmetic: Arithmetic[Any]) -> tuple[Total, float]:
        """Return the sum of what an arithmetic of floats has for tables, and the logarithm of its scale."""
        from ...tasks.diagrams.sum_product import VanishedError

        scales: list[float] = []

        def tables() -> Iterator[Table]:
            for leaf in self.network.leaves:
                table = arithmetic.leaf(leaf, leaf.scope)
                if table.logs:
                    raise VanishedError
                scales.append(table.log_scale)
                yield leaf.scope, table.values.reshape([self.network.dims[v] for v in leaf.scope])

        found = self._total(tables(), 0)
        return found, math.fsum(scales)

    def residue(self, estimate: CountEstimate, prime: int, spread: Spectrum | None) -> int:
        """Return a count modulo a prime."""
        points, unit = (spread.points, spread.unit) if spread else (1, 1)
        root = root_of_unity(prime, points)
        powers = powers_of(root, points, prime)
        semiring = mod_sum_product(prime)
        values = [
            self._at(CountResidue(self.network, semiring, estimate.scale, unit, powers, np.array([point])), prime)
            for point in range(points)
        ]
        return prefix_sum(values, spread.limit, root, prime) if spread else values[0]

    def _at(self, residue: CountResidue, prime: int) -> int:
        dims, leaves = self.network.dims, self.network.leaves
        tables = ((t.scope, residue.leaf(t, t.scope).reshape([dims[v] for v in t.scope])) for t in leaves)
        return self._total(tables, prime).residue

    def _total(self, tables: Iterator[Table], modulus: int) -> Total:
        from ..queries.sum_diagrams import total

        self.count += 1
        return total(self.network.dims, tables, self.order, self.work, modulus)
