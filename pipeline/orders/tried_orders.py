"""Elimination orders by rules: the immediate order of a rule, and the best of many randomised greedy orders.

The effort is counted in units of work, not by the clock, so that a seed always gives the same orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.compile_limits import NotCompiledError
from ..errors import BudgetError, ModelError
from .min_fill import min_fill_order, primal_graph

if TYPE_CHECKING:
    from types import ModuleType

    from .order_regions import BucketForest, Region

OrderName = Literal["auto", "min-fill", "weighted-min-fill", "min-degree", "min-size", "mixed"]

#: Nominal speed of the searches; only the ratio to real time depends on the machine.
SECONDS_PER_WORK = 4e-9


def checked_rule(order: str) -> OrderName:
    """Return a heuristic by its name.

    Raises
    ------
    ModelError
        If there is no such heuristic.
    """
    if order not in get_args(OrderName):
        raise ModelError(f"unknown order {order!r}; known are {', '.join(get_args(OrderName))}")
    return order  # type: ignore[return-value]


def first_order(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], rule: OrderName, seed: int = 0
) -> tuple[int, ...]:
    """Return an order that a heuristic gives at once; min-fill, which "auto" begins with, needs no compiled code.

    Raises
    ------
    BudgetError
        If the heuristic needs compiled loops that would not be ready in the time that is left.
    """
    if rule in ("auto", "min-fill"):
        return min_fill_order(dims, scopes, seed)
    try:
        return search_order(dims, scopes, seconds=0.0, seed=seed, rule=rule)[1]
    except NotCompiledError as late:
        raise BudgetError(
            f"the order {rule!r} needs loops that are not compiled, and compiling them would exceed the remaining "
            "time; "
            "bucketflow warm compiles them ahead, and the order 'min-fill' needs none"
        ) from late


def search_order(
    dims: Sequence[int],
    scopes: Sequence[Sequence[int]],
    *,
    seconds: float,
    seed: int = 0,
    rule: OrderName = "auto",
) -> tuple[float, tuple[int, ...]]:
    """Return the order with the fewest cells among the orders tried in ``seconds`` nominal seconds, after its cells.

    Cells count the buckets, with the last ones counted as one clique. At least one order is tried.
    """
    if not dims:
        return 0.0, ()
    orders = OrderPool(dims, scopes, rule, seed)
    orders.more(max(seconds / SECONDS_PER_WORK, 1.0))
    return orders.least, next(orders.take(1))


def checked_order(order: Sequence[int], n_variables: int) -> tuple[int, ...]:
    """Return the order if it is a permutation of the variables."""
    if sorted(order) != list(range(n_variables)):
        raise ModelError(f"an order must name each of the {n_variables} variables once")
    return tuple(order)


class OrderPool:
    """A pool of the best orders found by randomised greedy elimination (Kask, Gelfand, Otten, Dechter 2011).

    Unless a rule was requested, the best order is then improved in regions of its bucket tree.
    """

    KEEP = 16
    #: Fraction of the work for greedy orders where the best order is improved: less of it leaves the local search in
    #: worse regions, twice as much takes its time.
    GREEDY_SHARE = 0.2
    #: Operations of the greedy kernel in the time of one of the local search.
    REGION_WORK = 3.0
    #: Fraction of the local search for the best order that was not improved yet.
    FRESH_SHARE = 0.25

    def __init__(self, dims: Sequence[int], scopes: Sequence[Sequence[int]], rule: OrderName, seed: int) -> None:
        from . import greedy_orders, order_regions

        self._kernel: ModuleType = greedy_orders
        self._regions: ModuleType = order_regions
        n = len(dims)
        words = n // 64 + 1
        rows = b"".join(a.to_bytes(8 * words, "little") for a in primal_graph(n, scopes))
        self._adjacency = np.frombuffer(rows, dtype=np.uint64).reshape(n, words).copy()
        self._logs = np.log2(np.asarray(dims, dtype=np.float64))
        self._even = len(set(dims)) == 1
        self._rule = rule
        self._fills: dict[bool, NDArray[np.float64]] = {}
        self._rng = Random(seed)
        self.pool: list[tuple[float, tuple[int, ...]]] = []
        self._taken: set[tuple[int, ...]] = set()
        self._improved: set[tuple[int, ...]] = set()
        self._memory: tuple[BucketForest, Region] | None = None

    def more(self, max_work: float) -> float:
        """Try orders until the work is spent; return the work done.

        Parameters
        ----------
        max_work : float
            Operations of the greedy kernel.
        """
        if self._rule != "auto":
            return self._try_orders(max_work)
        work: float = self._try_orders(self.GREEDY_SHARE * max_work)
        # the best order may be in a local optimum, which the search leaves from another greedy order only
        fresh = next((order for _, order in self.pool if order not in self._improved), None)
        if fresh is not None and work < max_work:
            work += self._improve(fresh, (max_work - work) * self.FRESH_SHARE)
        if work < max_work:
            work += self._improve(self.pool[0][1], max_work - work)
        return work

    def _improve(self, given: tuple[int, ...], max_work: float) -> float:
        """Eliminate regions of an order's bucket tree anew until the work is spent; return the work done."""
        if self._memory is None:
            self._memory = (
                self._regions.new_forest(self._adjacency, self._logs),
                self._regions.new_region(len(self._logs)),
            )
        order = np.array(given, dtype=np.int64)
        most = int(max_work / self.REGION_WORK)
        cells, spent = self._regions.improve_order(*self._memory, order, self._rng.getrandbits(32), most)
        better = tuple(order.tolist())
        self._improved |= {given, better}
        self._add(cells, better)
        return float(spent * self.REGION_WORK)

    def _try_orders(self, max_work: float) -> int:
        """Try greedy orders with random rules and noise until the work is spent; return the work done."""
        work = 0
        order = np.empty(len(self._logs), dtype=np.int64)
        while work < max_work:
            rule, mix, noise = self._draw()
            weighted = rule == 1
            weights = self._logs if weighted else np.ones_like(self._logs)
            if weighted not in self._fills:
                self._fills[weighted] = self._kernel.initial_fill(self._adjacency, weights, bool(np.all(weights == 1)))
            # an order that is far worse than the pool is given up early
            limit = 2 * self.pool[-1][0] if len(self.pool) >= self.KEEP else np.inf
            cells, spent = self._kernel.greedy_order(
                self._adjacency,
                self._fills[weighted],
                self._logs,
                weights,
                rule,
                mix,
                noise,
                self._rng.getrandbits(32),
                limit,
                order,
            )
            work += spent + 10_000
            if cells < limit:
                self._add(cells, tuple(order.tolist()))
        return work

    @property
    def least(self) -> float:
        """Cells of all buckets of the best order."""
        return self.pool[0][0]

    def take(self, count: int) -> Iterator[tuple[int, ...]]:
        """Yield the best orders that were not taken before."""
        for order in [order for _, order in self.pool if order not in self._taken][:count]:
            self._taken.add(order)
            yield order

    def _add(self, cells: float, order: tuple[int, ...]) -> None:
        if all(cells != c for c, _ in self.pool):
            self.pool = sorted([*self.pool, (cells, order)])[: self.KEEP]

    def _draw(self) -> tuple[int, float, float]:
        """Draw a rule, the weight of sizes in the mixed rule, and the noise."""
        names = get_args(OrderName)[1:]
        rule = names.index(self._rule) if self._rule != "auto" else self._rng.choice((0, 0, 1, 4, 4))
        if rule == 1 and self._even:
            rule = 0
        return rule, self._rng.choice((0.1, 0.3, 0.6)), self._rng.choice((0.001, 0.1, 0.3))
