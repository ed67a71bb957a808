"""Search for a contraction tree: randomised greedy orders, then local refinement of the best.

The effort is counted in units of work, not by the clock, so that a seed always gives the same tree.

Four variables around one of nine states: eliminating that one first sweeps all five together, min-fill takes it last.

>>> dims, scopes = (9, 3, 3, 3, 3), [(0, 1), (0, 2), (0, 3), (0, 4)]
>>> for order in (0, 1, 2, 3, 4), "min-fill":
...     cost = tree_cost(TreeSearch(dims, scopes, "bucket", order).cheapest())
...     cost.width, cost.cells
(4, 729)
(1, 108)
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from operator import itemgetter
from typing import Final, Literal

from ...tasks.compiler.code_cache import seconds_to_compile
from ...tasks.compiler.compile_limits import NotCompiledError
from ...tasks.compiler.working_time import compiling_seconds, working_seconds
from ...tasks.steps.light_dataclass import dataclass
from ..trees.costs import Rates, tree_cost
from ..trees.tree import Tree
from .effort import FUNCTION_SECONDS, KEPT_TREES, LEAST_SEARCH, OrderPolicy, PlanningBudget, SearchRounds
from .forests import Forest, Rearranger, Starts, forest_tree, merge_steps, split_steps
from .tried_orders import SECONDS_PER_WORK, OrderName, OrderPool, checked_order, checked_rule, first_order

# Maximum seconds of planning if the best plan would take unacceptably long.
_HOPELESS_SECONDS: Final = 0.5
# Fractions of a round for trying orders and for refining each start, and the number of starts.
_ORDER_SHARE: Final = 0.35
_START_SHARE: Final = 0.1
# Making the forest of an order, its tree and the tree's price, for each variable or group of functions: measured 33 to
# 127 microseconds on six networks.
_TREE_SECONDS: Final = 7e-5
# A search that takes this many times its nominal time is stopped by the clock.
_EMERGENCY: Final = 4.0
# While the search is not compiled, the first tree is used without a search if none of its tables has more cells. More
# cells would cost more than compiling the search.
UNCOMPILED_CELLS: Final = 1 << 26

TreeName = Literal["refined", "bucket", "junction"]

#: Automatic planning spends this share of the predicted run time, up to a number of seconds, and the larger share of
#: shorter runs up to another.
LONGEST_PLANNING = 8.0
#: Predicted seconds below which plans are made without compiled code, because loading it takes as long.
SMALL_SECONDS = 0.1
#: Predicted seconds (thirty years) above which no search makes a tree acceptable.
HOPELESS_SECONDS = 1e9
#: Trees save less than this factor over the buckets of the same order.
MOST_SAVED = 1e6

Check = Callable[[Tree], None]
"""Called with the best tree before a long search continues; an exception ends the search."""

Ended = Callable[[], bool]
"""Returns whether a search should end with its present result."""


@dataclass(frozen=True)
class TreeSearch:
    """A search for contraction trees of a network, with its settings.

    Parameters
    ----------
    dims : sequence of int
        Domain sizes by variable.
    scopes : sequence of sequences of int
        Scopes of the functions, each of distinct variables.
    tree : {"refined", "bucket", "junction"}
        Kind of tree to build from an order. A refined tree never costs more than the buckets of the same order.
    order : str or sequence of int
        The rule of the randomised greedy orders, or one order that names every variable once.
    seconds : float, optional
        Planning seconds; by default a fraction of the best plan's predicted time.
    seed : int
        The same seed gives the same tree.
    rates : Rates
        Rates that price trees.
    itemsize : int
        Bytes of a value.
    sweeps : float
        Time of the run in multiples of one sweep over its tree: about 3 for a propagation, which has two sweeps.
    least, longest : float
        Minimum and maximum seconds of an automatic search. A short run gets the minimum too.
    begins : float
        Predicted seconds of the run with the first tree, above which an automatic search begins.
    ended : callable, optional
        Called repeatedly by a background search; it returns whether the search should end.
    """

    dims: Sequence[int]
    scopes: Sequence[Sequence[int]]
    tree: TreeName = "refined"
    order: OrderName | Sequence[int] = "auto"
    seconds: float | None = None
    seed: int = 0
    rates: Rates = Rates()
    itemsize: int = 8
    sweeps: float = 1.0
    least: float = LEAST_SEARCH
    longest: float = LONGEST_PLANNING
    begins: float = SMALL_SECONDS
    ended: Ended | None = field(default=None, compare=False)

    @property
    def automatic(self) -> bool:
        """Whether the search takes a fraction of the plan's predicted time."""
        return self.seconds is None

    @property
    def first_order(self) -> tuple[int, ...]:
        """The given order, or the immediate order of a heuristic.

        Raises
        ------
        ModelError
            If ``order`` is neither a rule nor a permutation of the variables.
        """
        if not isinstance(self.order, str):
            return checked_order(self.order, len(self.dims))
        return first_order(self.dims, self.scopes, checked_rule(self.order), self.seed)

    def cheapest(self, effort: PlanningBudget | None = None, check: Check | None = None) -> Tree:
        """Find a cheap tree; see :meth:`trees`."""
        return self.trees(effort, check)[0]

    def trees(
        self, effort: PlanningBudget | None = None, check: Check | None = None, starts: Starts | None = None
    ) -> list[Tree]:
        """Find a few cheap trees, the cheapest first.

        Parameters
        ----------
        effort : PlanningBudget, optional
            Account that the work is entered in.
        check : callable, optional
            Called once with the best tree, before an automatic search continues for long; an exception ends the search.
        starts : Starts, optional
            Starts of this network from an earlier search with other rates.

        Raises
        ------
        ModelError
            If ``order`` is neither a rule nor a permutation of the variables.
        """
        search = _SearchState(self, starts or Starts(self.dims, self.scopes))
        search.check = check if self.automatic else None
        search.consider(self.first_order)
        budget = self.longest if self.seconds is None else self.seconds
        plain = not isinstance(self.order, str) or self.order in ("auto", "min-fill")
        small = not search.best.children or (search.run_seconds <= self.begins and self.automatic and plain)
        small = small or (plain and not search.compiling_pays)
        # a search would only save the overhead of steps, and its arrays are quadratic in the number of variables
        small = small or (self.automatic and plain and (search.is_acyclic or not search.forests_pay))
        with suppress(NotCompiledError):  # the trees found before compilation are used
            if not small and isinstance(self.order, str):
                search.run(checked_rule(self.order), budget)
            elif not small and self.tree == "refined":
                search.refine(search.best, budget)
        if effort is not None:
            effort.spend(search.spent + FUNCTION_SECONDS * len(self.scopes))
        return [one for *_, one in search.found]

    def refined(self, tree: Tree, sliced: Set[int] = frozenset()) -> Tree:
        """Improve a tree by local search, for a run in which some variables are conditioned on.

        The result is never more expensive than the given tree, by the predicted time of one slice.

        Raises
        ------
        ValueError
            If some variables of the tree must be eliminated last, because moved subtrees would not observe this.
        """
        if tree.last:
            raise ValueError("a tree with given last variables is not rearranged as a whole")
        dims = tuple(1 if v in sliced else d for v, d in enumerate(tree.dims))
        asked = replace(self, dims=dims, scopes=tree.leaves, tree="refined")
        search = _SearchState(asked, Starts(dims, tree.leaves))
        search.keep(Tree(dims, tree.leaves, tree.children))
        if search.compiling_pays:
            search.refine(search.best, self.longest if self.seconds is None else self.seconds)
        return Tree(tree.dims, tree.leaves, search.best.children)


@dataclass
class _SearchState:
    """State of one search: the best trees so far and the work spent."""

    asked: TreeSearch
    starts: Starts
    spent: float = 0.0
    check: Check | None = None

    def __post_init__(self) -> None:
        asked = self.asked
        self.dims, self.scopes = self.starts.dims, self.starts.scopes
        self.kind, self.seed, self.rates, self.itemsize = asked.tree, asked.seed, asked.rates, asked.itemsize
        self.automatic = asked.automatic
        self.started = self._clock()
        self.found: list[tuple[float, int, Tree]] = []

    @property
    def best(self) -> Tree:
        """The cheapest tree so far."""
        return self.found[0][2]

    @property
    def best_seconds(self) -> float:
        """Predicted seconds of one sweep over the best tree."""
        return self.found[0][0]

    @property
    def run_seconds(self) -> float:
        """Predicted seconds of a run with the best tree."""
        return self.asked.sweeps * self.best_seconds

    @property
    def compiling_pays(self) -> bool:
        """Whether the loops of a search are compiled, or the run is long enough to compile them."""
        policy = OrderPolicy.current()
        seconds = seconds_to_compile("pipeline.orders.local_moves", "rearrange", policy.compiling_seconds)
        if not seconds:
            return True
        if self.asked.seconds is not None:
            return self.asked.seconds >= policy.compiled_seconds
        return self.run_seconds >= seconds or max(self.best.cells, default=0) > UNCOMPILED_CELLS

    @property
    def is_acyclic(self) -> bool:
        """Whether the buckets of the first order sweep only cells of the functions."""
        return self.starts.buckets(self.asked.first_order).is_acyclic

    @property
    def forests_pay(self) -> bool:
        """Whether one forest and its tree are built in less time than the best tree's run, or a short run."""
        seconds = _TREE_SECONDS * len(self.dims)
        return seconds <= max(self.run_seconds, self.asked.least, SMALL_SECONDS)

    def consider(self, order: tuple[int, ...]) -> None:
        """Price the trees that follow from an order without a search."""
        starts = self.starts
        if self.kind == "junction":
            self.keep(starts.cliques(order))
            return
        self.keep(starts.buckets(order))
        beyond = self.automatic and self.best_seconds > MOST_SAVED * HOPELESS_SECONDS
        if self.kind == "refined" and not beyond and (self.forests_pay or not self.automatic):
            self.keep(starts.cliques(order))
            self.keep(starts.merged(order, self.rates, self.itemsize))

    def run(self, order: OrderName, budget: float) -> None:
        """Alternate between trying orders and refining the best of them, with growing effort.

        Parameters
        ----------
        order : str
            The rule of the greedy orders.
        budget : float
            Maximum nominal seconds; an automatic search takes a fraction of the best tree's predicted time.

        Raises
        ------
        Exception
            The exception of the search's check, which is called once before a search continues for long.
        """
        policy = OrderPolicy.current()
        orders = OrderPool(self.dims, self.scopes, order, self.seed)
        starts: list[Rearranger] = []
        rounds = self._rounds(budget)
        while (effort := rounds.next_seconds(self.spent, self.run_seconds)) and not self._late(budget):
            if self._ended:
                return
            left = rounds.allowed(self.run_seconds) - self.spent
            if self.check and self.spent > policy.doubtful_seconds / 4 and self.spent + left > policy.doubtful_seconds:
                self.check(self.best)
                self.check = None
            share = _ORDER_SHARE if self.kind == "refined" else 1.0
            self.spent += orders.more(share * effort / SECONDS_PER_WORK) * SECONDS_PER_WORK
            tried = list(orders.take(self._starts(effort)))
            beyond = self.automatic and orders.least > MOST_SAVED * HOPELESS_SECONDS * self.rates.cells_per_second
            if beyond:
                self.keep(self.starts.buckets(tried[0]))
                return
            if self.kind != "refined":
                for one in tried:
                    self.consider(one)
                continue
            fresh = [self._rearranger(self.starts.pairwise(one)) for one in tried]
            for rearranger in fresh:
                self._work(rearranger, _START_SHARE * effort)
            starts = sorted([*starts, *fresh], key=lambda r: r.seconds)[: policy.starts]
            self._work(starts[0], (1 - share - _START_SHARE * len(fresh)) * effort)
            for rearranger in starts[:2]:
                if rearranger.changed:
                    self._keep_forest(rearranger.forest())

    def _starts(self, effort: float) -> int:
        """Return the number of orders that a round refines; few for a large network, because its forests take long."""
        policy = OrderPolicy.current()
        if self.kind != "refined":
            return policy.starts
        each = _TREE_SECONDS * self._size
        return max(1, min(policy.starts, int((1 - _ORDER_SHARE) * effort / each)))

    @cached_property
    def _size(self) -> int:
        """Size of a forest for its handling time: the larger of its numbers of variables and function groups."""
        return max(len(self.dims), len(self.starts.units.members), 1)

    def refine(self, tree: Tree, budget: float) -> None:
        """Refine a given tree."""
        self.keep(tree)
        rearranger = self._rearranger(split_steps(tree, self.starts.units, self.starts.sizer))
        self._work(rearranger, self._rounds(budget).allowed(self.run_seconds) - self.spent)
        self._keep_forest(rearranger.forest())

    def _rearranger(self, forest: Forest) -> Rearranger:
        self.spent += _TREE_SECONDS * self._size
        self.seed += 1000
        return Rearranger(forest, self.dims, self.rates, self.itemsize, self.seed)

    @property
    def _ended(self) -> bool:
        return self.asked.ended is not None and self.asked.ended()

    def _work(self, rearranger: Rearranger, seconds: float) -> None:
        """Rearrange for nominally ``seconds`` seconds, in short pieces if the search may be ended."""
        piece = seconds if self.asked.ended is None else SMALL_SECONDS
        until = self.spent + seconds
        while (left := until - self.spent) > 0 and not self._ended:
            spent = rearranger.run(int(min(piece, left) / SECONDS_PER_WORK)) * SECONDS_PER_WORK
            self.spent += spent
            if not spent or self.asked.ended is None:
                return

    def _rounds(self, budget: float) -> SearchRounds:
        """Return the rounds of the search, for the requested time or in proportion to the run."""
        if not self.automatic:
            return SearchRounds(least=budget, longest=budget)
        hopeless = self.best_seconds > HOPELESS_SECONDS
        return SearchRounds(least=self.asked.least, longest=min(budget, _HOPELESS_SECONDS) if hopeless else budget)

    def _clock(self) -> float:
        """Return wall seconds if the user gave a time, else CPU seconds of this thread, both without compilation."""
        if self.automatic:
            return time.thread_time() - (time.process_time() - working_seconds())
        return time.monotonic() - compiling_seconds()

    def _late(self, budget: float) -> bool:
        return self._clock() - self.started > _EMERGENCY * budget + 10.0

    def _keep_forest(self, forest: Forest) -> None:
        tree = forest_tree(forest, self.starts.units, self.dims, self.scopes)
        self.keep(merge_steps(tree, self.starts.sizer, self.rates, self.itemsize))

    def keep(self, tree: Tree) -> None:
        """Store a tree if it is one of the best; cells decide between trees with equal or infinite seconds."""
        cost = tree_cost(tree, self.rates, self.itemsize)
        if all((cost.seconds, cost.cells) != (seconds, cells) for seconds, cells, _ in self.found):
            insort(self.found, (cost.seconds, cost.cells, tree), key=itemgetter(0, 1))
            del self.found[KEPT_TREES:]
