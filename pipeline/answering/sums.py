"""Sums and counts of models that are too much to sweep, by search or on decision diagrams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cluster.memory import peak_rss_bytes
from ...tasks.steps.semiring import mod_sum_product
from ..errors import BudgetError, InternalError
from ..options import Options, ProofOptions
from ..orders.depth_first import bucket_cells, depth_first_order, rearranged
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import search_tree
from ..preprocessing.leaf_rows import is_listed
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
from ..trees.costs import tree_cost
from .counts import spectrum_of
from .model_counting import SearchedSum
from .question import Question
from .run_folder import kept
from .running import Progress, answer
from .strategy import most_whole_cells, spare_bytes, stored_plan, tables_fit

if TYPE_CHECKING:
    from ..queries.sum_diagrams import DiagramBudget, Table, Total

# A sweep of so many cells, in the order that is found at once, is over before diagrams have been tried: the tree that
# is searched has a tenth of them.
_QUICK_CELLS = 1 << 32
# Trees save less than such a factor; one that a search of so many CPU seconds finds is swept at once where that is
# predicted to take at most so many, and the model is neither clauses nor mostly zero.
_SAVED_BY_TREES, _SHORT_SEARCH, _QUICK_SECONDS = 1 << 8, 0.1, 0.5
# So is one of so many where memory is so limited that not all of them fit, as it may take slices then, or for a count,
# which takes several sweeps.
_QUICK_IN_SLICES = 1 << 28
# Diagrams are tried for so many edges (0.2 s), or so small a part of the cells: an edge takes as long as 50 to 100.
_TRIAL_EDGES, _TRIAL_PART = 1 << 21, 1 / 512
# Their order is searched for nominally so many seconds, for which the search is compiled if it has to be: without it
# linkage_16 has 2^47 cells, with it 2^27.
_ORDER_SECONDS = 0.5
# A search is tried for so much work (some 0.3 s), or so small a part of the cells.
_TRIAL_WORK, _MOST_TRIAL_WORK = 1 << 23, 1 << 27
# Rows are tried as clauses before they become a table of more cells.
_MOST_TABLE = 1 << 20
# They are hopeless where a large join has more than this part of its dense cells.
_JOIN_PART = 1 / 16
# Where no sweep fits memory, they are given so many CPU seconds.
_PATIENCE = 60.0
# Logarithms of a count and of its sum in floats agree to this.
_AGREES = 1e-6


def summed(question: Question, options: Options, effort: ProofOptions, progress: Progress | None) -> Result:
    """Answer a question about a sum or a count: by sweeping every cell, by search or on diagrams where small.

    Raises
    ------
    BudgetError
        If neither fits.
    """
    network, _ = question.reduced
    by_rows = options.representation == "rows" and effort.method == "auto"
    if effort.method == "dense" or by_rows or fixed_value(network) is None or not network.leaves:
        return _swept(question, options, progress, patient=effort.method != "dense")
    task = _Task(question, options, network, time.perf_counter())
    if effort.method == "diagram":
        small = question.chained
        task = replace(task, question=small, network=small.reduced[0])
        return kept(question, options, effort, task.forced)
    if effort.method == "search":
        return kept(question, options, effort, task.searched)
    found = task.tried() if _is_plain(options) else None
    if found is not None:
        return found
    try:
        return _swept(question, options, progress)
    except BudgetError as error:
        if stored_plan(options):
            raise
        refused = error
    return kept(question, options, effort, lambda: task.instead(refused))


def _swept(question: Question, options: Options, progress: Progress | None, patient: bool = True) -> Result:
    found = answer(question, options, progress, patient=patient)
    assert isinstance(found, Result)
    return found


def _is_plain(options: Options) -> bool:
    """Whether nothing is asked that is about sweeps."""
    return options.folder is None and options.order == "auto" and options.tree == "refined" and options.fit == "auto"


@dataclass
class _Task:
    """A question, what is left of its model, and what its diagrams failed for last."""

    question: Question
    options: Options
    network: Network
    started: float
    failure: str = ""

    def tried(self) -> Result | None:
        """Answer if that takes little, compared with a sweep."""
        network, seed = self.network, self.options.seed
        order = rearranged(network.dims, network.scopes, min_fill_order(network.dims, network.scopes, seed))
        cells = bucket_cells(network.dims, network.scopes, order)
        once = network.query == "partition"
        whole = most_whole_cells(self.question, self.options, _QUICK_CELLS) if once else 0
        quick = cells <= min(_QUICK_CELLS, max(whole, _QUICK_IN_SLICES))
        quick = quick or (once and self._has_quick_tree(cells))
        if (quick and not self._has_wide_rows) or not self._sums_all:
            return None
        most = min(cells * _TRIAL_PART, _MOST_TRIAL_WORK)
        found = self._search.run(max(most, _TRIAL_WORK))
        if quick:
            return found
        if found is None and self._fits:
            found = self._result(order, {"edges": _TRIAL_EDGES, "part": _JOIN_PART})
        if found is not None or not self._fits or cells * _TRIAL_PART <= _TRIAL_EDGES:
            return found
        order = self._order
        edges = bucket_cells(network.dims, network.scopes, order) * _TRIAL_PART
        if edges <= _TRIAL_EDGES:
            return None
        found = self._search.run(_TRIAL_WORK + edges, _patience())
        return found or self._result(order, {"edges": edges, "part": _JOIN_PART, "stop": _patience()})

    def _has_quick_tree(self, cells: float) -> bool:
        """Whether a short search finds a tree that fits memory and is swept before diagrams are tried.

        Not where clauses can be counted.
        """
        if cells > _SAVED_BY_TREES * _QUICK_CELLS or self._search.suits:
            return False
        dims, scopes = tuple(self.network.dims), tuple(map(tuple, self.network.scopes))
        seconds, nbytes = _quick_tree(dims, scopes, self.options.seed)
        if seconds > _QUICK_SECONDS:
            return False
        return self.options.memory is None or nbytes <= spare_bytes(self.question, self.options)

    def searched(self) -> Result:
        """Answer by search, whatever it takes but memory.

        Raises
        ------
        BudgetError
            If that is impossible.
        """
        if not self._sums_all:
            raise BudgetError(f"the {self.question.query} is no search: finite costs may add up to the top")
        return self._search.forced()

    def forced(self) -> Result:
        """Answer, whatever it takes but memory."""
        found = self._result(self._order, {})
        if found is None:
            raise BudgetError(f"decision diagrams of the {self.question.query} {self.failure}")
        return found

    def instead(self, refused: BudgetError) -> Result:
        """Answer in place of a sweep that was refused."""
        found = self._search.run(math.inf, _patience()) if self._sums_all else None
        if found is None and self._sums_all and self._fits:
            found = self._result(self._order, {"stop": _patience()})
        if found is None:
            raise refused
        return found

    @cached_property
    def _search(self) -> SearchedSum:
        return SearchedSum(self.question, self.options, self.network, self.started)

    @property
    def _has_wide_rows(self) -> bool:
        """Whether a sweep makes large tables of all cells from rows, such as long clauses."""
        network = self.network
        wide = [t for t in network.leaves if math.prod([network.dims[v] for v in t.scope]) > _MOST_TABLE]
        functions = network.model.functions
        return any(functions[f].rows is not None and not is_listed(network, f) for t in wide for f in t.functions)

    @cached_property
    def _fits(self) -> bool:
        """Whether there is memory for tables of the model."""
        return tables_fit(self.question, self.options)

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
    def _sums_all(self) -> bool:
        return self._spread is None

    def _result(self, order: tuple[int, ...], limits: dict[str, Any]) -> Result | None:
        """Answer within limits; None if they do not suffice."""
        from ...tasks.diagrams.min_plus import NoRoomError, StoppedError
        from ...tasks.diagrams.sum_product import VanishedError
        from ..queries.sum_diagrams import DiagramBudget

        planned = time.perf_counter()
        try:
            found = self._found(order, DiagramBudget(spare_bytes(self.question, self.options), **limits))
        except (NoRoomError, StoppedError):
            self.failure = "do not fit memory; give more --memory"
            return None
        except VanishedError:
            self.failure = "meet products that are too small for floats; run with --method dense"
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


def _patience() -> Callable[[], bool]:
    until = time.process_time() + _PATIENCE
    return lambda: time.process_time() > until


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


@lru_cache(maxsize=32)
def _quick_tree(dims: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], seed: int) -> tuple[float, int]:
    """Return the predicted seconds and the bytes of all tables of a short search's tree; it is often asked again."""
    tree = search_tree(dims, scopes, seconds=_SHORT_SEARCH, seed=seed)
    return tree_cost(tree).seconds, 8 * sum(tree.cells)
