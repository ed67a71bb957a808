"""The chain from a network to its optimum: make it smaller, find assignments, and prove by whichever way gets there.

Nobody knows beforehand which representation stays small, so every way is tried for a while, then for twice as long,
each with the bounds that the others left (an assignment makes all of them faster). An elimination of all cells comes
in as soon as it is predicted to take less than what was spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..cost_networks.cost_network import CostNetwork
from ..orders.depth_first import bucket_cells
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import search_tree
from ..trees.costs import tree_cost
from .outcome import Outcome
from .turns import FIRST_SECONDS, Way
from .ways import Ways

#: Cells that the first preparations touch, and CPU seconds of the short search after each: easy networks need no more.
_GLANCES = ((30_000_000, 0.1), (100_000_000, 0.15))
#: Networks of more cells are not laid out for a short search.
_GLANCE_CELLS = 1 << 19
#: Of networks of so few cells the last of them leaves only that to the full preparation which it finds to pay itself.
_SETTLED_CELLS = 1 << 16
#: Of networks of at most so many times the cells that are swept soon a tree is searched for so many CPU seconds; one
#: that is predicted to take at most so many is planned as others are, and swept if the plan takes at most half.
_SAVED_BY_TREES, _SHORT_SEARCH, _HOPED_SWEEP, _SHORT_SWEEP = 1 << 8, 0.1, 2.0, 1.0
#: Russian dolls come before the full preparation, for this share of the time spent.
_DOLLS_SHARE = 0.5
#: Small clusters come first, for this share of the time spent, and rows have as much of what these left.
_CLUSTERS_SHARE = 1.0
#: Rows need so long where they look for an order first.
_ORDERED_SECONDS = 2 * FIRST_SECONDS
#: Ways that say themselves when they are at their end.
_ENDING = ("clusters", "triangles", "subtrees", "rows", "local", "dense")


@dataclass
class Chain(Ways):
    """The search for the least total below ``upper``, with what is known so far, and the ways as far as they got."""

    tree_sought: bool = False

    def run(self) -> None:
        """Try the ways in turn until one completes the proof, or nothing more can be done."""
        self._begin()
        self.go_on()

    def go_on(self) -> None:
        """Try the ways in turn, from short turns on; each goes on where it was."""
        seconds = FIRST_SECONDS
        while not self._over():
            self._find_order()
            for way, share in self.turns.shares(seconds):
                if self._over():
                    break
                self._find_order()
                before = self.upper
                self._go(way, share * seconds)
                if way == "triangles":
                    self._narrow()
                self._prepare_again(before)
            if self._over() or self.turns.none_left:
                break
            self._reorder()
            seconds = math.inf if self.turns.alone else 2 * seconds

    def _go(self, way: Way, seconds: float) -> None:
        """Give a way a turn of so many CPU seconds, and more while it is likely to complete the proof."""
        again = not self._over()
        while again:
            again = self._try(way, seconds) and self._ends_soon(way, seconds) and not self._over()

    def _begin(self) -> None:
        """Prepare as far as that pays; an easy network is solved on the way there."""
        if self.method in ("auto", "rows") and self._go_on_stored():
            return
        settled = False
        for work, seconds in _GLANCES:
            if self.limits.prune and self.method in ("auto", "search") and self.small.cells <= _GLANCE_CELLS:
                bounds, cells = (self.lower, self.upper), self.small.cells
                self._prepare(work)
                settled = self.small.cells <= _SETTLED_CELLS and not self._paid(*bounds, cells)
                if self._cut_by_clusters():
                    return
                self._glance(seconds)
                self._sweep_soon()
            if self._over():
                return
        self.turns.owing["search"] = self.turns.tried.get("search", 0.0)
        self._sweep_searched()
        if self.method == "auto" and self.limits.prune and not self._over():
            self._try("dolls", max(FIRST_SECONDS, _DOLLS_SHARE * self.spent))
        if not (settled or self._over()):
            self._prepare()
        if self.method == "auto" and self.limits.prune:
            self._begin_with_clusters()

    def _cut_by_clusters(self) -> bool:
        """Let clusters come before anything else in a mesh where something is known; return whether that was of use."""
        from .provers.clusters import is_mesh

        if self.method == "auto" and not (self._over() or self.upper is None) and is_mesh(self.small):
            self._sweep_soon()
            self._begin_with_clusters()
        return self._over() or self._sharpened is not self.small

    def _begin_anew(self) -> None:
        """Begin all ways anew, with the network that was prepared."""
        super()._begin_anew()
        self.dense = self.clusters = self.triangles = self.diagrams = self.dolls = self.search = self.rows = None

    def _begin_with_clusters(self) -> None:
        """Shift costs between small clusters, and search by rows what that did not solve."""
        seconds = max(FIRST_SECONDS, _CLUSTERS_SHARE * self.spent)
        again = not self._over()
        while again:
            went = self._try("clusters", seconds)
            small = self.clusters is not None and self.clusters.small
            again = went and small and self._ends_soon("clusters", seconds) and not self._over()
        self._sweep_searched()
        if not self._over() and self._sharpened is not self.small:
            self._go("rows", max(_ORDERED_SECONDS, _CLUSTERS_SHARE * self.spent))

    def _sweep_soon(self) -> None:
        """Sweep every cell where that is a matter of some tenths of a second, once what is easy has proved nothing."""
        if self._greedy_cells(self.small) <= self.limits.swept_cells:
            self._sweep(self.small, math.inf)

    def _sweep_searched(self) -> None:
        """Sweep every cell where a short search finds a tree with which that is a matter of some tenths of a second.

        What preparation joins may take more than it saves: the network is swept as it was, where that is smaller.
        """
        network = min((self.small, self.network), key=self._greedy_cells)
        if self.tree_sought or self._greedy_cells(network) > _SAVED_BY_TREES * self.limits.swept_cells:
            return
        self.tree_sought = True
        with self._timed("dense"):
            tree = search_tree(network.dims, network.scopes, seconds=_SHORT_SEARCH, seed=self.limits.seed)
        if tree_cost(tree).seconds <= _HOPED_SWEEP:
            self._sweep(network, _SHORT_SWEEP)

    def _greedy_cells(self, network: CostNetwork) -> float:
        """Cells of the buckets of an order that is found at once; infinite where no sweep is welcome."""
        if self.method != "auto" or self._over() or self.limits.swept_cells == 0.0:
            return math.inf
        order = min_fill_order(network.dims, network.scopes, self.limits.seed)
        return bucket_cells(network.dims, network.scopes, order)

    def _sweep(self, network: CostNetwork, seconds: float) -> None:
        """Sweep every cell of a network, prepared or as it was, if that is predicted to take at most so long."""
        with self._timed("dense"):
            planned = self.limits.eliminate(network, self.upper)
            outcome = planned.run() if planned is not None and planned.seconds <= seconds else None
        if outcome is None:
            return
        if network is not self.small and outcome.states is not None:
            self.improve(outcome.states)
            outcome = replace(outcome, states=None)
        self._learn(outcome, "dense")

    def _go_on_stored(self) -> bool:
        """Begin with the layers that an earlier search finished, and with the network that they are of."""
        finished = self.limits.finished()
        if finished is None:
            return False
        begun = finished.beginning
        for states in (begun.best, finished.best):
            if states is not None:
                self.improve(states)
        if (math.inf if self.upper is None else self.upper) > finished.upper:
            return False  # what may interest now was left out
        self.small, self.order = begun.network, begun.order
        self.rows = self._row_search(finished)
        return True

    def _glance(self, seconds: float) -> None:
        """Search for a short while, with an order that takes none."""
        if self._over() or self.small.cells > _GLANCE_CELLS:
            return
        self.order = tuple(range(len(self.small.dims)))
        self._try("search", seconds)
        self.order, self.search = (), None
        self.turns.closed.clear()
        self.turns.owing.clear()

    def _reorder(self) -> None:
        """Search for an order once more, if there is one; half as many cells are worth beginning anew.

        They are not worth diagrams that foresee their end.
        """
        if not self.order or self.spent < self.order_from or self._foreseen():
            return
        with self._timed("preparation"):
            order = self._searched_order(self.small)
            if 2 * self._cells(order) <= self._cells(self.order):
                self.order, self.diagrams, self.rows = order, None, None
                self.turns.hopeless.clear()

    def _try(self, way: Way, seconds: float) -> bool:
        """Go one way for some CPU seconds, if it gets any; return whether it did."""
        turn = self.turns.begin(way, seconds)
        if turn is None:
            return False
        lower, upper = self.lower, self.upper
        stop = self.limits.stop
        with self._timed(way):
            outcome = getattr(self, f"_{way}")(turn.seconds, lambda: turn.overlong > 0.0 or stop())
        self.turns.owing[way] = max(0.0, turn.overlong)
        if outcome is not None:
            self._learn(outcome, way)
            self.turns.closed[way] = self._closed(lower, upper) / turn.taken
        if not self.done and turn.overlong < 0.0 and not stop() and way not in _ENDING:
            self.turns.hopeless.add(way)  # it ended by itself: for want of memory
        return True

    def _learn(self, outcome: Outcome, way: Way) -> None:
        if outcome.states is not None:
            self.nearby = outcome.states
            self._take(self.small, outcome.states)
        # a way leaves out what reaches the cut-off, so what it says above that holds of nothing else
        self.lower = max(self.lower, self.at_least(outcome.lower))
        if outcome.proved or (self.total is not None and self.total <= self.lower):
            self._finish(way)
        self.limits.on_bounds(self.lower, self.total)

    def _narrow(self) -> None:
        """Leave out what triangles forbade, once they close nothing more."""
        if self.done or self.triangles is None or "triangles" not in self.turns.hopeless:
            return
        network, self.triangles = self.triangles.narrowed(), None
        if network is not None and self.limits.prune:
            self.small = network
            self._prepare()
